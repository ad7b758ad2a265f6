"""Files of questions: what is in them is taken exactly, and whatever is wrong is one sentence with file and row."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import string
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bench import registry
from bench.api import Format, Question, Task, UserError
from bench.api.protocol import FIXED
from bench.data.question_files import _FileTask, task_of_file
from bench.data.tables import csv_rows, json_lines
from bench.model.specs import NAME
from bench.prompts.templates import build

BEES = {"question": "What do bees make?", "choices": ["honey", "silk", "ink"], "answer": "a"}
OPEN = {"question": "What do bees make?", "answer": "honey"}


def jsonl(folder: Path, *rows: object, name: str = "bees.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def sheet(folder: Path, text: str, name: str = "bees.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def table(folder: Path, columns: dict[str, Any], name: str = "bees.parquet") -> Path:
    parquet.write_table(pa.table(columns), folder / name)
    return folder / name


def made(path: Path) -> Task:
    return task_of_file(path)(None)  # type: ignore[arg-type]


def asked(path: Path, split: str = "test") -> list[Question]:
    return list(made(path).questions(split))  # type: ignore[arg-type]


def digits(path: Path) -> str:
    """The end of its task's name."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:6]


# --- what a file means ------------------------------------------------------------------------------------------------


def test_file_with_options_is_a_choice_task(tmp_path: Path) -> None:
    path = jsonl(tmp_path, BEES, {**BEES, "subject": "biology", "id": "x"})
    task = made(path)
    assert isinstance(task, _FileTask)
    assert (task.name, task.format, task.train_on) == (f"bees-{digits(path)}", Format.CHOICE, "")
    assert (task.card.version, dict(task.card.sizes), task.card.options) == (1, {"test": 2}, (3, 3))
    assert asked(path) == [
        Question("bees:0", "bees", "What do bees make?", ("honey", "silk", "ink"), 0),
        Question("x", "biology", "What do bees make?", ("honey", "silk", "ink"), 0),
    ]
    assert task.provenance("test") == {
        "task file bees.jsonl": f"sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
    }
    with pytest.raises(UserError, match=r"splits test of bees\.jsonl, got 'dev'"):
        list(task.questions("dev"))


def test_file_without_options_is_asked_openly(tmp_path: Path) -> None:
    task = made(jsonl(tmp_path, OPEN, {**OPEN, "choices": None}))
    assert (task.format, task.train_on) == (Format.OPEN, "")
    assert [(q.choices, q.answer) for q in task.questions("test")] == [(("honey",), "honey")] * 2
    prompt = build(next(task.questions("test")), [], task.style, task.format, FIXED)
    assert prompt.messages[-1].content == "Question: What do bees make?\nAnswer:"


def test_columns_like_options_may_be_empty(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"Choices": []}, {"answer_choices": None}, {"A": "", "Choice_A": None, "Split": None}]
    rows += [{"alternatives": ["wax"], "answers": ["honey"]}, {"alternatives": "wax"}]
    assert made(jsonl(tmp_path, *({**OPEN, **row} for row in rows))).format is Format.OPEN
    assert made(table(tmp_path, {"question": ["q"], "answer": ["x"], "Choices": [[]]})).format is Format.OPEN
    flat = {"question": "q", "answer": "a", "choice_a": "x", "choice_b": "y", "Choice_C": "", "alternatives": ["x"]}
    assert [q.choices for q in asked(jsonl(tmp_path, flat))] == [("x", "y")]


def test_options_in_other_case_are_refused(tmp_path: Path) -> None:
    columns = {"question": ["q"], "answer": ["a"], "choice_a": ["x"], "choice_b": ["y"], "Choice_C": ["z"]}
    with pytest.raises(UserError, match=r"row 0: column 'Choice_C' looks like options, but is not read"):
        task_of_file(table(tmp_path, columns))
    with pytest.raises(UserError, match="row 0: column 'Choices' looks like options"):
        task_of_file(table(tmp_path, {"question": ["q"], "answer": ["x"], "Choices": [["x", "y"]]}))


@pytest.mark.parametrize(
    ("columns", "answer", "others"),
    [
        ({"answers": ["honey", "wax"]}, "honey", ("wax",)),
        ({"answer": "honey", "answers": ["wax", "honey", "wax"]}, "honey", ("wax",)),
        ({"answers": ["honey"]}, "honey", ()),
        ({"answer": "honey", "answers": []}, "honey", ()),
        ({"answer": "honey", "answers": None}, "honey", ()),
        ({"answer": "honey", "answers": {"text": ["wax"]}}, "honey", ()),
    ],
)
def test_open_question_may_have_several_right_answers(
    tmp_path: Path, columns: dict[str, Any], answer: str, others: tuple[str, ...]
) -> None:
    (question,) = asked(jsonl(tmp_path, {"question": "What do bees make?", **columns}))
    assert (question.choices, question.answer, question.accepted) == ((answer,), answer, others)


def test_several_right_answers_in_a_sheet_and_a_table(tmp_path: Path) -> None:
    text = 'question,answers\nWhat do bees make?,"[""honey"", ""wax""]"\n'
    rows = {"question": ["What?"], "answers": [["honey", "wax"]]}
    for path in (sheet(tmp_path, text), table(tmp_path, rows)):
        (question,) = asked(path)
        assert (question.answer, question.accepted) == ("honey", ("wax",))
    (question,) = asked(sheet(tmp_path, "question,answer,answers\nWhat?,honey,many\n", name="other.csv"))
    assert (question.answer, question.accepted) == ("honey", ())
    (question,) = asked(jsonl(tmp_path, {**BEES, "answers": 7}))
    assert (question.gold, question.accepted) == (0, ())


def test_rows_go_to_splits_and_exemplars_to_subjects(tmp_path: Path) -> None:
    splits = ["dev", "train", None, "test", "", "validation", "dev"]
    task = made(jsonl(tmp_path, *({**BEES, "split": split, "subject": f"s{i % 2}"} for i, split in enumerate(splits))))
    assert dict(task.card.splits) == {split: split for split in ("dev", "train", "test", "validation")}
    assert [q.id for q in task.questions("test")] == ["bees:2", "bees:3", "bees:4"]
    assert {s: [q.id for q in pool] for s, pool in task.pools().items()} == {"s0": ["bees:0", "bees:6"]}
    assert task.train_on == ""


def test_prompt_is_the_one_of_mmlu(tmp_path: Path) -> None:
    task = made(jsonl(tmp_path, {**BEES, "subject": "insect_life"}, {**BEES, "split": "dev", "subject": "insect_life"}))
    question, exemplars = next(task.questions("test")), task.pools()["insect_life"]
    own = "Question:\nWhat do bees make?\n\nChoices:\n  (a): honey\n  (b): silk\n  (c): ink\nAnswer:"
    assert build(question, exemplars, task.style, task.format, FIXED).messages[-1].content == (
        "The following are multiple-choice questions (with answers) about Insect life.\n\n"
        f"{own} a\n\nNow, answer the next question.\n\n{own}"
    )


NAMES = [("bees", "bees"), ("My Quiz_2", "my-quiz-2"), ("--a..b--", "a-b"), ("Éa", "a"), ("x" * 73, "x" * 73)]


@pytest.mark.parametrize(("stem", "name"), [*NAMES, ("all", "all")])
def test_task_name_is_the_file_name_in_lower_case(tmp_path: Path, stem: str, name: str) -> None:
    path = jsonl(tmp_path, BEES, name=f"{stem}.jsonl")
    task = task_of_file(path)
    assert task.name == f"{name}-{digits(path)}"
    assert NAME.fullmatch(task.name)
    assert next(task(None).questions("test")).id == f"{stem}:0"  # type: ignore[arg-type]


def test_name_tells_files_and_versions_apart(tmp_path: Path) -> None:
    first = jsonl(tmp_path, BEES)
    before = made(first).name
    first.write_text(first.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert made(first).name != before
    known = registry.tasks((), [(task_of_file(first), str(first))])
    assert {made(first).name, "atlas-choice"} <= set(known.names())
    assert [e.name for e in known.entries() if e.origin == str(first)] == [made(first).name]
    with pytest.raises(UserError, match=f"Two tasks are called '{made(first).name}'"):
        registry.tasks((), [(task_of_file(first), str(first))] * 2)


# --- values are taken as they stand -----------------------------------------------------------------------------------


def test_cells_of_a_sheet_stay_text(tmp_path: Path) -> None:
    cells = ["1.0", "007", "NA", "null", "True", "1e5", " spaced ", "nan", "a,b", 'say "x"', "two\nlines", "2020-01-01"]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["question", "answer", "id"])
    writer.writerows([f"q {cell}", cell, cell] for cell in cells)
    questions = asked(sheet(tmp_path, out.getvalue()))
    assert [q.answer for q in questions] == cells
    assert [q.id for q in questions] == cells
    assert [q.text for q in questions] == [f"q {cell}" for cell in cells]


def test_options_in_a_sheet_are_listed_or_flat(tmp_path: Path) -> None:
    listed = sheet(tmp_path, 'question,choices,answer\nq,"[""1.0"", ""NA"", ""a \\"" b""]",c\n', "listed.csv")
    flat = sheet(tmp_path, 'question,choice_a,choice_b,choice_c,choice_d,answer\nq,1.0,NA,"a "" b",,c\n', "flat.csv")
    for path in (listed, flat):
        assert [(q.choices, q.gold) for q in asked(path)] == [(("1.0", "NA", 'a " b'), 2)]


def test_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "bees.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(OPEN).encode() + b"\r\n\r\n")
    assert asked(tmp_path / "bees.jsonl")[0].answer == "honey"
    path = sheet(tmp_path, "question,answer\r\nWhat?,honey\r\n", encoding="utf-8-sig")
    assert [(q.text, q.answer) for q in asked(path)] == [("What?", "honey")]


def test_json_texts_may_hold_separators(tmp_path: Path) -> None:
    text = "one\u2028two\u0085three\x0cfour"
    path = tmp_path / "bees.jsonl"
    path.write_text(json.dumps({**OPEN, "question": text}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert [q.text for q in asked(path)] == [text]


def test_columns_that_are_not_read_may_hold_anything(tmp_path: Path) -> None:
    odd = pa.array([None, 9_000_000_000_000_000_001], type=pa.timestamp("ns"))  # no Python value without pandas
    path = table(tmp_path, {"when": odd, "question": ["q", "r"], "answer": ["x", "y"], "nested": [{"a": 1}, None]})
    assert [(q.text, q.answer) for q in asked(path)] == [("q", "x"), ("r", "y")]


@given(st.lists(st.tuples(st.text(min_size=1), st.lists(st.text(), max_size=3)), max_size=5))
def test_rows_of_any_text_come_back(rows: list[tuple[str, list[str]]]) -> None:
    lines = "".join(json.dumps({"t": text, "l": texts}, ensure_ascii=i % 2 == 0) + "\n" for i, (text, texts) in
                    enumerate(rows) if _encodes([text, *texts]))  # fmt: skip
    expected = [{"t": text, "l": texts} for text, texts in rows if _encodes([text, *texts])]
    assert [row.values for row in json_lines(io.BytesIO(lines.encode()), "f")] == expected
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerows([["t", "n"], *([text, str(len(texts))] for text, texts in rows if _encodes([text], "\0"))])
    found = [row.values for row in csv_rows(io.BytesIO(out.getvalue().encode()), "f")]
    assert found == [{"t": text, "n": str(len(texts))} for text, texts in rows if _encodes([text], "\0")]


def _encodes(texts: list[str], without: str = "") -> bool:
    """Neither half a character, nor, unescaped, the zero by which UTF-16 is told."""
    return all(not (0xD800 <= ord(c) <= 0xDFFF or c == "\0" or c in without) for text in texts for c in text)


def test_cells_of_any_length_are_read() -> None:
    long = "so " * 50_000
    assert [row.values for row in csv_rows(io.BytesIO(f'text,n\n"{long}",1\n'.encode()), "f")] == [
        {"text": long, "n": "1"}
    ]


def test_rows_are_numbered_by_lines_where_they_begin() -> None:
    text = 'question,answer\n"two\nlines",a\n\n"x",b\n'
    assert [(row.index, row.where) for row in csv_rows(io.BytesIO(text.encode()), "f")] == [
        (0, "f line 2"), (1, "f line 5"),
    ]  # fmt: skip
    lines = '\n{"a": 1}\n \n{"a": 2}'
    assert [(row.index, row.where) for row in json_lines(io.BytesIO(lines.encode()), "f")] == [
        (0, "f line 2"), (1, "f line 4"),
    ]  # fmt: skip


# --- answers ----------------------------------------------------------------------------------------------------------


XYZ = ["x", "y", "z"]


@pytest.mark.parametrize(
    ("choices", "answers", "gold"),
    [
        (XYZ, ["b", "B", " b ", "y", 1, "1"], 1),
        (["x", " y", "y"], [" y"], 1),
        (["x", " y", "y"], ["y"], 2),
        (["10", "20"], ["20", 20, 1], 1),  # 20 is no index
        (["0", "1", "2"], [1], 1),  # text and index are one
        (["a", "b"], ["b"], 1),  # letter and text are one
        (["b", "a"], ["A"], 0),  # no option is called A
        (["True", "False"], ["False", "false", " FALSE "], 1),
        (["²", "x"], ["²"], 0),
    ],
)
def test_answer_is_a_letter_a_text_or_an_index(
    tmp_path: Path, choices: list[str], answers: list[object], gold: int
) -> None:
    rows = [{"question": f"q {i}", "choices": choices, "answer": answer} for i, answer in enumerate(answers)]
    assert [question.gold for question in asked(jsonl(tmp_path, *rows))] == [gold] * len(answers)


@given(st.lists(st.text(alphabet="abAB012xy", min_size=1, max_size=2), min_size=2, max_size=5), st.data())
def test_answer_is_never_read_in_two_ways(
    tmp_path_factory: pytest.TempPathFactory, choices: list[str], data: st.DataObject
) -> None:
    """Against the definition: every option that the answer names as text, letter or index, else in any case."""
    answer = data.draw(st.sampled_from([*choices, *"abcdeAB01234", "zz"]))
    named = {i for i, choice in enumerate(choices) if answer in {choice, "abcde"[i], "ABCDE"[i], str(i)}}
    named = named or {i for i, choice in enumerate(choices) if answer.lower() == choice.lower()}
    path = jsonl(tmp_path_factory.mktemp("q"), {"question": "q", "choices": choices, "answer": answer})
    if len(named) == 1:
        assert {asked(path)[0].gold} == named
    else:
        with pytest.raises(UserError, match="line 1: the answer" if named else "line 1: expected a letter"):
            task_of_file(path)


@pytest.mark.parametrize("n", [2, 26])
def test_fewest_and_most_options(tmp_path: Path, n: int) -> None:
    choices = [f"option {i}" for i in range(n)]
    letter = string.ascii_lowercase[n - 1]
    flat = {f"choice_{string.ascii_lowercase[i]}": text for i, text in enumerate(choices)}
    for name, row in (("a", {"choices": choices}), ("b", flat)):
        (question,) = asked(jsonl(tmp_path, {"question": "q", "answer": letter, **row}, name=f"{name}.jsonl"))
        assert (question.choices, question.gold) == (tuple(choices), n - 1)


def test_file_to_learn_on_needs_no_split(tmp_path: Path) -> None:
    path = jsonl(tmp_path, BEES, {**BEES, "split": "test"})
    name = f"bees-{digits(path)}"
    task = task_of_file(path, "train", existing=[name, f"{name}-train"])
    assert (task.name, dict(task.card.sizes)) == (f"{name}-train-train", {"train": 1, "test": 1})


def test_endings_may_be_in_capitals(tmp_path: Path) -> None:
    assert task_of_file(jsonl(tmp_path, BEES, name="BEES.JSONL")).name.startswith("bees-")
