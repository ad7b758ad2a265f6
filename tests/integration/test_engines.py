"""Whoever reads the model, the bytes are the same; what a lost worker had finished is not computed again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from bench.api import UserError
from bench.engine import local_processes
from bench.run.pipeline import run
from bench.signals import worker
from tests.integration.engine_runs import Killing, config, contents, fed, manifests, run_until_killed

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids of workers, in the order in which they were started."""
    found: list[int] = []
    process_of = local_processes._Process

    def noted(*arguments: Any) -> Any:
        process = process_of(*arguments)
        found.append(process.process.pid)
        return process

    monkeypatch.setattr(local_processes, "_Process", noted)
    return found


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_one_worker_leaves_the_bytes_of_one_process(
    alone: Path, small_model: Path, rivers: Path, tmp_path: Path, pids: list[int]
) -> None:
    report = run(config(small_model, rivers, tmp_path, workers=1))
    assert [(row.status, row.reason) for row in report.rows] == [("ok", None), ("ok", None)]
    assert contents(tmp_path) == contents(alone)
    assert report.forward_tokens == fed(tmp_path)
    assert len(pids) == 1
    assert all(map(gone, pids))
    again = run(config(small_model, rivers, tmp_path, workers=1))
    assert again.forward_tokens == 0
    assert len(pids) == 1  # nobody is started for what is stored


@pytest.mark.slow
def test_killed_worker_costs_its_shards_alone(
    alone: Path, small_model: Path, rivers: Path, tmp_path: Path, pids: list[int]
) -> None:
    at: dict[str, Any] = {}

    def kill() -> None:
        at["finished"] = {key: m["digest"] for key, m in manifests(tmp_path).items()}
        os.kill(pids[0], signal.SIGKILL)

    report = run(config(small_model, rivers, tmp_path, workers=2), Killing(3, kill))
    assert [(row.status, row.reason) for row in report.rows] == [("ok", None), ("ok", None)]
    assert contents(tmp_path) == contents(alone)
    assert len(manifests(tmp_path)) == len(manifests(alone)) > 10
    assert len(pids) == 3
    assert all(map(gone, pids))
    after = {key: m["digest"] for key, m in manifests(tmp_path).items()}
    assert len(at["finished"]) >= 3
    assert at["finished"].items() <= after.items()  # seconds are in there, so it is the very same pass
    assert 0 < report.forward_tokens <= fed(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [None, 1])
def test_killed_run_keeps_its_shards_and_no_worker(
    alone: Path, small_model: Path, rivers: Path, tmp_path: Path, workers: int | None
) -> None:
    run_until_killed(small_model, rivers, tmp_path, workers=workers)
    finished = {key: m["digest"] for key, m in manifests(tmp_path).items()}
    children = (tmp_path / "pids").read_text(encoding="utf-8").split()
    assert len(children) >= bool(workers)
    deadline = time.monotonic() + 20
    while not all(gone(int(pid)) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    report = run(config(small_model, rivers, tmp_path))
    assert [row.status for row in report.rows] == ["ok", "ok"]
    assert contents(tmp_path) == contents(alone)
    assert len(finished) >= 4
    assert finished.items() <= {key: m["digest"] for key, m in manifests(tmp_path).items()}.items()
    assert 0 < report.forward_tokens < fed(tmp_path)
    assert not list((tmp_path / "cache").glob("tmp-*"))


IDLE = """
import os, signal, time
from multiprocessing.connection import Connection
from bench.engine.pool import Ready
connection = Connection(int(sys.argv[1]))
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
connection.send(Ready())
time.sleep(60)
"""
"""Program of a worker that is ready at once, since it loads no model, and does nothing; SIGTERM is an error to it."""


@pytest.mark.parametrize(
    ("harm", "ending"),
    [
        (signal.SIGKILL, "ended by SIGKILL, perhaps .+"),
        pytest.param(signal.SIGTERM, "exit code 3", marks=pytest.mark.slow),
    ],
)
def test_shard_that_kills_its_workers_ends_the_run(
    small_model: Path, rivers: Path, tmp_path: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch,
    harm: signal.Signals, ending: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(local_processes, "_START", local_processes._START.partition("from bench")[0] + IDLE)
    send = local_processes.Processes.send

    def poisoned(crew: local_processes.Processes, worker: int, task: Any, *, wait: bool) -> None:
        send(crew, worker, task, wait=wait)
        if task.number == 1:
            os.kill(crew._running[worker].process.pid, harm)

    monkeypatch.setattr(local_processes.Processes, "send", poisoned)
    with pytest.raises(UserError, match=rf"Reading rivers/test, shard \d: two workers were lost \({ending}\)\. Lower"):
        run(config(small_model, rivers, tmp_path, workers=1))
    assert len(pids) == 2
    assert all(map(gone, pids))


def test_workers_that_can_not_start_are_told(
    small_model: Path, rivers: Path, tmp_path: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_processes, "_START", "import no_such_part")
    with pytest.raises(UserError, match=r"^--workers: expected .+, got one that ended before with exit code 1; what"):
        run(config(small_model, rivers, tmp_path, workers=2))
    assert len(pids) == 2
    assert all(map(gone, pids))


@pytest.mark.slow
def test_worker_with_another_torch_is_told(
    small_model: Path, rivers: Path, tmp_path: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = worker.describe_environment
    monkeypatch.setattr(worker, "describe_environment", lambda lm: {**real(lm), "torch": "1.0"})
    with pytest.raises(UserError, match=r"^Worker on .+: expected torch 1\.0 as where the run was started, found \d"):
        run(config(small_model, rivers, tmp_path, workers=1))
    assert all(map(gone, pids))
