"""Tables from result rows: what stands in them, what is refused, and how each format looks (golden files)."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from bench.api import UserError
from bench.metrics import METRICS
from bench.metrics.summary import MetricSummary
from bench.report.tables import formats
from bench.report.tables.build import build, table_views
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.tables.model import Table
from bench.report.text import REASON_LENGTH, plain
from bench.results.row import LabelsSeen, ResultRow, Training
from tests.kit.golden import check_golden
from tests.kit.tables import CUT_SHORT, Tests, render, scored

KINDS = ("terminal", "md", "csv", "tex", "json")
PTRUE = {"ece": 0.21, "rmsce": 0.19, "brier": 0.15, "acc": 0.7049, "aucpr": 0.9312, "auroc": 0.81, "train_on": None}
UNKNOWN: dict[str, Any] = dict.fromkeys(("n", "n_unparsed", "n_empty", "n_shots_dropped", "llm_accuracy"))
NAN = {"status": "failed", "reason": "loss became NaN in step 3"}


def comparison() -> list[ResultRow]:
    """Two methods that ran, one of them with a metric that some subjects lack, one skipped and two failed."""
    return [
        scored("ptrue", **PTRUE, n_undefined=2), scored(), scored("litcab", **NAN), scored("it", **NAN, **UNKNOWN),
        scored("lts", status="skipped", reason="atlas-choice has no validation split"),
    ]  # fmt: skip


def several_seeds() -> list[ResultRow]:
    """Two seeds of each method, one of which failed, on another task."""
    place = {"model": "org/model_7B", "task": "mmlu-choice", "preset": "fixed", "config": {"dtype": "float32"}}
    return [
        scored(**place), scored(seed=1, brier=0.2, ece=0.1, **place), scored("ptrue", **PTRUE, **place),
        scored("ptrue", seed=1, status="failed", reason="out of memory", **place),
    ]  # fmt: skip


HOSTILE = (
    "[red]x[/red]", "a|b", "a&b", "a_b*c*", "100%", "<script>alert(1)</script>", "$x^2$", r"\input{x}", ":smile:",
    "#~`", "=A1",
)  # fmt: skip


def hostile() -> list[ResultRow]:
    return [scored(name, status="failed", reason=f"because {name}", model="<b>[bold]|&_%") for name in HOSTILE]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_those_of_the_golden_files(kind: str) -> None:
    tables = build([*comparison(), *several_seeds()], standings_of=Tests())
    check_golden(f"table_comparison.{kind}.txt", render(tables, kind, width=80))


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_are_those_of_the_golden_files(kind: str) -> None:
    check_golden(f"table_hostile.{kind}.txt", render(build(hostile()), kind, width=80))


def grouped() -> list[ResultRow]:
    """Methods of all groups, the paper's being the worst; two are not built in, one is recalibrated."""
    return [
        scored("ccps", brier=0.3), scored("ptrue", brier=0.25), scored("sequence-probability", brier=0.2),
        scored("mine", brier=0.1, train_on=None), scored("combined", brier=0.15), scored("yours", brier=0.05),
        scored("combined+platt", brier=0.01), scored("yours+platt", brier=0.02),
    ]  # fmt: skip


def revised(method: str, revision: str | None, **changes: Any) -> ResultRow:
    return scored(method, provenance={"revisions": {"tiny": revision, "some data": method}}, **changes)


def learned(method: str, *labels: int, **changes: Any) -> ResultRow:
    return scored(method, labels_seen=LabelsSeen(*labels), **changes)


def worlds() -> Iterator[tuple[str, list[ResultRow], dict[str, Any]]]:
    """Name, rows, and options of `build` or of how it is shown."""
    tested = {"standings_of": Tests()}
    yield "means that were not tested", comparison(), {}
    yield "calibration where one does not order answers", [
        scored("ptrue", rmsce=-0.01), scored(rmsce=0.02), scored("lts", rmsce=-0.03, auroc=0.52)
    ], tested  # fmt: skip
    yield "calibration where nothing differs", [
        scored("ptrue", rmsce=-0.01), scored(rmsce=0.002), scored("lts", rmsce=-0.03)
    ], tested  # fmt: skip
    yield "no calibration, and a Brier score as of a constant", [scored(), scored("lts", brier=0.1499)], {
        "standings_of": Tests(calibrated_p=0.0499, constant=0.15)
    }  # fmt: skip
    every = dict.fromkeys(METRICS, 0.15) | {"auroc": 0.85}
    yield "statistics", [
        scored(**every), scored(**every, seed=1),
        scored("ptrue", nll=1.4), scored("ptrue", nll=1.5, n_clipped=42, seed=1),
    ], {
        **tested, "stats": True
    }  # fmt: skip
    yield "training cut short, published and not", [
        scored("pik", brier=0.01, training=CUT_SHORT), scored("ct", training=CUT_SHORT), scored(), scored("lts")
    ], tested  # fmt: skip
    yield "other labels", [scored(), scored("pik"), scored("ptrue"), scored("ct"), scored("lts")], {
        "standings_of": Tests(labels={"ptrue": 1, "ct": 1, "lts": 2})
    }  # fmt: skip
    yield "labels", [
        learned("ct", 0, 320, 1280), learned("it", 1152, 128, 1280), learned("ccps", 4096, 512), scored("ptrue"),
        learned("pik", 90, 0), learned("pik", 100, 0, seed=1), scored("lts", status="failed", reason="x"),
    ], {}  # fmt: skip
    yield "groups", grouped(), {}
    yield "blocks", [
        scored("ptrue", brier=0.2), scored(), scored("pik", brier=0.1), scored("ptrue+isotonic", brier=0.005),
        scored("ccps+isotonic", brier=0.01), scored("lts", **NAN), scored("ct"),
    ], tested  # fmt: skip
    undefined = [scored(auroc=None), scored("ptrue", n_undefined=2)]
    yield "undefined metrics of all questions", undefined, {}
    yield "undefined metrics of subjects", undefined, {"average": "subjects"}
    yield "seeds that differ", [scored(), scored(seed=7, ece=0.1), scored("ptrue")], {}
    yield "a note of a run", [scored(notes=("batch halved after running out of memory",))], {}
    notes = "its weights are quantised", "batch halved"
    yield "a note of all runs", [scored(notes=notes), scored("ptrue", notes=notes[:1])], {}
    yield "all that a caption says", [
        scored(judge="openai", n_shots_dropped=12, answers_source="released", n_undecided=4, counts={"t: a": 7}),
        scored("ptrue", train_on=None, judge="openai", answers_source="released"),
    ], {}  # fmt: skip
    yield "failed without numbers", [scored(**NAN, **UNKNOWN)], {}
    yield "failed with a number of questions", [scored(**NAN)], {}
    yield "unknown number of empty answers", [scored(n_empty=None)], {}
    judged = [scored(judge="match"), scored("lts", judge="match")]
    yield "different judges", [
        *judged, scored("ptrue", judge="openai:gpt-4o-mini"), scored("it", judge="hf:x", **NAN)
    ], {}  # fmt: skip
    yield "one judge", judged, {}
    yield "different judges of seeds", [*judged, scored(seed=1, judge="hf:x")], {}
    yield "answers from elsewhere", [
        scored(), scored(seed=1), scored("lts"),
        *(scored(answers_source=f"file:{x}", config={"answers": f"file:{x}"}, seed=len(x)) for x in ("qwen-3f", "q")),
    ], {}  # fmt: skip
    same = [revised("ccps", "a" * 40), revised("lts", "a" * 40)]
    yield "another revision", [*same, revised("ptrue", "b" * 40), revised("it", None)], {}
    yield "one revision", [*same, scored("ct", provenance={"revisions": None})], {}
    yield "revisions of seeds", [*same, revised("ccps", "c" * 40, seed=1)], {}
    yield "methods that are not built in", [scored("ccps+isotonic"), scored("mine"), scored("mine+platt")], {
        "marks_plugins": True
    }  # fmt: skip
    odd = [scored(), scored("ptrue", deviations={"ptrue.x": 1}), scored("lts", limit=40)]
    yield "partial and deviating left out", odd, {}
    yield "partial apart", [*odd, scored(limit=40)], {"partial": True}
    steps = {"config": {"ccps.steps": 10}, "deviations": {"ccps.steps": 10}}
    yield (
        "deviating beside",
        [scored("ptrue"), scored(**steps), scored(), scored(seed=1, **steps)],
        {"deviations": True},
    )
    shots: dict[str, Any] = {"protocol.shots": 0}
    yield "deviating together", [
        scored(method, config={**shots, "dtype": "float32"}, deviations=shots) for method in ("ccps", "ptrue")
    ], {"deviations": True}  # fmt: skip
    yield "another protocol", [scored(), scored(config=shots, deviations=shots, protocol="beef")], {"deviations": True}
    elsewhere = scored(config={"train_on": "ct-choice"}, train_on="ct-choice:train")
    few = scored(config={"train_limit": "64"}, labels_seen=LabelsSeen(51, 13))
    yield "few labels", [scored("ptrue", train_on=None, labels_seen=LabelsSeen()), few], {}
    yield "few labels beside all", [scored("lts"), scored(), few], {}
    yield "learned elsewhere", [scored("ptrue", train_on=None), elsewhere], {}
    yield "learned in two places", [scored("ptrue", train_on=None), scored(), elsewhere], {}
    yield "a preset of two", [scored(), scored("ptrue", preset="fixed")], {"preset": "fixed"}
    yield "a preset for each model", [scored(), scored(model="llama8b", preset="fixed")], {}


def views_of(rows: list[ResultRow], options: dict[str, Any]) -> TableViews:
    shown = {name: options[name] for name in ("stats",) if name in options}
    tables = build(rows, **{name: options[name] for name in options if name not in shown})
    return table_views(tables, **shown)


def test_table_words_are_those_of_the_golden_file() -> None:
    """All but verdicts; of the legends each sentence once, with the worlds that have it."""
    texts, legends = [], dict[str, list[str]]()
    for name, rows, options in worlds():
        grids = views_of(rows, options).grids
        bare = formats.markdown([replace(grid, verdict=(), legend=()) for grid in grids])
        texts.append(f"## {name}\n\n{bare.strip()}\n")
        for sentence in formats.merge_legends(grids):
            legends.setdefault(sentence, []).append(name)
    known = [name for name, *_ in worlds()]
    said = []
    for sentence, names in legends.items():
        others = [name for name in known if name not in names]
        told = "; ".join(names) if len(others) > len(names) else f"all but: {'; '.join(others)}" if others else "all"
        said.append(f"{sentence}\n    {told}\n")
    check_golden("table_worlds.md.txt", "\n".join([*texts, "## legends\n", *said]))


def best_of(table: Table) -> dict[str, dict[str, str | None]]:
    return {line.method: {name: line.estimate(name).best for name in line.estimates} for line in table.lines}


@pytest.mark.parametrize("standings", [None, Tests()])
def test_raw_calibration_errors_are_never_best(standings: Tests | None) -> None:
    """Confidences that are less spread have less of them by chance alone."""
    raw = ("ece", "ece_debiased", "ece_mass", "smece", "brier_mcb")
    rows = [scored(**dict.fromkeys(raw, 0.01)), scored("ptrue", **dict.fromkeys(raw, 0.2))]
    (table,) = build(rows, standings_of=standings)
    assert not any(marks[name] for marks in best_of(table).values() for name in raw)


def test_best_means_are_those_as_shown() -> None:
    """Both AUROCs are 80.0, and an RMSCE below 0 counts as 0."""
    rows = [scored("ptrue", rmsce=-0.01, auroc=0.80041), scored(rmsce=-0.03, auroc=0.79962)]
    found = best_of(build([*rows, scored("lts", brier=0.2, auroc=0.7)])[0])
    for metric in ("brier", "rmsce", "auroc"):
        assert [found[name][metric] for name in ("ptrue", "ccps", "lts")] == ["not tested", "not tested", None]
    assert not any(of["ece_floor"] for of in found.values())  # a yardstick is neither good nor bad


def test_data_have_all_digits_and_what_training_took() -> None:
    stage = replace(CUT_SHORT.stages[0], cut_short=False)
    two = Training((replace(stage, name="contrastive"), replace(stage, name="head", kept=7)), 0.31, 0.52, 0.64)
    rows = [scored(seed=seed, rmsce=error, brier=1 / 3) for seed, error in enumerate((-0.03, 0.05))]
    tables = build([*rows, scored("pik", training=two, base_rate=0.67)], standings_of=Tests())
    ccps, pik = sorted(json.loads(render(tables, "json"))[0]["lines"], key=lambda line: line["method"])
    assert (ccps["metrics"]["rmsce"]["by_seed"], ccps["metrics"]["brier"]["mean"]) == ([0, 0.05], 1 / 3)
    assert [stage["name"] for stage in pik["training"][0]["stages"]] == ["contrastive", "head"]
    records = {record["method"]: record for record in csv.DictReader(io.StringIO(render(tables, "csv")))}
    assert float(records["ccps"]["brier_mean"]) == 1 / 3
    assert (records["ccps"]["seeds"], records["ccps"]["brier_seed_std"]) == ("2", "0.0123")
    told = [records["pik"][name] for name in ("steps_kept", "steps_limit", "epochs", "validation_nll", "base_rate")]
    assert told == ["17.0", "20.0", "4.08", "0.52", "0.67"]
    grid = table_views(tables, stats=True).grids[-1]
    assert [[cell.text for cell in row.cells] for row in grid.rows] == [
        ["pik (contrastive)", "10", "10", "10", "2.0", "0.310", "0.520", "0.640"],
        ["head", "7", "10", "10", "2.0", "", "", ""],
    ]


@pytest.mark.parametrize("n", [8, 9])
def test_tables_of_nine_methods_have_fewer_rows(n: int) -> None:
    """Rows of intervals and deviations, and metrics without room, are left to other formats, which is said."""
    names = [f"method-{i}" for i in range(n)]
    means = dict.fromkeys(METRICS, 0.1) | {"brier": 0.2}
    tables = build(
        [scored(name, seed=seed, notes=("as it is",), **means) for name in names for seed in (0, 1)],
        standings_of=Tests(),
    )
    views = table_views(tables, stats=True)
    drawn = formats.render(views, "terminal", width=80)
    assert ("these subjects" in drawn, "std between seeds" in drawn) == (n == 8,) * 2
    assert ("choose up to 8 methods with --method, or --format md, csv or json" in " ".join(drawn.split())) is (n == 9)
    assert "no room for: " in drawn
    if n == 9:
        rows = [len(re.findall(rf"^{name}[¹ ] ", drawn, re.MULTILINE)) for name in names]
        assert rows == [3] * 9  # main, calibration, losses
    assert formats.render(views, "md").count("std between seeds") == 3 * n
    assert drawn.count("As it is.") == 1


def test_footnotes_of_dropped_columns_are_left_out() -> None:
    columns = Column("method"), Column("RMSCE"), Column("group", droppable=1)
    cells = Cell("ptrue", notes=("of the method",)), Cell("1.0"), Cell("a group of models", notes=("of the group",))
    views = TableViews([Grid(("A table.",), columns, (GridRow(cells),))])
    wide, narrow = (formats.render(views, "terminal", width=width) for width in (80, 24))
    assert ("¹ of the method" in wide, "² of the group" in wide) == (True, True)
    assert ("¹ of the method" in narrow, "of the group" in narrow) == (True, False)


def test_footnotes_are_one_where_decimals_differ() -> None:
    def told(*losses: str) -> dict[str, Any]:
        return {"notes": tuple(f"worse than a constant ({loss}) after 1.0 epochs" for loss in losses)}

    rows = [
        scored(**told("0.700 against 0.613")), scored(seed=1, **told("0.614 against 0.613")),
        scored("ptrue", **told("0.615 against 0.613", "0.650 against 0.620")), scored("lts", notes=("1.1", "1.2")),
    ]  # fmt: skip
    (grid,) = table_views(build(rows)).grids
    assert grid.footnotes == (
        "worse than a constant (0.614 to 0.700 against 0.613) after 1.0 epochs",
        "worse than a constant (0.650 against 0.620) after 1.0 epochs", "1.1", "1.2",
    )  # fmt: skip
    assert sorted(grid.numbers(row.cells[0]) for row in grid.rows) == ["1", "1,2", "3,4"]


def test_settings_that_differ_in_decimals_stay_apart() -> None:
    rows = [scored(brier=rate, deviations={"ccps.learning_rate": rate}) for rate in (0.001, 0.003)]
    (grid,) = table_views(build(rows, deviations=True)).grids
    assert grid.footnotes == ("with ccps.learning_rate=0.001", "with ccps.learning_rate=0.003")
    assert [grid.numbers(row.cells[0]) for row in grid.rows] == ["1", "2"]


@pytest.mark.parametrize(
    ("n", "accuracy", "field", "said"),
    [
        (100, 0.8, "too_few", ""),
        (100, 0.2, "too_few", ""),
        (99, 0.5, "too_few", "Too few to choose by: 99 questions instead of 100."),
        (100, 0.81, "too_few", "Too few to choose by: 19 wrong answers instead of 20."),
        (100, 0.19, "too_few", "Too few to choose by: 19 right answers instead of 20."),
        (100, 1.0, "unjudgeable", "All 100 answers are right, so no method can be judged: take harder questions."),
    ],
)
def test_few_answers_are_said_in_every_format(n: int, accuracy: float, field: str, said: str) -> None:
    tables = build([scored(n=n, llm_accuracy=accuracy), scored("ptrue", n=n, llm_accuracy=accuracy)])
    assert tables[0].warnings[field] == json.loads(render(tables, "json"))[0][field] == said
    assert next(csv.DictReader(io.StringIO(render(tables, "csv"))))[field] == said
    for kind in KINDS:
        text = " ".join(render(tables, kind, width=80).split())
        assert said in text
        assert said or "Too few" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_untrained_methods_are_said(kind: str) -> None:
    rows = [scored("ptrue", train_on=None, labels_seen=LabelsSeen(validation=320)), scored("lexical", train_on=None)]
    for some, is_told in ((rows, True), (rows[1:], False)):
        text = " ".join(render(build(some), kind, width=10_000).split())
        assert ("No method was trained; some read validation labels, e.g. to scale scores." in text) == is_told
        assert ("No method learned from labels." in text) != is_told


def test_few_answers_are_the_fewest_known() -> None:
    """Another judge finds more answers wrong; a run that failed knows of no answers."""
    unknown = scored("lts", **NAN, **{**UNKNOWN, "n": 5})
    rows = [scored(), scored("ptrue", llm_accuracy=0.99), scored("ct", n=99), unknown]
    said = "Too few to choose by: 99 questions instead of 100, 12 wrong answers instead of 20."
    assert build(rows)[0].warnings["too_few"] == said
    assert build([scored(), unknown])[0].warnings["too_few"] == build([unknown])[0].warnings["too_few"] == ""


def test_blocks_begin_with_recalibrations_and_no_group() -> None:
    tables = build(grouped())
    (grid,) = table_views(tables).grids
    begin = [row.cells[0].text for row in grid.rows if row.begins_block]
    assert begin == ["combined+platt"]
    tex, drawn = (formats.render(table_views(tables), kind, width=200).splitlines() for kind in ("tex", "terminal"))
    drawn = drawn[next(i for i, line in enumerate(drawn) if line.startswith("method ")) :]
    for name in begin:
        assert tex[next(i for i, line in enumerate(tex) if line.startswith(f"{name} ")) - 1] == r"\midrule"
        assert set(drawn[next(i for i, line in enumerate(drawn) if line.startswith(f"{name} ")) - 1]) <= set(" ─")


@pytest.mark.parametrize(
    ("rows", "options", "complaint"),
    [
        ([], {}, "no results to show; run something first: bench run"),
        ([scored(limit=3)], {}, r"all 1 results are partial .* show them with --partial and --deviations"),
        ([scored(), scored("ptrue", preset="fixed")], {}, "presets demo, fixed, .* choose one with --preset"),
        ([scored()], {"preset": "paper"}, "no result has preset 'paper'; there are demo"),
        ([scored(), scored("ptrue", task_version=2)], {}, "task versions 1, 2, .* run them again"),
        ([scored(), scored("ptrue", schema_version=1)], {}, "schema versions 1, 8, "),
        ([scored(), scored("ptrue", protocol="beef")], {}, "protocols 0123456789abcdef, beef, "),
        ([scored(), scored()], {}, "two results of ccps have one seed"),
    ],
)  # fmt: skip
def test_rows_of_different_tables_are_refused(rows: list[ResultRow], options: dict[str, str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        build(rows, preset=options.get("preset"))


def test_judge_that_errs_is_named_beside_a_good_one() -> None:
    words = ("q/test: right options that the judge accepts, of 50", "q/test: wrong options that it refuses, of 150")
    rows = [
        scored(name, judge=name, counts=dict(zip(words, right, strict=True)))
        for name, right in (("ccps", (50, 61)), ("ptrue", (50, 150)))
    ]
    assert "wrong options that it refuses: 61 of 150" in build(rows)[0].warnings["unfit_judge"]
    assert not build(rows[1:])[0].warnings["unfit_judge"]
    huge = {f"{words[0]}{'0' * 400}": 1}
    assert not build([scored(counts=huge)])[0].warnings["unfit_judge"]


def test_scores_without_labels_stand_beside_scaled_ones() -> None:
    """A file's first run has no labels to scale scores by; a later one has those of `--train-on`."""
    alone = scored(
        "perplexity",
        train_on=None,
        labels_seen=LabelsSeen(),
        metrics={"auroc": MetricSummary(mean=0.7, std=0.0, n_undefined=0, pooled=0.7)},
    )
    there = {"train_on": "ct-choice"}
    later = scored("perplexity", train_on=None, labels_seen=LabelsSeen(validation=9), config=there)
    tables = build([alone, later, scored(config=there, train_on="ct-choice:train")])
    assert sorted([row.method for row in table.rows] for table in tables) == [["ccps", "perplexity"], ["perplexity"]]


def test_format_that_is_unknown_names_the_others() -> None:
    with pytest.raises(UserError, match="unknown table format 'html'; expected one of terminal, md, csv, tex, json"):
        render(build([scored()]), "html")


def test_terminal_gets_bold_and_no_sequence_from_outside() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="truecolor", width=100)
    hostile_row = scored("x\x1b[31m", status="failed", reason="\x1b]0;title\x07")
    tables = build([scored("ptrue", brier=0.3), scored(), hostile_row], standings_of=Tests())
    formats.print_terminal(table_views(tables).grids, console)
    assert "\x1b[1m15.0±3.0\x1b[0m*" in file.getvalue()
    assert "\x1b[31m" not in file.getvalue()
    assert "\x1b]0" not in file.getvalue()


@given(st.text(st.one_of(st.characters(), st.sampled_from("\x1b\u202e\u2028\r\n\t a"))))
def test_plain_text_is_one_short_printable_line(text: str) -> None:
    shown = plain(text)
    assert len(shown) <= REASON_LENGTH
    assert shown == plain(shown)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 32 or c in "\x7f\x9b\u200b\u202e\u2066\ufeff" for c in shown)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_reasons_of_any_text_have_every_format(reason: str) -> None:
    tables = build([scored(status="failed", reason=reason)])
    assert all(render(tables, kind, width=60) for kind in KINDS)
    assert json.loads(render(tables, "json"))[0]["lines"][0]["reasons"] == [
        plain(f"failed: {reason or 'no reason given'}")
    ]


def narrow() -> list[Table]:
    rows = [learned("self-consistency", 10_000, 1_000, seed=seed) for seed in range(3)]
    return build([*rows, scored("ptrue", n=1199)], standings_of=Tests(around=0.02))


def test_narrow_terminals_are_those_of_the_golden_file() -> None:
    """What has no room is named, and neither explained nor ever the rank, the headline or what was asked for."""
    texts = []
    for width, headline in ((90, "brier"), (85, "brier"), (80, "brier"), (70, "brier"), (80, "acc"), (70, "aucpr")):
        texts.append(f"## {width} columns, by {headline}\n\n")
        texts.append(render([narrow()[0].ordered_by(headline)], "terminal", width=width))
    asked = replace(narrow()[0], metrics=("acc", "aucpr", "ece", "auroc", "brier"))
    wide = build([scored(model="other"), scored("ptrue", model="other")])  # has room for its labels
    texts += ["## 60 columns, five metrics asked for\n\n", render([asked], "terminal", width=60)]
    texts += ["## 85 columns, room for labels in one table\n\n", render([*narrow(), *wide], "terminal", width=85)]
    check_golden("table_narrow.txt", "".join(texts))


@pytest.mark.parametrize("width", [30, 45, 100, 160])
def test_terminals_lose_no_number(width: int) -> None:
    text = render(build(comparison(), standings_of=Tests()), "terminal", width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for number in ("21.0/2.0", "19.0±3.0", "15.0±3.0", "70.5±3.0", "93.1±3.0", "81.0±3.0", "88.0±3.0"):
        assert number in text
