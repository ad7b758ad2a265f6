"""What the tests of engines share: one run, cut into small shards, and what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.progress import Silent
from bench.prompts import shards
from bench.results.files import read_records
from bench.run.config import RunConfig
from bench.run.pipeline import run

CELLS = ("ptrue", "echo")


def cut_small(set_to: Callable[[Any, str, int], None] = setattr) -> None:
    """Cut shards of 15 questions; workers are handed shards, so it is enough to do it here."""
    set_to(shards, "_SHARD", 15)
    set_to(shards, "_MOST", 15)


def config(model: Path, plugin: Path, folder: Path, **more: Any) -> RunConfig:
    return RunConfig(
        CELLS, str(model), tasks=("rivers",), plugins=(plugin,), limit=90, train_limit="81+31",
        out=folder / "out", cache=folder / "cache", **more,
    )  # fmt: skip


def manifests(folder: Path) -> dict[str, Any]:
    """Key of each entry -> its manifest."""
    found = sorted((folder / "cache").glob("readings/*/*/*/manifest.json"))
    return {"/".join(path.parts[-5:-1]): json.loads(path.read_text(encoding="utf-8")) for path in found}


def contents(folder: Path) -> dict[str, object]:
    """All that lies below a folder of a run and may not differ: digests of what was read, and confidences."""
    read: dict[str, object] = {key: manifest["files"] for key, manifest in manifests(folder).items()}
    for path in sorted((folder / "out").rglob("*--s0*.parquet")):
        read[path.name] = read_records(path).confidence.tobytes()
    return read


def fed(folder: Path) -> int:
    """Token positions by which all that lies in a cache was made."""
    return sum(c["forward_tokens"] for m in manifests(folder).values() for c in m["costs"].values())


class Killing(Silent):
    """Does something once, when so many shards are finished."""

    def __init__(self, after: int, act: Callable[[], None]) -> None:
        self.left, self.act = after, act

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "questions") -> Iterator[Callable[[int], None]]:
        def advance(step: int) -> None:
            if name.startswith("read"):
                self.left -= 1
                if self.left == 0:
                    self.act()

        yield advance


def run_until_killed(model: Path, plugin: Path, folder: Path, **more: Any) -> None:
    """A run in a process of its own that is killed after four shards; its children are written to the file `pids`."""
    program = "import sys; from tests.integration import engine_runs; engine_runs.end_early(sys.argv[1])"
    asked = json.dumps({"model": str(model), "plugin": str(plugin), "folder": str(folder), **more})
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program, asked], check=False, env=environment)
    assert done.returncode == -signal.SIGKILL


def end_early(asked: str) -> None:
    """What that process does."""
    options = json.loads(asked)
    model, plugin, folder = (Path(options.pop(name)) for name in ("model", "plugin", "folder"))

    def die() -> None:
        pids = [path.name for path in Path("/proc").glob("[0-9]*") if parent(path.name) == os.getpid()]
        (folder / "pids").write_text(" ".join(pids), encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)

    cut_small()
    run(config(model, plugin, folder, **options), Killing(4, die))


def parent(pid: str) -> int:
    """Number of the process that started this one; 0 where there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def add(cluster: Any, **environment: str) -> Any:
    """Add a node of one core to a Ray cluster."""
    return cluster.add_node(num_cpus=1, object_store_memory=10**8, env_vars=environment)
