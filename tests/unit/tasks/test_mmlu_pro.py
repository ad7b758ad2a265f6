"""MMLU-Pro: what is odd in its rows is counted, the right option is `answer_index`, and all real rows are read."""

from __future__ import annotations

import csv
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import Question
from bench.data.sources import FolderSource
from tasks.mmlu_pro import CATEGORIES, CONFLICTS, STRIPPED, MMLUProChoice

SHARED = Path(__file__).parents[3] / ".." / "shared"
SIZES = SHARED / "paper" / "task_sizes.csv"
DATA = SHARED / "data"


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


def test_options_lose_outer_white_space_and_questions_do_not(task: MMLUProChoice) -> None:
    first, _, third = task.questions("test")
    assert first.choices == ("a", "b", "c", "d e")
    assert first.text == " Which? "
    assert third.choices == ("a", "a", "b"), "two options that stripping makes equal are both kept"


def test_answer_index_is_right_where_the_letter_says_otherwise(task: MMLUProChoice) -> None:
    assert [question.gold for question in task.questions("test")] == [3, 1, 0]


def test_ids_are_the_sources_own(task: MMLUProChoice) -> None:
    assert [question.id for question in task.questions("test")] == ["mmlu-pro/7", "mmlu-pro/8", "mmlu-pro/9"]


def test_counts_are_those_of_the_test_rows_however_often_they_are_read(task: MMLUProChoice) -> None:
    assert task.counts == {}
    for _ in range(2):
        list(task.questions("test"))
        task.pools()
        assert task.counts == {STRIPPED: 4, CONFLICTS: 1}


def test_nothing_is_counted_where_nothing_is_odd(task: MMLUProChoice, tmp_path: Path) -> None:
    rows = [_row(7, ["a", "b", "c"], 2, "C")]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "mmlu_pro" / "test.parquet")
    list(task.questions("test"))
    assert task.counts == {}


# --- all real rows ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> MMLUProChoice:
    if not (DATA / "mmlu_pro" / "test.parquet").is_file():
        pytest.skip("../shared/data/mmlu_pro is absent")
    return MMLUProChoice(FolderSource(DATA))


@pytest.fixture(scope="module")
def questions(real: MMLUProChoice) -> list[Question]:
    return list(real.questions("test"))


@pytest.fixture(scope="module")
def rows(real: MMLUProChoice) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(DATA / "mmlu_pro" / "test.parquet").to_pylist()
    return found


@pytest.mark.skipif(not SIZES.is_file(), reason="../shared/paper/task_sizes.csv is absent")
def test_categories_have_the_published_sizes_and_five_exemplars(real: MMLUProChoice, questions: list[Question]) -> None:
    with SIZES.open(encoding="utf-8", newline="") as file:
        published = [row for row in csv.DictReader(file) if row["benchmark"] == "mmlu-pro"]
    sizes = Counter(question.subject for question in questions)
    assert dict(sizes) == {row["task"].lower(): int(row["n_test"]) for row in published}
    assert sorted(sizes) == list(CATEGORIES)
    assert {category: len(pool) for category, pool in real.pools().items()} == dict.fromkeys(CATEGORIES, 5)


def test_every_real_row_is_read_as_it_stands(questions: list[Question], rows: list[dict[str, Any]]) -> None:
    assert [q.id for q in questions] == [f"mmlu-pro/{row['question_id']}" for row in rows]
    assert [q.gold for q in questions] == [row["answer_index"] for row in rows]
    assert [q.text for q in questions] == [row["question"] for row in rows]
    assert [list(q.choices) for q in questions] == [[text.strip() for text in row["options"]] for row in rows]
    assert {len(q.choices) for q in questions} == set(range(3, 11))
    assert {q.gold for q in questions} == set(range(10))


def test_what_is_odd_in_the_real_rows_is_counted(
    real: MMLUProChoice, questions: list[Question], rows: list[dict[str, Any]]
) -> None:
    options = [text for row in rows for text in row["options"]]
    conflicts = [row["question_id"] for row in rows if string.ascii_uppercase[row["answer_index"]] != row["answer"]]
    assert real.counts == {STRIPPED: sum(text != text.strip() for text in options), CONFLICTS: len(conflicts)}
    assert conflicts == [3983]
    (kept,) = (question for question in questions if question.id == "mmlu-pro/3983")
    assert kept.gold == 1
