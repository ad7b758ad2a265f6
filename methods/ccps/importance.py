"""Analysis `shap` of CCPS: feature importances as mean |SHAP value| of the trained networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from bench.api import AnalysisInput, FloatArray, MeasureColumn, Measures
from methods.ccps import impact_contrasts
from methods.ccps.columns import FEATURES, OF_ORIGINAL, OF_PERTURBED
from methods.ccps.explained import NEAR, NOISE, TOKENS, Explanations, explain_networks

ALL = len(FEATURES)
GROUPS: Mapping[str, Sequence[int]] = {
    "together: original state": OF_ORIGINAL,
    "together: perturbed states": OF_PERTURBED,
    "together: noise": range(ALL, ALL + NOISE),
}
"""Name of a group of columns -> its columns. An answer's SHAP values are summed over the group (docs/methods.md §3)."""
NOISE_MEAN = "one noise column: mean"
NOISE_MOST = "one noise column: largest"
N_SHOWN = 12
"""Number of most important features that are printed."""
_N_NAMED = 3  # features named in the verdict
_COLUMNS = (
    MeasureColumn("feature", "feature", "text"),
    MeasureColumn("together", "together", low="together_low", high="together_high"),
    MeasureColumn("importance", "mean |SHAP|, gradients", low="low", high="high"),
    MeasureColumn("between", "seeds"),
    MeasureColumn("r", "r", decimals=2),
    MeasureColumn("kernel", "by kernel", low="kernel_low", high="kernel_high"),
    MeasureColumn("kernel_r", "r by kernel", decimals=2),
    MeasureColumn("above_noise", "above noise", "text"),
)
_Row = dict[str, Any]


def shap(data: AnalysisInput) -> Measures:
    """Feature importances of CCPS, by shap's KernelExplainer and by expected gradients."""
    return build_measures(explain_networks(data))


def build_measures(data: Explanations) -> Measures:
    """Build the table and the verdict of the analysis from SHAP values."""
    rows = _build_rows(data)
    return Measures(
        question="Which features does CCPS' confidence follow?",
        answer=" ".join(_build_answer(data, rows)),
        columns=_COLUMNS,
        rows=rows,
        drawn="importance",
        shown=len(GROUPS) + 2 + N_SHOWN,
        notes=tuple(_build_notes(data)),
    )


# --- statistics -------------------------------------------------------------------------------------------------------


class Mean(NamedTuple):
    """Mean of an importance over answers and seeds, with its confidence interval."""

    value: float
    low: float | None
    """Lower end of the interval; None if there are too few answers, or only one seed."""
    high: float | None
    between: float
    """Standard deviation of the importance between seeds; NaN with one seed."""


def importance(values: FloatArray) -> Mean:
    """Return the mean |SHAP value| of values `(seeds, n)`; the interval covers other answers and other seeds."""
    mean = impact_contrasts.mean_of_answers(np.abs(values))
    effect = impact_contrasts.estimate(mean)
    low = None if effect.low is None else max(0.0, effect.low)
    return Mean(effect.value, low, effect.high, float(mean.by_seed.std(ddof=1)))


def correlations(scaled: FloatArray, values: FloatArray) -> list[float | None]:
    """Return, for each of k columns, Pearson's correlation of its standardised values with its SHAP values.

    Each correlation is a mean over seeds. It is None if the values or the SHAP values are constant for some seed.

    Args:
        scaled: `(n, k)` standardised values of the columns.
        values: `(seeds, n, k)` SHAP values.
    """
    mean_correlations: list[float | None] = []
    for k in range(scaled.shape[1]):
        by_seed = [pearson(scaled[:, k], shap_values[:, k]) for shap_values in values]
        mean_correlations.append(float(np.mean(by_seed)) if np.isfinite(by_seed).all() else None)
    return mean_correlations


class MeanAndRange(NamedTuple):
    """Mean, smallest and largest of a number over seeds, or over pairs of seeds."""

    mean: float
    low: float
    """The smallest of the numbers."""
    high: float
    """The largest of the numbers."""


def agreement(one: FloatArray, other: FloatArray) -> tuple[MeanAndRange, MeanAndRange]:
    """Return how two estimates `(seeds, n, k)` of the same SHAP values agree, over seeds.

    Returns:
        Pearson's correlation of all SHAP values, and Spearman's correlation of the importances of the k columns.
    """
    pairs = list(zip(one, other, strict=True))
    of_values = [pearson(a.ravel(), b.ravel()) for a, b in pairs]
    return _spread(of_values), _spread([spearman(np.abs(a).mean(0), np.abs(b).mean(0)) for a, b in pairs])


def stability(values: FloatArray) -> MeanAndRange:
    """Return Spearman's correlation of the columns' importances between two seeds, over all pairs of seeds.

    `values` are SHAP values `(seeds, n, k)`.
    """
    return _spread([spearman(a, b) for a, b in combinations(np.abs(values).mean(1), 2)])


def spearman(one: FloatArray, other: FloatArray) -> float:
    """Spearman's rank correlation of two arrays `(n,)`; ties share their mean rank."""
    from scipy.stats import rankdata

    return pearson(rankdata(one), rankdata(other))


def pearson(one: FloatArray, other: FloatArray) -> float:
    """Pearson's correlation of two arrays `(n,)`; NaN if one is constant."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:  # exact test: rounding of a mean would look like variance
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])


def _spread(values: Sequence[float]) -> MeanAndRange:
    return MeanAndRange(float(np.mean(values)), float(np.min(values)), float(np.max(values)))


# --- rows -------------------------------------------------------------------------------------------------------------


def _noise_importances(data: Explanations) -> FloatArray:
    """Return the importances of the noise columns, `(NOISE,)`."""
    sizes: FloatArray = np.abs(data.gradients[:, :, ALL:]).mean((0, 1))
    return sizes


def _exceeds_noise(data: Explanations) -> list[bool]:
    """Return for each of the 75 features whether its importance exceeds that of every noise column."""
    exceeds: list[bool] = (np.abs(data.gradients[:, :, :ALL]).mean((0, 1)) > _noise_importances(data).max()).tolist()
    return exceeds


def _build_row(name: str, gradients: FloatArray, kernel: FloatArray) -> _Row:
    """Build the table row of a feature or group of features from its SHAP values.

    `gradients` `(seeds, n)` are by expected gradients, `kernel` `(seeds, r)` by kernel SHAP.
    """
    one, other = importance(gradients), importance(kernel)
    return {
        "feature": name, "importance": one.value, "low": one.low, "high": one.high, "between": one.between,
        "kernel": other.value, "kernel_low": other.low, "kernel_high": other.high,
    }  # fmt: skip


def _build_rows(data: Explanations) -> list[_Row]:
    """Build the table rows: groups of columns, noise, then the 75 features by falling importance."""
    gradients, kernel = data.gradients, data.kernel
    # importances of groups have separate columns, which the figure doesn't draw
    names = {"importance": "together", "low": "together_low", "high": "together_high"}
    group_rows: list[_Row] = []
    for group, columns in GROUPS.items():
        row = _build_row(group, gradients[:, :, columns].sum(2), kernel[:, :, columns].sum(2))
        group_rows.append({names.get(key, key): value for key, value in row.items()})
    largest = ALL + int(_noise_importances(data).argmax())
    noise_rows = [
        _build_row(NOISE_MEAN, np.abs(gradients[:, :, ALL:]).mean(2), np.abs(kernel[:, :, ALL:]).mean(2)),
        _build_row(NOISE_MOST, gradients[:, :, largest], kernel[:, :, largest]),
    ]
    m = kernel.shape[1]
    pairs = zip(correlations(data.scaled, gradients), correlations(data.scaled[:m], kernel), strict=True)
    feature_rows = []
    for k, (r, kernel_r) in enumerate(list(pairs)[:ALL]):
        row = _build_row(FEATURES[k], gradients[:, :, k], kernel[:, :, k])
        if not data.constant[k]:
            row |= {"r": r, "kernel_r": kernel_r}
        feature_rows.append(row | {"above_noise": "yes" if _exceeds_noise(data)[k] else "no"})
    return [*group_rows, *noise_rows, *sorted(feature_rows, key=lambda row: -row["importance"])]


# --- in words ---------------------------------------------------------------------------------------------------------


def _build_answer(data: Explanations, table_rows: Sequence[_Row]) -> Iterator[str]:
    rows = {str(row["feature"]): row for row in table_rows}
    original, perturbed, noise = (_format_interval(rows[name], "together", "together_") for name in GROUPS)
    yield (
        f"By gradients its {len(OF_ORIGINAL)} columns of the original state together move its logit by {original} on"
        f" average, its {len(OF_PERTURBED)} of the perturbed states by {perturbed}, {NOISE} added columns of noise"
        f" by {noise}."
    )
    above = sum(_exceeds_noise(data))
    if not above:
        yield f"None of the {ALL} alone moves it more than each of the {NOISE} columns of noise, so none can be named."
    else:
        names = [name for name in rows if name in FEATURES][: min(_N_NAMED, above)]
        by_chance = (~data.constant).sum() / (NOISE + 1)  # a constant feature is never above noise
        yield (
            f"Alone {above} of the {ALL} move it more than each column of noise, as about {by_chance:.0f} would"
            " by chance if all were useless"
            + (f"; the other {ALL - above} move it no more than a useless column may" if above < ALL else "")
            + f". Largest: {', '.join(f'{name} {_format_interval(rows[name])}' for name in names)}."
        )
    yield (
        f"That is no ranking of causes: {data.copied} of the {ALL} columns are near copies of another one, among which"
        " SHAP values are divided as each training happened to, and the importances in two trainings correlate"
        f" {_format_range(stability(data.gradients[:, :, :ALL]))} (Spearman)."
    )
    m = data.kernel.shape[1]
    values, sizes = agreement(data.kernel[:, :, :ALL], data.gradients[:, :m, :ALL])
    again, _ = agreement(data.kernel_again[:, :, :ALL], data.kernel[:1, :, :ALL])
    yield (
        f"Kernel SHAP, the paper's, and gradients correlate {_format_range(values)} over all values of {m:,} answers,"
        f" and {_format_range(sizes)} in the features' importances (Spearman). With other coalitions kernel SHAP"
        f" correlates {_format_correlation(again.mean)} with itself."
    )


def _build_notes(data: Explanations) -> Iterator[str]:
    seeds, n, _ = data.gradients.shape
    m, sizes = data.kernel.shape[1], data.sizes
    yield (
        f"Mean |SHAP value| in logits, over {n:,} test answers and {seeds} trainings, with 95 % intervals"
        " for other answers and other trainings; seeds: standard deviation between trainings; together: of an answer's"
        " sum over all columns of a group."
        + (f" A feature is its column at an answer's first {TOKENS} tokens together." if data.tokens else "")
    )
    yield (
        f"gradients: expected gradients, i.e. Aumann-Shapley values of the logit, against {sizes.background} training"
        f" answers, at least {sizes.points} points a line; their sums miss the logit by {data.gaps.max():.2g} at most,"
        f" {np.median(data.gaps):.2g} in the median. kernel: shap's KernelExplainer, i.e. Shapley values of the logit"
        f" of the mean probability, with the same background and {sizes.coalitions:,} coalitions, of {m:,} of these"
        " answers."
    )
    r, _ = agreement(data.kernel_of_logits[:, :, :ALL], data.gradients[:, :m, :ALL])
    yield f"Shapley values of the mean logit, which gradients divide, correlate with gradients {_format_range(r)}."
    yield (
        f"Networks have {NOISE} columns of noise beside the {ALL}, so they aren't quite those of a run. A feature is"
        f" above noise where its importance is larger than that of all {NOISE}; of features without any use one in"
        f" {NOISE + 1} is."
    )
    yield (
        "r: Pearson correlation of the standardised feature with its SHAP value, mean over trainings;"
        f" {int(data.constant.sum())} features are constant in training and have none. Near copies: correlated beyond"
        f" ±{NEAR:g} in training."
    )


def _format_interval(row: _Row, key: str = "importance", ends: str = "") -> str:
    low, high = row[f"{ends}low"], row[f"{ends}high"]
    value = f"{row[key]:.3f}"
    return value if low is None or high is None else f"{value} ({low:.3f} to {high:.3f})"


def _format_range(spread: MeanAndRange) -> str:
    if not np.isfinite(spread.mean):
        return _format_correlation(spread.mean)
    return f"{spread.mean:.2f} ({spread.low:.2f} to {spread.high:.2f})"


def _format_correlation(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "in no way that is defined"
