"""Whole runs on a file of answers: the model reads them, and results say whose they are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from bench import registry
from bench.model import specs
from bench.prompts.chat import Chat

Command = Callable[..., "subprocess.CompletedProcess[str]"]
COMMON = ("run", "--model", "tiny", "--limit", 24)


def write_lines(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def rows_in(out: Path) -> dict[str, dict[str, Any]]:
    """Method -> its result."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.rglob("*.json"))]
    return {row["method"]: row for row in found}


def records_in(out: Path, method: str) -> dict[str, list[Any]]:
    (path,) = (path for path in out.rglob("*.parquet") if path.name.startswith(f"{method}--"))
    columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    return columns


def questions(task: str, split: str = "test") -> list[Any]:
    made: Any = registry.tasks([]).get(task)
    return list(made(None).questions(split))


@pytest.mark.parametrize(("task", "kind"), [("atlas-oe", "text"), ("atlas-oe", "tokens"), ("atlas-choice", "text")])
def test_the_models_own_answers_from_a_file_have_the_confidences_that_they_have_without(
    bench: Command, tmp_path: Path, task: str, kind: str
) -> None:
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    command = (*COMMON, "--method", "ptrue", "--task", task)
    assert bench(*command, "--out", tmp_path / "own", env=env).returncode == 0
    own = records_in(tmp_path / "own", "ptrue")
    encode = Chat(_tokenizer()).tokenizer
    answers = [
        {"id": key, "text": text} if kind == "text" else {"id": key, "tokens": [*encode(text)["input_ids"]]}
        for key, text in zip(own["id"], own["answer"], strict=True)
    ]
    file = write_lines(tmp_path / "said.jsonl", answers)
    command = (*command, "--answers", file, "--out", tmp_path / "read")
    result = bench(*command, env=env)
    assert result.returncode == 0, result.stderr
    read, row = records_in(tmp_path / "read", "ptrue"), rows_in(tmp_path / "read")["ptrue"]
    assert {name: read[name] for name in ("id", "answer", "correct")} == {
        name: own[name] for name in ("id", "answer", "correct")
    }
    assert read["confidence"] == pytest.approx(own["confidence"], abs=1e-5)
    assert row["answers_source"].startswith("file:said-")
    assert row["config"]["answers"] == row["answers_source"]
    assert row["judge"] == ("match" if task == "atlas-oe" else None)
    assert row["deviations"] == ({"answer_ids": "retokenised"} if kind == "text" else {})
    told = row["counts"].get(f"{task}/test: answers given as text, split into tokens anew")
    assert told == (24 if kind == "text" else None)
    assert row["questions_digest"]
    assert row["counts"][f"{task}/test: questions that the answers' file lacks, left out"] == len(questions(task)) - 24
    assert {stage for stage, cost in row["cost"].items() if cost["forward_tokens"]} == {"query"}
    again = bench(*command, env=env)
    assert "all stored" in again.stderr


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(specs.resolve("tiny").source)


def test_grades_and_samples_of_a_file_are_used(bench: Command, tmp_path: Path) -> None:
    asked = questions("atlas-oe")[:30]
    lines = [
        {
            "id": q.id, "text": f"I think of {q.choices[-1]}. Therefore: {q.answer}", "final": q.answer,
            "samples": [q.answer if j % 2 else q.choices[q.gold - 1] for j in range(10)], "grade": i % 3 == 0,
            "judge": "me",
        }
        for i, q in enumerate(asked)
    ]  # fmt: skip
    result = bench(
        *COMMON, "--method", "ptrue,self-consistency,sequence-probability", "--task", "atlas-oe", "--answers",
        write_lines(tmp_path / "said.jsonl", lines), "--out", tmp_path / "out",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for method, row in rows_in(tmp_path / "out").items():
        assert (row["status"], row["judge"]) == ("ok", "imported:me")
        records = records_in(tmp_path / "out", method)
        known = {line["id"]: line for line in lines}
        assert records["correct"] == [known[key]["grade"] for key in records["id"]]
        assert records["answer"] == [known[key]["final"] for key in records["id"]]
    assert set(records_in(tmp_path / "out", "self-consistency")["confidence"]) == {0.5}


def test_what_a_file_lacks_skips_the_methods_that_need_it(bench: Command, tmp_path: Path) -> None:
    asked = questions("atlas-choice")
    lines = [{"id": q.id, "text": "b", "samples": ["a", "b"]} for q in asked]
    lines.append({"id": "strange", "text": "b", "samples": ["a", "b"]})
    result = bench(
        *COMMON, "--method", "ptrue,lts,self-consistency,pik", "--task", "atlas-choice", "--answers",
        write_lines(tmp_path / "said.jsonl", lines), "--out", tmp_path / "out",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "said.jsonl: 1 answers are to no question that this run reads, e.g. 'strange'" in result.stderr
    rows = rows_in(tmp_path / "out")
    assert {name: row["status"] for name, row in rows.items()} == {
        "ptrue": "ok", "lts": "skipped", "pik": "skipped", "self-consistency": "skipped",
    }  # fmt: skip
    assert "lacks those to questions of atlas-choice/validation; add them" in rows["lts"]["reason"]
    assert "lacks those to questions of atlas-choice/train; add them" in rows["pik"]["reason"]
    assert rows["self-consistency"]["reason"].startswith("it reads 10 samples, and said.jsonl has 2 of each question")


def test_methods_learn_from_answers_of_a_file(bench: Command, tmp_path: Path) -> None:
    splits = {split: questions("atlas-choice", split) for split in ("train", "validation", "test")}
    lines = [{"id": q.id, "text": "abcd"[i % 4]} for asked in splits.values() for i, q in enumerate(asked)]
    result = bench(
        *COMMON, "--method", "pik", "--task", "atlas-choice", "--set", "pik.steps=20", "--answers",
        write_lines(tmp_path / "said.jsonl", lines), "--out", tmp_path / "out",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = rows_in(tmp_path / "out")["pik"]
    assert row["status"] == "ok"
    assert row["labels_seen"]["train"] == 320
    right = [("abcd"[i % 4] == "abcd"[q.gold]) for i, q in enumerate(splits["train"])]
    assert abs(row["base_rate"] - sum(right) / len(right)) < 0.1


@pytest.mark.parametrize(
    ("lines", "more", "said"),
    [
        ([{"id": "atlas/test/0", "text": "b"}], (), "expected an answer to each of the"),
        ([{"id": "x", "text": "b"}], ("--limit", 9), "such as 'atlas/test/0', found none, but such as 'x'"),
        ([{"id": "atlas/test/0", "tokens": [10**7]}], ("--limit", 9), "expected token ids from 0 to"),
        ([{"id": "atlas/test/0", "text": "b"}] * 2, (), "a second one to 'atlas/test/0'"),
        ([], (), "expected at least one row, found none"),
        ([{"id": "atlas/test/0", "text": "b"}], ("--limit", 9, "--task", "atlas-oe"), "run one task at a time"),
    ],
)
def test_a_file_that_can_not_be_used_is_one_sentence(
    bench: Command, tmp_path: Path, lines: list[Any], more: tuple[Any, ...], said: str
) -> None:
    result = bench(
        "run", "--model", "tiny", "--method", "ptrue", "--task", "atlas-choice", *more, "--answers",
        write_lines(tmp_path / "said.jsonl", lines), "--out", tmp_path / "out",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_any_of_several_right_answers_of_a_file_of_questions_is_right(bench: Command, tmp_path: Path) -> None:
    asked = [
        {"id": i, "question": f"Where does river {i} end?", "answers": [f"lake {i}", f"The mere {i}"]} for i in range(6)
    ]
    said = [f"Lake {i}." if i % 3 == 0 else f"the mere {i}" if i % 3 == 1 else "nowhere" for i in range(6)]
    answers = [{"id": str(i), "text": text} for i, text in enumerate(said)]
    result = bench(
        "run", "--model", "tiny", "--method", "ptrue", "--task-file", write_lines(tmp_path / "asked.jsonl", asked),
        "--answers", write_lines(tmp_path / "said.jsonl", answers), "--out", tmp_path / "out",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert records_in(tmp_path / "out", "ptrue")["correct"] == [True, True, False] * 2


@pytest.mark.parametrize(("tool", "log"), [("lm-eval", "lm-eval-choice.jsonl"), ("inspect", "inspect-choice.eval")])
def test_a_log_of_another_tool_gets_its_confidences(bench: Command, tmp_path: Path, tool: str, log: str) -> None:
    out, path = tmp_path / "said.jsonl", Path(__file__).parents[1] / "fixtures" / "logs" / log
    result = bench("import", tool, path, "--task", "atlas-choice", "--out", out)
    assert result.returncode == 0, result.stderr
    assert "answers to 4 of 1,200 questions of atlas-choice/test" in result.stdout
    command = (*COMMON, "--method", "ptrue", "--task", "atlas-choice", "--answers", out, "--out", tmp_path / "out")
    result = bench(*command, env={"CONFBENCH_CACHE": str(tmp_path / "cache")})
    assert result.returncode == 0, result.stderr
    row = rows_in(tmp_path / "out")["ptrue"]
    assert (row["n"], row["judge"]) == (4, f"imported:{tool} {'acc' if tool == 'lm-eval' else 'choice'}")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "expected --task NAME or --task-file FILE, and one of them only"),
        (("--task", "atlas-oe", "--split", "dev2"), "--split: expected one of"),
        (("--task", "atlas-oe", "--out", "/dev/null/all.jsonl"), "/dev/null/all.jsonl can't be written"),
        (("--task-file", "OTHER"), "none of its 4 questions is one of other-"),
    ],
)
def test_a_log_that_can_not_be_imported_is_one_sentence(
    bench: Command, tmp_path: Path, more: tuple[Any, ...], said: str
) -> None:
    other = write_lines(tmp_path / "other.jsonl", [{"question": "What do bees make?", "answer": "honey"}])
    log = Path(__file__).parents[1] / "fixtures" / "logs" / "lm-eval-oe.jsonl"
    result = bench("import", "lm-eval", log, *(other if word == "OTHER" else word for word in more))
    assert result.returncode == 2
    assert said in result.stderr
