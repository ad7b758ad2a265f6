"""Who competes and who leads, on planted results: every consumer follows the one rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bench.api.early_stopping import TrainingStage
from bench.api.errors import UserError
from bench.report.competition import Competition
from bench.report.figures.figure_data import unranked_reasons
from bench.report.front import front_candidates
from bench.report.multiverse.compute import compute_multiverse
from bench.report.selection import MultiverseRequest
from bench.report.standings.cache import StandingsReader
from bench.report.tables import build, formats
from bench.report.tables.model import Table
from bench.report.verdict import verdict_of
from bench.report.verdict.judgement import judge_table
from bench.results import cells, files
from bench.results.row import ResultRow, Training
from tests.unit.report.test_multiverse import CHANCE, FAST, MODEL, TASK, N, plant

STAGE = TrainingStage(name="", kept=5, taken=5, limit=5, epochs=1.0, losses=(0.5, 0.4), cut_short=True)


def knowing(share: float, seed: int = 0) -> Any:
    """Confidences that know the chances to a degree; close to each other for close degrees."""
    noise = np.random.default_rng(seed).normal(size=N)
    return share * CHANCE + (1 - share) * (0.5 + 0.2 * noise)


class Case(NamedTuple):
    """Planted results, and who leads by a metric."""

    plant: Callable[[Path], object]
    metric: str
    leaders: set[str]
    ranked: set[str]
    excluded: dict[str, str]


def tie(folder: Path) -> None:
    plant(folder, "ccps", knowing(0.90))
    plant(folder, "pik", knowing(0.91))
    plant(folder, "lts", knowing(0.1))


def with_constant(folder: Path) -> None:
    plant(folder, "ccps", knowing(0.9))
    plant(folder, "ptrue", np.full(N, CHANCE.mean()))


def with_two_that_order(folder: Path) -> None:
    with_constant(folder)
    plant(folder, "pik", knowing(0.91))


def with_training_cut_short(folder: Path) -> None:
    tie(folder)
    plant(folder, "saplma-f", knowing(1.0), training=Training(stages=(STAGE,)))


def with_failed_seed(folder: Path) -> None:
    tie(folder)
    failed = plant(folder, "ccps", knowing(0.9), seed=1)
    files.write(not_ok(failed, "failed", "loss became NaN"), None, folder)


def with_skipped(folder: Path) -> None:
    tie(folder)
    row = plant(folder, "litcab", knowing(0.2))
    (path,) = folder.rglob("litcab*.json")
    for each in folder.rglob("litcab*"):
        each.unlink()
    assert not path.exists()
    files.write(not_ok(row, "skipped", "not on this model"), None, folder)


def with_other_labels(folder: Path) -> None:
    tie(folder)
    plant(folder, "litcab", knowing(0.9), correct=CHANCE < 0.5)


def alone(folder: Path) -> None:
    plant(folder, "ccps", knowing(0.9))


def not_ok(row: ResultRow, status: str, reason: str) -> ResultRow:
    return replace(row, status=status, reason=reason, metrics={}, per_subject={}, n=None)  # type: ignore[arg-type]


ORDERS = "doesn't order answers"
CASES = {
    "tie": Case(tie, "brier", {"ccps", "pik"}, {"ccps", "pik", "lts"}, {}),
    "orders nothing, alone with one": Case(with_constant, "ece", set(), set(), {"ptrue": ORDERS, "ccps": "not tested"}),
    "orders nothing, with two": Case(
        with_two_that_order, "ece", {"ccps", "pik"}, {"ccps", "pik"}, {"ptrue": "doesn't"}
    ),
    "constant by Brier": Case(with_constant, "brier", {"ccps"}, {"ccps", "ptrue"}, {}),
    "cut short": Case(
        with_training_cut_short, "brier", {"ccps", "pik"}, {"ccps", "pik", "lts"}, {"saplma-f": "training cut short"}
    ),
    "failed seed": Case(with_failed_seed, "brier", {"ccps", "pik"}, {"ccps", "pik", "lts"}, {}),
    "skipped": Case(with_skipped, "brier", {"ccps", "pik"}, {"ccps", "pik", "lts"}, {"litcab": "skipped"}),
    "other labels": Case(
        with_other_labels, "brier", {"ccps", "pik"}, {"ccps", "pik", "lts"}, {"litcab": "other answers or labels"}
    ),
    "alone": Case(alone, "brier", set(), set(), {"ccps": "not tested"}),
}


@pytest.fixture(params=CASES)
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Case, Table, Path]]:
    """A case with its table."""
    case = CASES[request.param]
    case.plant(tmp_path)
    (table,) = build.build(cells.read_all(tmp_path), standings_of=StandingsReader(tmp_path, None))
    return case, table.ordered_by(case.metric), tmp_path


def names(lines: Any) -> set[str]:
    return {line.method for line in lines}


def test_competition_has_the_planted_leaders_and_reasons(planted: tuple[Case, Table, Path]) -> None:
    case, table, _ = planted
    found: Competition = table.competition()
    assert names(found.leaders) == case.leaders
    assert names(found.ranked) == case.ranked
    told = {key.method: reason for key, reason in found.excluded.items()}
    assert told.keys() == case.excluded.keys()
    assert all(told[name].startswith(start) for name, start in case.excluded.items())


def test_consumers_follow_the_competition(planted: tuple[Case, Table, Path]) -> None:
    case, table, folder = planted
    verdict, (judgement, *_) = verdict_of(table), judge_table(table)
    assert names(verdict.leaders) == names(table.leaders()) == case.leaders
    assert names(judgement.ranked) == case.ranked
    assert judgement.is_decided is bool(case.leaders)
    (exported,) = json.loads(formats.render(build.table_views([table]), "json"))
    assert {line["method"] for line in exported["lines"] if line["leading"]} == case.leaders
    if case.leaders:
        best = {line.method for line in table.lines if line.estimate(case.metric).best}
        assert best <= case.leaders
    assert names(front_candidates(table, case.metric)) == (case.ranked or names(table.competition().comparable))
    done = [line for line in table.lines if line.ok_rows]
    outside = {name for name, why in case.excluded.items() if why != "not tested"}
    assert {key.method for key in unranked_reasons(table, done)} == names(done) & outside
    try:
        multiverse = compute_multiverse(MultiverseRequest(MODEL, TASK, folder), None, settings=FAST)
    except UserError:
        assert len(case.ranked) < 2
    else:
        family = {"brier": "Brier", "ece": "calibration"}[case.metric]
        assert set(multiverse.methods[family]) == (case.ranked or names(table.competition().comparable))


def test_what_is_shown_does_not_change_who_competes(planted: tuple[Case, Table, Path]) -> None:
    case, table, _ = planted
    for line in table.lines:
        assert names(table.with_lines({line.key}).leaders()) == case.leaders
