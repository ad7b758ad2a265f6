"""`bench cache` and `bench cache prune`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bench.progress import Silent
from bench.run.config import RunConfig
from bench.run.pipeline import open_run
from bench.store.disk_cache import Store, key_of
from tests.kit.command import bench


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


def pruned(*words: str) -> str:
    """What is said of the removed entries."""
    done = bench("cache", "prune", "--yes", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kept(root: Path) -> int:
    return len(list(root.glob("fits/??/*"))) + len(list(root.glob("readings/*/??/*")))


def test_cache_tells_what_is_kept(cache: Path) -> None:
    told = json.loads(bench("cache", "--json").stdout)
    assert told["folder"] == str(cache)
    assert {(part["kind"], part["model"], part["task"]) for part in told["parts"]} == {
        ("answers", "tiny", "mmlu"), ("signals", "tiny", "mmlu"), ("fits", "tiny", "mmlu"), ("fits", "llama8b", "mmlu"),
    }  # fmt: skip
    assert told["bytes"] == sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    shown = bench("cache").stdout
    assert shown.startswith(f"{cache}: ")
    assert [word for word in ("answers", "llama8b", "1.0 kB") if word not in shown] == []


def test_cache_that_is_empty_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "none"))
    assert bench("cache").stdout.strip().endswith("none: 0 B")
    assert pruned() == "nothing to remove\n"
    assert not (tmp_path / "none").exists()


def test_prune_shows_first_and_removes_when_it_may(cache: Path) -> None:
    assert "3 entries" in bench("cache", "prune", "--dry-run").stdout
    refused = bench("cache", "prune")
    assert (refused.returncode, "add --yes" in refused.stderr, kept(cache)) == (2, True, 3)
    assert "removed 1 entry" in pruned("--fits", "--model", "llama8b")
    assert kept(cache) == 2
    pruned("--signals")
    assert not list(cache.glob("readings/*/??/*"))
    pruned()
    assert kept(cache) == 0


@pytest.mark.parametrize(("age", "days"), [("36h", 1.5), ("3d", 3), ("2w", 14)])
def test_prune_removes_what_is_older(cache: Path, age: str, days: float) -> None:
    for entry, old in zip(cache.glob("fits/*/*"), (days - 0.1, days + 0.1), strict=True):
        os.utime(entry, (time.time() - old * 86_400,) * 2)
    assert "removed 1 entry" in pruned("--older-than", age)
    assert kept(cache) == 2


def test_prune_leaves_what_a_run_reads(cache: Path) -> None:
    """Entries of its model, and those that it found under another name of the same weights."""
    read = key_of({"kind": "fits", "model": "llama8b"})
    with open_run(RunConfig(("ptrue",), "tiny", ("atlas-choice",)), Silent()) as work:
        assert "removed 1 entry" in pruned()
        assert kept(cache) == 2
        for model in ("qwen14b", "llama8b"):
            put(cache, "fits", model)
        assert work.resources.reader.store.get("fits", read)
        assert "removed 1 entry" in pruned("--fits")
    assert Store(cache).keys("fits") == sorted([read, key_of({"kind": "fits", "model": "tiny"})])
    pruned()
    assert kept(cache) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--model", "tin"), "nothing is kept of it, only of llama8b, tiny. Did you mean 'tiny'?"),
        (("--model", "TINY", "--older-than", "30"), "--older-than 30: expected a number"),
        (("--older-than", "-3d"), "expected a number of hours, days or weeks"),
    ],
)
def test_prune_names_wrong_wishes(cache: Path, words: tuple[str, ...], sentence: str) -> None:
    done = bench("cache", "prune", "--yes", *words)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
    assert kept(cache) == 3
