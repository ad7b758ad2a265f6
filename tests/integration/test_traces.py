"""Whole runs whose model reasons before its answers: results, files, the store, refusals."""

from __future__ import annotations

import json

import pytest

from tests.integration.test_answer_files import questions
from tests.kit.place import Place

RUN = ("--model", "tiny", "--limit", 12)
SOURCE = "generate after traces of at most 8 tokens"


@pytest.mark.slow
def test_answers_after_traces_are_cells_of_their_own(place: Place) -> None:
    methods = "ptrue,pik,trace-length,deepconf-tail,answer-stability,self-consistency,semantic-entropy"
    command = (
        *RUN,
        "--method",
        methods,
        "--task",
        "atlas-choice",
        "--task",
        "atlas-oe",
        "--set",
        "self-consistency.n=2",
        "--train-limit",
        "160+40",
    )
    place.run(*RUN, "--method", "ptrue", "--task", "atlas-choice")
    ended = place.run(*command, "--think-budget", 8)
    assert "this model reasons before each answer, in at most 8 tokens, by an instruction" in ended.stderr
    paths = sorted((place / "out").rglob("atlas-choice/ptrue--*.json"))
    assert len(paths) == 2  # with and without
    for task in ("atlas-choice", "atlas-oe"):
        rows = [
            row for path in (place / "out").rglob(f"{task}/*.json") if (row := json.loads(path.read_text()))["config"]
        ]
        found = {row["method"]: row for row in rows}
        assert {name for name, row in found.items() if row["status"] == "ok"} - {"pik"} == {
            "ptrue", "trace-length", "deepconf-tail", "self-consistency",
            *(["answer-stability"] if task == "atlas-choice" else []),
        }  # fmt: skip
        assert "each has a trace of its own" in found["semantic-entropy"]["reason"]
        row = found["ptrue"]
        assert row["answers_source"] == SOURCE
        assert (row["config"]["think_budget"], row["config"]["thinking"]) == (8, "instruction/1")
        cut = row["counts"].get(f"{task}/test: traces cut at 8 tokens and closed", 0)
        ended_early = row["counts"].get(f"{task}/test: traces that ended without their end marker, closed", 0)
        assert cut + ended_early == 12
        assert row["cost"]["traces"]["forward_tokens"] > 0
        assert row["test_generated_tokens"] > 12
        if task == "atlas-choice":  # open answers after so few tokens are all wrong, from which nothing is learned
            assert found["pik"]["test_generated_tokens"] == row["test_generated_tokens"]
        assert found["self-consistency"]["test_generated_tokens"] > 2 * row["test_generated_tokens"]
        assert [name for name, row in found.items() if "sampled traces" in str(row["counts"])] == ["self-consistency"]
    again = place.run(*command, "--think-budget", 8)
    assert "shards to compute" not in again.stderr
    assert "all stored" in again.stderr
    checked = place.bench("check", "--results", place / "out")
    assert "answers_source" not in checked.stdout + checked.stderr


def test_outputs_of_a_file_are_divided(place: Place) -> None:
    lines = [
        {"id": q.id, "text": f"I know it.\nAnswer: {'abcd'[q.gold]}" if i % 4 else "I never end"}
        for i, q in enumerate(questions("atlas-choice")[:24])
    ]
    said = place.write("said.jsonl", lines)
    ended = place.run("--model", "tiny", "--limit", 24, "--method", "ptrue,trace-length,answer-stability", "--task",
                      "atlas-choice", "--answers", said, "--think-budget", 64)  # fmt: skip
    rows = place.rows()
    assert {row["status"] for row in rows.values()} == {"ok"}, ended.stderr
    row = rows["ptrue"]
    assert (row["llm_accuracy"], row["n_empty"]) == (0.75, 6)
    assert row["counts"]["atlas-choice/test: outputs that don't end their trace, without an answer"] == 6
    place.run("--model", "tiny", "--limit", 24, "--method", "ptrue", "--task", "atlas-choice", "--answers", said,
              "--think-budget", 2, out="short")  # fmt: skip
    assert place.rows("short")["ptrue"]["counts"]["atlas-choice/test: traces of more than 2 tokens, kept whole"] == 24
    assert row["answers_source"].endswith(" after traces of at most 64 tokens")


def test_outputs_with_undivided_traces_are_counted(place: Place) -> None:
    texts = (f"<think>So?</think> {q.answer}" if i else q.answer for i, q in enumerate(questions("atlas-oe")[:4]))
    lines = [{"id": q.id, "text": text} for q, text in zip(questions("atlas-oe")[:4], texts, strict=True)]
    place.run("--model", "tiny", "--limit", 4, "--method", "ptrue", "--task", "atlas-oe", "--answers",
              place.write("said.jsonl", lines))  # fmt: skip
    what = "answers with a reasoning trace in them, read whole (see --think-budget)"
    assert place.rows()["ptrue"]["counts"][f"atlas-oe/test: {what}"] == 3


def test_heads_count_answers_unlike_theirs_in_traces(place: Place) -> None:
    asked = questions("atlas-oe")[:5]
    traced = [{"id": q.id, "text": f"So: {q.answer}", "final_start": 4} for q in asked]
    run = ("--model", "tiny", "--limit", 5, "--method", "ptrue", "--task", "atlas-oe")
    place.run(*run, "--answers", place.write("traced.jsonl", traced), "--save-heads", place / "with", out="with")
    place.run(*run, "--save-heads", place / "without", out="without")
    rows = [{"id": q.id, "question": q.text, "subject": q.subject} for q in asked]
    file = place.write("asked.jsonl", rows)
    without, of_head = "answers without a reasoning trace, unlike those of the head: 5", ("score", file, "--head")
    (head,) = (path.parent for path in (place / "with").rglob("head.json"))
    assert without in place.done(*of_head, head).stderr
    assert "reasoning trace" not in place.done(*of_head, head, "--answers", place / "traced.jsonl").stderr
    (head,) = (path.parent for path in (place / "without").rglob("head.json"))
    assert "reasoning trace" not in place.done(*of_head, head).stderr
    after = place.done(*of_head, head, "--answers", place / "traced.jsonl").stderr
    assert "answers after a reasoning trace, unlike those of the head: 5" in after


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--think-budget", 0), "--think-budget: expected at least 1, got 0"),
        (
            ("--think-budget", 8, "--save-heads", "heads"),
            "--save-heads: a head scores answers without reasoning traces",
        ),
        (("--think-budget", 16360), "this model's context leaves room for"),
    ],
)
def test_budgets_that_do_not_fit_are_refused(place: Place, more: tuple[object, ...], said: str) -> None:
    assert said in place.refused("run", *RUN, "--method", "ptrue", "--task", "atlas-choice", *more)


def test_groups_have_methods_on_traces_with_a_budget(place: Place) -> None:
    place.run(*RUN, "--method", "untrained", "--task", "atlas-choice", "--dry-run")
    plain = place.run(*RUN, "--method", "untrained", "--task", "atlas-choice", "--dry-run").stderr
    traced = place.run(*RUN, "--method", "untrained", "--task", "atlas-choice", "--dry-run", "--think-budget", 8).stderr
    assert "deepconf-mean" not in plain
    assert "deepconf-mean" in traced
