"""Draws of labels: of the asked size, nested, random, and blind to labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.api import Question, UserError
from bench.api.question import Answer
from bench.data.splits import MIN_VALIDATION, TaskSplit, budget_shares, sampling_order
from bench.progress import Silent
from bench.run.analyses.label_budgets import LabelPool, TaskStudy
from bench.run.analyses.request import LabelsConfig
from bench.signals.split_data import SplitData

TRAIN, VALIDATION = TaskSplit("isles", "train"), TaskSplit("isles", "validation")


def split_data(where: TaskSplit, n: int, *, right: int = 3, silent: tuple[int, ...] = ()) -> SplitData:
    """A graded split in which every so many answers are right and some questions have none."""
    questions = [Question(f"{where.split}/{i}", "sea", "?", ("a", "b"), 0) for i in range(n)]
    answers = [Answer("" if i in silent else "a", "A", i % right == 0, parsed=True) for i in range(n)]
    return SplitData(where, None, questions, [], answers=answers)  # type: ignore[arg-type]


def ids_of(of: SplitData) -> set[str]:
    return {question.id for question, usable in zip(of.questions, of.usable, strict=True) if usable}


POOL = LabelPool(split_data(TRAIN, 80, silent=(0, 1)), split_data(VALIDATION, 20))


@pytest.mark.parametrize("seed", range(4))
def test_draws_have_their_size_and_contain_smaller(seed: int) -> None:
    assert POOL.available == 98
    before: set[str] = set()
    for size in (10, 13, 20, 50, 97, 98):
        drawn, told = POOL.sample(size, seed)
        ids = ids_of(drawn[TRAIN]) | ids_of(drawn[VALIDATION])
        assert len(ids) == told == size
        assert before < ids
        assert len(ids_of(drawn[VALIDATION])) == POOL.budget_shares(size)[1] >= MIN_VALIDATION
        before = ids


def test_draws_differ_by_seed() -> None:
    draws = [frozenset(ids_of(POOL.sample(20, seed)[0][TRAIN])) for seed in range(5)]
    assert len(set(draws)) == 5
    whole, told = POOL.sample(POOL.available, 3)
    assert told == 98
    assert whole[TRAIN] is POOL.learned
    assert whole[VALIDATION] is POOL.validation


def test_draws_look_at_no_label_and_no_method() -> None:
    """The same ids are drawn whatever is right, and by every pool that has the split."""
    other = LabelPool(split_data(TRAIN, 80, right=7, silent=(0, 1)), split_data(VALIDATION, 20, right=2))
    alone = LabelPool(split_data(VALIDATION, 20))
    for seed in range(3):
        for size in (12, 40):
            assert POOL.sample(size, seed)[0][TRAIN].left_out == other.sample(size, seed)[0][TRAIN].left_out
        within = ids_of(POOL.sample(40, seed)[0][VALIDATION])
        assert ids_of(alone.sample(8, seed)[0][VALIDATION]) == within


def test_draws_of_one_split_are_whole() -> None:
    scaled = LabelPool(None, POOL.validation)
    assert [scaled.sample(size, 0)[1] for size in (10, 15, 20, 50)] == [10, 15, 20, 20]
    assert LabelPool(None).sample(10, 0) == ({}, 0)


def test_draws_keep_out_what_was_left_out() -> None:
    learned = replace(split_data(TRAIN, 80), left_out=frozenset(f"train/{i}" for i in range(40)))
    pool = LabelPool(learned, POOL.validation)
    assert pool.available == 60
    drawn, _ = pool.sample(30, 1)
    assert learned.left_out < drawn[TRAIN].left_out
    assert ids_of(drawn[TRAIN]) <= {f"train/{i}" for i in range(40, 80)}


def test_draws_are_simple_random_samples() -> None:
    """Inclusion k / n, pairs k (k - 1) / (n (n - 1)); chi-squared over 4,000 seeds."""
    ids, k, times = [str(i) for i in range(12)], 4, 4000
    counts, pairs = np.zeros(12), np.zeros((12, 12))
    for seed in range(times):
        chosen = np.isin(ids, sampling_order(ids, TRAIN, seed)[:k]).astype(float)
        counts += chosen
        pairs += np.outer(chosen, chosen)
    expected = times * k / 12
    # sampling without replacement: the statistic is (n - 1) / (n - k) times smaller than a multinomial's
    statistic = ((counts - expected) ** 2).sum() / expected * (12 - 1) / (12 - k)
    assert stats.chi2.sf(statistic, 11) > 0.001
    both = pairs[np.triu_indices(12, 1)] / times
    assert both == pytest.approx(np.full(66, k * (k - 1) / (12 * 11)), abs=5 * np.sqrt(0.09 * 0.91 / times))


@pytest.mark.parametrize(("train", "validation"), [(1280, 320), (18_650, 2_000), (30, 12), (5, 100)])
def test_shares_are_proportional_and_only_grow(train: int, validation: int) -> None:
    before = (0, 0)
    for size in range(10, train + validation + 1):
        own = budget_shares(size, train, validation)
        assert sum(own) == size
        assert before[0] <= own[0] <= train
        assert before[1] <= own[1] <= validation
        exact = size * validation / (train + validation)
        assert abs(own[1] - exact) <= max(0.5, MIN_VALIDATION - exact, size - train - exact) + 1e-9
        before = own


def test_task_without_a_label_is_refused() -> None:
    silent = LabelPool(split_data(TRAIN, 3, silent=(0, 1, 2)))
    unused: Any = type("Unused", (), {"resolved": None})
    test = TaskSplit("isles", "test")
    study = TaskStudy(LabelsConfig("tiny"), unused, unused, test, unused, Silent(), {}, {"pik": silent})
    assert study.sizes == (0,)
    with pytest.raises(UserError, match="isles: expected answers that can be told as labels, got none"):
        study.require_labels()
