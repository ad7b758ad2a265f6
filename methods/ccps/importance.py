"""Analysis `shap` of CCPS: which of its columns the confidence follows, by SHAP values of the trained networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from bench.api import AnalysisInput, FloatArray, MeasureColumn, Measures
from methods.ccps import contrasts
from methods.ccps.columns import FEATURES, OF_ORIGINAL, OF_PERTURBED
from methods.ccps.explained import NEAR, NOISE, TOKENS, Explained, explained

ALL = len(FEATURES)
GROUPS: Mapping[str, Sequence[int]] = {
    "together: original state": OF_ORIGINAL,
    "together: perturbed states": OF_PERTURBED,
    "together: noise": range(ALL, ALL + NOISE),
}
"""Columns of a group, of which each answer's values are added up (docs/methods.md §3)."""
NOISE_MEAN = "one noise column: mean"
NOISE_MOST = "one noise column: largest"
SHOWN = 12
"""Features that are printed for people."""
_NAMED = 3  # in the verdict
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


def shap(given: AnalysisInput) -> Measures:
    """Which features CCPS' confidence follows: SHAP values by shap's KernelExplainer and by gradients."""
    return measured(explained(given))


def measured(found: Explained) -> Measures:
    """Table and verdict of SHAP values."""
    rows = _rows(found)
    return Measures(
        question="Which features does CCPS' confidence follow?",
        answer=" ".join(_answer(found, rows)),
        columns=_COLUMNS,
        rows=rows,
        drawn="importance",
        shown=len(GROUPS) + 2 + SHOWN,
        notes=tuple(_notes(found)),
    )


# --- statistics -------------------------------------------------------------------------------------------------------


class Mean(NamedTuple):
    """Mean over answers and trainings, with its interval."""

    value: float
    low: float | None
    """None where there is no interval: few answers or one training."""
    high: float | None
    between: float
    """Standard deviation from training to training."""


def importance(values: FloatArray) -> Mean:
    """Mean |SHAP value| of values `(seeds, n)`, with an interval for other answers and other trainings."""
    mean = contrasts.mean_of_answers(np.abs(values))
    found = contrasts.estimate(mean)
    low = None if found.low is None else max(0.0, found.low)
    return Mean(found.value, low, found.high, float(mean.by_seed.std(ddof=1)))


def correlations(scaled: FloatArray, values: FloatArray) -> list[float | None]:
    """Pearson correlation of each column's standardised values `(n, k)` with its SHAP values `(seeds, n, k)`.

    Mean over seeds; None where one of both doesn't vary in some training.
    """
    found: list[float | None] = []
    for k in range(scaled.shape[1]):
        each = [pearson(scaled[:, k], of[:, k]) for of in values]
        found.append(float(np.mean(each)) if np.isfinite(each).all() else None)
    return found


class MeanAndRange(NamedTuple):
    """A number of each training, or of each pair of them."""

    mean: float
    low: float
    """The smallest."""
    high: float
    """The largest."""


def agreement(one: FloatArray, other: FloatArray) -> tuple[MeanAndRange, MeanAndRange]:
    """Agreement of two estimates `(seeds, n, k)` of the same values, by training.

    Returns:
        Pearson correlation over all values; Spearman's of the columns' importances.
    """
    pairs = list(zip(one, other, strict=True))
    of_values = [pearson(a.ravel(), b.ravel()) for a, b in pairs]
    return _spread(of_values), _spread([spearman(np.abs(a).mean(0), np.abs(b).mean(0)) for a, b in pairs])


def stability(values: FloatArray) -> MeanAndRange:
    """Spearman's correlation of the columns' importances between two trainings, over all pairs; `(seeds, n, k)`."""
    return _spread([spearman(a, b) for a, b in combinations(np.abs(values).mean(1), 2)])


def spearman(one: FloatArray, other: FloatArray) -> float:
    """Correlation of ranks `(n,)`; equal values share their mean rank."""
    from scipy.stats import rankdata

    return pearson(rankdata(one), rankdata(other))


def pearson(one: FloatArray, other: FloatArray) -> float:
    """Correlation of two `(n,)`; NaN where one doesn't vary."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:  # exactly: rounding of a mean would look like spread
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])


def _spread(values: Sequence[float]) -> MeanAndRange:
    return MeanAndRange(float(np.mean(values)), float(np.min(values)), float(np.max(values)))


# --- rows -------------------------------------------------------------------------------------------------------------


def _noise(found: Explained) -> FloatArray:
    """Importances of the columns of noise, `(NOISE,)`."""
    sizes: FloatArray = np.abs(found.gradients[:, :, ALL:]).mean((0, 1))
    return sizes


def _above(found: Explained) -> list[bool]:
    """Whether each of the 75 has a larger importance than all columns of noise."""
    above: list[bool] = (np.abs(found.gradients[:, :, :ALL]).mean((0, 1)) > _noise(found).max()).tolist()
    return above


def _row(name: str, gradients: FloatArray, kernel: FloatArray) -> _Row:
    """Importances of values `(seeds, n)` and `(seeds, r)`."""
    one, other = importance(gradients), importance(kernel)
    return {
        "feature": name, "importance": one.value, "low": one.low, "high": one.high, "between": one.between,
        "kernel": other.value, "kernel_low": other.low, "kernel_high": other.high,
    }  # fmt: skip


def _rows(found: Explained) -> list[_Row]:
    """Groups, noise, and the 75 by importance, the largest first."""
    gradients, kernel = found.gradients, found.kernel
    # a group's numbers by gradients stand in a column of their own, which the figure doesn't draw
    names = {"importance": "together", "low": "together_low", "high": "together_high"}
    of_groups: list[_Row] = []
    for group, columns in GROUPS.items():
        row = _row(group, gradients[:, :, columns].sum(2), kernel[:, :, columns].sum(2))
        of_groups.append({names.get(key, key): value for key, value in row.items()})
    most = ALL + int(_noise(found).argmax())
    of_noise = [
        _row(NOISE_MEAN, np.abs(gradients[:, :, ALL:]).mean(2), np.abs(kernel[:, :, ALL:]).mean(2)),
        _row(NOISE_MOST, gradients[:, :, most], kernel[:, :, most]),
    ]
    few = kernel.shape[1]
    pairs = zip(correlations(found.scaled, gradients), correlations(found.scaled[:few], kernel), strict=True)
    each = []
    for k, (r, kernel_r) in enumerate(list(pairs)[:ALL]):
        row = _row(FEATURES[k], gradients[:, :, k], kernel[:, :, k])
        if not found.constant[k]:
            row |= {"r": r, "kernel_r": kernel_r}
        each.append(row | {"above_noise": "yes" if _above(found)[k] else "no"})
    return [*of_groups, *of_noise, *sorted(each, key=lambda row: -row["importance"])]


# --- in words ---------------------------------------------------------------------------------------------------------


def _answer(found: Explained, listed: Sequence[_Row]) -> Iterator[str]:
    rows = {str(row["feature"]): row for row in listed}
    original, perturbed, noise = (_told(rows[name], "together", "together_") for name in GROUPS)
    yield (
        f"By gradients its {len(OF_ORIGINAL)} columns of the original state together move its logit by {original} on"
        f" average, its {len(OF_PERTURBED)} of the perturbed states by {perturbed}, {NOISE} added columns of noise"
        f" by {noise}."
    )
    above = sum(_above(found))
    if not above:
        yield f"None of the {ALL} alone moves it more than each of the {NOISE} columns of noise, so none can be named."
    else:
        names = [name for name in rows if name in FEATURES][: min(_NAMED, above)]
        by_chance = (~found.constant).sum() / (NOISE + 1)  # a constant moves nothing, so it is never above noise
        yield (
            f"Alone {above} of the {ALL} move it more than each column of noise, as about {by_chance:.0f} would"
            " by chance if all were useless"
            + (f"; the other {ALL - above} move it no more than a useless column may" if above < ALL else "")
            + f". Largest: {', '.join(f'{name} {_told(rows[name])}' for name in names)}."
        )
    yield (
        f"That is no ranking of causes: {found.copied} of the {ALL} columns are near copies of another one, among which"
        " SHAP values are divided as each training happened to, and the importances in two trainings correlate"
        f" {_range(stability(found.gradients[:, :, :ALL]))} (Spearman)."
    )
    few = found.kernel.shape[1]
    values, sizes = agreement(found.kernel[:, :, :ALL], found.gradients[:, :few, :ALL])
    again, _ = agreement(found.kernel_again[:, :, :ALL], found.kernel[:1, :, :ALL])
    yield (
        f"Kernel SHAP, the paper's, and gradients correlate {_range(values)} over all values of {few:,} answers, and"
        f" {_range(sizes)} in the features' importances (Spearman). With other coalitions kernel SHAP correlates"
        f" {_correlation(again.mean)} with itself."
    )


def _notes(found: Explained) -> Iterator[str]:
    seeds, n, _ = found.gradients.shape
    few, sizes = found.kernel.shape[1], found.sizes
    yield (
        f"Mean |SHAP value| in logits, over {n:,} test answers and {seeds} trainings, with 95 % intervals"
        " for other answers and other trainings; seeds: standard deviation between trainings; together: of an answer's"
        " sum over all columns of a group."
        + (f" A feature is its column at an answer's first {TOKENS} tokens together." if found.tokens else "")
    )
    yield (
        f"gradients: expected gradients, i.e. Aumann-Shapley values of the logit, against {sizes.background} training"
        f" answers, at least {sizes.points} points a line; their sums miss the logit by {found.gaps.max():.2g} at most,"
        f" {np.median(found.gaps):.2g} in the median. kernel: shap's KernelExplainer, i.e. Shapley values of the logit"
        f" of the mean probability, with the same background and {sizes.coalitions:,} coalitions, of {few:,} of these"
        " answers."
    )
    of_logits, _ = agreement(found.kernel_of_logits[:, :, :ALL], found.gradients[:, :few, :ALL])
    yield f"Shapley values of the mean logit, which gradients share out, correlate with gradients {_range(of_logits)}."
    yield (
        f"Networks have {NOISE} columns of noise beside the {ALL}, so they aren't quite those of a run. A feature is"
        f" above noise where its importance is larger than that of all {NOISE}; of features without any use one in"
        f" {NOISE + 1} is."
    )
    yield (
        "r: Pearson correlation of the standardised feature with its SHAP value, mean over trainings;"
        f" {int(found.constant.sum())} features are constant in training and have none. Near copies: correlated beyond"
        f" ±{NEAR:g} in training."
    )


def _told(row: _Row, key: str = "importance", ends: str = "") -> str:
    low, high = row[f"{ends}low"], row[f"{ends}high"]
    value = f"{row[key]:.3f}"
    return value if low is None or high is None else f"{value} ({low:.3f} to {high:.3f})"


def _range(found: MeanAndRange) -> str:
    if not np.isfinite(found.mean):
        return _correlation(found.mean)
    return f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})"


def _correlation(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "in no way that is defined"
