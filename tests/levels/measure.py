"""What `bench.stats.summary` says of simulated answers: what it names and doesn't test, what its intervals cover."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.metrics import METRICS
from bench.metrics.calibration import ANSWERS_A_BIN, MASS_BINS, equal_mass
from bench.metrics.validation import bin_of
from bench.stats import TESTED, Sampling, Settings, p_values, strata_of, summary
from tests.levels.populations import CELLS, GAPS, SHAPES, Cell

METHODS = 10
ALPHA = 0.05
SETTINGS = Settings(null_draws=1)
"""Without the p value of calibration, which takes most of the time."""
LARGE = 1_000_000
"""Questions of the sample whose metrics count as true."""


def levels(cell: Cell, data_sets: int) -> dict[str, dict[str, Any]]:
    """Tests and intervals of methods that don't differ, by metric.

    `named` of the `tested` data sets are those in which a method is named better than another, `untested` counts the
    others by reason. `covered` is the share of the intervals that contain the true value, `error` its Monte-Carlo error
    with data sets as the sample, `intervals` the share of methods that have one.
    """
    true = _true(cell)
    named, tested, intervals = Counter[str](), Counter[str](), Counter[str]()
    untested: dict[str, Counter[str]] = {metric: Counter() for metric in TESTED}
    covered: dict[str, list[float]] = {metric: [] for metric in TESTED}
    for seed in range(data_sets):
        correct, confidence = cell.draw(np.random.default_rng([seed, CELLS.index(cell)]), METHODS)
        found = summary({f"m{k}": p for k, p in enumerate(confidence)}, correct, cell.names, SETTINGS)
        for metric in TESTED:
            pairs, estimates = found.comparisons[metric], [each.estimates[metric] for each in found.methods.values()]
            if pairs and pairs[0].p is not None:
                tested[metric] += 1
                named[metric] += any(pair.winner(ALPHA) is not None for pair in pairs)
            else:
                untested[metric][estimates[0].fixed.reason.partition(", there")[0]] += 1
            ends = [each.fixed.ends for each in estimates if each.fixed.ends]
            intervals[metric] += len(ends)
            if ends:
                covered[metric].append(float(np.mean([low <= true[metric] <= high for low, high in ends])))
    return {
        metric: {
            "named": named[metric],
            "tested": tested[metric],
            "untested": untested[metric],
            "covered": float(np.mean(shares)) if shares else None,
            "error": float(np.std(shares) / np.sqrt(len(shares))) if shares else None,
            "intervals": intervals[metric] / METHODS / data_sets,
        }
        for metric, shares in covered.items()
    }


def shapes(cell: Cell, shape: str, data_sets: int) -> list[dict[str, Any]]:
    """By pair of gaps: true RMSCEs of two methods, and how often each is named better, by RMSCE and by the raw ECE.

    ECEs are tested as all metrics are, by their influences sign(g) (r - g), with g the gap of a bin and r = p - o.
    """
    draw, kind, n = SHAPES[shape], [*SHAPES].index(shape), cell.subjects * cell.questions
    rows = []
    for a, b in GAPS:
        named = {"rmsce": [0, 0], "ece": [0, 0]}
        for seed in range(data_sets):
            correct, *both = draw(a, b, n, np.random.default_rng([seed, n, kind]))
            (pair,) = summary(dict(enumerate(both)), correct, cell.names, SETTINGS).comparisons["rmsce"]  # type: ignore[arg-type]
            if (winner := pair.winner(ALPHA)) is not None:
                named["rmsce"][int(winner)] += 1
            (first, one), (second, other) = (_ece(p, correct) for p in both)
            sampling = Sampling.of(strata_of(cell.names), correct, "questions")
            spread = sampling.standard_errors("brier", np.stack([one, other]), np.array([[1.0, -1.0]]))
            if p_values(np.array([first - second]), spread) < ALPHA:
                named["ece"][int(second < first)] += 1
        rows.append({"gaps": [a, b], "true": _true_gaps(shape, a, b), "named": named, "data_sets": data_sets})
    return rows


def _true(cell: Cell) -> dict[str, float]:
    """Metrics of a very large sample; RMSCE in as many bins as there are in the cell."""
    correct, confidence = cell.draw(np.random.default_rng(CELLS.index(cell)), 2, LARGE)
    bins = min(MASS_BINS, max(1, cell.subjects * cell.questions // ANSWERS_A_BIN))
    true = {metric: float(np.mean([METRICS[metric].compute(p, correct) for p in confidence])) for metric in TESTED}
    return true | {"rmsce": float(np.mean([_rmsce(p, correct, bins) for p in confidence]))}


@cache
def _true_gaps(shape: str, a: float, b: float) -> list[float]:
    correct, *both = SHAPES[shape](a, b, 4 * LARGE, np.random.default_rng(0))
    return [_rmsce(p, correct, MASS_BINS) for p in both]


def _rmsce(p: FloatArray, correct: BoolArray, bins: int) -> float:
    """RMSCE of so many answers that chance adds nothing to it."""
    group = equal_mass(p, bins)
    size = np.maximum(1, np.bincount(group))
    return float(np.sqrt(np.sum(np.square(np.bincount(group, weights=p - correct)) / size) / p.size))


def _ece(p: FloatArray, correct: BoolArray) -> tuple[float, FloatArray]:
    """ECE and its influences (n,)."""
    group = bin_of(p, SETTINGS.bins)
    gap = np.bincount(group, weights=p - correct) / np.maximum(1, np.bincount(group))
    value = float(np.abs(gap[group]).mean())
    return value, (np.sign(gap[group]) * (p - correct - gap[group]) + np.abs(gap[group]) - value) / p.size
