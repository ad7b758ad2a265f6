"""Who competes and who leads, on planted results: every consumer follows the one rule."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bench.api import FloatArray, UserError
from bench.report import figures, page
from bench.report.competition import ranked_by
from bench.report.figures.cost import COSTS
from bench.report.figures.figure_data import unranked_reasons
from bench.report.front import front_candidates
from bench.report.multiverse.compute import compute_multiverse
from bench.report.page import pairs
from bench.report.page.verdict import verdict_data
from bench.report.selection import MultiverseRequest
from bench.report.standings.cache import StandingsReader
from bench.report.tables import build, comparison, formats
from bench.report.tables.model import Table
from bench.report.verdict import verdict_of
from bench.results import cells, files
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.stats import Settings
from tests.fixtures.readable import note, words
from tests.kit.tables import CUT_SHORT
from tests.kit.world import write_failure, write_result

N = 360
PLACE: dict[str, Any] = {"model": "alpha", "task": "shores-oe", "judge": "match"}
_RNG = np.random.default_rng(5)
CHANCE = _RNG.uniform(0.3, 0.95, size=N)
"""True chance of each answer to be right."""
CORRECT = _RNG.random(N) < CHANCE


def knowing(share: float, seed: int = 0) -> FloatArray:
    """Confidences that know the chances to a degree; close to each other for close degrees."""
    noise = np.random.default_rng(seed).normal(size=N)
    return np.asarray(np.clip(share * CHANCE + (1 - share) * (0.5 + 0.2 * noise), 0, 1))


class Case(NamedTuple):
    """Results (method, confidences, further fields; a failure where there are none), and who leads by a metric."""

    results: Sequence[tuple[str, FloatArray | None, dict[str, Any]]]
    metric: str
    leaders: set[str]
    ranked: set[str]
    excluded: dict[str, str]


ORDERS, UNTOLD, CUT = "AUROC not above 50 %", "whether answers are ordered can't be told", "training cut short"
BACKWARDS = "AUROC below 50 % beyond chance"
UNTESTED, SHORT = "not tested", {"training": CUT_SHORT}
PLAIN: dict[str, Any] = {}
CCPS, CONSTANT = ("ccps", knowing(0.90), PLAIN), np.full(N, CORRECT.mean())
TIE = (CCPS, ("pik", knowing(0.91), PLAIN), ("lts", knowing(0.1), PLAIN))
TIED, OF_TIE = {"ccps", "pik"}, {"ccps", "pik", "lts"}
WITH_CONSTANT = (CCPS, ("ptrue", CONSTANT, PLAIN))
WORSE_THAN_CONSTANT = (
    ("ccps", 0.4 + 0.6 * knowing(0.9), PLAIN), ("pik", 0.8 + 0.2 * knowing(0.9), PLAIN), ("ptrue", CONSTANT, PLAIN),
)  # fmt: skip
ALONE_BUT_FOR_ONE = (
    ("ccps", knowing(1.0), SHORT), ("pik", knowing(0.3), PLAIN), ("ccps+isotonic", knowing(0.9), PLAIN),
    ("pik+isotonic", knowing(0.3), PLAIN),
)  # fmt: skip
FOUR_WRONG, NINETEEN_WRONG = np.arange(N) % 90 > 0, np.arange(N) > 18
FEW_WRONG = (
    ("ccps", 0.5 * knowing(0.9) + 0.2 * FOUR_WRONG, {"correct": FOUR_WRONG}),
    ("pik", 0.5 * knowing(0.8) + 0.2 * FOUR_WRONG, {"correct": FOUR_WRONG}),
    ("lts", np.full(N, FOUR_WRONG.mean()), {"correct": FOUR_WRONG}),
)
"""All intervals of AUROC are refused; that of a constant is 50 % all the same."""
NOISE = (
    ("ccps", 0.4 * knowing(0.2) + 0.3 * NINETEEN_WRONG, {"correct": NINETEEN_WRONG}),
    ("pik", 0.9422 + 0.01 * knowing(0.0) + 0.002 * NINETEEN_WRONG, {"correct": NINETEEN_WRONG}),
)
"""Noise near the share of right answers was crowned for an AUROC a little above 50 %."""
SURER = tuple((name, np.clip(knowing(share) + 0.25, 0, 1), PLAIN) for name, share in (("ccps", 0.9), ("pik", 0.8)))
FAILED = (("ccps", knowing(0.9), {"seed": 1}), ("ccps", None, {"reason": "loss became NaN", "seed": 1}))
SKIPPED = ("litcab", None, {"reason": "not on this model", "status": "skipped"})
OTHER = ("litcab", knowing(0.9), {"correct": CHANCE < 0.5})
CASES = {
    "tie": Case(TIE, "brier", TIED, OF_TIE, {}),
    "orders nothing, alone with one": Case(WITH_CONSTANT, "ece", set(), set(), {"ptrue": ORDERS, "ccps": UNTESTED}),
    "orders nothing, with two": Case(WORSE_THAN_CONSTANT, "ece", {"ccps"}, TIED, {"ptrue": ORDERS}),
    "orders backwards": Case(
        (*WORSE_THAN_CONSTANT[:2], ("ptrue", 1 - knowing(0.9), PLAIN)), "ece", {"ccps"}, TIED, {"ptrue": BACKWARDS}
    ),
    "constant by Brier": Case(WITH_CONSTANT, "brier", {"ccps"}, {"ccps", "ptrue"}, {}),
    "cut short": Case((*TIE, ("saplma-f", knowing(1.0), SHORT)), "brier", TIED, OF_TIE, {"saplma-f": CUT}),
    "failed seed": Case((*TIE, *FAILED), "brier", TIED, OF_TIE, {}),
    "skipped": Case((*TIE, SKIPPED), "brier", TIED, OF_TIE, {"litcab": "skipped"}),
    "other labels": Case((*TIE, OTHER), "brier", TIED, OF_TIE, {"litcab": "other answers or labels"}),
    "alone": Case((CCPS,), "brier", set(), set(), {"ccps": UNTESTED}),
    "alone but for one": Case(ALONE_BUT_FOR_ONE, "brier", set(), set(), {"ccps": CUT, "pik": UNTESTED}),
    "few wrong answers": Case(FEW_WRONG, "ece", set(), set(), {"lts": ORDERS, "ccps": UNTOLD, "pik": UNTOLD}),
    "worse than the share of right answers": Case(SURER, "brier", set(), {"ccps", "pik"}, {}),
    "noise": Case(NOISE, "ece", set(), set(), {"pik": UNTOLD, "ccps": UNTOLD}),
}


@pytest.fixture(scope="module", params=CASES)
def planted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, Table, Path]:
    return of_case(request.param, tmp_path_factory.mktemp("results"))


def of_case(name: str, folder: Path) -> tuple[Case, Table, Path]:
    """A case, its results in a folder, and their table."""
    case = CASES[name]
    for method, confidence, fields in case.results:
        if confidence is None:
            write_failure(folder, method, **PLACE, **fields)
        else:
            write_result(folder, method, confidence, **{"correct": CORRECT, **PLACE, **fields})
    (table,) = build.build(cells.read_all(folder), standings_of=StandingsReader(folder, None))
    return case, table.ordered_by(case.metric), folder


def records_in(folder: Path) -> Callable[[ResultRow], QuestionRecords]:
    return lambda row: files.read_records(files.stored_path(row, folder))


def names(lines: Any) -> set[str]:
    return {line.method for line in lines}


def test_competition_has_the_planted_leaders_and_reasons(planted: tuple[Case, Table, Path]) -> None:
    case, table, _ = planted
    found = table.competition()
    assert (names(found.leaders), names(found.ranked)) == (case.leaders, case.ranked)
    told = {key.method: reason for key, reason in found.excluded.items()}
    assert told.keys() == case.excluded.keys()
    assert all(told[name].startswith(start) for name, start in case.excluded.items())
    for line in table.lines:  # whatever is shown
        assert names(table.with_lines({line.key}).leaders()) == case.leaders


def test_consumers_follow_the_competition(planted: tuple[Case, Table, Path]) -> None:
    case, table, folder = planted
    metric = ranked_by(case.metric)
    # verdicts
    found, (main, *_) = verdict_of(table), table.competitions()
    assert names(found.leaders) == names(table.leaders()) == case.leaders
    assert (names(main.ranked), names(main.leaders)) == (case.ranked, case.leaders)
    assert {table.lines[place].method for place in found.places} == case.leaders
    # tables
    views = build.table_views([table])
    (exported,) = views.data()
    assert {line["method"] for line in exported["lines"] if line["leading"]} == case.leaders
    records = csv.DictReader(io.StringIO(formats.render(views, "csv")))
    assert {record["method"] for record in records if record["leading"] == "1"} == case.leaders
    (grid,) = views.grids
    assert {row.cells[0].text for row in grid.rows if row.is_shaded} == case.leaders
    assert ("▸" in " ".join(grid.legend)) is bool(case.leaders)
    best = {line.method for line in table.lines if line.estimate(metric).best and not line.key.recalibration}
    assert best <= (case.leaders or names(table.competition().comparable))
    # comparisons: nobody is better calibrated who isn't known to order answers
    done = [line for line in table.lines if line.ok_rows]
    if len(done) > 1:
        compared = comparison.build([table], sorted(names(done))).records()
        better = {
            str(record["verdict"]).partition(" is better")[0] for record in compared if record["metric"] == metric
        }
        assert not better & {name for name, reason in case.excluded.items() if reason in {ORDERS, BACKWARDS, UNTOLD}}
    # figures
    assert names(front_candidates(table, case.metric)) - {"ccps+isotonic", "pik+isotonic"} == (
        case.ranked or names(table.competition().comparable)
    )
    outside = {name for name, why in case.excluded.items() if why != UNTESTED}
    reasons = unranked_reasons(table, done)
    assert {key.method for key in reasons} & case.excluded.keys() == names(done) & outside
    # the page
    (row,) = verdict_data([table], ["one"])["rows"]
    assert set(re.findall(r"[\w-]+", row["texts"][1])) & names(table.lines) == case.leaders
    assert (row["texts"][-1] == "nobody leads") is (not case.leaders and len(done) > 1)  # one alone has its cost
    (block,) = page.payload([table], records_in(folder), lambda task, version: {})["blocks"]
    assert {table.lines[i].method for i in block["headlines"][case.metric]["leads"]} == case.leaders


@pytest.mark.parametrize("name", ["alone but for one", "constant by Brier"])
def test_pictures_follow_the_competition(name: str, tmp_path: Path) -> None:
    case, table, _ = of_case(name, tmp_path)
    pictures = "".join(map("".join, page.pictures([table], records_in(tmp_path))))
    assert set(re.findall(r'data-method="(\S+)" class="leads"', pictures)) == case.leaders
    of_costs = page.pictures([table], records_in(tmp_path))[0].costs
    assert (COSTS["tokens"] in of_costs, COSTS["seconds"] in of_costs) == (True, False)  # seconds are of one machine


def test_multiverses_follow_the_competition(planted: tuple[Case, Table, Path]) -> None:
    case, table, folder = planted
    family = {"brier": "Brier", "ece": "calibration"}[case.metric]
    try:
        found = compute_multiverse(MultiverseRequest("alpha", "shores-oe", folder), None, print, Settings(draws=500))
    except UserError:
        assert len(case.ranked) < 2
    else:
        assert set(found.methods[family]) == (case.ranked or names(table.competition().comparable))


def test_constant_is_told_from_what_orders_answers(tmp_path: Path) -> None:
    """It had the first rank without the lead, and --compare called it better than every method."""
    _, table, _ = of_case("orders nothing, with two", tmp_path)
    ranks = {line.method: line.rank("rmsce") for line in table.lines}
    assert ranks == {"ccps": 1, "pik": 2, "ptrue": None}
    marks = {line.method: line.estimate("rmsce").best for line in table.lines}
    assert marks == {"ccps": "beyond chance", "pik": None, "ptrue": None}
    compared = comparison.build([table], ["ptrue", "ccps", "pik"])
    said = {(r["first"], r["second"]): r["verdict"] for r in compared.records() if r["metric"] == "rmsce"}
    assert said == {("ptrue", "ccps"): "no verdict", ("ptrue", "pik"): "no verdict", ("ccps", "pik"): "ccps is better"}
    assert "ptrue: AUROC not above 50 % beyond chance" in " ".join(compared.grids[0].footnotes)
    assert "no verdict" in {each["verdict"] for each in compared.data()[0]["comparisons"]}
    told = (pairs.pair_data(table) or {})["metrics"]["rmsce"]
    assert sorted(pairs.VERDICTS[key] for *_, key in told) == ["no verdict", "no verdict", "worse"]
    assert "no verdict" in pairs.differences_table(table, "here")
    forest = figures.differences_to_best([table], metrics=["rmsce"])
    assert [text for text in words(forest) if text == "no verdict" or text.startswith("\u2248")] == ["no verdict"]
    for draw in (figures.differences_to_best, figures.win_matrix, figures.metric_intervals):
        assert "by ECE" not in note(draw([table]))  # which neither sorts nor ranks


def test_order_that_is_unknown_is_said(tmp_path: Path) -> None:
    _, table, _ = of_case("few wrong answers", tmp_path)
    line = {line.method: line for line in table.lines}
    assert line["lts"].estimate("auroc").mean == 0.5
    assert line["lts"].estimate("rmsce").mean == 0
    assert any("AUROC not above 50 %" in note for note in line["lts"].estimate("rmsce").notes)
    (note,) = line["ccps"].estimate("rmsce").notes
    assert note.startswith("whether answers are ordered can't be told, as 20 wrong answers are needed")
    (exported,) = json.loads(formats.render(build.table_views([table]), "json"))
    told = {each["method"]: each["standing"]["orders_answers"] for each in exported["lines"]}
    assert told == {"lts": False, "ccps": None, "pik": None}


def test_comparison_says_why_a_method_has_no_pair(tmp_path: Path) -> None:
    for method, correct in (("ccps", CORRECT), ("pik", CORRECT), ("lts", CHANCE < 0.5)):
        write_result(tmp_path, method, knowing(0.9), correct, **PLACE)
    (table,) = build.build(cells.read_all(tmp_path), standings_of=StandingsReader(tmp_path, None))
    standings = table.standings
    assert standings
    left = {line.key: "its scores are no probabilities" for line in table.lines if line.method == "pik"}
    pairs = tuple(pair for pair in standings.pairs if not {pair.first, pair.second} & left.keys())
    table = replace(table, standings=replace(standings, left_out=left, pairs=pairs))
    (grid,) = comparison.build([table], ["ccps", "pik", "lts"]).grids
    alone = "is not compared: it shares its answers and labels with no other method here"
    assert grid.remarks == (f"ccps {alone}", "pik is not compared: its scores are no probabilities", f"lts {alone}")


def test_pairs_without_shared_labels_are_told(tmp_path: Path) -> None:
    """Also where each method shares its labels with another one, named or not."""
    for method, correct in (("ccps", CORRECT), ("pik", CORRECT), ("lts", CHANCE < 0.5), ("ct", CHANCE < 0.5)):
        write_result(tmp_path, method, knowing(0.9), correct, **PLACE)
    tables = build.build(cells.read_all(tmp_path), standings_of=StandingsReader(tmp_path, None))
    (two,), (four,) = (
        comparison.build(tables, names).grids for names in (["ccps", "lts"], ["ccps", "lts", "pik", "ct"])
    )
    alone = "is not compared: it shares its answers and labels with no other method here"
    assert (two.rows, two.remarks) == ((), (f"ccps {alone}", f"lts {alone}"))
    differ = "their answers or labels differ"
    pairs_told = (("ccps", "lts"), ("ccps", "ct"), ("lts", "pik"), ("pik", "ct"))
    assert four.remarks == tuple(f"{one} is not compared with {other}: {differ}" for one, other in pairs_told)
