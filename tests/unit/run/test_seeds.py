"""Several runs: a seed that stops costs the others nothing, mistakes of all are said once, threads take turns."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.api import ContractError, UserError
from bench.progress import Progress, Silent
from bench.run import pipeline, seeds
from bench.run.config import RunConfig
from bench.run.pipeline import RunReport
from bench.run.preparation import ModelHandle

CONFIGS = [replace(RunConfig(("ptrue",), "tiny"), seed=seed) for seed in (5, 0, 7)]


class Saying(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def raising(error: BaseException) -> Callable[..., RunReport]:
    def run(*_: object, **_options: object) -> RunReport:
        raise error

    return run


def test_seed_that_stops_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ModelHandle | None] = []

    def run(config: RunConfig, progress: Progress, opened: ModelHandle | None = None) -> RunReport:
        seen.append(opened)
        if config.seed == 0:
            raise ContractError("a method changed the weights")
        return RunReport([f"read {config.seed}"], notes=["shared", str(config.seed)], forward_tokens=10)

    monkeypatch.setattr(seeds, "run", run)
    progress = Saying()
    report = seeds.run_seeds(CONFIGS, progress)
    assert report.plan == ["seed 5: read 5", "seed 7: read 7"]
    assert report.notes == ["shared", "5", "7"]
    assert report.stopped == ["seed 0: a method changed the weights"]
    assert report.forward_tokens == 20
    assert progress.said[0].startswith("Seeds 5, 0, 7, one after the other")
    assert seen[0] is seen[1]
    assert seen[2] is not seen[1]  # weights that were changed are not handed on


def test_mistake_of_all_seeds_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "run", raising(UserError("Unknown method 'x'")))
    for configs in (CONFIGS, CONFIGS[:1]):
        with pytest.raises(UserError, match=r"^Unknown method 'x'$"):
            seeds.run_seeds(configs, Silent())
    monkeypatch.setattr(seeds, "run", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        seeds.run_seeds(CONFIGS, Silent())


def test_seed_alone_says_nothing_of_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "run", lambda *_, **_options: RunReport(["read"]))
    progress = Saying()
    assert seeds.run_seeds(CONFIGS[:1], progress).plan == ["read"]
    assert progress.said == []


def test_threads_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []
    together: list[int] = []

    def resolve(*_: object) -> None:
        inside.append(1)
        together.append(len(inside))
        time.sleep(0.05)
        inside.pop()
        raise UserError("enough")

    def go() -> None:
        with pytest.raises(UserError, match="enough"):
            pipeline.run(replace(CONFIGS[0], cache=tmp_path))

    monkeypatch.setattr(pipeline, "resolve", resolve)
    before = sys.stdout
    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [1, 1, 1]
    assert sys.stdout is before
