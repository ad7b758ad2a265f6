"""Whole runs on files of questions: each is a task, and none replaces another's results."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from bench.run import preparation
from tests.kit.place import Place

PIK = ("--method", "pik", "--set", "pik.steps=300")


def quiz(n: int, *, split: str = "test") -> list[dict[str, Any]]:
    """Questions with three options, the right one named in each of the three ways."""
    answers: list[Any] = ["a", 1, "Bamo"]
    return [
        {"question": f"Who rules isle {i}?", "choices": ["Tove", "Kiru", "Bamo"], "answer": answers[i % 3],
         "split": split} for i in range(n)
    ]  # fmt: skip


def run(place: Place, path: Path, *more: object) -> CompletedProcess[str]:
    return place.run("--method", "ptrue", "--model", "tiny", "--task-file", path, *more)


def task_of(path: Path) -> str:
    """Name of a file's task."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path.stem.lower().replace(' ', '-')}-{digest[:6]}"


def test_train_rows_of_a_file_are_learned_on(place: Place) -> None:
    path = place.write("isles.jsonl", [*quiz(6), *quiz(44, split="train")])
    run(place, path, *PIK)
    row, task = place.rows()["pik"], task_of(path)
    assert (row["train_on"], row["n"]) == (f"{task}/train", 6)
    left_out = f"questions that are also in {task}/test, left out"
    assert row["counts"] == {f"{task}/train: {left_out}": 5, f"{task}/validation: {left_out}": 1}
    assert row["labels_seen"] == {"train": 40 - 5, "validation": 4 - 1, "gold": 0}


def test_files_of_one_name_share_no_results(place: Place) -> None:
    """What a newcomer sees first: partial rows are shown, marked, and none replaces another."""
    for folder, n in (("a", 12), ("b", 11)):
        path = place.write(f"{folder}/test.jsonl", quiz(n))
        for limit in (4, 8):
            run(place, path, "--limit", limit)
    assert len(list((place / "out" / "partial" / "tiny").glob("test-*/ptrue--demo--s0--n[48].json"))) == 4
    only = place.done("table", "--results", place / "out")
    said = " ".join(only.stdout.split())
    assert [said.count(f"Results are partial (--limit {limit}).") for limit in (4, 8)] == [2, 2]
    assert "all results here are partial (--limit)" in only.stderr
    run(place, path)
    place.write("out/tiny/mine/config.json", "{}")
    both = place.done("table", "--results", place / "out")
    assert "partial" not in both.stdout
    assert "partial results (--limit) are not shown: 4; show them with --partial" in both.stderr
    assert "JSON files that are no results are passed over: 1" in both.stderr


def test_one_file_is_learned_on_and_another_tested(place: Place) -> None:
    train = place.write("more.jsonl", quiz(44, split="train")[6:])
    run(place, place.write("isles.jsonl", quiz(6)), *PIK, "--train-on", train)
    rows = place.rows()
    assert set(rows) == {"ptrue", "pik"}
    assert re.fullmatch(r"more-\w{6}/train", rows["pik"]["train_on"])
    assert (rows["pik"]["n"], rows["pik"]["status"]) == (6, "ok")
    assert sum(rows["pik"]["labels_seen"].values()) == 38
    assert [p.name[:-7] for p in (place / "out").glob("*/*") if p.is_dir()] == ["isles"]
    assert any("more.jsonl" in name for name in rows["pik"]["provenance"]["revisions"])


def test_files_of_one_name_both_keep_their_digests(place: Place) -> None:
    train = place.write("tr/data.jsonl", quiz(44, split="train")[6:])
    test = place.write("te/data.jsonl", quiz(6))
    run(place, test, *PIK, "--train-on", train)
    revisions = place.rows()["pik"]["provenance"]["revisions"]
    found = {name: digest for name, digest in revisions.items() if "data.jsonl" in name}
    assert "task file data.jsonl" in found
    assert sorted(found.values()) == sorted(
        f"sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in (train, test)
    )


@pytest.mark.parametrize(("tested", "learned"), [(True, False), (False, True), (True, True), (False, False)])
def test_exemplars_of_one_file_alone_are_noted(place: Place, tested: bool, learned: bool) -> None:
    dev = quiz(44, split="dev")[39:]
    test = place.write("isles.jsonl", [*quiz(6), *(dev if tested else [])])
    train = place.write("more.jsonl", [*quiz(39, split="train")[6:], *(dev if learned else [])])
    once = ("--train-on", train) if tested > learned else ("--train-on", train, "--dry-run")
    said = " ".join(run(place, test, *PIK, *once).stderr.split())
    bare, shown = ("more", "isles") if tested else ("isles", "more")
    note = (
        rf"{bare}-\w{{6}} is asked without exemplars, {shown}-\w{{6}} with up to 5, so methods learn on other prompts"
        rf" than they are tested on; rows of split dev would be exemplars of {bare}-\w{{6}}"
    )
    assert bool(re.search(note, said)) == ("without exemplars" in said) == (tested != learned)
    if "--dry-run" not in once:
        rows = place.rows()
        assert [sum("without exemplars" in text for text in rows[name]["notes"]) for name in ("ptrue", "pik")] == [0, 1]
        assert any(re.fullmatch(note, text) for text in rows["pik"]["notes"])


def test_plan_of_a_large_file_is_estimated(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_SAMPLE", 5)
    lines = [{**line, "question": f"{line['question']} {i}"} for i, line in enumerate(quiz(44) * 2)]
    path = place.write("isles.jsonl", lines)
    assert "88 questions; 1 of 1 shards to compute" in run(place, path).stderr
    plan = run(place, path, "--dry-run").stderr
    assert plan.startswith("Plan: looking at the questions")
    assert re.search(r"88 questions; (about|less than) ", plan)
    assert "unless it is stored (from 5 of its prompts)" in plan
