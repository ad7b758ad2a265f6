"""Tokens that a model writes for one method, counted again from the token ids that lie in the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from bench.results.files import read
from bench.results.row import ResultRow
from bench.run.pipeline import RunConfig, run

METHODS = ("sequence-probability", "self-consistency", "verbalised", "ptrue")
TASKS = ("atlas-oe", "atlas-choice")
LIMIT = {"atlas-oe": 16, "atlas-choice": 1}
"""Tokens of an answer at most."""
REPLY, SAMPLES, N = 16, 10, 10


def rows(folder: Path, methods: Sequence[str] = METHODS, cache: str = "cache") -> dict[tuple[str, str], ResultRow]:
    config = RunConfig(
        tuple(methods), "tiny", tasks=TASKS, limit=N, out=folder / f"out-{cache}-{len(methods)}", cache=folder / cache
    )
    found = (read(path) for path in run(config).paths)
    return {(row.task, row.method): row for row in found}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], ResultRow]]:
    folder = tmp_path_factory.mktemp("generated")
    return folder, rows(folder)


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


def test_without_more_it_writes_its_answers_alone(made: tuple[Path, dict[tuple[str, str], ResultRow]]) -> None:
    folder, found = made
    for task in TASKS:
        answers = stored(folder / "cache", task, "answers")
        assert len(answers) == N
        expected = sum(steps(ids, LIMIT[task]) for ids in answers)
        for method in ("sequence-probability", "ptrue"):  # which reads its question back in one pass
            assert found[task, method].generated_tokens_alone == expected
        assert task == "atlas-oe" or expected == N  # one letter each


def test_ten_samples_are_written_too(made: tuple[Path, dict[tuple[str, str], ResultRow]]) -> None:
    folder, found = made
    closed = stored(folder / "cache", "atlas-oe", "Samples")  # each sample of a question ends in -1
    texts = [text for row in closed for text in np.split(row, np.flatnonzero(row < 0) + 1)[:-1]]
    assert len(texts) == N * SAMPLES
    drawn = sum(steps(text[:-1], LIMIT["atlas-oe"]) for text in texts)
    answers = found["atlas-oe", "ptrue"].generated_tokens_alone
    assert found["atlas-oe", "self-consistency"].generated_tokens_alone == answers + drawn
    letters = found["atlas-choice", "self-consistency"]
    assert letters.generated_tokens_alone == N  # ten letters are drawn from the one state that shows the answer


@pytest.mark.parametrize("task", TASKS)
def test_replies_are_written_too(made: tuple[Path, dict[tuple[str, str], ResultRow]], task: str) -> None:
    folder, found = made
    replies = stored(folder / "cache", task, "How likely is it")
    answers = stored(folder / "cache", task, "answers")
    said = sum(steps(reply, REPLY) for reply, answer in zip(replies, answers, strict=True) if len(answer))
    assert found[task, "verbalised"].generated_tokens_alone == found[task, "ptrue"].generated_tokens_alone + said


def test_what_was_stored_and_what_others_wrote_change_nothing(
    made: tuple[Path, dict[tuple[str, str], ResultRow]],
) -> None:
    folder, found = made
    again = {**rows(folder, METHODS[:3]), **rows(folder, METHODS[1:2], "other")}
    assert set(again) == {(task, method) for task in TASKS for method in METHODS[:3]}
    for cell, row in again.items():
        assert row.generated_tokens_alone == found[cell].generated_tokens_alone
