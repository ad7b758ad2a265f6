"""What the lettered test sets share: their prompts, word for word, and every bad row as one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import Row, Task, UserError
from bench.api.protocol import Protocol
from bench.api.question import Prompt
from bench.data.sources import FolderSource
from bench.prompts import templates
from bench.prompts.exemplars import exemplars, indices_in_subject
from tasks import _choices
from tasks.medmcqa import MedMCQAChoice, MedMCQAOpen
from tasks.mmlu import MMLUChoice, MMLUOpen
from tasks.mmlu_pro import MMLUProChoice

GOLDEN = Path(__file__).parents[2] / "golden"
PROTOCOL = Protocol()

Rows = list[dict[str, Any]]


# --- rows of each data set, with everything in them that a formatter could trip over ----------------------------------


def mmlu(question: str, subject: str, choices: Sequence[str], answer: int) -> dict[str, Any]:
    return {"question": question, "subject": subject, "choices": list(choices), "answer": answer}


def pro(number: int, question: str, category: str, options: Sequence[str], index: int) -> dict[str, Any]:
    return {
        "question_id": number, "question": question, "options": list(options), "answer": "ABCDEFGHIJKLMNOP"[index],
        "answer_index": index, "cot_content": "A: never read", "category": category, "src": "made up",
    }  # fmt: skip


def med(name: str, question: str, subject: str, options: Sequence[str], cop: int) -> dict[str, Any]:
    return {
        "id": name, "question": question, **dict(zip(("opa", "opb", "opc", "opd"), options, strict=True)), "cop": cop,
        "choice_type": "single", "exp": None, "subject_name": subject, "topic_name": None,
    }  # fmt: skip


DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FILES: Mapping[str, Rows] = {
    "mmlu/dev": [
        *(
            mmlu(f"What is {i} times {i}?", "us_foreign_policy", [str(i * i + j) for j in range(4)], 0)
            for i in range(5)
        ),
        mmlu("Which sign stands for a part of a hundred?", "virology", ["%", "{", "}", "{0}"], 0),
        mmlu("Which of these is\nno letter?", "virology", ["a", " b", "c ", "  4 "], 3),
    ],
    "mmlu/test": [
        mmlu("Which of {text} and {options} is 100 % right?", "us_foreign_policy", ["{label}", "%s", "{{}}", "\\n"], 1),
        mmlu("Wie heißt der „Rhein“ auf Latein?", "virology", ["Rhenus", " Dānuvius", "Σηκουάνας", "莱茵"], 0),
        mmlu("  What is left where nothing is shown?\n", "high_school_us_history", ["a", "b", "c", "no  thing"], 3),
    ],
    "mmlu_pro/validation": [
        *(pro(i, f"What is {i} and none?", "law", [str(i + j) for j in range(3 + i)], 0) for i in range(5)),
        pro(5, "Which is the last digit?", "computer science", DIGITS, 9),
        pro(6, "Which digit is „två“?", "computer science", DIGITS[:4], 2),
    ],
    "mmlu_pro/test": [
        pro(70, "Is a {contract} without {0} valid at 50 % of its price?", "law", ["yes", "no", "{yes} and no"], 2),
        pro(75, "Which line begins with a space?", "computer science", [f" {d}\n" for d in DIGITS], 9),
        pro(4001, "¿Qué es 37 °C?", "health", ["\xa0fièvre", "normal … für alle", "\tfebris ", "正常"], 1),
    ],
    "medmcqa/train": [
        {**med("t-0", "Never shown: several are right?", "Skin", ["w", "x", "y", "z"], 3), "choice_type": "multi"},
        med("t-1", "Which bone is the longest?", "Anatomy", ["femur", "tibia", "ulna", "radius"], 0),
        med("t-2", "Which {organ} pumps 100 % of the blood?", "Physiology", ["heart", "liver", "lung", "skin"], 0),
        med("t-3", "Never shown: a third one with the first option right?", "Skin", ["w", "x", "y", "z"], 0),
        med("t-4", "Which one is paired?", "Anatomy", ["heart", "liver", " kidney", "spleen"], 2),
        med("t-5", "Wo sitzt die „Iris“?", "Ophthalmology", ["Ohr", "Nase", "Fuß", "Auge"], 3),
        med("t-6", "Which is a vitamin?", "Biochemistry", ["water", "vitamin C", "salt", "{}"], 1),
        med("t-7", "Never shown: it comes after all five.", "Skin", ["w", "x", "y", "z"], 1),
    ],
    "medmcqa/validation": [
        med("v-a", "True is:\n 1. 50 % of {ears}\n 2. both", "ENT", ["1 only", " 2 only", "1 & 2", "none"], 2),
        med("v-b", "Normal duration of pregnancy (±2 wk)?", "Gynaecology & Obstetrics", ["20", "40", "60", "80"], 1),
        {**med("v-c", "Müller ± sign?", "Unknown", ["β", "δ", "λ", "All of the above"], 3), "choice_type": "multi"},
    ],
}
TASKS: Mapping[str, type[Task]] = {
    "mmlu_choice": MMLUChoice,
    "mmlu_oe": MMLUOpen,
    "mmlu_pro_choice": MMLUProChoice,
    "medmcqa_choice": MedMCQAChoice,
    "medmcqa_oe": MedMCQAOpen,
}


def write(folder: Path, files: Mapping[str, Rows]) -> FolderSource:
    for name, rows in files.items():
        path = folder / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(pa.Table.from_pylist(rows), path)
    return FolderSource(folder)


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    return write(tmp_path, FILES)


# --- prompts ----------------------------------------------------------------------------------------------------------


def prompts(task: Task) -> list[Prompt]:
    """Test prompts as a run builds them."""
    questions, pools = list(task.questions("test")), task.pools()
    numbers = indices_in_subject(questions)
    built = []
    for question in questions:
        shown = exemplars(task, question, numbers[question.id], pools.get(question.subject, ()), PROTOCOL)
        built.append(templates.build(question, shown, task.style_of(question), task.format, PROTOCOL))
    return built


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("name", TASKS)
def test_prompt_equals_its_golden_file(source: FolderSource, name: str, i: int) -> None:
    task = TASKS[name](source)
    prompt = prompts(task)[i]
    said = "".join(f"--- {m.role}\n{m.content}\n--- end\n" for m in prompt.messages)
    assert said == (GOLDEN / f"prompt_{name}_{i}.txt").read_text(encoding="utf-8")


def test_mmlu_ids_are_places_in_the_file(source: FolderSource) -> None:
    task = MMLUChoice(source)
    for split, n in (("test", 3), ("dev", 7)):
        assert [q.id for q in task.questions(split)] == [f"mmlu/{split}/{i}" for i in range(n)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("lettered", "unlettered"), [(MMLUChoice, MMLUOpen), (MedMCQAChoice, MedMCQAOpen)])
def test_both_formats_ask_the_same_questions(
    source: FolderSource, lettered: type[Task], unlettered: type[Task]
) -> None:
    assert list(lettered(source).questions("test")) == list(unlettered(source).questions("test"))
    assert lettered(source).pools() == unlettered(source).pools()
    assert lettered.card is unlettered.card
    assert (lettered.train_on, unlettered.train_on) == ("ct-choice", "ct-oe")
    for prompt, question in zip(prompts(unlettered(source)), unlettered(source).questions("test"), strict=True):
        assert question.text in prompt.messages[1].content
        assert not any(f": {option}\n" in prompt.messages[1].content for option in question.choices)


# --- rows that are not as they must be --------------------------------------------------------------------------------

PLACE = {
    "mmlu/test": (MMLUChoice, "test"),
    "mmlu_pro/test": (MMLUProChoice, "test"),
    "mmlu_pro/validation": (MMLUProChoice, "dev"),
    "medmcqa/validation": (MedMCQAOpen, "test"),
    "medmcqa/train": (MedMCQAChoice, "dev"),
}


def said(folder: Path, file: str, rows: Rows) -> str:
    """The sentence with which a task refuses rows in this file."""
    task, split = PLACE[file]
    source = write(folder, {**FILES, file: rows})
    with pytest.raises(UserError) as caught:
        list(task(source).questions(split))  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"{file}.parquet")
    assert "\n" not in message
    assert str(folder) not in message
    return message


def assert_named(message: str, row: int, words: Sequence[str]) -> None:
    assert f".parquet row {row}: expected " in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("mmlu/test", {"answer": 4}, ["'answer'", "answer index from 0 to 3", "got int 4"]),
        ("mmlu/test", {"subject": "anatmy"}, ["'subject'", "57 names", "'anatmy'", "the nearest is 'anatomy'"]),
        ("mmlu_pro/test", {"answer_index": 10}, ["'answer_index'", "from 0 to 9", "got int 10"]),
        ("mmlu_pro/test", {"answer": "K"}, ["'answer'", "answer letter from A to J", "got str 'K'"]),
        ("mmlu_pro/test", {"answer": "j"}, ["'answer'", "answer letter from A to J", "got str 'j'"]),
        ("mmlu_pro/test", {"answer": "AB"}, ["'answer'", "answer letter", "got str 'AB'"]),
        ("mmlu_pro/test", {"answer": ""}, ["'answer'", "answer letter", "got str ''"]),
        ("mmlu_pro/test", {"answer": None}, ["'answer'", "answer letter", "got null"]),
        ("mmlu_pro/validation", {"category": "Computer Science"}, ["'category'", "14 names", "'computer science'"]),
        ("mmlu_pro/test", {"question_id": None}, ["'question_id'", "an id", "got null"]),
        ("mmlu_pro/test", {"question_id": 70}, ["id of its own", "'mmlu-pro/70'", "test.parquet row 0"]),
        ("medmcqa/validation", {"cop": 4}, ["'cop'", "from 0 to 3", "got int 4"]),
        ("medmcqa/validation", {"cop": -1}, ["'cop'", "got int -1", "hidden", "the Hub's split 'test'"]),
        ("medmcqa/validation", {"opc": None}, ["'opc'", "a text", "got null"]),
        ("medmcqa/train", {"opd": " "}, ["'opd'", "not empty"]),
        ("medmcqa/validation", {"subject_name": "Orthopedics"}, ["'subject_name'", "21 names", "'Orthopaedics'"]),
        ("medmcqa/validation", {"choice_type": "both"}, ["'choice_type'", "2 names", "'both'"]),
        ("medmcqa/validation", {"id": ""}, ["'id'", "an id", "got str ''"]),
        ("medmcqa/validation", {"id": "v-a"}, ["id of its own", "'medmcqa/v-a'", "validation.parquet row 0"]),
    ],
)  # fmt: skip
def test_bad_value_is_named(tmp_path: Path, file: str, changes: dict[str, Any], words: list[str]) -> None:
    assert_named(
        said(tmp_path, file, [row | (changes if i == 1 else {}) for i, row in enumerate(FILES[file])]), 1, words
    )


# --- the pieces -------------------------------------------------------------------------------------------------------

FIELDS = _choices.Fields(subject="subject", text="question", choices="choices", gold="answer")


@pytest.mark.parametrize("n", [2, 11, 26])
def test_letters_name_up_to_twenty_six_options(n: int) -> None:
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[n - 1]
    assert _choices.letter(Row(0, "f row 0", {"answer": last}), "answer", n) == n - 1
    with pytest.raises(UserError, match=f"an answer letter from A to {last} "):
        _choices.letter(Row(0, "f row 0", {"answer": chr(ord(last) + 1)}), "answer", n)


def test_eleven_options_are_read_and_lettered_on(tmp_path: Path) -> None:
    eleven = pro(70, "Which?", "math", [f"o{i}" for i in range(11)], 10)
    task = MMLUProChoice(write(tmp_path, {**FILES, "mmlu_pro/test": [eleven]}))
    (prompt,) = prompts(task)
    assert prompt.messages[1].content.endswith("  (j): o9\n  (k): o10\nAnswer:")
    assert templates.target(next(task.questions("test")), task.format, PROTOCOL.letters) == "k"


def test_any_subject_goes_where_none_are_listed() -> None:
    row = Row(0, "f row 0", mmlu("Q?", "heraldry", ["a", "b"], 0))
    assert _choices.question(row, FIELDS, "id").subject == "heraldry"
    listed = dataclasses.replace(FIELDS, subjects=("history",))
    with pytest.raises(UserError, match="the nearest is 'history'"):
        _choices.question(row, listed, "id")
