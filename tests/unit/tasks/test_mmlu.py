"""MMLU and MMLU-Pro: what is odd in rows is counted, and all real rows are read, in the published sizes."""

from __future__ import annotations

import csv
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.data.sources import FolderSource
from tasks.mmlu import SUBJECTS, MMLUChoice, MMLUOpen
from tasks.mmlu_pro import CATEGORIES, CONFLICTS, STRIPPED, MMLUProChoice

SHARED = Path(__file__).parents[3] / ".." / "shared"
SIZES = SHARED / "paper" / "task_sizes.csv"
DATA = SHARED / "data"
needs_sizes = pytest.mark.skipif(not SIZES.is_file(), reason="../shared/paper/task_sizes.csv is absent")


def published(benchmark: str) -> dict[str, int]:
    with SIZES.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == benchmark]
    return {row["task"].lower(): int(row["n_test"]) for row in rows}


# --- MMLU -------------------------------------------------------------------------------------------------------------


@needs_sizes
def test_mmlu_subjects_are_the_published_ones() -> None:
    sizes = published("mmlu")
    assert [subject.replace("_", " ") for subject in SUBJECTS] == sorted(sizes)
    assert sum(sizes.values()) == MMLUOpen.card.sizes["test"]


@needs_sizes
@pytest.mark.skipif(not (DATA / "mmlu" / "test.parquet").is_file(), reason="../shared/data/mmlu is absent")
def test_mmlu_asks_every_question_of_every_subject() -> None:
    source = FolderSource(DATA)
    questions = list(MMLUOpen(source).questions("test"))
    assert questions == list(MMLUChoice(source).questions("test"))
    assert dict(Counter(question.subject.replace("_", " ") for question in questions)) == published("mmlu")
    assert {subject: len(pool) for subject, pool in MMLUOpen(source).pools().items()} == dict.fromkeys(SUBJECTS, 5)


# --- MMLU-Pro ---------------------------------------------------------------------------------------------------------


def _row(number: int, options: list[str], index: int, answer: str) -> dict[str, Any]:
    return {
        "question_id": number, "question": " Which? ", "options": options, "answer": answer, "answer_index": index,
        "category": "law",
    }  # fmt: skip


@pytest.fixture
def task(tmp_path: Path) -> MMLUProChoice:
    rows = [
        _row(7, [" a", "b\n", "c", "\u00a0d e\u3000"], 3, "D"),
        _row(8, ["a", "b", "c"], 1, "C"),
        _row(9, ["a", "a ", "b"], 0, "A"),
    ]
    (tmp_path / "mmlu_pro").mkdir()
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "mmlu_pro" / "test.parquet")
    rows = [_row(1, [" x", "y", "z"], 0, "B")]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "mmlu_pro" / "validation.parquet")
    return MMLUProChoice(FolderSource(tmp_path))


def test_mmlu_pro_strips_options_and_believes_the_index(task: MMLUProChoice) -> None:
    first, second, third = task.questions("test")
    assert first.choices == ("a", "b", "c", "d e")
    assert first.text == " Which? "
    assert third.choices == ("a", "a", "b"), "two options that stripping makes equal are both kept"
    assert (first.gold, second.gold, third.gold) == (3, 1, 0), "also where the letter says otherwise"
    assert (first.id, second.id, third.id) == ("mmlu-pro/7", "mmlu-pro/8", "mmlu-pro/9")


def test_mmlu_pro_counts_test_rows_once(task: MMLUProChoice, tmp_path: Path) -> None:
    assert task.counts == {}
    for _ in range(2):
        list(task.questions("test"))
        task.pools()
        assert task.counts == {STRIPPED: 4, CONFLICTS: 1}
    rows = [_row(7, ["a", "b", "c"], 2, "C")]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "mmlu_pro" / "test.parquet")
    plain = MMLUProChoice(FolderSource(tmp_path))
    list(plain.questions("test"))
    assert plain.counts == {}


@needs_sizes
@pytest.mark.skipif(not (DATA / "mmlu_pro" / "test.parquet").is_file(), reason="../shared/data/mmlu_pro is absent")
def test_mmlu_pro_reads_every_real_row_as_it_stands() -> None:
    rows: list[dict[str, Any]] = parquet.read_table(DATA / "mmlu_pro" / "test.parquet").to_pylist()
    real = MMLUProChoice(FolderSource(DATA))
    questions = list(real.questions("test"))
    assert [q.id for q in questions] == [f"mmlu-pro/{row['question_id']}" for row in rows]
    assert [q.gold for q in questions] == [row["answer_index"] for row in rows]
    assert [q.text for q in questions] == [row["question"] for row in rows]
    assert [list(q.choices) for q in questions] == [[text.strip() for text in row["options"]] for row in rows]
    assert {len(q.choices) for q in questions} == set(range(3, 11))
    assert {q.gold for q in questions} == set(range(10))

    sizes = Counter(question.subject for question in questions)
    assert dict(sizes) == published("mmlu-pro")
    assert sorted(sizes) == list(CATEGORIES)
    assert {category: len(pool) for category, pool in real.pools().items()} == dict.fromkeys(CATEGORIES, 5)

    options = [text for row in rows for text in row["options"]]
    conflicts = [row["question_id"] for row in rows if string.ascii_uppercase[row["answer_index"]] != row["answer"]]
    assert real.counts == {STRIPPED: sum(text != text.strip() for text in options), CONFLICTS: len(conflicts)}
    assert conflicts == [3983]
    assert [question.gold for question in questions if question.id == "mmlu-pro/3983"] == [1]
