"""Files of answers: what a row means, and every way in which it can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import Question
from bench.data.answer_files import AnswerFile, UnansweredError, read_answers
from bench.data.splits import TaskSplit

WHERE = TaskSplit("bees", "test")


def written(folder: Path, *rows: Any, name: str = "qwen.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def answer(folder: Path, **row: Any) -> Any:
    return read_answers(written(folder, {"id": "q", **row})).answers["q"]


@pytest.mark.parametrize(
    ("row", "trace", "text"),
    [
        ({"text": "Honey."}, "", "Honey."),
        ({"text": " Honey\n"}, "", "Honey"),
        ({"text": ""}, "", ""),
        ({"text": "So it is honey. \n Honey\n", "final_start": 15}, "So it is honey. \n ", "Honey"),
        ({"text": "I say honey.", "final": "honey"}, "I say ", "honey"),
        ({"text": "honey? yes, honey", "final": "honey"}, "honey? yes, ", "honey"),
        ({"text": "honey", "final_start": 0}, "", "honey"),
        ({"text": "hm", "final_start": 2}, "hm", ""),
        ({"text": "honey", "reasoning_content": "So. \n"}, "So.\n", "honey"),
        ({"text": "honey", "reasoning": None, "reasoning_content": ""}, "", "honey"),
        ({"text": None, "reasoning": "So"}, "So", ""),
        ({"tokens": [5, 6, 7]}, (), (5, 6, 7)),
        ({"tokens": [5, 6, 7], "text": "Hm honey", "final_start": 2}, (5, 6), (7,)),
        ({"tokens": []}, (), ()),
    ],
)
def test_answer_follows_its_trace(tmp_path: Path, row: dict[str, Any], trace: Any, text: Any) -> None:
    found = answer(tmp_path, **row)
    assert (found.trace, found.text, found.correct, found.prompt, found.samples) == (trace, text, None, None, None)


def test_samples_and_grades_are_read(tmp_path: Path) -> None:
    found = answer(tmp_path, text="honey", samples=[" wax", [3, 4]], grade=1)
    assert (found.samples, found.correct) == (("wax", (3, 4)), True)
    file = read_answers(written(tmp_path, {"id": 1, "text": "a", "grade": False}, {"id": 2, "text": "b", "grade": 0.0}))
    assert file.judge == "qwen"
    assert {key: each.correct for key, each in file.answers.items()} == {"1": False, "2": False}
    named = read_answers(written(tmp_path, {"id": 1, "text": "a", "grade": True, "judge": "gpt-5"}))
    assert named.judge == "gpt-5"
    assert read_answers(written(tmp_path, {"id": 1, "text": "a", "judge": "gpt-5"})).judge is None


def test_answers_in_parquet_are_the_same(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "tokens": [1, 2], "final_start": 1, "samples": [[3], [4, 5]], "grade": True, "made": 1},
        {"id": "b", "tokens": [], "final_start": None, "samples": [[3], []], "grade": False, "made": 2},
    ]
    lines = read_answers(written(tmp_path, *rows))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "qwen.parquet")
    table = read_answers(tmp_path / "qwen.parquet")
    assert table.answers == lines.answers
    assert table.judge == "qwen"


def test_source_is_named_by_file_name_and_content(tmp_path: Path) -> None:
    one = read_answers(written(tmp_path, {"id": "q", "text": "honey"}))
    other = read_answers(written(tmp_path, {"id": "q", "text": "wax"}))
    assert one.source == f"file:qwen-{one.sha256[:6]}"
    assert one.source != other.source


def questions(*ids: str) -> list[Question]:
    return [Question(each, "bees", "What do bees make?", ("honey",), 0) for each in ids]


def test_unanswered_question_is_left_out_of_partial_runs(tmp_path: Path) -> None:
    file: AnswerFile = read_answers(written(tmp_path, *({"id": each, "text": "a"} for each in "abz")))
    assert [q.id for q in file.answered(WHERE, questions("a", "b"), partial=False)] == ["a", "b"]
    assert [q.id for q in file.answered(WHERE, questions("a", "b", "c"), partial=True)] == ["a", "b"]
    with pytest.raises(UnansweredError, match=r"each of the 3 questions of bees/test, found 2; 'c' has none"):
        file.answered(WHERE, questions("a", "b", "c"), partial=False)
    with pytest.raises(UnansweredError, match=r"such as 'c', found none, but such as 'a'; add some, or correct"):
        file.answered(WHERE, questions("c"), partial=True)
