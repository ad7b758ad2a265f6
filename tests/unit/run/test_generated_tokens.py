"""Tokens that a model writes for one method, counted again from the token ids that lie in the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from bench.model.trace_decoder import trace_texts
from bench.run.config import RunConfig
from bench.run.pipeline import run

METHODS = ("sequence-probability", "self-consistency", "verbalised", "ptrue")
LIMIT = {"atlas-oe": 30, "atlas-choice": 1}
"""Task -> tokens of an answer at most."""
REPLY, SAMPLES, N = 16, 10, 10
Made = tuple[Path, dict[tuple[str, str], int | None]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Folder of a run, and the tokens of each task and method that its rows tell."""
    folder = tmp_path_factory.mktemp("generated")
    report = run(RunConfig(METHODS, "tiny", tasks=tuple(LIMIT), limit=N, out=folder / "out", cache=folder / "cache"))
    return folder, {(row.task, row.method): row.generated_tokens_alone for row in report.rows}


def stored(cache: Path, task: str, signal: str) -> list[np.ndarray]:
    """The ids of each question in the one shard of a task, which the length of its answers tells."""
    (folder,) = {
        path.parent
        for path in cache.rglob("answers.safetensors")
        if (np.diff(load_file(path)["offsets"]).max() > 1) == (task == "atlas-oe")
    }
    paths = [folder / "answers.safetensors"] if signal == "answers" else [
        path for path in folder.glob("*.safetensors")
        if signal in (safe_open(path, "numpy").metadata() or {}).get("signal", "")
    ]  # fmt: skip
    arrays = load_file(paths[0])
    return np.split(arrays["values"], arrays["offsets"][1:-1])


def steps(ids: np.ndarray, limit: int) -> int:
    """Decoding steps that wrote a text: one for each id, and one for its end unless the limit cut it."""
    return len(ids) if len(ids) == limit else len(ids) + 1


@pytest.mark.parametrize("task", LIMIT)
def test_tokens_are_answers_and_replies(made: Made, task: str) -> None:
    folder, found = made
    answers, replies = (stored(folder / "cache", task, signal) for signal in ("answers", "How likely is it"))
    assert len(answers) == N
    expected = sum(steps(ids, LIMIT[task]) for ids in answers)
    assert found[task, "sequence-probability"] == expected
    assert found[task, "ptrue"] == expected  # it reads its question back in one pass
    assert task == "atlas-oe" or expected == N  # one letter each
    said = sum(steps(reply, REPLY) for reply, answer in zip(replies, answers, strict=True) if len(answer))
    assert found[task, "verbalised"] == expected + said


def test_tokens_of_ten_samples_are_counted(made: Made) -> None:
    folder, found = made
    closed = stored(folder / "cache", "atlas-oe", "Samples")  # each sample of a question ends in -1
    texts = [text for row in closed for text in np.split(row, np.flatnonzero(row < 0) + 1)[:-1]]
    assert len(texts) == N * SAMPLES
    drawn = sum(steps(text[:-1], LIMIT["atlas-oe"]) for text in texts)
    assert found["atlas-oe", "self-consistency"] == (found["atlas-oe", "ptrue"] or 0) + drawn
    assert found["atlas-choice", "self-consistency"] == N  # all letters are drawn from one state, that of the answer


def test_tokens_of_sampled_traces_are_counted(tmp_path: Path) -> None:
    names, budget = ("ptrue", "self-consistency"), 4
    report = run(
        RunConfig(
            names, "tiny", tasks=("atlas-oe",), limit=N, think_budget=budget, overrides=("self-consistency.n=2",),
            out=tmp_path / "out", cache=tmp_path / "cache",
        )
    )  # fmt: skip
    alone = {row.method: row.generated_tokens_alone or 0 for row in report.rows}
    pieces = [
        list(trace_texts(**load_file(path))) for path in (tmp_path / "cache").rglob("*.safetensors")
        if (safe_open(path, "numpy").metadata() or {}).get("signal") == "traces"
    ]  # fmt: skip
    greedy, sampled = sorted(pieces, key=lambda piece: len(piece[0]))
    assert [{len(texts) for texts in greedy}, {len(texts) for texts in sampled}] == [{1}, {2}]
    drawn = (steps(text.trace, budget) + steps(text.answer, LIMIT["atlas-oe"]) for texts in sampled for text in texts)
    assert alone["self-consistency"] == alone["ptrue"] + sum(drawn)
