"""Tables from result rows: what stands in them, what is refused, and how each format looks (golden files).

`UPDATE_GOLDEN=1 pytest tests/unit/report` rewrites the golden files; read the diff.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench.api import UserError
from bench.api.early_stopping import TrainingStage
from bench.metrics import METRICS
from bench.metrics.summary import MetricSummary
from bench.report.standings.compute import LineStanding, Pair, Standings
from bench.report.tables.build import (
    _NOT_BUILT_IN,
    COLUMNS,
    REASON_LENGTH,
    build,
    mark_plugins,
    plain,
    print_terminal,
    render,
    table_views,
)
from bench.results.row import LabelsSeen, ResultRow, Training
from bench.stats import TESTED, Estimate, Interval

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
KINDS = ["terminal", "md", "csv", "tex", "json"]


def summaries(values, *, n_undefined=0):
    """Metrics by name; (mean, std) per column, and a floor."""
    metrics = {
        name: MetricSummary(mean, std, mean, n_undefined if name in {"aucpr", "auroc"} else 0)
        for name, (mean, std) in zip(COLUMNS, values, strict=True)
    }
    return {**metrics, "ece_floor": MetricSummary(0.0512, 0.01, 0.02, 0)}


VALUES = ((0.08, 0.01), (0.06, 0.01), (0.15, 0.02), (0.77, 0.03), (0.88, 0.04), (0.85, 0.05))


def cell(method="ccps", values=VALUES, **changes):
    row = ResultRow(
        method=method,
        model="tiny",
        task="atlas-choice",
        preset="demo",
        seed=0,
        protocol="0123456789abcdef",
        task_version=1,
        train_on="atlas-choice:train",
        status="ok",
        n=1200,
        n_unparsed=3,
        n_empty=1,
        n_shots_dropped=0,
        llm_accuracy=0.6725,
        metrics=summaries(values),
        per_subject={f"subject {k}": {"n": 150.0} for k in range(8)},
    )
    return replace(row, **changes)


PTRUE_VALUES = ((0.21, 0.02), (0.19, 0.02), (0.15, 0.01), (0.7049, 0.03), (0.9312, 0.002), (0.81, 0.05))
UNKNOWN = dict.fromkeys(("n_unparsed", "n_empty", "n_shots_dropped", "llm_accuracy"))


def comparison():
    """Two methods that ran, one of them with a metric that some subjects lack, one skipped and two failed."""
    missing = {"metrics": {}, "per_subject": {}}
    return [
        cell("ptrue", PTRUE_VALUES, train_on=None, metrics=summaries(PTRUE_VALUES, n_undefined=2)),
        cell("ccps"),
        cell("lts", status="skipped", reason="atlas-choice has no validation split", **missing),
        cell("litcab", status="failed", reason="loss became NaN in step 3", **missing),
        cell("it", status="failed", reason="loss became NaN in step 3", **{**missing, **UNKNOWN, "n": None}),
    ]


def several_seeds():
    """Two seeds of each method, one of which failed, on another task."""
    worse = ((0.10, 0.03), (0.09, 0.02), (0.16, 0.02), (0.75, 0.03), (0.86, 0.04), (0.83, 0.05))
    rows = [
        cell(), cell(values=worse, seed=1), cell("ptrue", PTRUE_VALUES),
        cell("ptrue", seed=1, status="failed", reason="out of memory", metrics={}, per_subject={}),
    ]  # fmt: skip
    return [
        replace(row, model="org/model_7B", task="mmlu-choice", preset="fixed", config={"dtype": "float32"})
        for row in rows
    ]


HOSTILE = [
    "[red]x[/red]",
    "a|b",
    "a&b",
    "a_b*c*",
    "100%",
    "<script>alert(1)</script>",
    "$x^2$",
    r"\input{x}",
    ":smile:",
    "#~`",
]


def hostile():
    return [
        cell(name, status="failed", reason=f"because {name}", metrics={}, model="<b>[bold]|&_%", seed=0)
        for name in HOSTILE
    ]


# --- golden files -----------------------------------------------------------------------------------------------------


def check_golden(name, text):
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_comparison_looks_as_in_the_golden_file(kind):
    tables = build([*comparison(), *several_seeds()], standings_of=judged)
    check_golden(f"table_comparison.{kind}.txt", render(tables, kind, width=80))


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_look_as_in_the_golden_file(kind):
    check_golden(f"table_hostile.{kind}.txt", render(build(hostile()), kind, width=80))


# --- what stands in a table -------------------------------------------------------------------------------------------


LOW, HIGH = Interval("fixed-subjects", 0.1, 0.2, 0.95, "t"), Interval("fixed-subjects", 0.45, 0.95, 0.95, "logit t")


def judged(lines, *, better=("brier", "rmsce"), p=0.5, unordered=(), constant=None):
    """Every line that is ok beats those after it in these metrics; all ECEs have this p value of calibration."""
    done = [key for key, rows in lines.items() if rows[0].status == "ok"]
    none = Interval("clustered", reason="20 subjects are needed")
    standing = Estimate(0.15, LOW, none, (0.1, 0.2), 0.0123, 0)
    found = {}
    for place, key in enumerate(done, start=1):
        ordered = replace(standing, fixed=replace(HIGH, low=0.45 if key.method in unordered else 0.6))
        metrics = {**dict.fromkeys(TESTED, standing), "auroc": ordered}
        ranks = {name: place if name in better else 1 for name in TESTED}
        found[key] = LineStanding(0, metrics, p, ranks, constant)
    pairs = [
        Pair(name, a, b, 0.1 if METRICS[name].higher_is_better else -0.1, LOW, none, p_pair, p_pair)
        for name in TESTED
        for a, b in combinations(done, 2)
        for p_pair in (0.01 if name in better else 0.5,)
    ]
    return Standings(0.95, found, tuple(pairs), {})


def footnotes(table):
    return table_views([table]).grids[0].footnotes


def main(table):
    """The text of each cell of the main grid with its signs, by method and heading."""
    grid = table_views([table]).grids[0]
    labels = [column.label for column in grid.columns]
    return {
        row.cells[0].text: {label: cell.text + cell.mark for label, cell in zip(labels, row.cells, strict=True)}
        for row in grid.rows
    }


def test_without_standings_the_best_means_are_marked_as_not_tested():
    (table,) = build(comparison())
    found = {line.method: {name: line.estimates[name].best for name in COLUMNS} for line in table.lines if line.seeds}
    tested = {"not tested", None}
    assert {best for line in found.values() for best in line.values()} == tested
    assert found["ccps"]["brier"] == found["ptrue"]["brier"] == "not tested"  # both are 15.0
    assert found["ccps"]["ece"] is None  # never best, however small
    assert (found["ccps"]["rmsce"], found["ptrue"]["rmsce"]) == ("not tested", None)
    text = render([table], "md")
    assert "| 15.0? |" in text
    assert r"? is the best mean of its table, and was not tested." in text
    assert not [line for line in text.splitlines() if line.startswith("|") and "**" in line]


@pytest.mark.parametrize("kind", ["terminal", "md", "tex"])
def test_a_best_value_has_a_sign_that_survives_print_and_its_sentence(kind):
    text = render(build([cell(), cell("ptrue", PTRUE_VALUES)], standings_of=judged), kind, width=100)
    flat = " ".join(text.replace("\\", "").replace("{", "").replace("}", "").split())
    assert "* (bold) is the best of its table, significantly better than every other." in flat
    assert re.search(
        r"(~|textasciitilde) is the best mean of its table, not significantly better than every other", flat
    )
    assert "±" in flat or "$pm$" in flat


def with_rmsce(error, values=VALUES):
    return {**summaries(values), "rmsce": MetricSummary(error, 0.01, error, 0)}


def test_calibration_is_marked_by_rmsce_and_only_where_answers_are_ordered():
    rows = [
        cell("ptrue", PTRUE_VALUES, metrics=with_rmsce(-0.01, PTRUE_VALUES)),
        cell(metrics=with_rmsce(0.02)),
        cell("lts", metrics=with_rmsce(-0.03)),
    ]
    (table,) = build(rows, standings_of=partial(judged, unordered=("lts",)))
    ece = {method: cells["ECE/floor ↓"] for method, cells in main(table).items()}
    assert ece == {"ptrue": "21.0 / 2.0†", "ccps": "8.0 / 2.0†", "lts": "8.0 / 2.0"}
    rmsce = {method: cells["RMSCE ↓"] for method, cells in main(table).items()}
    assert rmsce == {"ptrue": "0.0 ±20.0*", "ccps": "2.0 ±18.0", "lts": "0.0 ±20.0"}
    (note,) = footnotes(table)
    assert note.startswith("calibrated, but does not order answers")
    (line,) = (line for line in table.lines if line.method == "lts")
    assert [name for name, estimate in line.estimates.items() if note in estimate.notes] == ["rmsce"]
    (table,) = build(rows, standings_of=partial(judged, better=()))
    rmsce = {method: cells["RMSCE ↓"][-1] for method, cells in main(table).items()}
    assert rmsce == {"ptrue": "~", "lts": "~", "ccps": "0"}  # below 0 both count as 0
    (table,) = build(rows, standings_of=partial(judged, p=0.0499))
    assert "†" not in render([table], "md")


def test_json_has_a_calibration_error_below_0_as_0_of_each_seed_too():
    below = [cell(seed=seed, metrics=with_rmsce(error)) for seed, error in enumerate((-0.03, 0.05))]
    (table,) = build(below, standings_of=lambda lines: seeds_of(judged(lines), -0.03, 0.05))
    assert json.loads(render([table], "json"))[0]["lines"][0]["metrics"]["rmsce"]["by_seed"] == [0, 0.05]


def seeds_of(standings, *values):
    """The same standings with these values of every metric for each seed."""
    ((key, line),) = standings.lines.items()
    metrics = {name: replace(estimate, by_seed=values) for name, estimate in line.metrics.items()}
    return replace(standings, lines={key: replace(line, metrics=metrics)})


def test_raw_calibration_errors_are_never_best():
    """Confidences that are less spread have less of them by chance alone."""
    raw = {name: MetricSummary(0.01, 0.01, 0.01, 0) for name in ("ece_debiased", "ece_mass", "smece", "brier_mcb")}
    rows = [cell(metrics={**summaries(VALUES), **raw}), cell("ptrue", metrics=summaries(PTRUE_VALUES))]
    for standings in (None, judged):
        (table,) = build(rows, standings_of=standings)
        for line in table.lines:
            marks = {name: estimate.best for name, estimate in line.estimates.items()}
            assert not any(marks.get(name) for name in ("ece", *raw))


def test_beside_a_mean_stands_half_of_its_interval_and_the_spread_only_with_statistics():
    (table,) = build(comparison(), standings_of=judged)
    assert main(table)["ccps"]["Brier ↓"] == "15.0 ±5.0"
    assert "std over subjects" not in render([table], "md")
    (grid, *_) = table_views([table], stats=True).grids
    assert [(row.cells[0].text, row.cells[4].text) for row in grid.rows[1:4]] == [
        ("these subjects", "10.0\u201320.0"), ("std over subjects", "1.0"), ("std between seeds", "1.2"),
    ]  # fmt: skip


def test_a_brier_score_no_better_than_a_constants_is_marked():
    (table,) = build(comparison(), standings_of=partial(judged, constant=0.15))
    assert main(table)["ccps"]["Brier ↓"].endswith("!")
    assert "! is a Brier score no better than that of a constant confidence" in " ".join(
        table_views([table]).grids[0].legend
    )
    (table,) = build(comparison(), standings_of=partial(judged, constant=0.1501))
    assert "!" not in main(table)["ccps"]["Brier ↓"]


STAGE = TrainingStage("", limit=128, taken=128, kept=120, epochs=2.04, cut_short=True)


def test_a_method_that_was_cut_short_says_so_and_is_never_best():
    best = (*[(0.01, 0.01)] * 3, (0.99, 0.01), (0.99, 0.01), (0.99, 0.01))
    rows = [*comparison(), cell("pik", best, training=Training((STAGE,), 0.31, 0.52, 0.64))]
    (table,) = build(rows)
    (line,) = (line for line in table.lines if line.method == "pik")
    assert not any(estimate.best for estimate in line.estimates.values())
    assert "training was cut short after 2.0 epochs" in line.notes[0]
    assert "the published training is longer; no rank" in line.notes[0]


def test_the_published_training_of_a_method_that_says_it_stands_beside_its_own():
    rows = [cell("ct", training=Training((STAGE,), 0.31, 0.52, 0.64))]
    (line,) = build(rows)[0].lines
    assert "the published training is longer (10,000 steps, 17.2 epochs); no rank" in line.notes[0]


def test_what_training_was_like_is_told_with_statistics_and_as_data():
    stage = replace(STAGE, cut_short=False)
    two = Training((replace(stage, name="contrastive"), replace(stage, name="head", kept=7)), 0.31, 0.52, 0.64)
    (table,) = build([*comparison(), cell("pik", training=two, base_rate=0.67)])
    grid = table_views([table], stats=True).grids[-1]
    assert [[cell.text for cell in row.cells] for row in grid.rows] == [
        ["pik (contrastive)", "120", "128", "128", "2.0", "0.310", "0.520", "0.640"],
        ["head", "7", "128", "128", "2.0", "", "", ""],
    ]
    (record,) = (r for r in csv.DictReader(io.StringIO(render([table], "csv"))) if r["method"] == "pik")
    told = [record[name] for name in ("steps_kept", "steps_limit", "epochs", "validation_nll", "base_rate")]
    assert told == ["127.0", "256.0", "4.08", "0.52", "0.67"]
    (line,) = (line for line in json.loads(render([table], "json"))[0]["lines"] if line["method"] == "pik")
    assert [stage["name"] for stage in line["training"][0]["stages"]] == ["contrastive", "head"]


def test_labels_learned_from_are_a_column():
    rows = [
        cell("ct", labels_seen=LabelsSeen(0, 320, 1280)),
        cell("it", labels_seen=LabelsSeen(1152, 128, 1280)),
        cell(labels_seen=LabelsSeen(4096, 512)),
        cell("ptrue"),
        cell("lts", status="failed", reason="x", metrics={}),
    ]
    rows += [cell("pik", seed=seed, labels_seen=LabelsSeen(n, 0)) for seed, n in enumerate((90, 100))]
    (grid,) = table_views(build(rows)).grids
    place = [column.label for column in grid.columns].index("labels")
    shown = {row.cells[0].text: row.cells[place].text for row in grid.rows}
    assert shown == {
        "ptrue": "none", "lts": "\u2013", "pik": "90\u2013100/0", "ccps": "4,096/512",
        "ct": "1,280 gold/320", "it": "1,152+1,280 gold/128",
    }  # fmt: skip


def brier(method, mean, **changes):
    return cell(method, (*[(0.1, 0.01)] * 2, (mean, 0.02), *[(0.8, 0.03)] * 3), **changes)


def test_rows_are_in_the_order_of_mean_brier_within_their_block_and_what_is_not_ok_comes_last():
    rows = [
        brier("ptrue", 0.2), brier("ccps", 0.15), brier("pik", 0.1), brier("ccps+isotonic", 0.01),
        brier("ptrue+isotonic", 0.005), cell("lts", status="failed", reason="x", metrics={}), brier("ct", 0.15),
    ]  # fmt: skip
    order = ["pik", "ct", "ccps", "ptrue", "lts", "ptrue+isotonic", "ccps+isotonic"]
    assert [line.method for line in build(rows)[0].lines] == order
    assert [row.cells[0].text for row in table_views(build(rows)).grids[0].rows] == order


def grouped():
    """Methods of all groups, the paper's being the worst; two are not built in."""
    return [
        brier("ccps", 0.3), brier("ptrue", 0.25), brier("sequence-probability", 0.2), brier("mine", 0.1, train_on=None),
        brier("combined", 0.15), brier("yours", 0.05, train_on="atlas-choice/train"), brier("combined+platt", 0.01),
    ]  # fmt: skip


ORDER = ["ptrue", "ccps", "mine", "sequence-probability", "yours", "combined", "combined+platt"]
BEGIN = ["mine", "yours", "combined+platt"]


def test_the_papers_methods_stand_first_then_others_that_do_not_learn_then_others_that_do():
    tables = build(grouped())
    assert [(line.method, line.group) for line in tables[0].lines] == list(
        zip(ORDER, ["paper"] * 2 + ["untrained"] * 2 + ["trained"] * 3, strict=True)
    )
    for models in (False, True):
        (grid,) = table_views(tables, models=models).grids
        assert [row.cells[0].text for row in grid.rows if row.begins_block] == BEGIN
    tex, drawn = render(tables, "tex").splitlines(), render(tables, "terminal", width=200).splitlines()
    drawn = drawn[next(i for i, line in enumerate(drawn) if line.startswith("method ")) :]
    for name in BEGIN:
        assert tex[next(i for i, line in enumerate(tex) if line.startswith(f"{name} ")) - 1] == r"\midrule"
        assert set(drawn[next(i for i, line in enumerate(drawn) if line.startswith(f"{name} ")) - 1]) <= set(" ─")
    markdown = [line.split(" ")[1] for line in render(tables, "md").splitlines() if line.startswith("| ")]
    assert [name.strip("*~").replace("\\", "") for name in markdown] == ["method", *ORDER]
    records = list(csv.DictReader(io.StringIO(render(tables, "csv"))))
    assert [(record["method"], record["group"]) for record in records] == [
        (li.method, li.group) for li in tables[0].lines
    ]
    assert [line["group"] for line in json.loads(render(tables, "json"))[0]["lines"]] == [r["group"] for r in records]


def test_marks_go_across_groups_and_the_legend_says_so():
    table = build([row for row in grouped() if "+" not in row.method])[0]
    best = {line.method: line.estimate("brier").best for line in table.lines}
    assert {name for name, mark in best.items() if mark} == {"yours"}
    said = " ".join(table_views([table]).grids[0].legend)
    assert "marks, ranks and tests are those of the whole table." in said
    assert "The rows of a group are in the order of the mean Brier score" in said
    alone = " ".join(table_views(build([brier("ccps", 0.1), brier("ptrue", 0.2)])).grids[0].legend)
    assert "stand first" not in alone
    assert "Rows are in the order" in alone


def test_recalibrated_methods_are_a_block_of_their_own():
    (grid,) = table_views(build([cell(), cell("ccps+isotonic"), cell("ptrue+isotonic"), cell("ptrue")])).grids
    assert [(row.cells[0].text, row.begins_block) for row in grid.rows] == [
        ("ptrue", False), ("ccps", False), ("ptrue+isotonic", True), ("ccps+isotonic", False),
    ]  # fmt: skip
    tex = render(build([cell(), cell("ccps+isotonic")]), "tex")
    assert tex.index("ccps ") < tex.rindex(r"\midrule") < tex.index("ccps+isotonic")


def test_order_of_the_rows_does_not_matter():
    rows = [*comparison(), *several_seeds()]
    assert render(build(rows[::-1]), "json") == render(build(rows), "json")


def test_every_cell_that_is_not_ok_says_so_and_equal_reasons_share_a_footnote():
    (table,) = build(comparison(), average="subjects")
    lines = {line.method: line for line in table.lines}
    assert lines["it"].reasons == lines["litcab"].reasons != lines["lts"].reasons
    assert lines["lts"].reasons == ("skipped: atlas-choice has no validation split",)
    assert len(footnotes(table)) == 4
    (row,) = [row for row in csv.DictReader(io.StringIO(render([table], "csv"))) if row["method"] == "lts"]
    assert (row["status"], row["ece_mean"], row["notes"]) == (
        "skipped",
        "",
        "skipped: atlas-choice has no validation split",
    )


def test_undefined_metrics_are_counted_or_named():
    everywhere = [(None, None) if name == "auroc" else (0.5, 0.1) for name in COLUMNS]
    rows = [cell(metrics=summaries(everywhere)), cell("ptrue", metrics=summaries(PTRUE_VALUES, n_undefined=2))]
    assert footnotes(*build(rows)) == ("AUROC is undefined",)  # that of all questions leaves none out
    (table,) = build(rows, average="subjects")
    assert footnotes(table) == (
        "AUCPR leaves out 2 of 8 subjects, where it is undefined",
        "AUROC leaves out 2 of 8 subjects, where it is undefined",
        "AUROC is undefined in every subject",
    )
    assert "undefined³" in render([table], "terminal", width=100)


def test_sure_mistakes_are_counted_under_their_likelihood():
    metrics = {**summaries(PTRUE_VALUES), "nll": MetricSummary(1.5, 0.1, 1.5, 0)}
    rows = [cell("ptrue", metrics=metrics, seed=seed, n_clipped=n) for seed, n in enumerate((0, 42))]
    (table,) = build([*rows, cell(metrics=metrics, n_clipped=0)])
    notes = {line.method: line.estimates["nll"].notes for line in table.lines}
    assert notes == {"ptrue": ("NLL takes p as 2^-24 where a mistake was surer than that: 42 times",), "ccps": ()}


def test_seeds_are_averaged_and_counted():
    (table,) = build([cell(), cell(values=((0.10, 0.03), *[(0.5, 0.1)] * 5), seed=7)])
    (line,) = table.lines
    assert (line.seeds, line.n_runs) == ((0, 7), 2)
    assert (line.estimates["ece"].mean, line.estimates["ece"].std) == pytest.approx((0.09, 0.02))


def test_a_seed_that_failed_is_counted_and_explained():
    (table,) = build([cell(), cell(seed=1, status="failed", reason="out of memory", metrics={})])
    assert (table.lines[0].status, table.lines[0].seeds, table.lines[0].n_runs) == ("ok", (0,), 2)
    assert footnotes(table) == ("failed (seed 1): out of memory",)
    assert "1 of 2" in render([table], "md")


def test_seeds_are_said_once_where_they_are_the_same_for_all():
    (table,) = build([cell(), cell(seed=1)], standings_of=judged)
    text = render([table], "md")
    assert "Every method ran with 2 seeds." in text
    assert "seeds |" not in text
    (record,) = csv.DictReader(io.StringIO(render([table], "csv")))
    assert (record["seeds"], record["brier_seed_std"]) == ("2", "0.0123")
    (table,) = build([cell(), cell(seed=1), cell("ptrue")])
    assert [cells["seeds"] for cells in main(table).values()] == ["1", "2"]


def test_notes_of_a_run_become_footnotes():
    (table,) = build([cell(notes=("batch halved after running out of memory",))])
    assert footnotes(table) == ("batch halved after running out of memory",)
    assert "ccps¹" in render([table], "terminal", width=100)


def test_caption_says_what_the_numbers_rest_on():
    (table,) = build(
        [
            cell(
                dtype="bfloat16",
                judge="openai",
                n_shots_dropped=12,
                answers_source="released",
                n_undecided=4,
                counts={"a/train: odd rows": 7},
            ),
            cell("ptrue", train_on=None, judge="openai", answers_source="released"),
        ]
    )
    assert table.facts == (
        "tiny on atlas-choice",
        "The preset is demo.",
        "The model's weights are in bfloat16; of some results the dtype is not recorded.",
        "n = 1,200 questions in 8 subjects; the model answers 67.2 % of them right.",
        "3 answers could not be read.",
        "1 answer was empty.",
        "4 answers without a verdict were left out.",
        "0\u201312 exemplars were dropped for lack of room.",
        "Answers are released.",
        "a/train: odd rows: 7.",
        "Answers were graded by openai.",
        "Methods learned from atlas-choice:train.",
    )


@pytest.mark.parametrize(
    ("n", "accuracy", "few"),
    [
        (100, 0.8, ""),
        (100, 0.2, ""),
        (99, 0.5, "99 questions of the 100 that are needed"),
        (100, 0.81, "19 wrong answers of the 20 that are needed"),
        (100, 0.19, "19 right answers of the 20 that are needed"),
        (100, 1.0, "0 wrong answers of the 20 that are needed"),
        (80, 0.2, "16 right answers of the 20 that are needed, 80 questions of the 100 that are needed"),
    ],
)  # fmt: skip
def test_a_table_that_rests_on_few_answers_says_so(n, accuracy, few):
    (table,) = build([cell(n=n, llm_accuracy=accuracy), cell("ptrue", n=n, llm_accuracy=accuracy)])
    said = f"Too few to tell methods apart unless they differ much: {few}." if few else ""
    assert table.too_few == said
    assert said in (*table.facts, "")
    assert json.loads(render([table], "json"))[0]["too_few"] == said
    assert next(csv.DictReader(io.StringIO(render([table], "csv"))))["too_few"] == said
    for kind in KINDS:
        text = " ".join(render([table], kind, width=80).split())
        assert ("Too few" in text, said in text) == (bool(few), True)


def test_the_fewest_answers_of_a_table_are_said_and_what_is_unknown_is_passed_over():
    """Another judge finds more answers wrong; a run that failed knows of no answers."""
    unknown = cell("lts", status="failed", reason="x", **{**UNKNOWN, "n": 5, "metrics": {}, "per_subject": {}})
    rows = [cell(), cell("ptrue", llm_accuracy=0.99), cell("ct", n=99), unknown]
    assert build(rows)[0].too_few == (
        "Too few to tell methods apart unless they differ much: 12 wrong answers of the 20 that are needed, 99"
        " questions of the 100 that are needed."
    )
    assert build([cell(), unknown])[0].too_few == ""
    assert build([unknown])[0].too_few == ""


def test_lines_of_different_judges_are_told_in_the_caption_and_marked():
    rows = [cell("ccps", judge="match"), cell("lts", judge="match"), cell("ptrue", judge="openai:gpt-4o-mini")]
    (table,) = build([*rows, cell("it", judge="hf:x", status="failed", reason="x", metrics={})])
    fact = (
        "Answers were graded by different judges: by match unless a footnote says otherwise; numbers of different"
        " judges can't be compared."
    )
    assert fact in table.facts
    assert {line.method: line.notes for line in table.lines} == {
        "ccps": (), "lts": (), "it": (), "ptrue": ("graded by openai:gpt-4o-mini",),
    }  # fmt: skip
    (table,) = build(rows[:2])
    assert "Answers were graded by match." in table.facts


def test_seeds_of_different_judges_are_marked_too():
    (table,) = build([cell(judge="match"), cell(seed=1, judge="hf:x"), cell("lts", judge="match")])
    assert footnotes(table) == ("graded by hf:x, match",)


def test_results_with_other_answers_have_a_table_of_their_own():
    file = {"answers_source": "file:qwen-3fa9c1", "config": {"answers": "file:qwen-3fa9c1"}}
    other = {"answers_source": "file:qwen-77c01d", "config": {"answers": "file:qwen-77c01d"}}
    rows = [cell("ccps"), cell("ccps", seed=1), cell("ccps", **file), cell("ccps", seed=1, **other), cell("lts")]
    tables = build(rows)
    assert [{line.method: len(line.rows) for line in table.lines} for table in tables] == [
        {"ccps": 2, "lts": 1}, {"ccps": 1}, {"ccps": 1},
    ]  # fmt: skip
    told = [[fact for fact in table.facts if fact.startswith("Answers are")] for table in tables]
    assert told == [[], ["Answers are file:qwen-3fa9c1."], ["Answers are file:qwen-77c01d."]]


def revised(method, revision, **changes):
    return cell(method, provenance={"revisions": {"tiny": revision, "some data": method}}, **changes)


def test_lines_with_another_revision_of_the_model_are_marked():
    rows = [revised("ccps", "a" * 40), revised("lts", "a" * 40), revised("ptrue", "b" * 40), revised("it", None)]
    (table,) = build(rows)
    assert footnotes(table) == ("with revision bbbbbbbbbbbb of the model, lines without such a note with aaaaaaaaaaaa",)
    assert [line.method for line in table.lines if line.notes] == ["ptrue"]
    assert footnotes(*build(rows[:2])) == ()
    assert footnotes(*build([*rows[:2], cell("ct", provenance={"revisions": None})])) == ()
    (table,) = build([*rows[:2], revised("ccps", "c" * 40, seed=1)])
    assert "with revision aaaaaaaaaaaa, cccccccccccc of the model" in footnotes(table)[0]


def test_methods_that_are_not_built_in_are_marked():
    (table,) = mark_plugins(build([cell("ccps+isotonic"), cell("mine"), cell("mine+platt")]), ["ccps"])
    assert {line.method: line.notes for line in table.lines} == {
        "ccps+isotonic": (), "mine": (_NOT_BUILT_IN,), "mine+platt": (_NOT_BUILT_IN,),
    }  # fmt: skip
    assert footnotes(table) == (_NOT_BUILT_IN,)


def test_caption_of_a_table_without_numbers_claims_nothing():
    (table,) = build([cell(status="failed", reason="x", **{**UNKNOWN, "n": None, "metrics": {}, "per_subject": {}})])
    assert table.facts[1:] == ("The preset is demo.", "Methods learned from atlas-choice:train.")
    (table,) = build([cell(status="failed", reason="x", metrics={}, per_subject={})])
    assert any(fact.startswith("n = 1,200 questions") for fact in table.facts)
    (table,) = build([cell(n_empty=None)])
    assert "3 answers could not be read." in table.facts
    assert not any("empty" in fact for fact in table.facts)


def test_data_formats_have_all_digits():
    third = [(1 / 3, 1 / 7)] * 6
    tables = build([cell(metrics=summaries(third))])
    (record,) = csv.DictReader(io.StringIO(render(tables, "csv")))
    assert (float(record["ece_mean"]), float(record["auroc_std"])) == (1 / 3, 1 / 7)
    metrics = json.loads(render(tables, "json"))[0]["lines"][0]["metrics"]
    assert (metrics["brier"]["mean"], metrics["acc"]["std"]) == (1 / 3, 1 / 7)


# --- which rows are shown, and which are refused ----------------------------------------------------------------------


def test_deviating_and_partial_rows_are_left_out_but_counted():
    rows = [cell(), cell("ptrue", deviations={"ptrue.x": 1}), cell("lts", limit=40)]
    (table,) = build(rows)
    assert [line.method for line in table.lines] == ["ccps"]
    assert "2 partial or deviating results are not shown." in table.facts


def test_partial_rows_get_a_table_of_their_own_when_asked_for():
    tables = build([cell(), cell(limit=40), cell("ptrue", limit=40)], partial=True)
    assert sorted(len(table.lines) for table in tables) == [1, 2]
    assert sum("Results are partial (--limit 40)." in table.facts for table in tables) == 1


def test_deviating_rows_stand_beside_the_others_with_a_footnote_when_asked_for():
    changed = {"ccps.steps": 10}
    rows = [
        cell("ptrue"),
        cell(config=changed, deviations=changed),
        cell(),
        cell(config=changed, deviations=changed, seed=1),
    ]
    (table,) = build(rows, deviations=True)
    assert [(line.method, line.variant, line.n_runs) for line in table.lines] == [
        ("ptrue", "", 1), ("ccps", "", 1), ("ccps", "ccps.steps=10", 2),
    ]  # fmt: skip
    assert footnotes(table) == ("with ccps.steps=10",)
    assert "ccps¹" in render([table], "terminal", width=100)


def test_what_all_rows_deviate_in_is_said_in_the_caption():
    changed = {"protocol.shots": 0}
    rows = [cell(method, config={**changed, "token_budget": 64}, deviations=changed) for method in ("ccps", "ptrue")]
    (table,) = build(rows, deviations=True)
    assert {"Overridden constants: protocol.shots=0.", "Settings: token_budget 64."} <= set(table.facts)
    assert footnotes(table) == ()


def test_another_protocol_is_another_table():
    changed = {"protocol.shots": 0}
    tables = build([cell(), cell(config=changed, deviations=changed, protocol="beef")], deviations=True)
    assert sum("Overridden constants: protocol.shots=0." in table.facts for table in tables) == 1
    assert len(tables) == 2


def test_methods_that_learned_elsewhere_and_methods_that_do_not_learn_share_a_table():
    rows = [cell("ptrue", train_on=None), cell(config={"train_on": "ct-choice"}, train_on="ct-choice:train")]
    (table,) = build(rows)
    assert "Methods learned from ct-choice:train." in table.facts
    assert footnotes(table) == ()


def test_one_method_that_learned_in_two_places_has_two_lines():
    (table,) = build([cell(), cell(config={"train_on": "ct-choice"}, train_on="ct-choice:train")])
    assert [line.variant for line in table.lines] == ["", "train_on=ct-choice"]
    assert "Methods learned from atlas-choice:train, ct-choice:train." in table.facts


def test_nothing_to_show_says_what_to_run():
    with pytest.raises(UserError, match="no results to show; run something first: bench run"):
        build([])
    with pytest.raises(UserError, match=r"all 1 results are partial .* show them with --partial and --deviations"):
        build([cell(limit=3)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "fixed"}, "presets demo, fixed, .* choose one with --preset"),
        ({"task_version": 2}, "task versions 1, 2, .* run them again"),
        ({"schema_version": 1}, "schema versions 1, 6, "),
        ({"protocol": "beef"}, "protocols 0123456789abcdef, beef, "),
        ({"method": "ccps"}, "two results of ccps have one seed"),
    ],
)
def test_what_does_not_belong_in_one_table_is_named(changes, message):
    with pytest.raises(UserError, match=message):
        build([cell(), cell(**{"method": "ptrue", **changes})])


def test_a_preset_can_be_chosen():
    rows = [cell(), cell("ptrue", preset="fixed")]
    assert [line.method for line in build(rows, preset="fixed")[0].lines] == ["ptrue"]
    with pytest.raises(UserError, match="no result has preset 'paper'; there are demo, fixed"):
        build(rows, preset="paper")


def test_models_may_have_different_presets():
    tables = build([cell(), cell(model="llama8b", preset="fixed")])
    assert [(table.model, table.preset) for table in tables] == [("llama8b", "fixed"), ("tiny", "demo")]


def test_an_unknown_format_names_the_known_ones():
    with pytest.raises(UserError, match="unknown table format 'html'; expected one of terminal, md, csv, tex, json"):
        render(build([cell()]), "html")


# --- hostile text -----------------------------------------------------------------------------------------------------


def test_terminal_shows_names_as_they_are():
    text = render(build(hostile()), "terminal", width=200)
    for name in HOSTILE:
        assert f"failed: because {name}" in text
    assert "\x1b" not in text


def test_a_real_terminal_gets_bold_and_no_sequence_from_outside():
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=100)
    hostile_row = cell("x\x1b[31m", status="failed", reason="\x1b]0;title\x07", metrics={})
    print_terminal(build([*comparison(), hostile_row], standings_of=judged), console)
    text = console.file.getvalue()
    assert "\x1b[1m15.0±5.0\x1b[0m*" in text
    assert "\x1b[31m" not in text
    assert "\x1b]0" not in text


def test_markdown_keeps_its_columns_and_has_no_live_html():
    text = render(build(hostile()), "md")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {9}
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_latex_keeps_its_columns_and_runs_no_command_from_outside():
    text = render(build(hostile()), "tex")
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")].splitlines()[1:]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in body} == {6}
    assert r"\input" not in text
    assert not any(row.startswith(("[", "*")) for row in body)  # \\[...] would be a length


def test_a_spreadsheet_runs_nothing():
    (record,) = csv.DictReader(
        io.StringIO(render(build([cell("=1+1", status="failed", reason="x", metrics={})]), "csv"))
    )
    assert record["method"] == "'=1+1"


@given(st.text(st.one_of(st.characters(), st.sampled_from("\x1b\u202e\u2028\r\n\t a"))))
def test_plain_text_is_one_printable_line_of_bounded_length(text):
    shown = plain(text)
    assert len(shown) <= REASON_LENGTH
    assert shown == plain(shown)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 32 or c in "\x7f\x9b\u200b\u202e\u2066\ufeff" for c in shown)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_reason_is_rendered_in_every_format(reason):
    (table,) = build([cell(status="failed", reason=reason, metrics={})])
    for kind in KINDS:
        assert render([table], kind, width=60)
    assert json.loads(render([table], "json"))[0]["lines"][0]["reasons"] == [
        plain(f"failed: {reason or 'no reason given'}")
    ]


@pytest.mark.parametrize("width", [30, 45, 100, 160])
def test_a_narrow_terminal_loses_no_number(width):
    text = render(build(comparison(), standings_of=judged), "terminal", width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for number in ("21.0/2.0", "19.0±9.0", "15.0±5.0", "70.5±60.5", "93.1±83.1", "81.0±", "88.0±78.0"):
        assert number in text


@pytest.mark.parametrize(
    ("width", "headline", "dropped"),
    [
        (90, "brier", {"labels", "n"}),
        (85, "brier", {"labels", "n", "seeds"}),
        (80, "brier", {"labels", "n", "seeds", "ACC ↑"}),
        (70, "brier", {"labels", "n", "seeds", "ACC ↑", "AUCPR ↑"}),
        (80, "acc", {"labels", "n", "seeds", "AUCPR ↑"}),
        (70, "aucpr", {"labels", "n", "seeds"}),  # the numbers are in two pieces
    ],
)
def test_what_a_narrow_terminal_leaves_out_is_named_and_is_never_the_rank_or_the_headline(width, headline, dropped):
    rows = [cell("self-consistency", seed=seed, labels_seen=LabelsSeen(10_000, 1_000)) for seed in range(3)]
    (table,) = build([*rows, cell("ptrue", n=1199)], standings_of=narrow)
    text = render([table.ordered_by(headline)], "terminal", width=width)
    assert max(map(len, text.splitlines())) <= width
    (line,) = (line for line in text.splitlines() if line.startswith("no room for: "))
    assert set(line.removeprefix("no room for: ").split(", ")) == dropped
    assert re.search(r"^method +rank ", text, re.MULTILINE)
    assert re.search(r"^self-consistency +▸1 +8.0/2.0† +6.0±2.0", text, re.MULTILINE)
    assert METRICS[headline].label + " " in text


def test_metrics_that_were_asked_for_are_never_left_out():
    (table,) = build([cell(), cell("ptrue")], standings_of=narrow)
    text = render([replace(table, metrics=("acc", "aucpr", "ece", "auroc", "brier"))], "terminal", width=60)
    for label in ("ACC ↑", "AUCPR ↑", "ECE/floor ↓", "AUROC ↑", "Brier ↓"):
        assert label in text
    assert "no room for: labels" in text


def test_a_terminal_explains_no_column_for_which_it_had_no_room():
    rows = [cell("self-consistency"), cell("self-consistency", seed=1), cell("ptrue", n=1199)]
    tables = build(rows, standings_of=narrow)
    explained = {"Rank is 1 plus": "rank", "Seeds are": "seeds", "Labels are": "labels", "ACC is": "ACC"}

    def shown_at(tables, width):
        text = " ".join(render(tables, "terminal", width=width).split())
        return {column for start, column in explained.items() if start in text}

    assert shown_at(tables, 200) == {"rank", "seeds", "labels", "ACC"}
    assert shown_at(tables, 85) == {"rank", "ACC"}
    assert shown_at(tables, 80) == {"rank"}
    wide = build([cell(model="other"), cell("ptrue", model="other")])  # has room for its labels
    assert shown_at([*tables, *wide], 85) == {"rank", "labels", "ACC"}


def narrow(lines):
    """Intervals of ± 2 around what `cell` has."""
    found = judged(lines, better=())
    means = dict(zip(COLUMNS, (0.08, 0.06, 0.15, 0.77, 0.88, 0.85), strict=True))
    around = {name: Interval("fixed-subjects", mean - 0.02, mean + 0.02, 0.95, "t") for name, mean in means.items()}
    lines_ = {
        key: replace(line, metrics={name: replace(line.metrics[name], fixed=around[name]) for name in COLUMNS[1:]})
        for key, line in found.lines.items()
    }
    return replace(found, lines=lines_)


def test_tables_need_neither_torch_nor_transformers():
    imports = "import sys, bench.report.tables.build, bench.results.files"
    program = f"{imports}; print({{'torch', 'transformers', 'pandas'}} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "set()"
