"""Which of two methods is better on the same questions: paired tests on proper losses, Holm's correction, ranks.

Brier and NLL are compared because each is a mean over questions and smallest for the true probabilities; macro ECE is
neither (methods.md §0.17). Example: `compare({"a": losses_a, "b": losses_b}, strata)[0].p_holm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from bench.api import FloatArray
from bench.stats.intervals import Interval, NoInterval, clustered_interval, macro_mean, mean_interval
from bench.stats.strata import Strata

LOSSES = ("brier", "nll")
"""What methods are compared by; the first decides where one is asked for."""


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same questions; negative differences speak for the first."""

    first: str
    second: str
    difference: float
    """Macro mean of the first's loss minus the second's."""
    interval: Interval | NoInterval
    """Of the difference, for fixed subjects."""
    clustered: Interval | NoInterval
    """Of the difference, for subjects like these."""
    p: float | None
    """Two-sided, of no difference, fixed subjects; None where there is no interval."""
    p_holm: float | None = None
    """The same, corrected for all pairs that were compared."""


def compare(losses: Mapping[str, FloatArray], strata: Strata, *, level: float = 0.95) -> tuple[Comparison, ...]:
    """All pairs of methods, by the t test on per-question differences within subjects.

    The test is that of `mean_interval`, so interval and p value agree. It has no resolution limit, unlike a bootstrap's
    p value, of which 1,000 replicates and 55 pairs leave none below 0.05 after correction.

    Args:
        losses: by method, shape (n,), one for each question; the mean over seeds where there are several.
        strata: of the n questions.
        level: of the intervals.

    Returns:
        Pairs in the order of the mapping.
    """
    pairs = [_compared(a, b, losses[a] - losses[b], strata, level) for a, b in combinations(losses, 2)]
    tested = [pair.p for pair in pairs if pair.p is not None]
    if len(tested) < len(pairs):
        return tuple(pairs)
    return tuple(replace(pair, p_holm=p) for pair, p in zip(pairs, holm(tested), strict=True))


def holm(p_values: Sequence[float]) -> list[float]:
    """P values corrected for their number, in the order given (Holm, 1979).

    The i-th smallest of m (i from 0) times m - i, at least the one before, at most 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for i, k in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - i) * p_values[k]))
        corrected[k] = largest
    return corrected


def ranks(means: Mapping[str, float], comparisons: Sequence[Comparison], *, alpha: float = 0.05) -> dict[str, int]:
    """Ranks by mean loss, from 1; methods that can't be told from the best of their group share its rank.

    Going up from the smallest mean, a method joins the current group if its corrected p value against the first of that
    group is at least `alpha`; else it opens a group, whose rank is one more than the number of methods before it.

    Args:
        means: by method, the loss.
        comparisons: of all pairs of these methods, by `compare`.
        alpha: level of significance.

    Returns:
        By method, best first; empty where the pairs could not be tested.
    """
    if any(pair.p_holm is None for pair in comparisons):
        return {}
    p_of = {frozenset((pair.first, pair.second)): pair.p_holm or 0.0 for pair in comparisons}
    ranked: dict[str, int] = {}
    best = ""
    for place, method in enumerate(sorted(means, key=lambda name: (means[name], name)), start=1):
        joins = bool(ranked) and p_of[frozenset((best, method))] >= alpha
        ranked[method] = ranked[best] if joins else place
        best = best if joins else method
    return ranked


def _compared(first: str, second: str, difference: FloatArray, strata: Strata, level: float) -> Comparison:
    interval = mean_interval(difference, strata, level=level)
    by_subject = strata.means(difference)
    return Comparison(
        first=first,
        second=second,
        difference=float(by_subject.mean()),
        interval=interval,
        clustered=clustered_interval(by_subject, level=level),
        p=_p_value(difference, strata) if isinstance(interval, Interval) else None,
    )


def _p_value(difference: FloatArray, strata: Strata) -> float:
    """Two-sided p value of a macro mean of 0, Student's t."""
    from scipy.special import stdtr

    mean, error, df = macro_mean(difference, strata)
    if not error:
        return 1.0 if not mean else 0.0
    return float(2 * stdtr(min(df, 1e9), -abs(mean) / error))
