"""Batches hold the stored rows in the order that is asked for, one copy of them, and predictions get them in pieces."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.api import At, Batch, ContractError, Hidden, Of, Question, Ragged, Signal, TokenIds
from bench.api.question import Answer
from bench.data.splits import TaskSplit
from bench.prompts.front_coding import FrontCodedIds
from bench.signals import batch_builder as batching
from bench.signals.batch_builder import BatchBuilder
from bench.signals.files import _file_name, load_rows
from bench.signals.split_data import SplitData, StoredSplit
from bench.store.disk_cache import Entry
from tests.fixtures.rivers import Rivers

WIDTH = 8
PROMPT, ANSWER = Hidden(1.0, At.PROMPT_END), Hidden(1.0, At.ANSWER_PREDICTING)
SHARDS = [np.array([4, 0, 7]), np.array([1, 2]), np.array([9, 3, 5]), np.array([6, 8])]
N = 10


def stored(folder: Path, signal: Signal, columns: dict[str, torch.Tensor]) -> Entry:
    folder.mkdir(exist_ok=True)
    save_file(columns, folder / _file_name(repr(signal)))
    return Entry(folder, {"fields": {"signals": [repr(signal)]}})


@pytest.fixture
def split_data(tmp_path: Path) -> SplitData:
    """Ten questions in four shards, their rows mixed; one answer is empty, and one question left out."""
    rng = np.random.default_rng(0)
    bundles, answers = [], []
    for i, rows in enumerate(SHARDS):
        lengths = rng.integers(1, 4, size=len(rows))
        offsets = torch.as_tensor(np.cumsum([0, *lengths]))
        states = torch.randn(int(offsets[-1]), WIDTH).bfloat16()
        bundles.append([
            stored(tmp_path / f"{i}-prompt", PROMPT, {"values": torch.randn(len(rows), WIDTH)}),
            stored(tmp_path / f"{i}-answer", ANSWER, {"values": states, "offsets": offsets}),
        ])  # fmt: skip
        answers.append([rng.integers(0, 99, size=n).astype(np.int32) for n in lengths])
    questions = [Question(f"q{i}", "s", "?", ("a", "b"), 0) for i in range(N)]
    shards: Any = [
        SimpleNamespace(rows=rows, prompts=FrontCodedIds([np.arange(r + 1) for r in rows])) for rows in SHARDS
    ]
    return SplitData(
        TaskSplit("rivers", "test"), Rivers(None), questions, shards, left_out=frozenset({"q3"}),  # type: ignore[arg-type]
        bundles=bundles, answer_ids=answers,
        names=[{signal: repr(signal) for signal in (PROMPT, ANSWER)}] * len(SHARDS),
        answers=[Answer("" if i == 7 else "x", None, correct=i % 3 == 0, parsed=True) for i in range(N)],
    )  # fmt: skip


def batches() -> BatchBuilder:
    def of(split_data: SplitData) -> StoredSplit:
        nothing: Any = None
        asking: Any = SimpleNamespace(suffix=np.zeros(0, dtype=np.int32))
        return StoredSplit(split_data, nothing, nothing, asking, 0)

    reader: Any = SimpleNamespace(stored=of)
    return BatchBuilder(reader)


SIGNALS: frozenset[Signal] = frozenset({PROMPT, ANSWER, TokenIds(Of.ANSWER), TokenIds(Of.PROMPT)})


def by_question(split_data: SplitData) -> dict[int, tuple[npt.NDArray[Any], ...]]:
    """Row -> its states and ids, read by hand, file by file."""
    found: dict[int, tuple[npt.NDArray[Any], ...]] = {}
    for rows, (prompt, answer), ids in zip(SHARDS, split_data.bundles, split_data.answer_ids, strict=True):
        first = load_file(prompt.folder / _file_name(repr(PROMPT)))["values"]
        states = load_file(answer.folder / _file_name(repr(ANSWER)))
        for k, row in enumerate(rows):
            start, end = states["offsets"][k : k + 2].tolist()
            found[int(row)] = first[k].numpy(), states["values"][start:end].float().numpy(), ids[k], np.arange(row + 1)
    return found


def check(batch: Batch, rows: npt.NDArray[np.int64], split_data: SplitData) -> None:
    expected = by_question(split_data)
    assert batch.ids == tuple(f"q{row}" for row in rows)
    for i, row in enumerate(rows.tolist()):
        for signal, column in zip(
            (PROMPT, ANSWER, TokenIds(Of.ANSWER), TokenIds(Of.PROMPT)), expected[row], strict=True
        ):
            assert np.array_equal(batch[signal][i], column)


def test_batch_has_usable_questions_in_order(split_data: SplitData) -> None:
    batch = batches().batch(split_data, SIGNALS, labels=True)
    rows = np.array([0, 1, 2, 4, 5, 6, 8, 9])
    check(batch, rows, split_data)
    assert batch.correct.tolist() == [row % 3 == 0 for row in rows]


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_pieces_are_whole_shards_of_usable_questions(
    split_data: SplitData, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "_MIN_QUESTIONS", at_once)
    pieces = list(batches().pieces(split_data, SIGNALS))
    assert len(pieces) == {1: 4, 4: 2, 100: 1}[at_once]
    assert sorted(np.concatenate([rows for rows, _ in pieces]).tolist()) == [0, 1, 2, 4, 5, 6, 8, 9]
    for rows, batch in pieces:
        assert rows.tolist() == sorted(rows)
        check(batch, rows, split_data)
        with pytest.raises(ContractError, match="labels exist only in fit"):
            _ = batch.correct


def test_batch_can_not_be_written(split_data: SplitData) -> None:
    batch = batches().batch(split_data, SIGNALS, labels=False)
    for signal in SIGNALS:
        column: Any = batch[signal]
        arrays: Any = (column.values, column.offsets) if isinstance(column, Ragged) else (column,)
        for array in arrays:
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array.base[...] = 0


def test_rows_are_in_memory_once(tmp_path: Path) -> None:
    """Joining the shards and then taking rows would be twice; so would a list of parts."""
    shards, rows, width = 40, 50, 256
    signal = PROMPT
    bundles = [[stored(tmp_path / str(i), signal, {"values": torch.randn(rows, width)})] for i in range(shards)]
    places = np.random.default_rng(0).permutation(shards * rows)
    load_rows(bundles[:1], [repr(signal)])  # imports
    tracemalloc.start()
    found = load_rows(bundles, [repr(signal)] * shards, places)["values"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.shape == (shards * rows, width)
    assert peak < 1.25 * found.nbytes


def test_rows_of_no_question_are_empty(split_data: SplitData) -> None:
    none = np.zeros(0, dtype=np.int64)
    assert load_rows(split_data.bundles, [repr(PROMPT)] * len(SHARDS), none)["values"].shape == (0, WIDTH)
    ragged = load_rows(split_data.bundles, [repr(ANSWER)] * len(SHARDS), none)
    assert ragged["values"].shape == (0, WIDTH)
    assert ragged["offsets"].tolist() == [0]
