"""Whole runs on answers that somebody released, where nothing is generated, and on files of questions."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

Command = Callable[..., "subprocess.CompletedProcess[str]"]

SYSTEM = "You answer with one letter."
NAMES = ["Tove", "Kiru", "Bamo", "Lun", "Vesk", "Orro", "Dalm", "Pirr"]


# --- released answers -------------------------------------------------------------------------------------------------


def record(i: int, *, test: bool) -> dict[str, Any]:
    """A record with lettered options in the shape of the release; every fourth answer is a sentence, one is empty."""
    options = [NAMES[(i + j) % 8] for j in range(4)]
    lines = "\n".join(f"  ({letter}): {text}" for letter, text in zip("abcd", options, strict=True))
    context = f"Question:\nWhere does the {'river' if test else 'road'} number {i} end?\n\nChoices:\n{lines}"
    shots = "The following are questions.\n\nQuestion:\nWho?\nAnswer: a\n\nNow, answer the next.\n\n"
    gold, said = "abcd"[i % 4], "abcd"[(i * 7) % 4]
    text = "" if i == 5 else f"The answer is {said}" if i % 4 == 3 else said
    label = int(i % 3 == 0 and i != 5)  # theirs, whatever the letters say
    return {
        "prompt": shots,
        "context": context,
        "target_prompt": "\nAnswer:",
        "target": gold,
        "llm_output": text,
        "conversation": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": shots + context + "\nAnswer:"},
        ],
        ("assessment" if test else "query_label"): label,
        ("task" if test else "dataset_name"): ["hills", "coasts"][i % 2],
        "hash_id": f"{'test' if test else 'train'}-{i:03d}",
        "wrong_targets": "<<OPJ>>".join(str(j) for j in range(4) if j != i % 4),
    }


def write_lines(path: Path, lines: Sequence[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A data folder with the answers of `tiny`: 48 to learn from, one of them without a label, and 20 to test on."""
    train = [record(i, test=False) for i in range(48)]
    train[7]["query_label"] = -1
    write_lines(tmp_path / "data" / "CCPS" / "CT-CHOICE-WRG" / "tiny" / "train.jsonl", train)
    test = [record(i, test=True) for i in range(20)]
    write_lines(tmp_path / "data" / "CCPS" / "MMLU-CHOICE" / "tiny" / "test.jsonl", test)
    return tmp_path / "data"


def rows_in(out: Path) -> dict[str, dict[str, Any]]:
    """Method -> its result."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.rglob("*.json"))]
    return {row["method"]: row for row in found}


def test_released_answers_are_judged_as_they_are_and_nothing_is_generated(
    bench: Command, release: Path, tmp_path: Path
) -> None:
    command = (
        "run", "--method", "ptrue,ccps", "--model", "tiny", "--task", "mmlu-choice", "--train-on", "ct-choice",
        "--answers", "released", "--data-dir", release, "--set", "ccps.contrastive_steps=20", "--set",
        "ccps.classifier_steps=20", "--set", "protocol.empty_rule=base_rate", "--out", tmp_path / "out",
    )  # fmt: skip
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    result = bench(*command, env=env)
    assert result.returncode == 0, result.stderr + result.stdout
    rows = rows_in(tmp_path / "out")
    assert {name: row["status"] for name, row in rows.items()} == {"ptrue": "ok", "ccps": "ok"}
    for row in rows.values():
        assert row["answers_source"] == "released"
        assert (row["n"], row["n_empty"], row["n_unparsed"]) == (20, 1, 1 + 5)  # the sentences are no letters
        assert row["llm_accuracy"] == 7 / 20
        assert row["deviations"]["answer_ids"] == "retokenised"
        stages = {stage for stage, cost in row["cost"].items() if cost["forward_tokens"]}
        assert stages == {"query"}
        assert row["cost"]["query"]["forward_tokens"] >= row["cost"]["query"]["forward_tokens_floor"] > 0
    assert rows["ccps"]["labels_seen"]["train"] == 46  # without an answer: one; without a label: one
    assert rows["ccps"]["counts"]["ct-choice/train: train: records without a label, left out"] == 1
    for path in (tmp_path / "out").rglob("*.parquet"):
        table = parquet.read_table(path).to_pydict()
        assert table["id"] == [f"test-{i:03d}" for i in range(20)]
        assert table["correct"] == [i % 3 == 0 and i != 5 for i in range(20)]
        assert table["answer"] == [record(i, test=True)["llm_output"] for i in range(20)]
        assert table["subject"] == ["hills", "coasts"] * 10
        learned = [record(i, test=False) for i in range(48) if i != 7]
        labels = [one["query_label"] for one in learned if one["llm_output"]]
        base_rate = sum(labels) / len(labels) if path.name.startswith("ccps") else 0.0  # P(True) learns from none
        assert table["confidence"][table["answer"].index("")] == base_rate
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.parquet")}
    again = bench(*command, env=env)
    assert again.returncode == 0, again.stderr
    assert "to compute" not in again.stderr
    assert again.stderr.count("all stored") == 2
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.parquet")} == before


def test_released_training_questions_that_are_also_tested_are_left_out(
    bench: Command, release: Path, tmp_path: Path
) -> None:
    """Compared by what they ask, whatever their options and wherever they come from."""
    path = release / "CCPS" / "CT-CHOICE-WRG" / "tiny" / "train.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    old = "Where does the road number 11 end?"
    path.write_text(
        path.read_text(encoding="utf-8").replace(old, "Where does the RIVER  number 4 end?"), encoding="utf-8"
    )
    assert old in records[11]["context"]
    result = bench(
        "run", "--method", "pik", "--set", "pik.steps=300",
        "--model", "tiny", "--task", "mmlu-choice", "--train-on", "ct-choice", "--answers",
        "released", "--data-dir", release, "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = rows_in(tmp_path / "out")["pik"]
    assert row["counts"]["ct-choice/train: questions that are also in mmlu-choice/test, left out"] == 1
    assert row["labels_seen"]["train"] == 48 - 1 - 1 - 1  # without a label, without an answer, tested


def test_prompts_of_released_answers_are_the_records_own(bench: Command, release: Path, tmp_path: Path) -> None:
    """The same records with another word in the conversation alone make other numbers."""
    path = release / "CCPS" / "MMLU-CHOICE" / "tiny" / "test.jsonl"
    confidences = []
    for system in (SYSTEM, "You are a river."):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for each in records:
            each["conversation"][0]["content"] = system
        write_lines(path, records)
        out = tmp_path / system[-3]
        result = bench(
            "run", "--method", "ptrue", "--model", "tiny", "--task", "mmlu-choice", "--answers", "released",
            "--data-dir", release, "--out", out, env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        (table,) = (parquet.read_table(found).to_pydict() for found in out.rglob("*.parquet"))
        confidences.append(table["confidence"])
    first, second = confidences
    assert sum(a != b for a, b in zip(first, second, strict=True)) == 19
    assert first[5] == second[5] == 0.0  # the empty answer


def test_open_answers_keep_the_labels_of_the_release_and_nobody_judges_them(
    bench: Command, release: Path, tmp_path: Path
) -> None:
    records = []
    for i in range(12):
        context = f"Question: What flows past {NAMES[i % 8]} in year {i}?"
        records.append({
            "prompt": "", "context": context, "target_prompt": "\nAnswer:", "target": str(i), "assessment": i % 2,
            "llm_output": f"the {NAMES[i % 8]} river", "dataset_name": "hills", "id": i,
            "wrong_target_texts": f" lake {i} <<OPJ>><<OPJ>>sea", "conversation": [
                {"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{context}\nAnswer:"},
            ],
        })  # fmt: skip
    write_lines(release / "CCPS" / "MMLU-OE" / "tiny" / "test.jsonl", records)
    result = bench(
        "run", "--method", "ptrue", "--model", "tiny", "--task", "mmlu-oe", "--answers", "released", "--data-dir",
        release, "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = rows_in(tmp_path / "out")["ptrue"]
    assert (row["judge"], row["llm_accuracy"], row["n"]) == ("release", 0.5, 12)
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert parquet.read_table(path).to_pydict()["correct"] == [False, True] * 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--answers", "released"), ["a revision of ledengary/CCPS", "released@COMMIT", "--data-dir"]),
        (("--answers", "released@"), ["expected generate, released, released@REVISION or a file", "'released@'"]),
        (("--answers", "relaesed"), ["expected generate, released, released@REVISION or a file", "'relaesed'"]),
        (("--answers", "released@main", "--data-dir", "DATA"), ["released@main", "--data-dir", "leave out @main"]),
        (("--answers", "released", "--data-dir", "EMPTY"), ["a folder CCPS in --data-dir", "found none"]),
        (
            ("--answers", "released", "--data-dir", "DATA", "--task", "atlas-choice"),
            ["'atlas-choice' is not in the release", "mmlu-choice", "ct-choice"],
        ),
        (
            ("--answers", "released", "--data-dir", "DATA", "--task", "mmlu-pro-choice"),
            ["CCPS/MMLU-PRO-CHOICE/tiny/test.jsonl", "nothing in that folder"],
        ),
        (
            ("--answers", "released", "--data-dir", "DATA", "--method", "lts", "--train-on", "ct-choice"),
            ["CCPS/CT-CHOICE/tiny/validation.jsonl", "CT-CHOICE-WRG/tiny/train.jsonl"],
        ),
    ],
)
def test_what_can_not_be_had_of_a_release_is_one_sentence(
    bench: Command, release: Path, tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"DATA": release, "EMPTY": tmp_path / "empty"}
    given = [places.get(argument, argument) for argument in arguments]
    task = () if "--task" in given else ("--task", "mmlu-choice")
    method = () if "--method" in given else ("--method", "ptrue")
    result = bench(
        "run", *method, "--model", "tiny", *task, *given, "--out", tmp_path / "out",
        env={"CONFBENCH_CACHE": str(tmp_path / "cache"), "CONFBENCH_DATA": ""},
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    (said,) = result.stderr.splitlines()
    assert all(word in said for word in words), said
    assert not (tmp_path / "out").exists()


def test_a_model_without_released_answers_is_told_which_have_some(
    bench: Command, small_model: Path, release: Path, tmp_path: Path
) -> None:
    result = bench(
        "run", "--method", "ptrue", "--model", small_model, "--task", "mmlu-choice", "--answers", "released",
        "--data-dir", release, "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 2
    (said,) = result.stderr.splitlines()
    assert "tiny, llama8b, qwen14b, mistral24b, qwen32b" in said


# --- files of questions -----------------------------------------------------------------------------------------------


def quiz(n: int, *, split: str = "test") -> list[dict[str, Any]]:
    """Questions with three options, the right one named in each of the three ways."""
    answers: list[Any] = ["a", 1, "Bamo"]
    return [
        {
            "question": f"Who rules isle {i}?",
            "choices": ["Tove", "Kiru", "Bamo"],
            "answer": answers[i % 3],
            "split": split,
        }
        for i in range(n)
    ]


def run_file(bench: Command, path: Path, tmp_path: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return bench(
        "run", "--method", "ptrue", "--model", "tiny", "--task-file", path, "--out", tmp_path / "out", *more,
        env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip


def digits(path: Path) -> str:
    """The end of the name of a file's task."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:6]


def test_a_file_of_questions_is_a_task_whatever_its_kind(bench: Command, tmp_path: Path) -> None:
    """Three kinds of one file give the same numbers, under the file's name."""
    lines = quiz(9) + quiz(2, split="dev")
    for i, line in enumerate(lines):
        line |= {"id": f"q{i}", "subject": "islands"}
    write_lines(tmp_path / "Isles 1.jsonl", lines)
    with (tmp_path / "Isles 2.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["answer", "question", "choices", "id", "subject", "split"])
        writer.writeheader()
        writer.writerows({**line, "choices": json.dumps(line["choices"])} for line in lines)
    columns: dict[str, list[Any]] = {key: [str(line[key]) for line in lines] for key in lines[0] if key != "choices"}
    flat = {f"choice_{letter}": [line["choices"][j] for line in lines] for j, letter in enumerate("abc")}
    parquet.write_table(pa.table(columns | flat), tmp_path / "Isles 3.parquet")
    seen = []
    for path in sorted(tmp_path.glob("Isles*")):
        result = run_file(bench, path, tmp_path)
        assert result.returncode == 0, result.stderr
        task = f"{path.stem.lower().replace(' ', '-')}-{digits(path)}"
        (found,) = (tmp_path / "out" / "tiny" / task).glob("*.parquet")
        seen.append(parquet.read_table(found).to_pydict())
        row = json.loads(found.with_suffix(".json").read_text(encoding="utf-8"))
        assert (row["task"], row["n"], row["status"]) == (task, 9, "ok")
        assert row["deviations"] == {}
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert digest in row["provenance"]["revisions"][f"task file {path.name}"]
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["id"] == [f"q{i}" for i in range(9)]
    assert set(seen[0]["subject"]) == {"islands"}


def test_an_open_file_is_judged_by_its_answers(bench: Command, tmp_path: Path) -> None:
    lines = [{"question": f"Who rules isle {i}?", "answer": name} for i, name in enumerate(NAMES)]
    result = run_file(bench, write_lines(tmp_path / "isles.jsonl", lines), tmp_path)
    assert result.returncode == 0, result.stderr
    row = rows_in(tmp_path / "out")["ptrue"]
    assert (row["n"], row["judge"], row["counts"]) == (8, "match", {})


def test_rows_of_the_train_split_are_learned_on(bench: Command, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "isles.jsonl", [*quiz(6), *quiz(44, split="train")])
    result = run_file(bench, path, tmp_path, "--method", "pik", "--set", "pik.steps=300")
    assert result.returncode == 0, result.stderr
    row = rows_in(tmp_path / "out")["pik"]
    task = f"isles-{digits(path)}"
    assert (row["train_on"], row["n"]) == (f"{task}/train", 6)
    left_out = f"questions that are also in {task}/test, left out"
    assert row["counts"] == {f"{task}/train: {left_out}": 5, f"{task}/validation: {left_out}": 1}
    assert row["labels_seen"] == {"train": 40 - 5, "validation": 4 - 1, "gold": 0}


def test_two_answers_to_one_question_are_kept_and_counted(bench: Command, tmp_path: Path) -> None:
    lines = [*quiz(4), {**quiz(1)[0], "answer": "c"}]
    path = write_lines(tmp_path / "isles.jsonl", lines)
    result = run_file(bench, path, tmp_path)
    assert result.returncode == 0, result.stderr
    row = rows_in(tmp_path / "out")["ptrue"]
    assert row["n"] == 5
    assert row["counts"] == {f"isles-{digits(path)}/test: questions with another answer than before": 1}


def test_limits_and_files_of_one_name_share_no_results(bench: Command, tmp_path: Path) -> None:
    """What a newcomer sees first: partial rows are shown, marked, and none replaces another."""
    for folder, n in (("a", 12), ("b", 11)):
        (tmp_path / folder).mkdir()
        path = write_lines(tmp_path / folder / "test.jsonl", quiz(n))
        for limit in (4, 8):
            result = run_file(bench, path, tmp_path, "--limit", limit)
            assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "out" / "partial" / "tiny").glob("test-*/ptrue--demo--s0--n[48].json"))) == 4
    table = ("table", "--results", tmp_path / "out")
    env = {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    only = bench(*table, env=env)
    assert only.returncode == 0, only.stderr
    said = " ".join(only.stdout.split())
    assert [said.count(f"Results are partial (--limit {limit}).") for limit in (4, 8)] == [2, 2]
    assert "all results here are partial (--limit)" in only.stderr
    assert run_file(bench, path, tmp_path).returncode == 0
    (tmp_path / "out" / "tiny" / "mine").mkdir()
    (tmp_path / "out" / "tiny" / "mine" / "config.json").write_text("{}", encoding="utf-8")
    both = bench(*table, env=env)
    assert both.returncode == 0, both.stderr
    assert "partial" not in both.stdout
    assert "partial results (--limit) are not shown: 4; show them with --partial" in both.stderr
    assert "JSON files that are no results are passed over: 1" in both.stderr


def test_methods_that_learn_are_skipped_where_a_file_has_nothing_to_learn_from(bench: Command, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "isles.jsonl", quiz(3))
    result = run_file(bench, path, tmp_path, "--method", "pik", "--set", "pik.steps=300")  # and ptrue
    assert result.returncode == 0, result.stderr
    rows = rows_in(tmp_path / "out")
    assert (rows["ptrue"]["status"], rows["pik"]["status"]) == ("ok", "skipped")
    assert "has no train rows; name some with --train-on FILE" in rows["pik"]["reason"]


def test_one_file_is_learned_on_and_another_tested(bench: Command, tmp_path: Path) -> None:
    train = write_lines(tmp_path / "more.jsonl", quiz(44, split="train")[6:])
    path = write_lines(tmp_path / "isles.jsonl", quiz(6))
    result = run_file(bench, path, tmp_path, "--method", "pik", "--set", "pik.steps=300", "--train-on", train)
    assert result.returncode == 0, result.stderr
    rows = rows_in(tmp_path / "out")
    assert set(rows) == {"ptrue", "pik"}
    assert re.fullmatch(r"more-\w{6}/train", rows["pik"]["train_on"])
    assert (rows["pik"]["n"], rows["pik"]["status"]) == (6, "ok")
    assert sum(rows["pik"]["labels_seen"].values()) == 38
    assert [p.name[:-7] for p in (tmp_path / "out").glob("*/*") if p.is_dir()] == ["isles"]
    assert any("more.jsonl" in name for name in rows["pik"]["provenance"]["revisions"])


def test_a_bad_row_is_one_sentence_before_anything_is_loaded(bench: Command, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "isles.jsonl", [*quiz(2), {**quiz(1)[0], "answer": "d"}])
    result = run_file(bench, path, tmp_path)
    assert result.returncode == 2
    (said,) = result.stderr.splitlines()
    assert "isles.jsonl line 3: expected a letter from a to c" in said
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_a_large_file_estimates_from_a_sample(
    bench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.run import preparation

    monkeypatch.setattr(preparation, "_SAMPLE", 5)
    lines = [{**line, "question": f"{line['question']} {i}"} for i, line in enumerate(quiz(44) * 2)]
    path = write_lines(tmp_path / "isles.jsonl", lines)
    whole = run_file(bench, path, tmp_path)
    assert "88 questions; QueryLogits(); 1 of 1 shards to compute" in whole.stderr
    result = run_file(bench, path, tmp_path, "--dry-run")
    assert result.returncode == 0
    assert result.stderr.startswith("Plan: looking at the questions")
    assert re.search(r"88 questions; QueryLogits\(\); (about|less than) ", result.stderr)
    assert "unless it is stored (from 5 of its prompts)" in result.stderr
