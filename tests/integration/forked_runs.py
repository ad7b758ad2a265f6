"""A program for test_resume.py: runs that are killed at chosen moments and continued, each in a process of its own.

Called as `forked_runs.py FOLDER MODEL PLUGIN MOMENT ...`. The libraries are loaded once; all other runs are forks of
this process. A moment is `fit`, `worker`, or which part of an undisturbed run's changes to files is over, 0 to 1; two
runs at once are `together`. Below FOLDER each gets a cache and a results folder; what happened is printed as JSON,
moment -> facts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.prompts import shards
from bench.run.pipeline import RunConfig, run
from tests.integration.engine_runs import Killing, parent

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"}
LIMIT = 40
"""Questions of each split, in two shards."""


def changes_a_file(event: str, arguments: tuple[Any, ...], folder: str) -> bool:
    path = str(arguments[0]) if arguments else ""
    if not path.startswith(folder):
        return False
    return event in CHANGES or (event == "open" and isinstance(arguments[1], str) and arguments[1][0] in "wax")


def watch(folder: Path, at: Callable[[int], None]) -> None:
    """Call a function with 1, 2, 3 ... right before each change to a file below the folder."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if changes_a_file(event, arguments, str(folder)):
            count += 1
            at(count)

    sys.addaudithook(hook)


def config(folder: Path, out: str, **more: Any) -> RunConfig:
    model, plugin = sys.argv[2:4]
    return RunConfig(
        ("ptrue", "echo"), model, tasks=("rivers",), plugins=(Path(plugin),), limit=LIMIT, scale_training=True,
        out=folder / out, cache=folder / "cache", **more,
    )  # fmt: skip


def fork(work: Callable[[], None]) -> int:
    """Do work in a child; returns how it ended: 0, or minus the signal."""
    child = os.fork()
    if child == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def whole(folder: Path, out: str = "out") -> None:
    report = run(config(folder, out))
    facts = {
        "forward_tokens": report.forward_tokens,
        "notes": report.notes,
        "statuses": [r.status for r in report.rows],
    }
    (folder / f"{out}.json").write_text(json.dumps(facts), encoding="utf-8")


def counted(folder: Path) -> int:
    """Number of changes to files that an undisturbed run makes."""
    seen = [0]
    watch(folder, lambda n: seen.__setitem__(0, n))
    whole(folder)
    return seen[0]


def killed_at(folder: Path, change: int) -> None:
    watch(folder, lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == change else None)
    whole(folder)


def continued(root: Path, name: str, work: Callable[[Path], None]) -> dict[str, Any]:
    """Kill a run, then do it again; what came of both."""
    folder = root / name
    folder.mkdir()
    killed = fork(lambda: work(folder))
    left = sum(1 for _ in folder.glob("cache/tmp-*"))
    ended = fork(lambda: whole(folder))
    facts = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    still_left = [path.name for path in folder.glob("cache/tmp-*")]
    return {"killed": killed, "ended": ended, "left": left, "still left": still_left, **facts}


def paused(folder: Path, started: Path) -> int:
    """Kill a run inside a method's fit."""
    os.environ["PAUSE"] = str(started)
    child = os.fork()
    if child == 0:
        run(config(folder, "out"))
        os._exit(0)
    while not started.exists():
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    del os.environ["PAUSE"]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_fit(folder: Path) -> None:
    if paused(folder, folder / "started") == -signal.SIGKILL:
        os.kill(os.getpid(), signal.SIGKILL)


def beside_a_worker(folder: Path) -> None:
    """Kill a run that has a process read for it; those that it started are written down."""

    def die() -> None:
        found = (path.name for path in Path("/proc").iterdir())
        pids = [pid for pid in found if pid.isdecimal() and parent(pid) == os.getpid()]
        (folder / "pids").write_text(" ".join(pids), encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)

    run(config(folder, "out", workers=1), Killing(2, die))


def together(root: Path) -> dict[str, Any]:
    """Two runs at once on one cache."""
    folder = root / "together"
    folder.mkdir()
    children = []
    for out in ("first", "second"):
        child = os.fork()
        if child == 0:
            whole(folder, out)
            os._exit(0)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {"ended": ended, "facts": [json.loads((folder / f"{o}.json").read_text()) for o in ("first", "second")]}


def main() -> None:
    torch.set_num_threads(1)
    shards._SHARD, shards._MOST = LIMIT // 2, LIMIT
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not survive a fork
    root = Path(sys.argv[1])
    (root / "undisturbed").mkdir()
    changes = counted(root / "undisturbed")  # whatever is imported late is imported here, once
    works = {"fit": in_fit, "worker": beside_a_worker}
    done: dict[str, Any] = {}
    for moment in sys.argv[4:]:
        if moment == "together":
            done[moment] = together(root)
        elif moment in works:
            done[moment] = continued(root, moment, works[moment])
        else:  # right before a change to a file: any other moment leaves the disk as the change after it finds it
            n = 1 + round(float(moment) * (changes - 1))
            done[f"change{n}"] = continued(root, f"change{n}", partial(killed_at, change=n))
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main()
