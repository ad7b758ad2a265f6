"""Whole runs on a file of answers: the model reads them, and results say whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from bench import registry
from bench.model import specs
from bench.prompts.chat import Chat
from tests.integration.conftest import FIXTURES
from tests.kit.place import Place

TINY = ("--model", "tiny", "--limit", 24)


def questions(task: str, split: str = "test") -> list[Any]:
    made: Any = registry.tasks([]).get(task)
    return list(made(None).questions(split))


@pytest.mark.parametrize(
    ("task", "kind"),
    [pytest.param("atlas-oe", "text", marks=pytest.mark.slow), ("atlas-oe", "tokens"), ("atlas-choice", "text")],
)
def test_own_answers_read_back_keep_confidences(place: Place, task: str, kind: str) -> None:
    command = (*TINY, "--method", "ptrue", "--task", task)
    place.run(*command, out="own")
    own = place.records("ptrue", "own")
    tokenizer = Chat(AutoTokenizer.from_pretrained(specs.resolve("tiny").source)).tokenizer
    answers = [
        {"id": key, "text": text} if kind == "text" else {"id": key, "tokens": [*tokenizer(text)["input_ids"]]}
        for key, text in zip(own.id, own.answer, strict=True)
    ]
    command = (*command, "--answers", place.write("said.jsonl", answers))
    place.run(*command)
    read, row = place.records("ptrue"), place.row()
    assert (read.id, read.answer, read.correct.tolist()) == (own.id, own.answer, own.correct.tolist())
    assert read.confidence == pytest.approx(own.confidence, abs=1e-5)
    assert row["answers_source"].startswith("file:said-")
    assert row["config"]["answers"] == row["answers_source"]
    assert row["judge"] == ("match" if task == "atlas-oe" else None)
    assert row["deviations"] == ({"answer_ids": "retokenised"} if kind == "text" else {})
    told = row["counts"].get(f"{task}/test: answers given as text, split into tokens anew")
    assert told == (24 if kind == "text" else None)
    assert row["questions_digest"]
    assert row["counts"][f"{task}/test: questions that the answers' file lacks, left out"] == len(questions(task)) - 24
    assert {stage for stage, cost in row["cost"].items() if cost["forward_tokens"]} == {"query"}
    assert "all stored" in place.run(*command).stderr


def test_grades_and_samples_of_a_file_are_used(place: Place) -> None:
    lines = [
        {
            "id": q.id, "text": f"I think of {q.choices[-1]}. Therefore: {q.answer}", "final": q.answer,
            "samples": [q.answer if j % 2 else q.choices[q.gold - 1] for j in range(10)], "grade": i % 3 == 0,
            "judge": "me",
        }
        for i, q in enumerate(questions("atlas-oe")[:30])
    ]  # fmt: skip
    methods, said = "ptrue,self-consistency,sequence-probability", place.write("said.jsonl", lines)
    place.run(*TINY, "--method", methods, "--task", "atlas-oe", "--answers", said)
    known = {line["id"]: line for line in lines}
    for method, row in place.rows().items():
        assert (row["status"], row["judge"]) == ("ok", "imported:me")
        records = place.records(method)
        assert records.correct.tolist() == [known[key]["grade"] for key in records.id]
        assert list(records.answer) == [known[key]["final"] for key in records.id]
    assert set(place.records("self-consistency").confidence) == {0.5}


@pytest.mark.parametrize("more", [(), ("--think-budget", 8)], ids=["at once", "after traces"])
def test_samples_of_a_file_are_read_as_its_answers(place: Place, more: tuple[object, ...]) -> None:
    said = ["B.", "(b)", " b ", "[B]:", "B) honey", "The answer is B", "a.", "(C)", "A", "F."]
    lines = [{"id": name, "text": "(B).", "samples": said} for name in _ids("atlas-choice")]
    asked = (*TINY, "--method", "self-consistency", "--task", "atlas-choice", *more)
    place.run(*asked, "--answers", place.write("said.jsonl", lines))
    assert set(place.records("self-consistency").confidence) == {0.4}
    assert place.row()["counts"]["atlas-choice/test: sampled answers that could not be read"] == 3 * 24


def test_methods_that_need_more_than_answers_are_skipped(place: Place) -> None:
    lines = [{"id": name, "text": "b", "samples": ["a", "b"]} for name in [*_ids("atlas-choice"), "strange"]]
    methods, said = "ptrue,lts,self-consistency,pik", place.write("said.jsonl", lines)
    ended = place.run(*TINY, "--method", methods, "--task", "atlas-choice", "--answers", said)
    assert "said.jsonl: left out: 1 answer to no question that this run reads, e.g. 'strange'" in ended.stderr
    rows = place.rows()
    assert {name: row["status"] for name, row in rows.items()} == {
        "ptrue": "ok", "lts": "skipped", "pik": "skipped", "self-consistency": "skipped",
    }  # fmt: skip
    assert "lacks those to questions of atlas-choice/validation; add them" in rows["lts"]["reason"]
    assert "lacks those to questions of atlas-choice/train; add them" in rows["pik"]["reason"]
    assert rows["self-consistency"]["reason"].startswith("it reads 10 samples, and said.jsonl has 2 of each question")


def _ids(task: str) -> list[str]:
    return [question.id for question in questions(task)]


def test_methods_learn_from_answers_of_a_file(place: Place) -> None:
    splits = {split: questions("atlas-choice", split) for split in ("train", "validation", "test")}
    lines = [{"id": q.id, "text": "abcd"[i % 4]} for asked in splits.values() for i, q in enumerate(asked)]
    asked = ("--method", "pik", "--task", "atlas-choice", "--set", "pik.steps=20", "--train-limit", "320+80")
    place.run(*TINY, *asked, "--answers", place.write("said.jsonl", lines))
    row = place.row()
    assert (row["status"], row["labels_seen"]["train"]) == ("ok", 320)
    right = [("abcd"[i % 4] == "abcd"[q.gold]) for i, q in enumerate(splits["train"])]
    assert abs(row["base_rate"] - sum(right) / len(right)) < 0.1


def test_recalibration_that_no_fold_can_learn_is_skipped(place: Place) -> None:
    lines = [
        {"id": q.id, "text": "b", "grade": i < 1}
        for split in ("validation", "test")
        for i, q in enumerate(questions("atlas-choice", split))
    ]
    asked = ("--method", "lts", "--task", "atlas-choice", "--recalibrate", "isotonic")
    place.run(*TINY, *asked, "--answers", place.write("said.jsonl", lines))
    rows = place.rows()
    assert {name: row["status"] for name, row in rows.items()} == {"lts": "ok", "lts+isotonic": "skipped"}
    assert "validation answers are wrong: there is nothing to learn" in rows["lts+isotonic"]["reason"]


@pytest.mark.parametrize(
    ("keys", "more", "said"),
    [
        (["atlas/test/0"], (), "expected an answer to each of the"),
        (["atlas/test/0"], ("--limit", 9, "--task", "atlas-oe"), "run one task at a time"),
    ],
)
def test_answer_files_that_do_not_fit_are_refused(
    place: Place, keys: list[str], more: tuple[object, ...], said: str
) -> None:
    answers = place.write("said.jsonl", [{"id": key, "text": "b"} for key in keys])
    asked = ("--method", "ptrue", "--model", "tiny", "--task", "atlas-choice", *more)
    assert said in place.refused("run", *asked, "--answers", answers)


# --- logs of other tools ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "log", "judge"),
    [("lm-eval", "lm-eval-choice.jsonl", "lm-eval acc"), ("inspect", "inspect-choice.eval", "inspect choice")],
)
def test_log_of_another_tool_gets_its_confidences(place: Place, tool: str, log: str, judge: str) -> None:
    said = place / "said.jsonl"
    ended = place.done("import", tool, FIXTURES / "logs" / log, "--task", "atlas-choice", "--out", said)
    assert "answers to 4 of 1,200 questions of atlas-choice/test" in ended.stdout
    place.run(*TINY, "--method", "ptrue", "--task", "atlas-choice", "--answers", said)
    assert (place.row()["n"], place.row()["judge"]) == (4, f"imported:{judge}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected --task NAME or --task-file FILE, and one of them only"),
        (("--task", "atlas-oe", "--split", "dev2"), "--split: expected one of"),
        (("--task", "atlas-oe", "--out", "/dev/null/all.jsonl"), "/dev/null/all.jsonl can't be written"),
        (("--task-file", Path("other.jsonl")), "found 4 of other questions, e.g. "),
        (("--task-file", Path("other.jsonl"), "--out", Path("other.jsonl")), "it is one of the files that are read"),
        (("--task", "atlas-oe", "--out", FIXTURES / "logs" / "lm-eval-oe.jsonl"), "one of the files that are read"),
    ],
)
def test_logs_that_do_not_fit_are_refused(place: Place, words: tuple[object, ...], said: str) -> None:
    place.write("other.jsonl", [{"question": "What do bees make?", "answer": "honey"}])
    log = FIXTURES / "logs" / "lm-eval-oe.jsonl"
    words = tuple(place / word.name if word == Path("other.jsonl") else word for word in words)
    assert said in place.refused("import", "lm-eval", log, *words)
