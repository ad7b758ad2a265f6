"""Shards: a fair size and each question once, a sample of them in a dry run, and the same words tokenised once."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from bench import registry
from bench.api.protocol import FIXED, Protocol
from bench.data.sources import open_source
from bench.progress import Silent
from bench.prompts import shards as module
from bench.prompts.chat import Chat
from bench.prompts.shards import _MOST, _SHARD, PromptTokeniser, split_into_shards
from tests.fixtures.models import TINY

sizes = st.lists(st.integers(1, 400), min_size=1, max_size=8)
large = st.lists(st.integers(1, 2000), min_size=1, max_size=4)


@given(sizes | large, st.randoms(use_true_random=False), st.booleans(), st.sampled_from([1, 2, 8]))
def test_shards_hold_rows_once_and_subjects_together(counts: list[int], rng, mixed: bool, divisor: int) -> None:  # type: ignore[no-untyped-def]
    subjects = [f"s{i}" for i, n in enumerate(counts) for _ in range(n)]
    if mixed:
        rng.shuffle(subjects)
    shards = split_into_shards(subjects, divisor)
    in_order = np.concatenate(shards).tolist()
    assert sorted(in_order) == list(range(len(subjects)))
    assert all(len(shard) >= _SHARD // divisor for shard in shards[:-1])
    assert all(len(shard) <= _MOST // divisor for shard in shards)
    assert split_into_shards([]) == []
    by_subject = [subjects[row] for row in in_order]
    assert len([a for a, b in pairwise(by_subject) if a != b]) == len(set(subjects)) - 1
    for subject in set(subjects):
        rows = [row for row in in_order if subjects[row] == subject]
        assert rows == sorted(rows)


@given(sizes)
def test_shards_are_closed_and_cut_by_size(counts: list[int]) -> None:
    """Those that are not cut keep their keys, so that what was read before is found."""
    subjects = [f"s{i}" for i, n in enumerate(counts) for _ in range(n)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST", 10**9)
        whole = split_into_shards(subjects)
    shards = split_into_shards(subjects)
    assert {tuple(shard) for shard in whole if len(shard) <= _MOST} <= {tuple(shard) for shard in shards}
    for shard in shards:  # each is closed as soon as it is large enough
        assert sum(subjects[row] != subjects[shard[-1]] for row in shard) < _SHARD


def some(counts: list[int], sample: int | None) -> list[list[int]]:
    ends = np.cumsum([0, *counts])
    groups = [np.arange(start, end) for start, end in pairwise(ends)]
    chat: Any = None
    return [rows.tolist() for rows in PromptTokeniser(chat, 512, FIXED, sample)._some(groups)]


def test_shards_of_a_dry_run_are_taken_evenly() -> None:
    for sample in (None, 10, 25):  # not much larger
        assert some([20, 20, 40], sample) == [[*range(20)], [*range(20, 40)], [*range(40, 80)]]
    chosen = some([5] * 100, 50)
    assert [rows[0] for rows in chosen] == list(range(0, 500, 50))
    assert {len(rows) for rows in chosen} == {5}
    assert some([1_000], 10) == [[*range(10)]]


class Counting:
    """A tokenizer that counts the texts that it is given."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.texts = 0

    def __call__(self, texts: Any, **options: Any) -> Any:
        self.texts += 1 if isinstance(texts, str) else len(texts)
        return self.tokenizer(texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def test_letters_and_query_are_tokenised_once() -> None:
    tokenizer = Counting(TINY)
    task = registry.tasks().get("atlas-choice")(open_source(None), Protocol())
    questions = list(islice(task.questions("test"), 30))
    fixed = []
    for n in (10, 30):
        prompts, tokenizer.texts = PromptTokeniser(Chat(tokenizer), 2048, Protocol()), 0
        prompts.shards(task, questions[:n], {}, Silent(), "atlas-choice/test")
        asked = [prompts.prompt_settings(task, questions, 1) for _ in range(5)]
        fixed.append(tokenizer.texts - n)
        assert len({(each.letter_ids.tobytes(), each.suffix.tobytes()) for each in asked}) == 1
    assert fixed[0] == fixed[1]
