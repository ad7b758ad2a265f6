"""Adapters trained on nodes of a Ray cluster have the bytes of those trained here, whatever becomes of the nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bench.progress import Silent
from bench.run.config import RunConfig
from bench.run.pipeline import run
from bench.store.disk_cache import digest_file
from tests.faults import workload
from tests.integration.conftest import ROOT
from tests.integration.engine_runs import add, parent

if not os.environ.get("CONFBENCH_REQUIRE_RAY"):
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]  # the latter are Ray's own

QUICK = ("batch_size=4", "deepspeed=false")


def config(folder: Path, *methods: str, steps: int, **more: Any) -> RunConfig:
    file = workload.questions_file(folder, sizes={"train": 40, "validation": 12, "test": 12})
    quick = tuple(f"{name}.{setting}" for name in methods for setting in (f"steps={steps}", *QUICK))
    return RunConfig(
        ("ptrue", *methods), "tiny", task_files=(file,), overrides=("protocol.shots=0", *quick),
        out=folder / "out", cache=folder / "cache", **more,
    )  # fmt: skip


def adapters(folder: Path) -> dict[str, str]:
    """Key and name of each file of weights or confidences -> its digest."""
    found = sorted((folder / "cache" / "adapters").glob("??/*/*.safetensors"))
    return {"/".join(path.parts[-2:]): digest_file(path) for path in found}


def seconds(folder: Path) -> list[float]:
    """Seconds of each fit."""
    return [json.loads(path.read_text())["seconds"] for path in (folder / "cache" / "fits").glob("??/*/manifest.json")]


class Noting(Silent):
    """Notes when stages began."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Callable[[int], None]]:
        self.begun.append(name.partition(" ")[0] + (" adapted" if name.endswith("adapted") else ""))
        yield lambda _: None


class Watching:
    """Reads the logs of trainings while they are there."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.taken: dict[str, list[int]] = {}
        """Key of each training -> its steps as they were taken."""
        self.over = False

    def look(self) -> None:
        for path in (self.cache / "training").glob("*/train.log"):
            with suppress(OSError):
                lines = path.read_text(encoding="utf-8").splitlines()
                self.taken[path.parent.name] = [json.loads(ln)["step"] for ln in lines if ln.startswith('{"step": ')]

    def wait_for(self, step: int, trainings: int = 2) -> dict[str, int]:
        """So many trainings that go on, the first of which has come so far, and by which process each is done."""
        while not self.over:
            self.look()
            far = sorted(self.taken, key=lambda key: -len(self.taken[key]))
            with suppress(OSError, ValueError):
                if len(far) == trainings and len(self.taken[far[0]]) >= step:
                    return {key: self.owner(key) for key in far}
            time.sleep(0.05)
        raise AssertionError("it was over before")

    def follow(self) -> None:
        while not self.over:
            self.look()
            time.sleep(0.05)

    def owner(self, key: str) -> int:
        """The process on whose behalf it is trained."""
        told = json.loads((self.cache / "claims" / f"adapters-{key}.lock.json").read_text(encoding="utf-8"))
        return int(told["pid"])


def raylet(node: Any) -> int:
    """Process id of a node's raylet, which starts its workers."""
    return int(node.all_processes["raylet"][0].process.pid)


def test_adapter_of_a_node_has_the_bytes_of_one_here(cluster: Any, tmp_path: Path) -> None:
    add(cluster)
    here, there = tmp_path / "here", tmp_path / "there"
    assert [row.status for row in run(config(here, "it", steps=2)).rows] == ["ok", "ok"]
    noting = Noting()
    report = run(config(there, "it", steps=2, engine="ray", address=cluster.address), noting)
    assert [row.status for row in report.rows] == ["ok", "ok"]
    assert len(adapters(here)) == 2
    assert adapters(there) == adapters(here)
    assert min(seconds(there)) > 1.0  # the training's, which was elsewhere
    assert not list((there / "cache" / "training").iterdir())
    last = noting.begun.index("train")
    assert noting.begun.index("fit") < noting.begun.index("predict") < last  # the test was read meanwhile
    assert noting.begun[last:] == ["train", "fit", "read adapted", "predict"]


@pytest.mark.slow
def test_node_that_dies_costs_steps_since_its_checkpoint(cluster: Any, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run(config(here, "it", "ct", steps=120))
    nodes = {raylet(node): node for node in (add(cluster), add(cluster), add(cluster))}
    watching = Watching(there / "cache")
    killed: list[str] = []

    def kill() -> None:
        parents = {key: parent(str(pid)) for key, pid in watching.wait_for(55).items()}
        first = next(iter(parents))
        assert len(set(parents.values())) == 2  # at the same time, each on a node of its own
        cluster.remove_node(nodes[parents[first]], allow_graceful=False)
        killed.append(first)
        watching.follow()

    thread = threading.Thread(target=kill)
    thread.start()
    report = run(config(there, "it", "ct", steps=120, engine="ray", address=cluster.address))
    watching.over = True
    thread.join()
    assert [row.status for row in report.rows] == ["ok", "ok", "ok"]
    assert len(adapters(here)) == 4
    assert adapters(there) == adapters(here)
    assert len(killed) == 1
    for key, taken in watching.taken.items():
        if key not in killed:
            assert taken == list(range(1, len(taken) + 1))
            continue
        (at,) = (i for i in range(1, len(taken)) if taken[i] <= taken[i - 1])
        assert taken[:at] == list(range(1, at + 1))
        assert taken[at:] == list(range(taken[at], taken[at] + len(taken) - at))
        assert taken[at] in {51, 101}  # what comes after a checkpoint


@pytest.mark.slow
def test_killed_driver_leaves_no_training_and_goes_on(cluster: Any, tmp_path: Path) -> None:
    add(cluster)
    program = """
import sys
from pathlib import Path
from tests.integration.test_cluster_training import config, run
run(config(Path(sys.argv[1]), "it", steps=120, engine="ray", address=sys.argv[2]))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CONFBENCH_REQUIRE_RAY": "1"}
    driver = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), cluster.address], env=environment)
    watching = Watching(tmp_path / "cache")
    key, pid = next(iter(watching.wait_for(55, trainings=1).items()))
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 60
    while left := [path for path in Path("/proc").iterdir() if key in command_of(path) or path.name == str(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    watching.look()
    before = len(watching.taken[key])
    thread = threading.Thread(target=watching.follow)
    thread.start()
    report = run(config(tmp_path, "it", steps=120, engine="ray", address=cluster.address))
    watching.over = True
    thread.join()
    assert [row.status for row in report.rows] == ["ok", "ok"]
    assert 55 <= before < 120
    assert watching.taken[key][before] in {51, 101}


def command_of(process: Path) -> str:
    """Command line of a process; empty where there is none."""
    with suppress(OSError):
        return (process / "cmdline").read_text(encoding="utf-8", errors="replace")
    return ""
