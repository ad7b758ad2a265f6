"""A dry run writes a sample of the prompts of a large split, spread over its shards, and all of a small one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from bench.api.protocol import FIXED
from bench.prompts.shards import PromptTokeniser


def some(sizes: list[int], sample: int | None) -> list[list[int]]:
    ends = np.cumsum([0, *sizes])
    groups = [np.arange(start, end) for start, end in itertools.pairwise(ends)]
    chat: Any = None
    return [rows.tolist() for rows in PromptTokeniser(chat, 512, FIXED, sample)._some(groups)]


@pytest.mark.parametrize("sample", [None, 10, 25])
def test_a_split_that_is_not_much_larger_is_written_whole(sample: int | None) -> None:
    assert some([20, 20, 40], sample) == [[*range(20)], [*range(20, 40)], [*range(40, 80)]]


def test_shards_of_a_large_split_are_taken_whole_and_evenly() -> None:
    chosen = some([5] * 100, 50)
    assert [rows[0] for rows in chosen] == list(range(0, 500, 50))
    assert {len(rows) for rows in chosen} == {5}


def test_one_long_shard_is_cut() -> None:
    assert some([1_000], 10) == [[*range(10)]]
