"""What the tests of whole runs share: the command in this process and in one of its own.

Results come as `subprocess.CompletedProcess`, wherever the command ran.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.cli import app
from bench.run.pipeline import run
from tests.integration.engine_runs import config, cut_small

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Commands = Callable[..., "list[subprocess.CompletedProcess[str]]"]

ROOT = Path(__file__).parents[2]


def _inside(*arguments: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    command = ["bench", *map(str, arguments)]
    code = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", command)
        patch.setenv("COLUMNS", "200")
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            app.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


_PROGRAM = """
import json, sys
from tests.integration.conftest import _inside
done = [_inside(*arguments) for arguments in json.loads(sys.argv[1])]
json.dump([[each.returncode, each.stdout, each.stderr] for each in done], sys.stdout)
"""


def _outside(
    *commands: Sequence[object], env: Mapping[str, str] | None = None
) -> list[subprocess.CompletedProcess[str]]:
    program = [sys.executable, "-c", _PROGRAM, json.dumps([list(map(str, arguments)) for arguments in commands])]
    # no thread pools beside the tests' own
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(env or {})}
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=ROOT
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    each = zip(commands, json.loads(done.stdout), strict=True)
    return [subprocess.CompletedProcess(["bench", *map(str, arguments)], *ended) for arguments, ended in each]


@pytest.fixture(scope="session")
def bench() -> Command:
    """The command, in this process: quick."""
    return _inside


@pytest.fixture(scope="session")
def bench_process() -> Commands:
    """Commands one after the other, in a process of their own: for what libraries read when they are imported."""
    return _outside


# --- engines ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 15 questions."""
    cut_small(monkeypatch.setattr)


@pytest.fixture(scope="session")
def alone(small_model: Path, rivers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run in one process: what every other must be like."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch.setattr)
        run(config(small_model, rivers, folder))
    return folder


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster whose head computes nothing; nodes are added by those who need them."""
    import ray
    from ray import cluster_utils

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 10**8}
    found = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        yield found
    finally:
        ray.shutdown()
        found.shutdown()
