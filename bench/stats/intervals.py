"""Intervals that name their estimand, of macro means: unweighted means over subjects.

`fixed-subjects`: these subjects, other questions; questions are resampled within their subject. `clustered`: other
subjects like these; subjects are the sample, so the interval is wider. Neither contains the chance in fits: several
seeds are averaged, and their spread is told beside the interval. Example: `mean_interval(losses, strata_of(subjects))`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.stats.strata import Strata

Estimand = Literal["fixed-subjects", "clustered"]

MIN_CLUSTERS = 20
"""Subjects from which on they may be taken for a sample of subjects."""

FEW = 10
"""Questions below which a subject's own spread says little: half the time two of them look as if nothing varied."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval and what it is an interval of, or the reason why there is none."""

    estimand: Estimand
    """Source of variation: questions within these subjects, or the subjects."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Level of confidence, e.g. 0.95."""
    kind: str = ""
    """Kind of the interval: `t`, `basic`, or `inverted test`."""
    reason: str = ""
    """Why there is none, in words for a reader: it would claim too much."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """Low and high; None where there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def half(self, value: float | None) -> float | None:
        """Half the width on the longer side of a value; None where there is no interval."""
        return None if self.ends is None or value is None else max(self.ends[1] - value, value - self.ends[0])

    def reversed(self) -> Interval:
        """Interval of the difference taken the other way round."""
        return self if self.ends is None else replace(self, low=-self.ends[1], high=-self.ends[0])


class MacroMean(NamedTuple):
    """A mean over subjects with its standard error under resampling within subjects."""

    mean: float
    error: float
    df: float
    """Degrees of freedom of the error (Welch and Satterthwaite); infinite where nothing varies."""


def macro_mean(values: FloatArray, strata: Strata) -> MacroMean:
    """Mean of subject means of one value per question, with the standard error of a stratified mean.

    error^2 = sum_s v_s / S^2 with v_s = s_s^2 / n_s; df = (sum v_s)^2 / sum(v_s^2 / (n_s - 1)) (Satterthwaite, 1946).
    Subjects with fewer than FEW questions take the variance within all subjects together for s_s^2. A macro mean gives
    them as much weight as the others, so their own guess at it would decide over the width.

    Args:
        values: shape (n,), e.g. losses, or differences of losses.
        strata: of the same n questions, at least two in each subject.
    """
    means = strata.means(values)
    freedom = strata.sizes - 1
    squares = np.bincount(strata.group, weights=np.square(values - means[strata.group]), minlength=means.size)
    few = strata.sizes < FEW
    own = np.where(few, 0.0, squares / (freedom * strata.sizes))  # v_s, (S,)
    pooled = float((1 / strata.sizes[few]).sum() * squares.sum() / freedom.sum())
    total = float(own.sum()) + pooled
    df = total**2 / float(np.sum(np.square(own) / freedom) + pooled**2 / freedom.sum()) if total > 0 else np.inf
    return MacroMean(float(means.mean()), float(np.sqrt(total)) / means.size, df)


def mean_interval(values: FloatArray, strata: Strata, *, level: float = 0.95) -> Interval:
    """Student's t interval, fixed subjects, for a macro mean of one value per question.

    For a mean, resampling questions has a closed form. It beats the bootstrap: no chance of its own, and the right
    width in small subjects, where resampling is too narrow by the factor sqrt(1 - 1/n_s).

    Args:
        values: shape (n,).
        strata: of the same n questions.
        level: of confidence.

    Returns:
        No interval where a subject has one question only.
    """
    from scipy.special import stdtrit

    refused = _no_spread(strata)
    if refused:
        return refused
    mean, error, df = macro_mean(values, strata)
    half = float(stdtrit(min(df, 1e9), (1 + level) / 2)) * error
    return Interval("fixed-subjects", mean - half, mean + half, level, "t")


def clustered_interval(by_subject: FloatArray, *, level: float = 0.95) -> Interval:
    """Student's t interval over subjects: mean +- t_{S-1} * standard deviation (ddof 1) / sqrt(S).

    Args:
        by_subject: shape (S,), the value in each subject; NaN where undefined, which is left out.
        level: of confidence.

    Returns:
        No interval with fewer than MIN_CLUSTERS subjects that have a value.
    """
    from scipy.special import stdtrit

    defined = by_subject[~np.isnan(by_subject)]
    if defined.size < MIN_CLUSTERS:
        return Interval(
            "clustered", reason=f"{MIN_CLUSTERS} subjects are needed to speak of others, there are {defined.size}"
        )
    error = float(defined.std(ddof=1)) / np.sqrt(defined.size)
    mean, half = float(defined.mean()), float(stdtrit(defined.size - 1, (1 + level) / 2) * error)
    return Interval("clustered", mean - half, mean + half, level, "t")


def basic_interval(
    value: float, replicates: FloatArray, strata: Strata, *, level: float = 0.95, bounds: tuple[float, float] = (0, 1)
) -> Interval:
    """Basic (reverse percentile) bootstrap interval, fixed subjects, rid of the bootstrap's own bias.

    With q the quantiles and m the mean of the replicates: [value - (q_high - m), value - (q_low - m)].

    Why neither percentiles nor the plain basic interval, which has `value` for m: a resample repeats questions, so its
    ECE is larger than the sample's, just as the sample's is larger than that of infinitely many answers. At MMLU's
    sizes that shift is ten standard errors: [q_low, q_high] does not even contain the ECE it is meant for, and the
    plain basic interval misses it on the other side. Taking m off leaves the spread, which resampling gets right; it is
    a little too wide near perfect calibration. The estimand is then the mean ECE of so many answers; the ECE of
    infinitely many has `calibration_error`. The same holds, more mildly, for average precision.

    Args:
        value: the macro mean in the sample.
        replicates: shape (r,), the macro mean in each resample.
        strata: of the questions.
        level: of confidence.
        bounds: smallest and largest possible value, beyond which the interval is cut.
    """
    refused = _no_spread(strata)
    if refused:
        return refused
    tail = (1 - level) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail]) - replicates.mean()
    low, high = np.clip([value - high, value - low], *bounds).tolist()
    return Interval("fixed-subjects", low, high, level, "basic")


def _no_spread(strata: Strata) -> Interval | None:
    """Why questions can't be resampled within these subjects; None where they can."""
    if strata.alone is None:
        return None
    return Interval(
        "fixed-subjects", reason=f"subject {strata.alone!r} has one question, from which no spread can be told"
    )


def no_spread_of_ranks(correct: BoolArray, strata: Strata) -> Interval | None:
    """Why rank metrics can't be resampled: a lone right or wrong answer is the same in every resample that has it.

    Subjects of one class are no obstacle; the metric leaves them out.
    """
    right = np.bincount(strata.group, weights=correct).astype(np.int64)
    lone = np.flatnonzero(((right == 1) & (strata.sizes > 1)) | ((right == strata.sizes - 1) & (right > 0)))
    if not lone.size:
        return None
    kind = "right" if right[lone[0]] == 1 else "wrong"
    name = strata.names[lone[0]]
    return Interval(
        "fixed-subjects", reason=f"subject {name!r} has one {kind} answer, from which no spread can be told"
    )
