"""Guards of result files: planted methods, scores, seeds, other tasks, and what can't be guarded."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import Question, UserError
from bench.data.contamination import count_duplicates
from bench.report.guard import build_analysis
from bench.report.guard.compute import compute_guards
from bench.report.guard.figure import figures_of
from bench.report.guard.model import GuardedTable
from bench.report.selection import GuardRequest
from bench.report.tables import formats
from bench.report.text import EN_DASH, percent
from bench.results import files, question_texts
from bench.results.question_texts import QuestionText
from bench.results.row import LabelsSeen, Tuning
from bench.results.submissions.recomputation import recompute_row
from bench.stats.guard import held_out_mask
from tests.fixtures.readable import look
from tests.kit.command import bench
from tests.kit.golden import as_cases, check_golden
from tests.kit.world import write_failure, write_result

N = 600
TASK, OTHER, MODEL = "atlas-oe", "rivers-oe", "alpha"
TRAINED: dict[str, Any] = {"train_on": "ct-oe/train", "labels_seen": LabelsSeen(64, 16), "base_rate": 0.7}
SKIPPED: dict[str, Any] = {"status": "skipped", "reason": "no train split"}


def plant(
    folder: Path, method: str, *, skill: float = 1.0, right: float = 0.7, task: str = TASK, seed: int = 0, n: int = N,
    score: bool = False, confidence: np.ndarray | None = None, ids: str | None = None, **changes: Any,
) -> Path:  # fmt: skip
    """Answers are the same for all methods, which order them the better the more skill they have."""
    if "status" in changes:
        write_failure(folder, method, changes.pop("reason"), model=MODEL, task=task, seed=seed, **changes)
        return folder
    truth = np.random.default_rng([n, len(task)]).random(n)
    noise = np.random.default_rng([seed, *map(ord, method)]).random(n)
    values = skill * (1 - truth) + (1 - skill) * noise if confidence is None else confidence
    fields = {"model": MODEL, "task": task, "seed": seed, "id": [f"{ids or task}/test/{i}" for i in range(n)]}
    fields |= changes | ({"score": values - 5} if score else {})
    write_result(folder, method, np.full(n, np.nan) if score else values, truth < right, subjects=2, **fields)
    return folder


def plant_texts(folder: Path, *texts: str) -> None:
    """Three questions of each task."""
    for task, text in zip((TASK, OTHER), texts, strict=True):
        asked = [QuestionText(f"{task}/test/{i}", "", f"{text} {i}", (), "a") for i in range(3)]
        question_texts.write(task, 1, asked, folder)


BOTH: list[dict[str, Any]] = [{"skill": 0.9, **TRAINED}, {"skill": 0.9, "task": OTHER, **TRAINED}]
SURE = {"skill": 0.95}
SOME_SEEDS: list[dict[str, Any]] = [SURE, {"method": "pik", **SURE}, {"method": "pik", "skill": 0.0, "seed": 1}]


def plant_all(folder: Path, results: Iterable[Mapping[str, Any]]) -> Path:
    for each in results:
        plant(folder, **{"method": "ccps", **each})
    return folder


def found(folder: Path, **options: Any) -> GuardedTable:
    (table,) = compute_guards(GuardRequest(folder, **options), None, print)
    return table


def rendered(table: GuardedTable, kind: str = "terminal", width: int = 200) -> str:
    return formats.render(build_analysis([table]).views, kind, width=width)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for seed in (0, 1):
        plant(folder, "ccps", skill=0.95, seed=seed)
    plant(folder, "ptrue", skill=0.0)
    plant(folder, "margin", skill=0.9, score=True)
    plant(folder, "self-consistency", skill=0.8)
    return plant(folder, "it", **SKIPPED)


COPIES = count_duplicates([Question(key, "bells", "Who?", ("a", "b"), 0) for key in "abc"])
"""In 1,500 draws in which each question stood there three times, guards broke 10 % in 14.5 % of them."""
ONE_TEXT = "another task, of which texts are known"
AT_10, ON_OTHER = {"risk": 0.1}, {"risk": 0.1, "calibrate_on": OTHER}
WORLDS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "too few answers for any method": ([{"n": 60}], {"risk": 0.05}),
    "a failed seed": (
        [SURE, {"seed": 1, "status": "failed", "reason": "CUDA out of memory"}, {"method": "pik", **SURE}], AT_10,
    ),
    "all answers right": ([{"right": 1.1}], {}),
    "no answer right": ([{"right": -0.1}], {}),
    "a threshold with some seeds only": (SOME_SEEDS, AT_10),
    "another task, of which only ids are known": (BOTH, ON_OTHER),
    ONE_TEXT: (BOTH, ON_OTHER),
    "a shift that breaks the risk": (
        [{"method": "ptrue", "skill": 0.9, "right": 0.6},
         {"method": "ptrue", "skill": 0.9, "right": 0.95, "task": OTHER}], ON_OTHER,
    ),
    "copies, undecided answers, partial results": (
        [{"counts": {f"{TASK}/test: {what}": n for what, n in COPIES.items()}, "n_undecided": 7, "limit": 600}], AT_10,
    ),
}  # fmt: skip


def words(table: GuardedTable) -> Iterator[str]:
    """Sentences of a table, without those on its columns."""
    (grid,) = build_analysis([table]).views.grids
    legend = set(grid.legend) - {column.sentence for column in grid.columns}
    for name in ("facts", "verdict", "legend", "remarks", "footnotes"):
        yield from (f"{name}: {text}" for text in getattr(grid, name) if name != "legend" or text in legend)


def test_guard_tables_are_those_of_the_golden_file(planted: Path, tmp_path: Path) -> None:
    cases = {"five methods": rendered(found(planted, risk=0.1), "md").splitlines()}
    cases["in 60 columns"] = rendered(found(planted, risk=0.1), width=60).splitlines()
    cases["a method that orders nothing"] = [*words(found(planted, risk=0.1, methods=("ptrue",)))]
    cases["a method with a threshold"] = [*words(found(planted, risk=0.1, methods=("ccps",)))]
    for i, (name, (results, options)) in enumerate(WORLDS.items()):
        plant_all(tmp_path / str(i), results)
        if name == ONE_TEXT:
            plant_texts(tmp_path / str(i), "Who rang bell", "Who rang the other bell")
        cases[name] = [*words(found(tmp_path / str(i), **options))]
    check_golden("guards.md.txt", as_cases(cases))


def test_guard_threshold_keeps_its_risk_on_other_questions(planted: Path) -> None:
    table = found(planted, risk=0.1)
    best = table.lines[0]
    assert (best.line.method, [seed.row.seed for seed in best.seeds]) == ("ccps", [0, 1])
    assert best.seeds[0].threshold != best.seeds[1].threshold
    for seed in best.seeds:
        assert seed.bound <= 0.1
        assert seed.realised is not None
        assert 0.4 < seed.realised.coverage < 0.8
        kept = seed.rest.values >= (seed.threshold or 0)
        assert (seed.realised.accepted, seed.realised.mistakes) == (kept.sum(), (kept & ~seed.rest.correct).sum())
    lines = {line.line.method: line for line in table.lines}
    assert (lines["ptrue"].passed_seeds, lines["ptrue"].coverage) == ((), 0.0)
    (score,) = lines["margin"].passed_seeds
    assert score.is_score
    assert (score.threshold or 0) < 0


def test_guard_says_how_many_thresholds_were_looked_at(tmp_path: Path) -> None:
    shift: list[dict[str, Any]] = [{"skill": 0.9, "right": 0.6}, {"skill": 0.9, "right": 0.95, "task": OTHER}]
    plant_all(tmp_path, [{"method": name, "seed": seed, **each}
                         for name, seed in (("ptrue", 0), ("pik", 0), ("pik", 1)) for each in shift])  # fmt: skip
    told = " ".join(words(found(tmp_path, **ON_OTHER)))
    assert "of atlas-oe, beyond chance (each of 3 thresholds by itself): " in told
    one = " ".join(words(found(tmp_path, methods=("ptrue",), **ON_OTHER)))
    assert "of atlas-oe, beyond chance: ptrue" in one


def test_guard_level_for_all_is_rounded_up(tmp_path: Path) -> None:
    for seed in (0, 1):
        plant(tmp_path, "ccps", skill=0.95, seed=seed)
    for level in (0.9, 0.9999999):
        asked = re.search(r"ask for --level ([\d.]+), at", rendered(found(tmp_path, risk=0.2, level=level), width=9999))
        assert asked is not None
        assert 1 - float(asked[1]) <= (1 - level) / 2 + 1e-15
        found(tmp_path, risk=0.2, level=float(asked[1]))


def test_guard_says_how_many_answers_it_takes(tmp_path: Path) -> None:
    """Equal confidences are kept together."""
    plant(tmp_path, "ccps", right=0.97, confidence=np.full(N, 0.4))
    (easy,) = found(tmp_path, risk=0.5).lines[0].seeds
    assert (easy.threshold, easy.accepted) == (0.0, len(easy.calibration.values))
    assert easy.n_wrong > 0
    table = found(tmp_path, risk=1.2 * easy.n_wrong / easy.accepted)
    (seed,) = table.lines[0].seeds
    assert seed.threshold is None
    assert (seed.answers_needed or 0) > len(seed.calibration.values)
    assert f"Calibration answers needed (there are {len(seed.calibration.values)})" in rendered(table)


def test_guards_are_calibrated_on_the_same_questions(planted: Path) -> None:
    aside = held_out_mask([f"{TASK}/test/{i}" for i in range(N)], share=0.3, seed=4)
    truth = np.random.default_rng([N, len(TASK)]).random(N) < 0.7
    for line in found(planted, risk=0.1, share=0.3, split_seed=4).evaluated:
        for seed in line.seeds:
            assert seed.calibration.correct.tolist() == truth[aside].tolist()
            assert seed.rest.correct.tolist() == truth[~aside].tolist()


def test_guard_ignores_labels_of_other_questions(tmp_path: Path) -> None:
    """Turning them all round changes what is reported, and no threshold."""
    path = next(plant(tmp_path / "a", "ccps", skill=0.9).rglob("*.json"))
    row, own = files.read(path), files.read_records(path)
    aside = held_out_mask(own.id, share=0.5, seed=0)
    turned = replace(own, correct=np.where(aside, own.correct, ~own.correct))
    files.write(recompute_row(row, turned), turned, tmp_path / "b")
    (one,), (other,) = (found(tmp_path / name, risk=0.1).lines[0].seeds for name in "ab")
    assert one.threshold == other.threshold is not None
    assert (one.accepted, one.n_wrong) == (other.accepted, other.n_wrong)
    assert one.realised != other.realised


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_guard_names_stay_whole_at_any_width(planted: Path, width: int) -> None:
    printed = rendered(found(planted, risk=0.1), width=width)
    for name in ("ccps", "self-consistency", "margin", "seed 1"):
        assert re.search(rf"^ *{name} ", printed, flags=re.MULTILINE), printed


def test_guard_data_have_a_record_for_each_seed(planted: Path) -> None:
    table = found(planted, risk=0.1)
    records = list(csv.DictReader(io.StringIO(rendered(table, "csv"))))
    assert [(r["method"], r["seed"]) for r in records][:2] == [("ccps", "0"), ("ccps", "1")]
    assert len(records) == 6
    (data,) = json.loads(rendered(table, "json"))
    cell = data["cells"][0]
    assert cell["threshold"] == table.lines[0].seeds[0].threshold == float(records[0]["threshold"])
    assert cell["coverage_low"] < cell["coverage"] < cell["coverage_high"]
    assert cell["realised_risk_low"] < cell["realised_risk"] < cell["realised_risk_high"]
    assert data["verdict"][0].startswith("Can answers be trusted")
    for kind in ("csv", "json"):
        assert SKIPPED["reason"] in rendered(table, kind)


def test_guard_says_which_tasks_have_no_result(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", skill=0.9)
    plant(tmp_path, "it", task="elsewhere", **SKIPPED)
    said: list[str] = []
    [only] = compute_guards(GuardRequest(tmp_path, risk=0.1), None, said.append)
    assert only.table.task == TASK
    assert [text for text in said if "left out" in text] == [
        f"{MODEL} on elsewhere: left out, as none of the chosen methods has a result there"
    ]


def test_guard_says_what_a_table_says_first(tmp_path: Path) -> None:
    """A judge that errs, what is noted of all results and of one, and results that are hidden."""
    judged = {"counts": {f"{TASK}/test: right options that the judge accepts, of 150": 50}, "notes": ("halved",)}
    steps = {"ccps.steps": 10}
    plant_all(tmp_path, [{**SURE, **judged}, {"method": "mine", **judged}, {"deviations": steps, "config": steps}])
    (grid,) = build_analysis([found(tmp_path, risk=0.1)]).views.grids
    assert grid.verdict[0].startswith("These grades say little of the answers (right options that the judge accepts: ")
    assert sorted(note[:12] for note in grid.footnotes) == ["halved", "not built in"]
    assert grid.remarks[-1] == "1 partial or deviating result is not shown."
    (both,) = build_analysis([found(tmp_path, risk=0.1, deviations=True)]).views.grids
    assert sorted(note[:12] for note in both.footnotes) == ["halved", "not built in"]


def test_guards_of_one_task_are_told_apart(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", skill=0.95)
    plant(tmp_path, "ccps", skill=0.5, config={"tune": 8}, tuning=Tuning(8))
    views = build_analysis(compute_guards(GuardRequest(tmp_path, risk=0.1), None, print)).views
    titles = [grid.facts[0] for grid in views.grids]
    assert titles == ["alpha on atlas-oe", "alpha on atlas-oe (tuned, 8 configurations)"]
    assert [record["results"] for record in views.records()] == ["", "tuned, 8 configurations"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"train_on": "rivers-oe/train"}, "learned from ct-oe/train here and from rivers-oe/train for rivers-oe"),
        ({"base_rate": 0.6}, "is of another fit: it differs in base rate"),
        ({"seed": 3}, "has no result with seed 0 on rivers-oe"),
        ({"status": "skipped", "reason": "no"}, "has no result with seed 0 on rivers-oe"),
        ({"ids": TASK}, "600 of its 600 questions are also of atlas-oe, e.g. atlas-oe/test/0"),
        ({}, "3 of its 600 questions are also of atlas-oe"),
    ],
)
def test_guard_of_another_fit_is_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    plant_all(tmp_path, [BOTH[0], BOTH[1] | changes])
    if not changes:
        plant_texts(tmp_path, "Who rang bell", "Who rang bell")
    with pytest.raises(UserError, match=told):
        found(tmp_path, calibrate_on=OTHER)


def test_guard_seeds_that_agree_share_a_line(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        plant(tmp_path, "ptrue", confidence=np.random.default_rng(7).random(600), seed=seed)
        plant(tmp_path, "pik", confidence=np.random.default_rng(seed).random(600), seed=seed)
    for method, label in (("ptrue", "ptrue, seeds 0, 1, 2"), ("pik", "pik")):
        (grid,) = build_analysis([found(tmp_path, risk=0.1, methods=(method,))]).views.grids
        (row,) = grid.rows
        name, threshold, kept, _, _, bound, _ = (cell.text for cell in row.cells)
        assert (name, threshold, kept) == (label, "none", "0.0")
        assert re.fullmatch(rf"[\d.]+{EN_DASH}[\d.]+", bound) or method == "ptrue"
        assert "Whoever takes the one" not in " ".join(grid.legend)


def test_guard_counts_seeds_that_keep_nothing(tmp_path: Path) -> None:
    plant_all(tmp_path, SOME_SEEDS)
    guards = found(tmp_path, risk=0.1, methods=("pik",))
    (grid,) = build_analysis([guards]).views.grids
    mean, first, second = ([cell.text for cell in row.cells[1:3]] for row in grid.rows)
    kept = guards.lines[0].seeds[0].realised
    assert kept is not None
    assert mean == [f"{first[0]} in 1 of 2", percent(kept.coverage / 2)]
    assert (first[1], second) == (percent(kept.coverage), ["none", "0.0"])
    assert "Not with every seed: a threshold keeps this for none of 1 methods, and with some seeds" in grid.verdict[0]


SEEN = "early stopping, scaling and recalibration have seen it"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *(({option: value}, f"--{option}: expected a .*between 0 and 1") for option in ("risk", "level", "share")
          for value in (0.0, 1.0, -0.1, 5.0, float("nan"))),
        *(({"calibrate_on": name}, SEEN) for name in ("validation", "atlas-oe/validation", "atlas-oe:train")),
        ({"calibrate_on": "atlas-eo"}, "no result of task 'atlas-eo'; there are atlas-oe. Did you mean"),
        *(({"calibrate_on": name}, f"on {TASK}: expected results of another task") for name in (TASK, TASK.upper())),
        ({"share": 0.0001}, "expected questions on both sides, got 0 to choose"),
        ({"methods": ("it",)}, r"no method has a result to guard \(it: skipped: no train split\)"),
    ],
)  # fmt: skip
def test_guard_refuses(planted: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        found(planted, **options)


def test_guard_command_prints_and_writes(planted: Path, tmp_path: Path) -> None:
    def run(*words: object) -> Any:
        return bench("guard", "--results", planted, *words, env={"CONFBENCH_CACHE": str(tmp_path / "cache")})

    out = tmp_path / "guards"
    done = run("--risk", 0.1, "--method", "ccps,ptrue", "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("Can answers be trusted") < done.stdout.index("method")
    before = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
    assert list(before) == ["alpha--atlas-oe--guard.svg", "guard.csv", "guard.json"]
    assert b"ptrue" in before["alpha--atlas-oe--guard.svg"]
    run("--risk", 0.1, "--method", "ccps,ptrue", "--out", out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert json.loads(run("--format", "json").stdout)[0]["task"] == TASK
    assert "expected a folder" in run("--out", out / "guard.csv").stderr
    assert (out / "guard.csv").read_bytes() == before["guard.csv"]
    assert "expected head.json in it, found none" in run("--head", tmp_path).stderr


def test_guard_figures_hold_twelve_methods_each(tmp_path: Path, planted: Path) -> None:
    """Several figures of a table are numbered from 1; a name that another table has is numbered too."""
    (few,) = dict(figures_of([found(planted)])).values()
    check_golden("looks-guard.txt", "\n".join(look(few)))
    for k in range(13):
        plant(tmp_path, f"m{k:02}", skill=0.9, n=120)
    table = found(tmp_path)
    names = [f"alpha--atlas-oe--guard{end}" for end in ("--1", "--2", "--1-2", "--2-2")]
    assert [name for name, _ in figures_of([table, table])] == names
