"""Rows of data sets: whatever the types of their columns are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.api import Format, Row, Task
from bench.api.protocol import Protocol
from tasks.ct.composer import CHOICE_SETS
from tasks.ct.data_set import ReadOptions, SplitQuestions
from tasks.medmcqa import MedMCQAChoice
from tasks.mmlu import MMLUChoice
from tasks.mmlu_pro import MMLUProChoice
from tests.fuzz.inputs import Target, edited, simple

MMLU = {"question": "Find all c.", "subject": "abstract_algebra", "choices": ["0", "1", "2", "3"], "answer": 1}
PRO = {
    "question_id": 70, "question": "Typical?", "options": [" a", "b", "c"], "answer": "B", "answer_index": 1,
    "category": "business",
}  # fmt: skip
MEDICAL = {
    "id": "45258d3d", "question": "Which?", "opa": "a", "opb": "b", "opc": "c", "opd": "d", "cop": 1,
    "choice_type": "single", "subject_name": "Physiology",
}  # fmt: skip
CORPUS: Mapping[str, dict[str, Any]] = {
    "arc": {"question": "Which?", "choices": {"text": ["x", "y", "z"], "label": ["A", "B", "C"]}, "answerKey": "B"},
    "boolq": {"question": "is it", "passage": "It is.", "answer": True},
    "snli": {"premise": "A man.", "hypothesis": "A person.", "label": 0},
    "siqa": {
        "context": "Robin left.", "question": "Why?", "answerA": "a", "answerB": "b", "answerC": "c", "label": "2\n",
    },
    "sciq": {
        "question": "What?", "support": "", "correct_answer": "d", "distractor1": "a", "distractor2": "b",
        "distractor3": "c",
    },
    "math_qa": {"Problem": "1 + 1?", "options": "a ) 1 , b ) 2 , c ) 3 , d ) 4 , e ) 5", "correct": "b"},
    "winogrande": {"sentence": "Ann met Eve, for _ was late.", "option1": "Ann", "option2": "Eve", "answer": "1"},
    "trec": {"text": "Who ?", "coarse_label": 3},
}  # fmt: skip


class Given:
    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def rows(self, card: object, split: str, columns: Sequence[str]) -> list[Row]:
        return [Row(i, f"file row {i}", {name: row.get(name) for name in columns}) for i, row in enumerate(self._rows)]

    def has(self, card: object, split: str) -> bool:
        return True


def asked(task: type[Task], valid: Mapping[str, Any]) -> Target:
    def call(data: bytes) -> None:
        row = edited(valid, data)
        source: Any = Given([row if isinstance(row, dict) else {}])
        list(task(source, Protocol()).questions("test"))

    return simple(call, b"")


def corpus(_: Path) -> Callable[[bytes], object]:
    """The questions of a data set to learn from: the first byte says which, and in which format."""
    sets = [each for each in CHOICE_SETS if each.name in CORPUS]
    assert len(sets) == len(CORPUS)

    def call(data: bytes) -> None:
        number = data[0] if data else 0
        data_set = sets[number % len(sets)]
        row = edited(CORPUS[data_set.name], data[1:])
        source: Any = Given([row if isinstance(row, dict) else {}])
        fmt = Format.OPEN if number >= 128 and data_set.open is not None else Format.CHOICE
        questions = SplitQuestions(source, data_set, "train", ReadOptions(fmt, 0), {})
        for i in range(len(questions)):
            assert questions[i]

    return call


TARGETS = {
    "mmlu": asked(MMLUChoice, MMLU),
    "mmlu-pro": asked(MMLUProChoice, PRO),
    "medmcqa": asked(MedMCQAChoice, MEDICAL),
    "corpora": Target(corpus, lambda: [bytes([n]) for n in range(len(CORPUS))]),
}
