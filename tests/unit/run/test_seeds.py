"""Several seeds: one that stops costs the others nothing, and a mistake that all share is said once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.api import ContractError, UserError
from bench.progress import Progress, Silent
from bench.run import seeds
from bench.run.config import RunConfig
from bench.run.pipeline import RunReport
from bench.run.preparation import ModelHandle

CONFIGS = [replace(RunConfig(("ptrue",), "tiny"), seed=seed) for seed in (5, 0, 7)]


class Saying(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_seed_that_stops_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_mistake_that_all_share_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **_options: object) -> RunReport:
        raise UserError("Unknown method 'x'")

    monkeypatch.setattr(seeds, "run", run)
    for configs in (CONFIGS, CONFIGS[:1]):
        with pytest.raises(UserError, match=r"^Unknown method 'x'$"):
            seeds.run_seeds(configs, Silent())


def test_a_single_seed_says_nothing_of_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "run", lambda *_, **_options: RunReport(["read"]))
    progress = Saying()
    assert seeds.run_seeds(CONFIGS[:1], progress).plan == ["read"]
    assert progress.said == []


def test_an_interrupt_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **_options: object) -> RunReport:
        raise KeyboardInterrupt

    monkeypatch.setattr(seeds, "run", run)
    with pytest.raises(KeyboardInterrupt):
        seeds.run_seeds(CONFIGS, Silent())
