"""The reader: prompts keep the question whatever the context, and keys have what a reading depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bench.api import (
    At,
    ChoiceLogits,
    Followup,
    Hidden,
    QueryLogits,
    Question,
    Samples,
    Signal,
    Split,
    UserError,
)
from bench.api.protocol import FIXED, PAPER, Protocol
from bench.api.question import Released
from bench.data.splits import TaskSplit
from bench.model import devices
from bench.model.language_model import LanguageModel
from bench.progress import Silent
from bench.prompts import shards as sharding
from bench.signals.definition import pass_definitions
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from tests.fixtures import models
from tests.fixtures.rivers import Rivers
from tests.kit import passes
from tests.kit.splits import FiveOpenRivers, opened
from tests.kit.splits import read as split_read

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
    lm = passes.load(folder)
    lm.context = context
    reader = Reader(lm, Store(tmp_path / "cache"), protocol, 1024, Silent())
    return reader, opened(reader, Lengths)


def texts(reader: Reader, split_data: SplitData) -> list[str]:
    """The prompts as text, in the order of the questions."""
    by_row = dict(zip(split_data.shards[0].rows.tolist(), split_data.shards[0].prompts, strict=True))
    return [reader.lm.chat.tokenizer.decode(by_row[row]) for row in range(3)]


def test_prompts_have_all_exemplars_in_order(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, 4096)
    assert split_data.shards[0].dropped == 0
    for text in texts(reader, split_data):
        places = [text.index(f"dev{i}:") for i in range(5)]
        assert places == sorted(places)


def test_prompts_lose_first_exemplars_in_short_context(small_model: Path, tmp_path: Path) -> None:
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


def test_questions_that_never_fit_are_named(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Question \w+ has \d+ tokens without exemplars.* leaves room for \d+\. Use"):
        read(small_model, tmp_path, 150)


def test_exemplars_are_permuted_by_row(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, 4096, PAPER)
    orders = []
    for row, text in enumerate(texts(reader, split_data)):
        shown = sorted(range(5), key=lambda i: text.index(f"dev{i}:"))
        assert shown == np.random.default_rng(23 + row).permutation(5).tolist()
        orders.append(tuple(shown))
    assert len(set(orders)) > 1


def test_exemplars_never_answer_their_own_question(small_model: Path, tmp_path: Path) -> None:
    reader, _ = read(small_model, tmp_path, 4096)
    split_data = reader.open(TaskSplit("rivers", "dev"), Lengths(None), DEV)  # type: ignore[arg-type]
    for prompt, own in zip(split_data.shards[0].prompts, DEV, strict=True):
        text = reader.lm.chat.tokenizer.decode(prompt)
        assert text.count(f"{own.id}:") == 1
        assert text.rindex(f"{own.id}:") > max(text.index(f"{d.id}:") for d in DEV if d is not own)


def test_letters_are_asked_for_as_shown(small_model: Path, tmp_path: Path) -> None:
    reader, split_data = read(small_model, tmp_path, 4096)
    decode = reader.lm.chat.tokenizer.decode
    asking = reader.prompt_settings(split_data)
    assert [decode([i]) for i in asking.letter_ids] == ["a", "b", "c"]
    assert [decode([i]) for i in asking.verdict_ids] == ["a", "b"]
    assert "Is the proposed answer correct?" in decode(asking.suffix)


def test_shards_that_are_cut_say_the_same(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def key(folder: Path, tmp_path: Path, budget: int, dtype: str, device: str = "cpu") -> tuple[str, dict[str, object]]:
    """Where the store looks for a shard, and what a result says of the budget; nothing is computed."""
    lm = passes.load(folder, dtype=dtype)
    lm.devices = (device,)
    reader = Reader(lm, Store(tmp_path / "cache"), FIXED, budget, Silent())
    split_data = opened(reader, Lengths)
    return reader._kind(split_data.shards[0], reader.prompt_settings(split_data)), reader.nondefault_settings


def generated(split_data: SplitData) -> list[list[int]]:
    return [ids.tolist() for part in split_data.answer_ids for ids in part]


def test_answers_end_where_the_template_ends_turns(tmp_path: Path) -> None:
    whole = generated(split_read(models.chatml(tmp_path / "long"), tmp_path, FiveOpenRivers, set())[1])
    token = whole[0][1]
    reader, short = split_read(models.chatml(tmp_path / "short", says=token), tmp_path, FiveOpenRivers, set())
    assert generated(short) == [ids[: ids.index(token)] if token in ids else ids for ids in whole]
    said = [Released(None, (70, 8192, 2), None)]
    assert generated(reader.read(opened(reader, FiveOpenRivers, said), frozenset())) == [[70]] * 5


@pytest.mark.parametrize("said", [[], ["a river"]])
def test_texts_beyond_the_end_of_turns_are_stale(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, signals = (
        models.chatml(tmp_path / "model"),
        {Samples(n=2, temperature=1.0, top_p=1.0), Followup("?", say=2)},
    )
    for signal in signals:
        with monkeypatch.context() as former:
            former.setattr(LanguageModel, "added_stops", frozenset())
            assert split_read(folder, tmp_path, FiveOpenRivers, {signal}, said)[0].forward_tokens
        for again in (True, False):
            assert bool(split_read(folder, tmp_path, FiveOpenRivers, {signal}, said)[0].forward_tokens) is again


def test_cells_name_the_tokenizer_that_was_given(small_model: Path, tmp_path: Path) -> None:
    lm = passes.load(small_model)
    assert Reader(lm, Store(tmp_path), FIXED, 64, Silent()).nondefault_settings == {}
    lm.files = replace(lm.files, given_tokenizer="org/model@0123")
    assert Reader(lm, Store(tmp_path), FIXED, 64, Silent()).nondefault_settings == {"tokenizer": "org/model@0123"}


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards: one of 80 GB, one of 24 GB."""
    named = {"cuda": ("H100", 85 * 10**9), "cuda:0": ("H100", 85 * 10**9), "cuda:1": ("L4", 24 * 10**9)}
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: named[device][0])
    properties = lambda device: SimpleNamespace(total_memory=named[device][1])  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)


@pytest.mark.usefixtures("cards")
def test_keys_below_float32_have_budget_and_device(small_model: Path, tmp_path: Path) -> None:
    def short(budget: int, device: str) -> str:
        return key(small_model, tmp_path, budget, "bfloat16", device)[0]

    assert short(1024, "cpu") == short(1024, "cpu")
    assert short(1024, "cuda") == short(1024, "cuda:0")
    assert len({short(1024, "cpu"), short(512, "cpu"), short(1024, "cuda"), short(1024, "cuda:1")}) == 4


@pytest.mark.usefixtures("cards")
def test_keys_below_float32_have_batch_limits(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys() -> list[str]:
        asked = [("bfloat16", "cuda"), ("bfloat16", "cpu"), ("float32", "cuda")]
        return [key(small_model, tmp_path, 1024, dtype, device)[0] for dtype, device in asked]

    before = keys()
    monkeypatch.setattr(devices, "_TOGETHER", {"cuda": ((0, devices.BatchLimits(64, 10**9)),)})
    assert [a == b for a, b in zip(keys(), before, strict=True)] == [False, True, True]


@pytest.mark.usefixtures("cards")
def test_keys_in_float32_have_neither(small_model: Path, tmp_path: Path) -> None:
    assert len({key(small_model, tmp_path, b, "float32", d)[0] for b in (64, 1024) for d in ("cpu", "cuda:1")}) == 1


@pytest.mark.usefixtures("cards")
def test_budget_is_told_where_it_matters(small_model: Path, tmp_path: Path) -> None:
    for budget, dtype, device, told in [
        (1024, "bfloat16", "cpu", False),
        (64, "float32", "cpu", False),
        (64, "bfloat16", "cpu", True),
        (8192, "bfloat16", "cuda", False),
        (1024, "bfloat16", "cuda", True),
    ]:
        expected = {"dtype": dtype} if dtype != "float32" else {}
        expected |= {"token_budget": budget} if told else {}
        assert key(small_model, tmp_path, budget, dtype, device)[1] == expected
