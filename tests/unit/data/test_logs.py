"""Logs that lm-evaluation-harness and Inspect wrote become answers; what is none of theirs is one sentence."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import registry
from bench.api import Format, Question, UserError
from bench.data import logs
from bench.data.answer_files import read_answers
from bench.data.logs import LogRecord, import_records, inspect_records, lm_eval_records
from tests.fixtures.logs.write import write

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
OPEN, CHOICE = Format.OPEN, Format.CHOICE


def questions(task: str) -> list[Question]:
    made: Any = registry.tasks([]).get(task)
    return list(made(None).questions("test"))


def rows(name: str, folder: Path = LOGS) -> list[dict[str, Any]]:
    """Rows of a log beside the fixtures, or of one that was made in another folder."""
    task, read = (
        f"atlas-{'oe' if '-oe' in name else 'choice'}",
        lm_eval_records if "lm-eval" in name else inspect_records,
    )
    found = import_records(read(folder / name), questions(task), OPEN if task == "atlas-oe" else CHOICE)
    assert (found.unmatched, found.repeated, found.ungraded) == ([], 0, False)
    return found.rows


def test_generated_answers_of_lm_eval() -> None:
    assert rows("lm-eval-oe.jsonl") == [
        {"id": f"atlas/test/{i}", "text": text, "grade": grade, "judge": "lm-eval exact_match"}
        for i, (text, grade) in enumerate([("Rolor.", True), ("Tudos", True), ("Huvak", False), ("Gisuk", True)])
    ]


def test_scored_options_of_lm_eval_are_letters() -> None:
    lines = [json.loads(line) for line in (LOGS / "lm-eval-choice.jsonl").read_text(encoding="utf-8").splitlines()]
    scores = [[float(option[0][0]) for option in line["resps"]] for line in lines]
    said = [("abcd"[own.index(max(own))], bool(line["acc"])) for own, line in zip(scores, lines, strict=True)]
    assert rows("lm-eval-choice.jsonl") == [
        {"id": f"atlas/test/{i}", "text": text, "grade": grade, "judge": "lm-eval acc"}
        for i, (text, grade) in enumerate(said)
    ]


def test_inspect_says_the_same_in_json_and_in_an_archive() -> None:
    found = rows("inspect-oe.json")
    assert [row["id"] for row in found] == [f"atlas/test/{i}" for i in range(4)]
    assert found[1] == {"id": "atlas/test/1", "text": "Tudos", "grade": True, "judge": "inspect match"}
    by_id = {row["id"]: row for row in rows("inspect-oe.eval")}
    assert by_id == {row["id"]: row for row in found}
    assert {row["judge"] for row in rows("inspect-choice.eval")} == {"inspect choice"}


def test_imported_rows_can_be_read(tmp_path: Path) -> None:
    for name in ("lm-eval-oe.jsonl", "lm-eval-choice.jsonl", "inspect-oe.eval", "inspect-choice.eval"):
        path = tmp_path / "said.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(name)), encoding="utf-8")
        file = read_answers(path)
        assert len(file.answers) == 4
        assert str(file.judge).startswith(("lm-eval ", "inspect "))


# --- what the tools write otherwise -----------------------------------------------------------------------------------


def changed_lines(folder: Path, change: Callable[[int, dict[str, Any]], object]) -> Path:
    lines = [json.loads(line) for line in (LOGS / "lm-eval-oe.jsonl").read_text(encoding="utf-8").splitlines()]
    for i, line in enumerate(lines):
        change(i, line)
    path = folder / "lm-eval-oe.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def changed_log(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    log = json.loads((LOGS / "inspect-oe.json").read_text(encoding="utf-8"))
    change(log)
    path = folder / "inspect-oe.json"
    path.write_text(json.dumps(log), encoding="utf-8")
    return path


def test_questions_without_ids_are_found_by_their_text(tmp_path: Path) -> None:
    def change(i: int, line: dict[str, Any]) -> None:
        line["doc"] = {"question": line["doc"]["question"].upper() if i else "Who asks that?"}

    found = import_records(lm_eval_records(changed_lines(tmp_path, change)), questions("atlas-oe"), OPEN)
    assert [row["id"] for row in found.rows] == [f"atlas/test/{i}" for i in (1, 2, 3)]
    assert found.unmatched == ["Who asks that?"]


def test_questions_of_one_text_are_told_apart_by_options(tmp_path: Path) -> None:
    asked = [Question(f"q{i}", "s", "Which?", options, 0) for i, options in enumerate([("x", "y"), ("x", "z")])]

    def change(i: int, line: dict[str, Any]) -> None:
        line["doc"] = {"question": "Which?", **([{}, {"choices": ["x", "z"]}, {"choices": ["x"]}, {}][i])}

    found = import_records(lm_eval_records(changed_lines(tmp_path, change)), asked, OPEN)
    assert [row["id"] for row in found.rows] == ["q1"]
    assert len(found.unmatched) == 3


def test_text_of_a_question_outweighs_a_counter() -> None:
    """Inspect numbers samples without ids from 1, and a user's file may have numbers as ids."""
    asked = [Question(f"{i}", "s", text, ("x",), 0) for i, text in enumerate(("Who?", "Where?", "Why?", "Why?"))]
    log = [("1", "Who?"), ("2", "Where?"), ("3", "Why?"), ("0", "Why?"), ("2", "In other words?")]
    found = import_records([LogRecord([name], [text], [text]) for name, text in log], asked, OPEN)
    assert [(row["id"], row["text"]) for row in found.rows] == [
        ("0", "Who?"), ("1", "Where?"), ("3", "Why?"), ("2", "In other words?"),
    ]  # fmt: skip
    assert (found.unmatched, found.repeated) == (["Why?"], 0)


SCORED = {
    "doc": {"question": "Which?", "choices": ["blue", "red"]},
    "arguments": {f"gen_args_{i}": {"arg_0": "Which?", "arg_1": f" {text}"} for i, text in enumerate(("blue", "red"))},
    "resps": [[["-9.0", "False"]], [["-1.0", "False"]]],
    "filter": "none",
    "metrics": ["acc", "acc_norm"],
    "acc": 1.0,
    "acc_norm": 0.0,
}
"""An answer "red" of lm-evaluation-harness."""


def scored(folder: Path, **change: object) -> LogRecord:
    path = folder / "samples.jsonl"
    path.write_text(json.dumps({**SCORED, **change}) + "\n", encoding="utf-8")
    (record,) = lm_eval_records(path)
    return record


@pytest.mark.parametrize("choices", [["blue", "red"], {"text": ["blue", "red"], "label": ["A", "B"]}, None])
def test_scored_option_has_its_letter_in_the_task(tmp_path: Path, choices: object) -> None:
    doc = {"question": "Which?", **({"choices": choices} if choices else {})}
    asked = [Question("q0", "s", "Which?", ("red", "blue"), 0)]
    (row,) = import_records([scored(tmp_path, doc=doc)], asked, CHOICE).rows
    assert (row["text"], row["grade"]) == ("a", True)
    other = [Question("q0", "s", "Which?", ("red", "blue", "green"), 0)]
    if choices:
        found = import_records([scored(tmp_path, doc=doc)], other, CHOICE)
        assert (found.rows, found.left_out.total()) == ([], 1)


def test_letter_of_options_in_another_order_is_left_out() -> None:
    asked = [Question("q0", "s", "Which?", ("red", "blue"), 0)]
    orders: list[tuple[str, ...]] = [("red", "blue"), ("blue", "red"), ()]
    found = [import_records([LogRecord([], ["Which?"], ["B"], choices=order)], asked, CHOICE).rows for order in orders]
    assert [len(rows) for rows in found] == [1, 0, 1]


GASES = ("oxygen", "carbon dioxide", "argon", "neon")


@pytest.mark.parametrize(
    ("options", "scored_as", "letters"),
    [
        (GASES, "a", 1),
        ((" Oxygen", "Carbon dioxide", "ARGON", "Neon"), "a", 1),
        (("A", "B", "C", "D"), "a", 1),
        (("(a)", "(b)", "(c)", "(d)"), "a", 1),
        (("Carbon dioxide", "Oxygen", "Argon", "Neon"), "b", 0),
        (("nitrogen", "carbon dioxide", "helium", "neon"), None, 0),
        (("oxygen", "oxygen", "argon", "neon"), None, 0),
        (GASES[:3], None, 0),
    ],
)
def test_options_of_another_wording_name_no_letter(
    options: tuple[str, ...], scored_as: str | None, letters: int
) -> None:
    asked = [Question("q0", "s", "Which?", GASES, 0)]
    scored_option = LogRecord([], ["Which?"], [options[0]], choices=options, option=0, grade=True, judge="lm-eval acc")
    rows = import_records([scored_option], asked, CHOICE).rows
    assert [row["text"] for row in rows] == ([scored_as] if scored_as else [])
    written = import_records([LogRecord([], ["Which?"], ["A"], choices=options)], asked, CHOICE)
    assert (len(written.rows), written.left_out.total()) == (letters, 1 - letters)


def test_options_that_differ_in_case_alone() -> None:
    """Genes, e.g.: such options have their letters where their order is the task's."""
    asked = [Question("q0", "s", "Which?", ("AA", "Aa", "aa"), 0)]
    orders = (("AA", "Aa", "aa"), ("aa", "AA", "Aa"))
    found = [
        import_records([LogRecord([], ["Which?"], [], choices=order, option=1)], asked, CHOICE) for order in orders
    ]
    assert [[row["text"] for row in each.rows] for each in found] == [["b"], []]


def test_grade_of_another_option_is_left_out(tmp_path: Path) -> None:
    assert scored(tmp_path).grade is True
    assert scored(tmp_path, metrics=["acc_norm", "acc"]).grade is None


@pytest.mark.parametrize(
    ("said", "final", "start"),
    [
        ("The answer is 5. I am (105%) sure.", "5", 14),
        ("a cat, a catalogue", "cat", 2),
        ("5 and 5!", "5", 6),
        ("It is 5km", "5", 6),
    ],
)
def test_graded_part_is_found_where_it_stands_alone(said: str, final: str, start: int) -> None:
    asked = [Question("q0", "s", "Which?", ("x",), 0)]
    (row,) = import_records([LogRecord(["q0"], [], [said], final=final)], asked, OPEN).rows
    assert (row["final_start"], row["text"]) == (start, said[: start + len(final)])


def test_repeats_filters_and_grades_of_lm_eval(tmp_path: Path) -> None:
    def change(i: int, line: dict[str, Any]) -> None:
        line["resps"] = [[f"So I say {i}. It is {i}!", "a sample", "another"]]
        line["filtered_resps"] = [str(i)]
        line["filter"] = "flexible-extract" if i == 3 else "strict-match"
        if i == 2:
            line["exact_match"] = 0.5

    found = import_records(lm_eval_records(changed_lines(tmp_path, change)), questions("atlas-oe"), OPEN)
    assert found.ungraded
    assert found.left_out == {"of other filters than 'strict-match'": 1}
    usual = {"final_start": 18, "samples": ["a sample", "another"]}
    assert found.rows == [{"id": f"atlas/test/{i}", "text": f"So I say {i}. It is {i}", **usual} for i in range(3)]


def test_epochs_of_inspect_are_cut_as_graded(tmp_path: Path) -> None:
    def change(log: dict[str, Any]) -> None:
        said = [("ANSWER: B", "B"), ("I say A, so ANSWER: A", "A"), ("No idea.", ""), ("ANSWER: C", None)]
        samples = []
        for epoch, (text, final) in enumerate(said, 1):
            sample = json.loads(json.dumps(log["samples"][0])) | {"epoch": epoch}
            choice = sample["output"]["choices"][0]
            sample["output"]["choices"] = [{**choice, "message": {"content": each}} for each in (text, "or D?")]
            sample["scores"] = {} if final is None else {"match": {"value": "C", "answer": final}}
            samples.append(sample)
        log["samples"] = samples

    asked = [replace(questions("atlas-choice")[0], id="atlas/test/0")]
    found = import_records(inspect_records(changed_log(tmp_path, change)), asked, CHOICE)
    (row,) = found.rows
    assert (row["text"], row["final_start"]) == ("ANSWER: B", 8)
    assert row["samples"] == ["or D?", "A", "or D?", "No idea.", "or D?", "ANSWER: C", "or D?"]


def test_metric_that_grades_is_binary_in_all_records(tmp_path: Path) -> None:
    """F1 is 0 or 1 of some answers; grades of two metrics in one file are refused by `bench run --answers`."""

    def change(i: int, line: dict[str, Any]) -> None:
        line |= {"metrics": ["f1", "exact_match"], "f1": [1.0, 0.5, [], 0.0][i], "filter": "none" if i < 3 else "last"}

    found = import_records(lm_eval_records(changed_lines(tmp_path, change)), questions("atlas-oe"), OPEN)
    grades = [(row["grade"], row["judge"]) for row in found.rows]
    assert grades == [(grade, "lm-eval exact_match") for grade in (True, True, False)]


def test_no_answer_is_wrong_for_inspect(tmp_path: Path) -> None:
    def change(log: dict[str, Any]) -> None:
        log["samples"][0]["scores"]["match"]["value"] = "N"

    found = import_records(inspect_records(changed_log(tmp_path, change)), questions("atlas-oe"), OPEN)
    assert [row["grade"] for row in found.rows] == [False, True, False, True]


def test_judge_of_lm_eval_names_the_filter(tmp_path: Path) -> None:
    """Two filters of one log may differ by tens of points."""
    assert scored(tmp_path, filter="strict-match").judge == "lm-eval acc (strict-match)"
    assert scored(tmp_path, filter=None).judge == scored(tmp_path).judge == "lm-eval acc"


def test_reasoning_epochs_and_long_texts_of_inspect(tmp_path: Path) -> None:
    def change(log: dict[str, Any]) -> None:
        sample = log["samples"][0]
        again = json.loads(json.dumps(sample))
        parts = [{"type": "reasoning", "reasoning": "Hm. "}, {"type": "text", "text": "attachment://0f"}]
        sample["output"]["choices"][0]["message"]["content"] = parts
        sample["attachments"] = {"0f": "ANSWER: Rolor."}
        sample["scores"]["match"]["answer"] = "Rolor"
        again["epoch"] = 2
        again["output"]["choices"][0]["message"]["content"] = "Tudos"
        broken = {**again, "id": "atlas/test/1", "output": {"choices": [], "completion": ""}}
        log["samples"] = [again, broken, sample]

    found = import_records(inspect_records(changed_log(tmp_path, change)), questions("atlas-oe"), OPEN)
    (row,) = found.rows
    assert found.left_out == {"without a reply": 1}
    assert (row["id"], row["text"], row["final_start"]) == ("atlas/test/0", "Hm. ANSWER: Rolor", 12)
    assert row["samples"] == ["Tudos"]


def test_next_scorer_of_inspect_grades_no_answer(tmp_path: Path) -> None:
    """Grades of two judges in one file are refused by `bench run --answers`."""

    def change(log: dict[str, Any]) -> None:
        for i, sample in enumerate(log["samples"]):
            sample["scores"] = {**(sample["scores"] if i else {}), "fluency": {"value": "C"}}

    found = import_records(inspect_records(changed_log(tmp_path, change)), questions("atlas-oe"), OPEN)
    assert found.ungraded
    assert not any("grade" in row for row in found.rows)


def test_encrypted_reasoning_of_inspect_is_left_out_and_counted(tmp_path: Path) -> None:
    def change(log: dict[str, Any]) -> None:
        parts = [{"type": "reasoning", "reasoning": "gAAAA", "redacted": True}, {"type": "text", "text": "Rolor"}]
        log["samples"][0]["output"]["choices"][0]["message"]["content"] = parts
        log["samples"][0]["scores"] = {}

    found = import_records(inspect_records(changed_log(tmp_path, change)), questions("atlas-oe"), OPEN)
    assert found.redacted == 1
    assert {"id": "atlas/test/0", "text": "Rolor", "final_start": 0, "redacted": True} in found.rows  # the answer alone


def test_conversation_is_found_by_the_last_user_message(tmp_path: Path) -> None:
    def change(log: dict[str, Any]) -> None:
        for i, sample in enumerate(log["samples"]):
            turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": sample["input"]}]
            sample["id"], sample["input"] = i, turns

    assert len(import_records(inspect_records(changed_log(tmp_path, change)), questions("atlas-oe"), OPEN).rows) == 4


# --- bad input --------------------------------------------------------------------------------------------------------


def test_archive_is_unpacked_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MAX_ENTRY_BYTES", 10_000)
    with zipfile.ZipFile(tmp_path / "bomb.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/1_epoch_1.json", b" " * 1_000_000)
    with pytest.raises(UserError, match=r"samples/1_epoch_1\.json has more than 10,000 bytes"):
        inspect_records(tmp_path / "bomb.eval")
    monkeypatch.setattr(logs, "_MAX_ENTRY_BYTES", 1_000)  # packed with zstandard
    with pytest.raises(UserError, match=r"has more than 1,000 bytes|can't be unpacked"):
        inspect_records(LOGS / "inspect-oe.eval")


# --- the tools themselves ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["lm-eval", "inspect"])
def test_logs_that_are_written_now_say_the_same(tool: str, tmp_path: Path) -> None:
    variable = f"CONFBENCH_{tool.replace('-', '_').upper()}"
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no Python of an environment that has {tool}; see tests/fixtures/logs/write.py")
    write(tool, Path(python), tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(path.name for path in LOGS.glob(f"{tool}*"))
    for name in made:
        assert sorted(map(str, rows(name, tmp_path))) == sorted(map(str, rows(name)))
