"""The work that is disturbed: forty questions of the embedded task, with some to learn from, as a file of questions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from bench import registry
from bench.api import Split
from bench.api.protocol import Protocol
from bench.data.sources import open_source

SIZES: Mapping[Split, int] = {"test": 40, "train": 48, "validation": 24}
QUICK = ("--set", "protocol.shots=0")
"""Short prompts."""


def questions_file(folder: Path, name: str = "forty.jsonl", sizes: Mapping[Split, int] = SIZES) -> Path:
    """Write a task file of choice questions; returns its path."""
    task = registry.tasks().get("atlas-choice")(open_source(None), Protocol())
    chosen = [(split, question) for split, n in sizes.items() for question in islice(task.questions(split), n)]
    rows = [
        {"id": q.id, "subject": q.subject, "question": q.text, "choices": list(q.choices), "answer": q.gold, "split": s}
        for s, q in chosen
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def command(file: Path, folder: Path, methods: str = "ccps,ptrue", *more: str) -> list[str]:
    """Arguments of a run of methods on the questions, with its results below a folder's `out`; see `cache`, too."""
    words = ["run", "--method", methods, "--model", "tiny", "--task-file", str(file), "--out", str(folder / "out")]
    return [*words, *QUICK, *more]


def cache(folder: Path) -> dict[str, str]:
    """Environment with the cache below the folder's `cache`, and nothing of the network."""
    return {"CONFBENCH_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
