"""`bench cache` and `bench cache prune`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.api import UserError
from bench.cli.app import app
from bench.progress import Silent
from bench.run.config import RunConfig
from bench.run.pipeline import open_run
from bench.store.disk_cache import Store, key_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two fits and a reading."""
    root = tmp_path / "cache"
    root.mkdir()
    monkeypatch.setenv("CONFBENCH_CACHE", str(root))
    for kind, model in (("fits", "tiny"), ("fits", "llama8b"), ("readings/" + "b" * 64, "tiny")):
        put(root, kind, model)
    return root


def put(root: Path, kind: str, model: str) -> None:
    fields = {"kind": kind, "model": model}
    Store(root).put(
        kind, key_of(fields), fields, lambda folder: (folder / "answers.safetensors").write_bytes(b"x" * 1000),
        model=model, split="mmlu/train",
    )  # fmt: skip


def asked(*words: str) -> Any:
    result = CliRunner().invoke(app, ["cache", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def kept(root: Path) -> int:
    return len(list(root.glob("fits/??/*"))) + len(list(root.glob("readings/*/??/*")))


def test_it_tells_what_is_kept(cache: Path) -> None:
    told = json.loads(asked("--json").stdout)
    assert told["folder"] == str(cache)
    assert {(part["kind"], part["model"], part["task"]) for part in told["parts"]} == {
        ("answers", "tiny", "mmlu"), ("signals", "tiny", "mmlu"), ("fits", "tiny", "mmlu"), ("fits", "llama8b", "mmlu"),
    }  # fmt: skip
    assert told["bytes"] == sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    shown = asked().stdout
    assert shown.startswith(f"{cache}: ")
    assert [word for word in ("answers", "llama8b", "1.0 kB") if word not in shown] == []


def test_an_empty_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "none"))
    assert asked().stdout.strip().endswith("none: 0 B")
    assert asked("prune", "--yes").stdout == "nothing to remove\n"
    assert not (tmp_path / "none").exists()


def test_it_shows_first_and_removes_when_it_may(cache: Path) -> None:
    assert "3 entries" in asked("prune", "--dry-run").stdout
    with pytest.raises(UserError, match="add --yes"):
        asked("prune")
    assert kept(cache) == 3
    assert "removed 1 entry" in asked("prune", "--yes", "--fits", "--model", "llama8b").stdout
    assert kept(cache) == 2
    asked("prune", "--yes", "--signals")
    assert not list(cache.glob("readings/*/??/*"))
    asked("prune", "--yes")
    assert kept(cache) == 0


@pytest.mark.parametrize(("age", "days"), [("36h", 1.5), ("3d", 3), ("2w", 14)])
def test_what_is_older_than_hours_days_or_weeks_goes(cache: Path, age: str, days: float) -> None:
    for entry, old in zip(cache.glob("fits/*/*"), (days - 0.1, days + 0.1), strict=True):
        os.utime(entry, (time.time() - old * 86_400,) * 2)
    assert "removed 1 entry" in asked("prune", "--yes", "--older-than", age).stdout
    assert kept(cache) == 2


def test_entries_that_a_run_reads_stay(cache: Path) -> None:
    """Those of its model, and those that it found under another name of the same weights."""
    read = key_of({"kind": "fits", "model": "llama8b"})
    with open_run(RunConfig(("ptrue",), "tiny", ("atlas-choice",)), Silent()) as work:
        assert "removed 1 entry" in asked("prune", "--yes").stdout
        assert kept(cache) == 2
        for model in ("qwen14b", "llama8b"):
            put(cache, "fits", model)
        assert work.resources.reader.store.get("fits", read)
        assert "removed 1 entry" in asked("prune", "--yes", "--fits").stdout
    assert Store(cache).keys("fits") == sorted([read, key_of({"kind": "fits", "model": "tiny"})])
    assert asked("prune", "--yes").exit_code == 0
    assert kept(cache) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--model", "tin"), "nothing is kept of it, only of llama8b, tiny. Did you mean 'tiny'?"),
        (("--older-than", "30"), "expected a number of hours, days or weeks"),
        (("--older-than", "-3d"), "expected a number of hours, days or weeks"),
    ],
)
def test_wrong_wishes_are_named(cache: Path, words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError) as found:
        asked("prune", "--yes", *words)
    assert sentence in str(found.value)
    assert kept(cache) == 3
