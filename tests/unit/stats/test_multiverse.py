"""Places, their distribution, and what a choice explains, against independent references."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bench.stats.multiverse import competition_ranks, correlation_ratio, rank_summary


def test_ranks_equal_scipys() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = rng.integers(0, 6, size=8) / 7  # many ties
        assert (
            competition_ranks(values, higher_is_better=False).tolist() == stats.rankdata(values, method="min").tolist()
        )
        assert (
            competition_ranks(values, higher_is_better=True).tolist() == stats.rankdata(-values, method="min").tolist()
        )


def test_ranks_ignore_rounding() -> None:
    assert competition_ranks(np.array([0.1 + 0.2, 0.3]), higher_is_better=True).tolist() == [1, 1]


def test_rank_quantiles_are_ranks_that_occur() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 5, 20, 99):
        ranks = rng.integers(1, 9, size=n)
        found, ordered = rank_summary(ranks), sorted(ranks.tolist())
        for part, value in ((0.05, found.low), (0.5, found.median), (0.95, found.high)):
            # the least place at or below which so many lie
            assert value == next(each for each in ordered if sum(r <= each for r in ordered) >= part * n - 1e-9)
        assert found.first == sum(rank == 1 for rank in ordered) / n
        assert found.mean == pytest.approx(sum(ordered) / n)


def test_correlation_ratio_is_eta_squared_of_anova() -> None:
    rng = np.random.default_rng(2)
    for _ in range(30):
        options = rng.integers(0, 4, size=60)
        holds = rng.random(60) < 0.2 + 0.2 * options
        groups = [holds[options == k].astype(float) for k in range(4)]
        f = stats.f_oneway(*groups).statistic
        expected = f * 3 / (f * 3 + 60 - 4)
        assert correlation_ratio(holds, options.tolist()) == pytest.approx(expected)


def test_correlation_ratio_of_all_and_of_nothing() -> None:
    grid = [(a, b) for a in "xyz" for b in "01"]
    holds = [a != "y" for a, _ in grid]
    assert correlation_ratio(holds, [a for a, _ in grid]) == pytest.approx(1.0)
    assert correlation_ratio(holds, [b for _, b in grid]) == pytest.approx(0.0)


def test_correlation_ratio_of_interacting_choices_is_zero() -> None:
    grid = [(a, b) for a in (0, 1) for b in (0, 1)]
    holds = [a != b for a, b in grid]
    assert correlation_ratio(holds, [a for a, _ in grid]) == 0.0
    assert correlation_ratio(holds, [a + 2 * b for a, b in grid]) == pytest.approx(1.0)


def test_correlation_ratio_without_variation_is_zero() -> None:
    assert correlation_ratio([True, True], ["a", "b"]) == 0.0


def test_correlation_ratio_takes_options_of_any_kind() -> None:
    assert correlation_ratio([True, False], [None, "a"]) == pytest.approx(1.0)
