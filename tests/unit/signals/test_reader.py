"""Shards hold every question once and have a fair size, and prompts keep the question whatever the context."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.api import (
    At,
    ChoiceLogits,
    ContractError,
    Hidden,
    Of,
    QueryLogits,
    Question,
    Signal,
    Split,
    TokenIds,
    UserError,
)
from bench.api.protocol import FIXED, PAPER, Protocol
from bench.data.splits import TaskSplit
from bench.model import devices
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import ModelSpec
from bench.progress import Silent
from bench.prompts import shards as sharding
from bench.prompts.shards import _MOST, _SHARD, split_into_shards
from bench.signals.batch_builder import BatchBuilder
from bench.signals.definition import pass_definitions
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from tests.fixtures.rivers import Rivers

sizes = st.lists(st.integers(1, 400), min_size=1, max_size=8)
large = st.lists(st.integers(1, 2000), min_size=1, max_size=4)


@given(sizes | large, st.randoms(use_true_random=False), st.booleans())
def test_every_row_is_in_one_shard_and_subjects_stay_together(counts: list[int], rng, mixed: bool) -> None:  # type: ignore[no-untyped-def]
    subjects = [f"s{i}" for i, n in enumerate(counts) for _ in range(n)]
    if mixed:
        rng.shuffle(subjects)
    shards = split_into_shards(subjects)
    assert sorted(np.concatenate(shards).tolist()) == list(range(len(subjects)))
    assert all(len(shard) >= _SHARD for shard in shards[:-1])
    assert all(len(shard) <= _MOST for shard in shards)
    in_order = np.concatenate(shards).tolist()
    by_subject = [subjects[row] for row in in_order]
    assert len([a for a, b in pairwise(by_subject) if a != b]) == len(set(subjects)) - 1
    for subject in set(subjects):
        rows = [row for row in in_order if subjects[row] == subject]
        assert rows == sorted(rows)


@given(sizes)
def test_a_shard_is_closed_as_soon_as_it_is_large_enough(counts: list[int]) -> None:
    subjects = [f"s{i}" for i, n in enumerate(counts) for _ in range(n)]
    for shard in split_into_shards(subjects):
        last = subjects[shard[-1]]
        assert sum(subjects[row] != last for row in shard) < _SHARD


@given(sizes)
def test_only_shards_that_are_too_large_are_cut(counts: list[int]) -> None:
    """The others keep their keys, so that what was read before is found."""
    subjects = [f"s{i}" for i, n in enumerate(counts) for _ in range(n)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding, "_MOST", 10**9)
        whole = split_into_shards(subjects)
    kept = {tuple(shard) for shard in split_into_shards(subjects)}
    assert {tuple(shard) for shard in whole if len(shard) <= _MOST} <= kept


def test_no_rows_make_no_shards() -> None:
    assert split_into_shards([]) == []


# --- prompts ----------------------------------------------------------------------------------------------------------

WORDS = ["river", "stone", "cloud", "ember", "harbour", "lantern", "meadow", "orchard"]


def question(name: str, words: int, subject: str = "rivers") -> Question:
    text = " ".join(WORDS[(len(name) + i) % len(WORDS)] for i in range(words))
    return Question(name, subject, f"{name}: {text}?", ("Tove", "Kiru", "Bamo"), 0)


DEV = [question(f"dev{i}", 20) for i in range(5)]


class Lengths(Rivers):
    """Three questions of different length and five exemplars."""

    def questions(self, split: Split) -> Iterator[Question]:
        yield from DEV if split == "dev" else [question("short", 3), question("middle", 60), question("long", 110)]


def read(folder: Path, tmp_path: Path, context: int, protocol: Protocol = FIXED) -> tuple[Reader, SplitData]:
    lm = LanguageModel(ModelSpec("small", str(folder), local=True), LoadOptions(device="cpu"))
    lm.context = context
    reader = Reader(lm, Store(tmp_path / "cache"), protocol, 1024, Silent())
    task = Lengths(None)  # type: ignore[arg-type]
    return reader, reader.open(TaskSplit("rivers", "test"), task, list(task.questions("test")))


def texts(reader: Reader, split_data: SplitData) -> list[str]:
    """The prompts as text, in the order of the questions."""
    by_row = dict(zip(split_data.shards[0].rows.tolist(), split_data.shards[0].prompts, strict=True))
    return [reader.lm.chat.tokenizer.decode(by_row[row]) for row in range(3)]


def test_with_room_enough_every_prompt_has_all_exemplars_in_order(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, 4096)
    assert split_data.shards[0].dropped == 0
    for text in texts(reader, split_data):
        places = [text.index(f"dev{i}:") for i in range(5)]
        assert places == sorted(places)


def test_in_a_short_context_the_first_exemplars_go_and_the_question_stays(small_model: Path, tmp_path: Path) -> None:
    _, roomy = read(small_model, tmp_path, 4096)
    longest = max(map(len, roomy.shards[0].prompts))
    context = longest - 60
    reader, split_data = read(small_model, tmp_path, context)
    kept = []
    for text, name in zip(texts(reader, split_data), ("short", "middle", "long"), strict=True):
        assert f"{name}: " in text
        assert text.count("(c): Bamo") == text.count("(a): Tove")  # no option of the question is cut off
        shown = [i for i in range(5) if f"dev{i}:" in text]
        assert shown == list(range(5 - len(shown), 5))
        kept.append(len(shown))
    assert kept[2] < 5
    assert split_data.shards[0].dropped == sum(5 - k for k in kept)
    suffix = len(reader.prompt_settings(split_data).suffix)
    assert all(len(ids) + 1 + suffix <= context for ids in split_data.shards[0].prompts)
    # No more than needed was dropped: with one exemplar more the prompt is too long.
    for count, prompt in zip(kept, (roomy.shards[0].prompts[i] for i in range(3)), strict=True):
        assert count == 5 or len(prompt) + 1 + suffix > context


def test_a_question_that_never_fits_is_named(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Question \w+ has \d+ tokens without exemplars.* leaves room for \d+\. Use"):
        read(small_model, tmp_path, 150)


def test_permuted_exemplars_follow_the_row_and_not_the_run(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, 4096, PAPER)
    orders = []
    for row, text in enumerate(texts(reader, split_data)):
        shown = sorted(range(5), key=lambda i: text.index(f"dev{i}:"))
        assert shown == np.random.default_rng(23 + row).permutation(5).tolist()
        orders.append(tuple(shown))
    assert len(set(orders)) > 1


def test_an_exemplar_never_answers_its_own_question(small_model: Path, tmp_path: Path) -> None:
    reader, _ = read(small_model, tmp_path, 4096)
    split_data = reader.open(TaskSplit("rivers", "dev"), Lengths(None), DEV)  # type: ignore[arg-type]
    for prompt, own in zip(split_data.shards[0].prompts, DEV, strict=True):
        text = reader.lm.chat.tokenizer.decode(prompt)
        assert text.count(f"{own.id}:") == 1
        assert text.rindex(f"{own.id}:") > max(text.index(f"{d.id}:") for d in DEV if d is not own)


def test_letters_other_than_those_shown_are_asked_for(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, 4096)
    decode = reader.lm.chat.tokenizer.decode
    asking = reader.prompt_settings(split_data)
    assert [decode([i]) for i in asking.letter_ids] == ["a", "b", "c"]
    assert [decode([i]) for i in asking.verdict_ids] == ["a", "b"]
    assert "Is the proposed answer correct?" in decode(asking.suffix)


@pytest.mark.parametrize(
    "signal", [TokenIds(Of.GOLD), TokenIds(Of.WRONG), Hidden(at=At.GOLD_PREDICTING), Hidden(at=At.WRONG_PREDICTING)]
)
def test_right_answers_stand_in_labelled_batches_only(small_model: Path, tmp_path: Path, signal: Signal) -> None:
    reader, split_data = read(small_model, tmp_path, 4096)
    with pytest.raises(ContractError, match="which tells the right answer"):
        BatchBuilder(reader).batch(split_data, frozenset({signal}), labels=False)


def test_a_cut_shard_says_the_same_question_by_question(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals = frozenset({Hidden(1.0, At.PROMPT_END), ChoiceLogits(), QueryLogits()})

    def columns(folder: Path) -> tuple[int, dict[Signal, np.ndarray]]:
        reader, split_data = read(small_model, folder, 4096)
        reader.store.prepare()
        done = reader.read(split_data, signals)
        found = pass_definitions(signals).items()
        return len(done.shards), {signal: each.column(reader.stored(done)) for signal, each in found}

    n_whole, whole = columns(tmp_path / "whole")
    monkeypatch.setattr(sharding, "_MOST", 1)
    n_cut, cut = columns(tmp_path / "cut")
    assert (n_whole, n_cut) == (1, 3)
    for signal in signals:
        np.testing.assert_allclose(cut[signal], whole[signal], atol=1e-5, rtol=1e-5)


# --- keys -------------------------------------------------------------------------------------------------------------


def key(folder: Path, tmp_path: Path, budget: int, dtype: str, device: str = "cpu") -> tuple[str, dict[str, object]]:
    """Where the store looks for a shard, and what a result says of the budget; nothing is computed."""
    lm = LanguageModel(ModelSpec("small", str(folder), local=True), LoadOptions(device="cpu", dtype=dtype))
    lm.devices = (device,)
    reader = Reader(lm, Store(tmp_path / "cache"), FIXED, budget, Silent())
    task = Lengths(None)  # type: ignore[arg-type]
    split_data = reader.open(TaskSplit("rivers", "test"), task, list(task.questions("test")))
    return reader._kind(split_data.shards[0], reader.prompt_settings(split_data)), reader.nondefault_settings


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards: one of 80 GB, one of 24 GB."""
    named = {"cuda": ("H100", 85 * 10**9), "cuda:0": ("H100", 85 * 10**9), "cuda:1": ("L4", 24 * 10**9)}
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: named[device][0])
    properties = lambda device: SimpleNamespace(total_memory=named[device][1])  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)


@pytest.mark.usefixtures("cards")
def test_below_float32_a_reading_belongs_to_its_budget_and_kind_of_device(small_model: Path, tmp_path: Path) -> None:
    def short(budget: int, device: str) -> str:
        return key(small_model, tmp_path, budget, "bfloat16", device)[0]

    assert short(1024, "cpu") == short(1024, "cpu")
    assert short(1024, "cuda") == short(1024, "cuda:0")
    assert len({short(1024, "cpu"), short(512, "cpu"), short(1024, "cuda"), short(1024, "cuda:1")}) == 4


@pytest.mark.usefixtures("cards")
def test_below_float32_a_reading_belongs_to_the_packs_that_are_followed_together(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys() -> list[str]:
        asked = [("bfloat16", "cuda"), ("bfloat16", "cpu"), ("float32", "cuda")]
        return [key(small_model, tmp_path, 1024, dtype, device)[0] for dtype, device in asked]

    before = keys()
    monkeypatch.setattr(devices, "_TOGETHER", {"cuda": ((0, devices.BatchLimits(64, 10**9)),)})
    assert [a == b for a, b in zip(keys(), before, strict=True)] == [False, True, True]


@pytest.mark.usefixtures("cards")
def test_in_float32_neither_matters(small_model: Path, tmp_path: Path) -> None:
    assert len({key(small_model, tmp_path, b, "float32", d)[0] for b in (64, 1024) for d in ("cpu", "cuda:1")}) == 1


@pytest.mark.usefixtures("cards")
def test_a_budget_is_told_where_it_can_matter_and_is_not_the_devices_own(small_model: Path, tmp_path: Path) -> None:
    half = {"dtype": "bfloat16"}
    assert key(small_model, tmp_path, 1024, "bfloat16")[1] == half
    assert key(small_model, tmp_path, 64, "float32")[1] == {}
    assert key(small_model, tmp_path, 64, "bfloat16")[1] == {**half, "token_budget": 64}
    assert key(small_model, tmp_path, 8192, "bfloat16", "cuda")[1] == half
    assert key(small_model, tmp_path, 1024, "bfloat16", "cuda")[1] == {**half, "token_budget": 1024}
    assert [devices.default_budget(d) for d in ("cpu", "mps", "cuda", "cuda:1")] == [1024, 1024, 8192, 2048]
