"""A guard keeps its risk as often as it says, its choice of a threshold included, and agrees with scipy's own tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from bench.stats.guard import (
    FORGIVEN,
    STEPS,
    answers_needed,
    count_selected,
    feasible,
    grid,
    guard,
    held_out_mask,
    min_answers,
    p_value,
    share_interval,
    upper_bound,
)

DRAWS = 2_000
SUPPORT = 4_000
"""Values that a confidence can have; the true risk above a threshold is a sum over them."""
Shape = tuple[np.ndarray, np.ndarray, int]


def calibrated() -> Shape:
    """Confidences that are what they say."""
    c = 1.0 - 0.7 * np.linspace(1.0, 0.0, SUPPORT) ** 2
    return c, c, 400


def overconfident() -> Shape:
    """Sure of everything, though no threshold keeps the risk."""
    c = np.linspace(0.8, 1.0, SUPPORT)
    return c, 0.5 + 0.42 * (c - 0.8) / 0.2, 400


def up_and_down() -> Shape:
    """The surest answers are right, the next ones wrong, then right again: the risk rises, falls and rises."""
    c = np.linspace(0.0, 1.0, SUPPORT)
    return c, np.where(c > 0.75, 0.99, np.where(c > 0.65, 0.6, np.where(c > 0.2, 0.995, 0.3))), 1_000


def wrong_at_the_top() -> Shape:
    """The surest of all are mistakes, as where a model parrots, and the others are good."""
    c = np.linspace(0.0, 1.0, SUPPORT)
    return c, np.where(c > 0.97, 0.2, 0.955), 400


def tied() -> Shape:
    """Five values, as of five samples: the best one keeps the risk, with the next one it is just broken."""
    c = np.repeat(np.arange(1, 6) / 5, SUPPORT // 5)
    return c, np.interp(c, np.arange(1, 6) / 5, [0.2, 0.6, 0.85, 0.91, 0.98]), 1_000


def flat() -> Shape:
    """Just above the risk at every threshold, so that any threshold is wrong."""
    c = np.linspace(0.0, 1.0, SUPPORT)
    return c, np.full(SUPPORT, 0.9499), 400


def tiny() -> Shape:
    """Fifty answers to calibrate with, most of them right."""
    c = np.linspace(0.0, 1.0, SUPPORT)
    return c, 0.9 + 0.06 * c, 50


@pytest.mark.parametrize("shape", [calibrated, overconfident, up_and_down, wrong_at_the_top, tied, flat, tiny])
def test_guard_keeps_the_true_risk(shape: Callable[[], Shape]) -> None:
    """Everything is drawn anew: the unlabelled answers of the grid, the labelled ones, and so the choice."""
    risk, level = 0.05, 0.9
    values, right, n = shape()
    true_risk = np.cumsum((1 - right)[::-1])[::-1] / np.arange(SUPPORT, 0, -1)  # at or above each value
    rng = np.random.default_rng(7)
    broken = found = 0
    for _ in range(DRAWS):
        drawn = rng.integers(SUPPORT, size=2 * n)
        thresholds = grid(values[drawn[:n]], n, risk=risk, level=level, floor=0.0)
        labelled = drawn[n:]
        made = guard(thresholds, values[labelled], rng.random(n) < right[labelled], risk=risk, level=level)
        if made.threshold is not None:
            found += 1
            broken += bool(true_risk[np.searchsorted(values, made.threshold)] > risk + 1e-12)
    assert broken / DRAWS <= 1 - level + 2 * np.sqrt(level * (1 - level) / DRAWS)
    if shape is flat:
        assert broken > DRAWS / 25  # the test uses up its level
    if shape in {calibrated, up_and_down, tied}:
        assert found > DRAWS / 3  # a guard that never finds a threshold keeps any risk


def test_guard_without_an_order_breaks_its_risk() -> None:
    """The loosest threshold whose own test passes, wherever it stands, breaks it: the order of the tests is needed."""
    values, right = np.linspace(0, 1, SUPPORT), np.full(SUPPORT, 0.947)  # a risk of 5.3 % everywhere
    rng = np.random.default_rng(1)
    in_order = anywhere = 0
    for _ in range(400):
        drawn = rng.integers(SUPPORT, size=800)
        thresholds = grid(values[drawn[:400]], 400, risk=0.05, level=0.9, floor=0.0)
        labelled = drawn[400:]
        made = guard(thresholds, values[labelled], rng.random(400) < right[labelled], risk=0.05, level=0.9)
        in_order += made.passed > 0
        anywhere += bool((p_value(made.mistakes, made.kept, 0.05) <= 0.1).any())
    assert in_order / 400 <= 0.1 + 2 * np.sqrt(0.09 / 400)
    assert anywhere > 1.5 * in_order


@pytest.mark.parametrize(("mistakes", "kept", "risk"), [(0, 45, 0.05), (3, 90, 0.05), (7, 7, 0.3), (0, 1, 0.5)])
def test_guard_p_values_and_bounds_equal_scipys(mistakes: int, kept: int, risk: float) -> None:
    test = stats.binomtest(mistakes, kept, risk, alternative="less")
    assert float(p_value(mistakes, kept, risk)) == pytest.approx(test.pvalue, rel=1e-10)
    for level in (0.9, 0.99):
        expected = test.proportion_ci(level, method="exact").high
        assert float(upper_bound(mistakes, kept, level)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("hits", "n"), [(0, 12), (5, 60), (60, 60), (1, 1)])
def test_guard_intervals_of_shares_equal_scipys(hits: int, n: int) -> None:
    expected = stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert share_interval(hits, n) == pytest.approx((expected.low, expected.high), abs=1e-10)


def test_guard_of_nothing_kept_has_no_evidence() -> None:
    assert float(p_value(0, 0, 0.05)) == 1.0
    assert float(upper_bound(0, 0, 0.9)) == 1.0
    assert share_interval(0, 0) is None


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
def test_guard_fewest_answers_have_a_closed_form(risk: float, level: float) -> None:
    assert min_answers(risk, level) == int(np.ceil(np.log(1 - level) / np.log(1 - risk) - 1e-9))
    for mistakes in (1, 5):
        m = min_answers(risk, level, mistakes)
        assert stats.binom.cdf(mistakes, m, risk) <= 1 - level < stats.binom.cdf(mistakes, m - 1, risk)


def test_guard_feasible_holds_for_the_best_order() -> None:
    """A guard that is given the labels as confidences keeps as many answers as is said to be possible, and no more."""
    n, right = 500, 400
    correct = np.arange(n) < right
    found = feasible(n, right, risk=0.05, level=0.9)
    every = np.arange(n, 0.0, -1)
    made = guard(every[found.fewest :], every, correct, risk=0.05, level=0.9)
    assert int(made.kept[made.place]) == found.most
    assert float(p_value(0, right, found.least_risk)) == pytest.approx(0.1)
    assert feasible(10, 0, risk=0.05, level=0.9).least_risk == 1.0
    assert feasible(44, 44, risk=0.05, level=0.9).most == 0
    assert feasible(45, 45, risk=0.05, level=0.9).most == 45


def test_guard_answers_needed_are_enough() -> None:
    needed = answers_needed(0.03, 0.05, 0.9)
    assert needed is not None
    assert float(p_value(np.ceil(0.03 * needed), needed, 0.05)) <= 0.1
    assert [answers_needed(0.05, 0.05, level) for level in (0.1, 0.9)] == [None, None]  # chance reaches a low level


def test_guard_grid_begins_where_risk_can_be_certified() -> None:
    values = np.random.default_rng(0).random(1_000)
    thresholds = grid(values, 500, risk=0.05, level=0.9, floor=0.0)
    assert len(thresholds) <= STEPS + 1
    assert (np.diff(thresholds) < 0).all()
    assert np.count_nonzero(values >= thresholds[0]) == 2 * min_answers(0.05, 0.9, FORGIVEN)
    few = grid(values, 120, risk=0.05, level=0.9, floor=0.0)  # three mistakes would ask for all of them
    assert np.count_nonzero(values >= few[0]) == -(-min_answers(0.05, 0.9) * 1_000 // 120)
    assert thresholds[-1] == 0.0


def test_guard_ties_stay_together_to_the_last_bit() -> None:
    values = np.repeat([0.2, 0.6, 0.9], 100)
    thresholds = grid(values, 600, risk=0.05, level=0.9, floor=0.0)
    assert thresholds.tolist() == pytest.approx([0.75, 0.4, 0.0])
    moved = values - 1e-12
    assert count_selected(moved, values > 0, thresholds)[0].tolist() == [100, 200, 300]


def test_guard_grids_at_the_edges() -> None:
    assert grid(np.full(9, 0.7), 9, risk=0.05, level=0.9, floor=0.0).tolist() == [0.0]
    assert grid([0.7], 1, risk=0.05, level=0.9).tolist() == [0.7]
    scores = np.array([-np.inf, 3.0, 2.0, -np.inf])
    assert grid(scores, 200, risk=0.5, level=0.5).tolist() == [2.5, 2.0]
    assert grid([-np.inf], 5, risk=0.05, level=0.9).size == 0


def test_guard_stops_at_the_first_failure() -> None:
    """Looser thresholds would pass again, and are not looked at."""
    values = np.concatenate([np.full(50, 0.9), np.full(20, 0.8), np.full(900, 0.7)])
    correct = np.ones(970, dtype=bool)
    correct[50:70] = False
    made = guard(np.array([0.85, 0.75, 0.65]), values, correct, risk=0.05, level=0.9)
    assert (made.passed, made.threshold) == (1, 0.85)
    assert float(p_value(made.mistakes[2], made.kept[2], 0.05)) <= 0.1


def test_guard_sides_depend_on_a_question_alone() -> None:
    ids = [f"atlas/test/{i}" for i in range(4_000)]
    first = held_out_mask(ids, share=0.3, seed=0)
    assert abs(first.mean() - 0.3) < 4 * np.sqrt(0.21 / 4_000)
    assert held_out_mask(ids[::-1][:100], share=0.3, seed=0).tolist() == first[::-1][:100].tolist()
    assert (held_out_mask(ids, share=0.3, seed=1) != first).any()
    assert not held_out_mask(ids, share=0.2, seed=0)[~first].any()
