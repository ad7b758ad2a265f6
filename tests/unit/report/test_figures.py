"""Figures: what they draw are the metrics, whatever is missing; every format is written whole and the same each time.

Artists carry labels such as `atlas-oe/ccps/rate`, through which the tests read back what was drawn.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import combinations
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D

from bench import metrics, registry
from bench.api import UserError
from bench.metrics.summary import MetricSummary
from bench.report.figures import (
    confidence_histograms,
    cost_quality,
    metric_bars,
    reliability,
    reliability_overview,
    risk_coverage,
    save,
    subject_dots,
    write,
    write_figures,
)
from bench.report.figures.cost import scale_of
from bench.report.figures.sheet import styled
from bench.report.standings.compute import LineStanding, Range, Standing, Standings
from bench.report.style import MAX_HEIGHT, SMALL, TEXT_WIDTH, built_in
from bench.report.tables.build import build
from bench.results.files import Records
from bench.results.row import ResultRow

METHODS = tuple(name for name in built_in().named if name in {*registry.paper(), "sequence-probability"})
"""Those of the committed comparison."""
MODELS = ("Qwen/Qwen2.5-14B-Instruct", "llama8b", "mistral24b", "qwen32b")
TASKS = ("medmcqa-choice", "mmlu-choice", "mmlu-oe", "mmlu-pro-choice", "mmlu-pro-oe")
NAMES = ("ece", "brier", "acc", "aucpr", "auroc")
SIZES = {"ptrue": 0, "lts": 1, "pik": 8194, "it": 4_194_304, "ct": 4_194_304, "litcab": 525_464_832, "ccps": 9542}


# --- simulated results ------------------------------------------------------------------------------------------------


def tables(rows, standings_of=None):
    """The tables of all rows."""
    return build(rows, deviations=True, partial=True, standings_of=standings_of)


class Simulated:
    """Rows with numbers that follow from records, as a run makes them."""

    def __init__(self):
        self.rows = []
        self._records = {}

    def records_of(self, row):
        return self._records[row.model, row.task, row.method, row.seed]

    def add(
        self, method="ccps", model="tiny", task="atlas-oe", *, seed=0, subjects=8, size=60, records=None, **changes
    ):
        """One cell; answers depend on model and task, confidences also on method and seed."""
        records = records or simulated(f"{model}{task}", f"{method}{seed}", subjects, size)
        self._records[model, task, method, seed] = records
        row = row_of(records, method, model, task, seed)
        self.rows.append(replace(row, **changes))
        return self

    def missing(self, method, model="tiny", task="atlas-oe", *, status="failed", seed=0):
        row = ResultRow(
            method=method, model=model, task=task, preset="demo", seed=seed, protocol="p", task_version=1,
            status=status, reason=f"{status} for the test",
        )  # fmt: skip
        self.rows.append(row)
        return self


def simulated(place, method, subjects, size):
    """Records with confidences that are calibrated after a distortion of the method's own."""
    rng = np.random.default_rng(sum(map(ord, place)))
    n = subjects * size
    names = [f"high_school_european_history {k}" if k % 9 == 4 else f"subject {k}" for k in range(subjects)]
    truth = rng.beta(2.2, 1.0, n)
    correct = rng.random(n) < truth
    own = np.random.default_rng(sum(map(ord, method)))
    logit = np.log(truth / (1 - truth))
    bent = own.uniform(0.4, 2.5) * logit + own.uniform(-1, 1) + own.normal(0, own.uniform(0.3, 2), n)
    confidence = 1 / (1 + np.exp(-bent))
    if method.startswith("self-consistency"):
        confidence = np.round(confidence, 1)
    subject = [names[k] for k in range(subjects) for _ in range(size)]
    return Records([str(i) for i in range(n)], subject, correct, confidence, ["a"] * n, np.ones(n, dtype=bool))


def row_of(records, method, model, task, seed):
    per_subject, subjects = {}, np.array(records.subject)
    for subject in dict.fromkeys(records.subject):
        mine = subjects == subject
        p, o = records.confidence[mine], records.correct[mine]
        per_subject[subject] = {"n": float(mine.sum()), **{m: metrics.METRICS[m].compute(p, o) for m in NAMES}}
    return ResultRow(
        method=method, model=model, task=task, preset="demo", seed=seed, protocol="p", task_version=1, status="ok",
        n=len(records.id), llm_accuracy=float(records.correct.mean()), per_subject=per_subject,
        metrics={m: summary_of([values[m] for values in per_subject.values()]) for m in NAMES}
        | {"ece_floor": MetricSummary(0.05, 0.01, 0.02, 0)},
        n_parameters=SIZES.get(method, 1_089_858),
        timings={"predict": 0.01, "fit": 12.5} if method == "ccps" else {"predict": 0.01},
        forward_tokens_alone=35_490,
    )  # fmt: skip


def summary_of(values):
    known = [value for value in values if value is not None]
    mean, std = (float(np.mean(known)), float(np.std(known))) if known else (None, None)
    return MetricSummary(mean, std, None, len(values) - len(known))


def comparison(models=MODELS, tasks=TASKS, methods=METHODS, **settings):
    made = Simulated()
    for model in models:
        for task in tasks:
            for method in methods:
                made.add(method, model, task, **settings)
    return made


@pytest.fixture(scope="module")
def made():
    """Two models, two tasks, all built-in methods."""
    return comparison(MODELS[:2], TASKS[1:3], subjects=4, size=50)


@pytest.fixture(scope="module")
def one(made):
    """One model on one task."""
    return [row for row in made.rows if (row.model, row.task) == ("llama8b", "mmlu-oe")]


# --- reading figures --------------------------------------------------------------------------------------------------


def drawn(figure, label):
    """The one artist with this label: x and y of a line, ends of segments, or boxes of bars."""
    found = [artist for artist in figure.get_children() if artist.get_label() == label]
    assert len(found) == 1, (label, sorted({str(a.get_label()) for a in figure.get_children()}))
    artist = found[0]
    if isinstance(artist, Line2D):
        return np.asarray(artist.get_xydata())
    if isinstance(artist, LineCollection):
        return np.asarray(artist.get_segments())
    assert isinstance(artist, PolyCollection)
    corners = [path.vertices for path in artist.get_paths()]
    return np.array([[*c.min(axis=0), *c.max(axis=0)] for c in corners])  # left, bottom, right, top


def labels(figure):
    return [str(artist.get_label()) for artist in figure.get_children()]


def words(figure):
    return [text.get_text() for text in figure.texts]


def note(figure):
    """The note, which is the last of the texts, as one line."""
    return " ".join(words(figure))


def texts_with_boxes(figure):
    with styled():
        renderer = figure.canvas.get_renderer()
        return [(text, text.get_window_extent(renderer)) for text in figure.texts if text.get_text().strip()]


def check_readable(figure):
    """Type is 6 points at least, within the sheet, and nothing is written over something else."""
    width, height = figure.get_size_inches() * figure.dpi
    boxes = texts_with_boxes(figure)
    assert boxes
    for text, box in boxes:
        assert text.get_fontsize() >= SMALL
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= -1, text  # one pixel is 0.7 points
    straight = [(text, box) for text, box in boxes if text.get_rotation() in {0, 90}]
    for (one, a), (other, b) in combinations(straight, 2):
        apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 1.5 or b.y1 <= a.y0 + 1.5
        assert apart, (one.get_text(), other.get_text())


ONE_TASK = {
    "reliability": lambda made, rows: reliability(tables(rows), made.records_of),
    "confidence": lambda made, rows: confidence_histograms(tables(rows), made.records_of),
    "risk": lambda made, rows: risk_coverage(tables(rows), made.records_of),
    "overview": lambda made, rows: reliability_overview(tables(rows), made.records_of),
    "metrics": lambda made, rows: metric_bars(tables(rows)),
    "subjects": lambda made, rows: subject_dots(tables(rows)),
    "cost": lambda made, rows: cost_quality(tables(rows)),
}
"""Every figure there is, by what a user calls it."""
SEVERAL_TASKS = {name: draw for name, draw in ONE_TASK.items() if name not in {"subjects", "cost"}}


# --- what is drawn are the numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ccps", "self-consistency"])
def test_reliability_shows_each_bin_with_its_interval_and_count(made, one, method):
    figure = reliability(tables(one), made.records_of)
    (row,) = (row for row in one if row.method == method)
    records = made.records_of(row)
    bins = np.minimum((records.confidence * 10 + 1e-9).astype(int), 9)
    rate = drawn(figure, f"mmlu-oe/{method}/rate")
    expected = [[records.confidence[bins == k].mean(), records.correct[bins == k].mean()] for k in np.unique(bins)]
    np.testing.assert_allclose(rate, expected)
    ends = drawn(figure, f"mmlu-oe/{method}/interval")
    np.testing.assert_allclose(ends[:, :, 0], np.repeat(rate[:, :1], 2, axis=1))
    assert (ends[:, 0, 1] <= rate[:, 1] + 1e-12).all()
    assert (rate[:, 1] <= ends[:, 1, 1] + 1e-12).all()
    bars = drawn(figure, f"mmlu-oe/{method}/strip/counts")
    np.testing.assert_allclose(bars[:, 3], np.unique(bins, return_counts=True)[1])
    assert f"ECE {100 * metrics.ece(records.confidence, records.correct):.1f}" in words(figure)
    assert f"{int(bars[:, 3].max()):,}" in words(figure)


def test_overview_shows_the_same_curves_for_every_model_and_task(made):
    figure = reliability_overview(tables(made.rows), made.records_of)
    for m, model in enumerate(sorted(MODELS[:2])):
        for k, task in enumerate(sorted(TASKS[1:3])):
            rows = [row for row in made.rows if (row.model, row.task) == (model, task)]
            alone = reliability(tables(rows), made.records_of)
            for method in METHODS:
                np.testing.assert_allclose(
                    drawn(figure, f"{m}/{k}/{method}/rate"), drawn(alone, f"{task}/{method}/rate")
                )
                np.testing.assert_allclose(
                    drawn(figure, f"{m}/{k}/{method}/interval"), drawn(alone, f"{task}/{method}/interval")
                )


def test_confidences_of_right_and_wrong_answers(made, one):
    figure = confidence_histograms(tables(one), made.records_of)
    records = made.records_of(next(row for row in one if row.method == "litcab"))
    right, wrong = (drawn(figure, f"mmlu-oe/litcab/{side}") for side in ("right", "wrong"))
    assert right[:, 3].sum() == pytest.approx(records.correct.mean())
    assert -wrong[:, 1].sum() == pytest.approx((~records.correct).mean())
    for left, _, end, share in right:
        inside = records.correct & (records.confidence >= left) & ((records.confidence < end) | (end == 1))
        assert share == pytest.approx(inside.mean())


def test_risk_and_coverage(made, one):
    figure = risk_coverage(tables(one), made.records_of)
    for row in one:
        records = made.records_of(row)
        curve = drawn(figure, f"mmlu-oe/{row.method}/risk")
        assert curve[:, 1].mean() == pytest.approx(metrics.aurc(records.confidence, records.correct))
        assert curve[-1] == pytest.approx([1, 1 - row.llm_accuracy])


def test_bars_are_the_means_of_the_tables(made):
    rows = [row for row in made.rows if row.model == "llama8b"]
    figure = metric_bars(tables(rows))
    for row in rows:
        for metric in NAMES:
            summary = row.metrics[metric]
            ((left, _, right, _),) = drawn(figure, f"{row.task}/{metric}/{row.method}/mean")
            assert (left, right) == pytest.approx((0, summary.mean))
            ((start, end),) = drawn(figure, f"{row.task}/{metric}/{row.method}/whisker")
            low, high = max(0, summary.mean - summary.std), summary.mean + summary.std
            assert start[0] == pytest.approx(low)
            assert end[0] == pytest.approx(min(high, 1.0))
        (((floor, _), _),) = drawn(figure, f"{row.task}/ece/{row.method}/floor")
        assert floor == row.metrics["ece_floor"].mean
    assert "standard deviation over subjects, as there are no intervals" in note(figure)


def standings(lines):
    """Intervals that say which line they belong to."""
    made = {}
    for k, key in enumerate(lines):
        ends = Range("fixed-subjects", 0.1 + 0.01 * k, 0.9, 0.9, "t")
        value = Standing(0.5, ends, ends, (0.5,), None, 0, 0)
        made[key] = LineStanding(0, dict.fromkeys(NAMES, value), 0.0, ends, 0.5, {})
    return Standings(0.9, made, (), {})


def test_computed_intervals_are_drawn_where_they_are_given(one):
    for figure, label, axis in (
        (metric_bars(tables(one, standings)), "mmlu-oe/auroc/{}/whisker", 0),
        (cost_quality(tables(one, standings)), "tokens/auroc/{}/whisker", 1),
    ):
        for k, method in enumerate(METHODS):
            ((start, end),) = drawn(figure, label.format(method))
            assert (start[axis], end[axis]) == pytest.approx((0.1 + 0.01 * k, 0.9))
        assert "90 % intervals of the mean over these subjects, questions resampled within each." in note(figure)


@pytest.mark.parametrize("metric", ["auroc", "brier"])
def test_every_subject_has_its_dot(one, metric):
    figure = subject_dots(tables(one), metric=metric)
    names = [text.split(" (")[0] for text in words(figure) if text.startswith("subject ")]
    assert sorted(names) == [f"subject {k}" for k in range(4)]
    for row in one:
        dots = drawn(figure, f"{row.method}/dots")
        assert dots[:, 0] == pytest.approx([row.per_subject[name][metric] for name in names])
        assert dots[:, 1].tolist() == [0.5, 1.5, 2.5, 3.5]
        assert drawn(figure, f"{row.method}/mean")[0, 0, 0] == pytest.approx(row.metrics[metric].mean)


def test_costs_stand_on_logarithmic_axes(one):
    figure = cost_quality(tables(one))
    of = {
        "parameters": lambda row: row.n_parameters,
        "tokens": lambda row: row.forward_tokens_alone,
        "seconds": lambda row: sum(row.timings.values()),
    }
    for cost, value in of.items():
        scale = scale_of([value(row) for row in one])
        for row in one:
            for metric in ("auroc", "brier"):
                ((x, y),) = drawn(figure, f"{cost}/{metric}/{row.method}/mean")
                assert y == pytest.approx(row.metrics[metric].mean)
                if [value(other) for other in one].count(value(row)) == 1:
                    assert x == pytest.approx(scale.place(value(row)))


def test_methods_of_equal_cost_stand_beside_each_other_around_it(one):
    figure = cost_quality(tables(one))
    places = [drawn(figure, f"tokens/brier/{method}/mean")[0, 0] for method in METHODS]
    assert places == sorted(places)
    assert np.diff(places).min() > 0
    assert np.mean(places) == pytest.approx(np.log10(35_490))
    assert drawn(figure, "tokens/brier/shared")[0, :, 0] == pytest.approx(np.log10(35_490))


def test_several_seeds_are_averaged_and_each_is_shown():
    made = Simulated()
    for seed in range(3):
        made.add("ccps", seed=seed, subjects=8).add("ptrue", seed=seed, subjects=8)
    ccps = [row for row in made.rows if row.method == "ccps"]
    means = [row.metrics["auroc"].mean for row in ccps]

    bars = metric_bars(tables(made.rows))
    assert drawn(bars, "atlas-oe/auroc/ccps/mean")[0, 2] == pytest.approx(np.mean(means))
    assert drawn(bars, "atlas-oe/auroc/ccps/seeds")[:, 0] == pytest.approx(means)

    curves = risk_coverage(tables(made.rows), made.records_of)
    aurcs = [metrics.aurc(made.records_of(row).confidence, made.records_of(row).correct) for row in ccps]
    assert drawn(curves, "atlas-oe/ccps/risk")[:, 1].mean() == pytest.approx(np.mean(aurcs), rel=0.02)
    assert "atlas-oe/ccps/seeds" in labels(curves)

    assert {f"atlas-oe/ccps/seed {k}" for k in range(3)} <= set(labels(reliability(tables(made.rows), made.records_of)))
    dots = drawn(subject_dots(tables(made.rows)), "ccps/seeds")
    assert dots.shape == (8, 2, 2)
    assert (dots[:, 0, 0] <= dots[:, 1, 0]).all()
    assert dots[:, :, 0].min() == min(row.per_subject[s]["auroc"] for row in ccps for s in row.per_subject)
    assert drawn(cost_quality(tables(made.rows)), "seconds/auroc/ccps/seeds")[:, 1] == pytest.approx(means)
    for draw in ONE_TASK.values():
        assert "3 seeds" in note(draw(made, made.rows))


def test_spreads_of_seeds_stay_in_their_column():
    """Also where seeds differ by much more than subjects do."""
    made = Simulated()
    for seed in range(3):
        made.add("ptrue", seed=seed, subjects=1, size=40).add("ccps", seed=seed, subjects=1, size=40)
    figure = subject_dots(tables(made.rows))
    ends = {}
    for method in ("ptrue", "ccps"):
        (spread,) = (artist for artist in figure.get_children() if artist.get_label() == f"{method}/seeds")
        ends[method] = spread.get_transform().transform(np.concatenate(spread.get_segments()))[:, 0]
    assert ends["ptrue"].max() < ends["ccps"].min()


# --- what is missing is said ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_TASK)
def test_what_failed_is_named_and_has_no_number(made, name):
    some = Simulated()
    some.add("ptrue").add("ccps").add("lts", seed=0).missing("lts", seed=1)
    some.missing("it").missing("litcab", status="skipped")
    figure = ONE_TASK[name](some, some.rows)
    assert "Left out: lts: failed with seed 1; it: failed; litcab: skipped (reasons: tables)." in note(figure)
    assert not [label for label in labels(figure) if re.search(r"/(it|litcab)/(rate|risk|mean|right|dots)", label)]
    if name in {"reliability", "confidence", "metrics"}:
        assert {"failed", "skipped"} <= set(words(figure))


@pytest.mark.parametrize("name", SEVERAL_TASKS)
def test_what_was_not_run_is_named_with_its_place(name):
    some = Simulated().add("ptrue", task="a").add("ccps", task="a").add("ccps", task="b").missing("ccps", task="c")
    figure = SEVERAL_TASKS[name](some, some.rows)
    assert "Left out: ptrue: not run on b, c; ccps: failed on c (reasons: tables)." in note(figure)
    check_readable(figure)


def test_a_model_without_a_task_is_one_sentence(made):
    rows = [row for row in made.rows if (row.model, row.task) != ("llama8b", "mmlu-oe")]
    figure = reliability_overview(tables(rows), made.records_of)
    assert "Left out: all methods: not run on llama8b and mmlu-oe (reasons: tables)." in note(figure)
    assert "not run" in words(figure)


def one_class():
    """Two subjects, in one of which every answer is right."""
    records = simulated("x", "ccps", 2, 50)
    correct = records.correct.copy()
    correct[:50] = True
    return Simulated().add("ccps", records=replace(records, correct=correct))


def test_subjects_without_a_value_are_counted():
    made = one_class()
    for figure in (metric_bars(tables(made.rows)), subject_dots(tables(made.rows)), cost_quality(tables(made.rows))):
        assert "AUROC leaves out 1 subject, where it is undefined." in note(figure)
    figure = subject_dots(tables(made.rows))
    assert drawn(figure, "ccps/dots").shape == (1, 2)
    assert "AUROC is undefined for all methods in 1 of 2 subjects." in note(figure)


def test_a_metric_without_any_value_says_so():
    records = simulated("x", "ccps", 2, 50)
    made = Simulated().add("ccps", records=replace(records, correct=np.ones(100, dtype=bool))).add("ptrue")
    figure = metric_bars(tables(made.rows))
    assert words(figure).count("undefined") == 2  # AUCPR and AUROC
    assert "undefined" in words(subject_dots(tables(made.rows)))
    assert "tokens/auroc/ccps/mean" not in labels(cost_quality(tables(made.rows)))
    check_readable(figure)


def test_costs_that_nobody_recorded_are_named():
    made = Simulated().add("ccps", forward_tokens_alone=None, timings={}).add("ptrue")
    text = note(cost_quality(tables(made.rows)))
    assert "Not known, and so not drawn: forward tokens: ccps; seconds of fitting and predicting: ccps." in text


def test_partial_and_deviating_results_say_so():
    made = Simulated().add("ccps", limit=400, deviations={"ccps.steps": 10}, preset="fixed")
    text = note(metric_bars(tables(made.rows)))
    assert "preset fixed; partial: --limit 400; deviations ccps.steps=10." in text


def test_settings_tell_series_of_one_method_apart():
    made = Simulated().add("ccps", deviations={"ccps.steps": 10}).add("ccps", seed=0)
    figure = metric_bars(tables(made.rows))
    assert {"ccps", "ccps (ccps.steps=10)"} <= set(words(figure))


# --- every figure is fit for print ------------------------------------------------------------------------------------


@cache
def small_and_odd():
    """Results at the edge of what there can be."""
    constant = simulated("x", "ccps", 3, 20)
    names = [
        "my_$x^2$_method",
        "想法",
        "a-plugin-with-a-really-long-name-that-goes-on",
        "ccps+isotonic",
        "mine<b>&amp;",
    ]
    odd = Simulated()
    for name in names:
        odd.add(
            name,
            "meta-llama/Llama-3.1-8B-Instruct-of-mine",
            r"task_with_$\alpha$_and_a_name_of_its_own",
            subjects=70,
            size=3,
        )
    return {
        "one method, one subject": Simulated().add(subjects=1, size=30),
        "one question": Simulated().add(subjects=1, size=1).add("ptrue", subjects=1, size=1),
        "sure of everything": Simulated().add(records=replace(constant, confidence=np.ones(60))),
        "sure of nothing": Simulated().add(records=replace(constant, confidence=np.zeros(60))),
        "always right": Simulated().add(records=replace(constant, correct=np.ones(60, dtype=bool))),
        "odd names, many subjects": odd,
    }


@pytest.mark.parametrize("name", ONE_TASK)
@pytest.mark.parametrize("case", small_and_odd())
def test_odd_results_are_readable(name, case, recwarn):
    made = small_and_odd()[case]
    figure = ONE_TASK[name](made, made.rows)
    check_readable(figure)
    assert not recwarn.list


@pytest.mark.parametrize("name", ONE_TASK)
def test_eleven_methods_are_readable(made, one, name):
    figure = ONE_TASK[name](made, one)
    check_readable(figure)
    assert set(METHODS) <= set(words(figure))
    assert figure.get_size_inches()[0] in {3.33, TEXT_WIDTH}


@pytest.fixture(scope="module")
def largest():
    """Four models, five tasks, eleven methods; 57 subjects on one task."""
    made = comparison(subjects=2, size=15)
    made.rows = [row for row in made.rows if row.task != "mmlu-choice"]
    for model in MODELS:
        for method in METHODS:
            made.add(method, model, "mmlu-choice", subjects=57, size=3)
    return made


@pytest.mark.parametrize("name", [*ONE_TASK])
def test_the_largest_comparison_fits_on_a_page(largest, name):
    rows = largest.rows
    if name != "overview":
        rows = [row for row in rows if row.model == MODELS[0]]
    if name in {"subjects", "cost"}:
        rows = [row for row in rows if row.task == "mmlu-choice"]
    figure = ONE_TASK[name](largest, rows)
    width, height = figure.get_size_inches()
    assert width == TEXT_WIDTH
    assert height <= MAX_HEIGHT + 0.3
    check_readable(figure)


# --- files ------------------------------------------------------------------------------------------------------------


def small():
    """Two methods on two tasks."""
    made = Simulated()
    for task in ("atlas-choice", "atlas-oe"):
        made.add("ptrue", task=task, size=20).add("ccps", task=task, size=20)
    return made


EXPECTED = {
    "reliability-overview", "tiny--metrics", "tiny--confidence", "tiny--reliability", "tiny--risk-coverage",
    *(
        f"tiny--{task}--{kind}"
        for task in ("atlas-choice", "atlas-oe")
        for kind in ("reliability", "risk-coverage", "subjects-auroc", "subjects-brier", "cost")
    ),
}  # fmt: skip


def without_drawing(monkeypatch):
    """Makes `write_figures` give figures by name and touch files, which is a hundred times faster."""
    shown = {}

    def touch(figure, path):
        path.touch()
        shown[path.stem] = figure
        return path

    monkeypatch.setattr(write, "save", touch)
    return shown


def test_every_figure_is_written_in_every_format(tmp_path, monkeypatch):
    made, said = small(), []
    without_drawing(monkeypatch)
    out = tmp_path / "new" / "folder"
    paths = write_figures(tables(made.rows), made.records_of, out, say=said.append)
    assert {path.name for path in paths} == {f"{stem}.{kind}" for stem in EXPECTED for kind in ("svg", "png", "pdf")}
    assert sorted(out.iterdir()) == sorted(paths)
    assert set(said) == EXPECTED
    paths = write_figures(tables(made.rows), made.records_of, tmp_path / "other", ("pdf",))
    assert {path.name for path in paths} == {f"{stem}.pdf" for stem in EXPECTED}


def files_of(figure, folder):
    folder.mkdir()
    return {kind: save(figure, folder / f"figure.{kind}").read_bytes() for kind in ("svg", "png", "pdf")}


def test_formats_are_what_a_publisher_asks_for(made, one, tmp_path):
    files = files_of(reliability(tables(one), made.records_of), tmp_path / "a")
    assert files["png"].startswith(b"\x89PNG")
    assert np.frombuffer(files["png"][16:20], dtype=">u4")[0] == 999  # a column at 300 dots per inch
    assert files["pdf"].startswith(b"%PDF")
    assert b"/FontFile2" in files["pdf"]  # TrueType
    assert b"/Type3" not in files["pdf"]
    assert ElementTree.fromstring(files["svg"]).get("width") == "239.76pt"  # noqa: S314 - written here
    assert [path.name for path in (tmp_path / "a").iterdir() if path.name.startswith(".")] == []


def test_svg_text_is_text(tmp_path):
    made = Simulated().add("mine<b>&amp;", task="task_$x^2$", size=10)
    path = save(metric_bars(tables(made.rows)), tmp_path / "figure.svg")
    names = "{http://www.w3.org/2000/svg}text"
    texts = [element.text for element in ElementTree.parse(path).iter(names)]  # noqa: S314 - written here
    assert "tiny on task_$x^2$: means of all methods" in texts
    assert "mine<b>&amp;" in texts
    assert "AUROC ↑ (%)" in texts


def test_the_same_results_give_the_same_bytes(tmp_path, monkeypatch):
    """Whatever the order of the rows, the folder, the user's own settings of matplotlib, and the day."""
    made = Simulated().add(size=10, subjects=2).add("ptrue", size=10, subjects=2)
    before = {
        path.name: path.read_bytes()
        for path in write_figures(tables(made.rows), made.records_of, tmp_path / "a", ["svg"])
    }
    files = files_of(cost_quality(tables(made.rows)), tmp_path / "b")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    mine = {"font.size": 30, "svg.fonttype": "path", "svg.hashsalt": None, "savefig.dpi": 50, "lines.linewidth": 9}
    mine |= {"lines.scale_dashes": False, "path.sketch": (1, 100, 2), "savefig.bbox": "tight"}
    with matplotlib.rc_context(mine):
        kept = dict(matplotlib.rcParams)
        after = write_figures(tables(made.rows[::-1]), made.records_of, tmp_path / "c", ["svg"])
        again = files_of(cost_quality(tables(made.rows[::-1])), tmp_path / "d")
        assert dict(matplotlib.rcParams) == kept
    assert {path.name: path.read_bytes() for path in after} == before
    assert again == files


def test_pyplot_and_its_global_figures_are_not_used():
    code = (
        "import sys, tempfile, pathlib; from bench.report.figures.sheet import save, sheet;"
        "save(sheet(3.33, 1.0, title='a', note='b').figure, pathlib.Path(tempfile.mkdtemp()) / 'a.svg');"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=True)


def test_a_file_that_can_t_be_finished_is_not_there(tmp_path, monkeypatch):
    made = Simulated().add(size=10)
    (tmp_path / "reliability-overview.svg").write_text("older")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match=r"reliability-overview' can't be written \(No space left on device\)"):
        write_figures(tables(made.rows), made.records_of, tmp_path, ["svg"])
    assert [path.name for path in tmp_path.iterdir()] == ["reliability-overview.svg"]
    assert (tmp_path / "reliability-overview.svg").read_text() == "older"


def test_a_folder_that_is_a_file_is_one_sentence(tmp_path):
    made = Simulated().add(size=10)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't be written"):
        write_figures(tables(made.rows), made.records_of, tmp_path / "file", ["svg"])


@pytest.mark.parametrize("formats", [["jpg"], ["svg", "gif"], []])
def test_unknown_formats_are_named_before_anything_is_read(tmp_path, formats):
    made = Simulated().add(size=10)
    with pytest.raises(UserError, match=r"unknown figure format .*; expected some of svg, png, pdf"):
        write_figures(tables(made.rows), None, tmp_path / "out", formats)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "there are no results"),
        (Simulated().missing("ccps").missing("lts").rows, "none of the 2 results is ok"),
        (
            Simulated().add(size=5).add("lts", preset="fixed", size=5).rows,
            "results of tiny on atlas-oe have presets demo, fixed",
        ),
        (Simulated().add(size=5).add("lts", limit=4, size=5).rows, "have different --limit or protocol"),
    ],
)
def test_what_can_t_be_drawn_is_refused_in_one_sentence(tmp_path, rows, message):
    with pytest.raises(UserError, match=message):
        write_figures(tables(rows), None, tmp_path / "out", ["svg"])
    assert not (tmp_path / "out").exists()


def test_a_figure_of_one_model_refuses_several(made):
    with pytest.raises(ValueError, match="expected the tables of one model, got those of Qwen"):
        reliability(tables(made.rows), made.records_of)
    with pytest.raises(ValueError, match="expected the tables of one task"):
        subject_dots(tables([row for row in made.rows if row.model == "llama8b"]))


def test_a_model_or_task_without_any_number_gets_no_figure(tmp_path, monkeypatch):
    without_drawing(monkeypatch)
    made = small().missing("ccps", "other", "atlas-oe").missing("ccps", "tiny", "third")
    stems = {path.stem for path in write_figures(tables(made.rows), made.records_of, tmp_path, ["svg"])}
    assert stems == EXPECTED


def test_records_and_intervals_are_asked_for_once(tmp_path, monkeypatch):
    without_drawing(monkeypatch)
    made, asked = small(), []

    def records_of(row):
        asked.append((row.task, row.method))
        return made.records_of(row)

    def standings_of(lines):
        asked.append(tuple(sorted({row.task for rows in lines.values() for row in rows})))
        return standings(lines)

    write_figures(tables(made.rows, standings_of), records_of, tmp_path, ["svg"])
    tasks = ("atlas-choice", "atlas-oe")
    assert sorted(asked) == sorted(
        [*((task, method) for task in tasks for method in ("ptrue", "ccps")), *((t,) for t in tasks)]
    )


def test_what_does_not_fit_goes_to_more_figures(tmp_path, monkeypatch):
    """Recalibrated methods, too, have figures of their own; intervals stay those of the whole table."""
    made = Simulated()
    for k in range(13):
        made.add(f"plugin-{k:02}", size=10, subjects=2)
    made.add("ccps+isotonic", size=10, subjects=2)
    shown = without_drawing(monkeypatch)
    write_figures(tables(made.rows, standings), made.records_of, tmp_path, ["svg"])
    assert {stem for stem in shown if "metrics" in stem} == {
        "tiny--metrics--1", "tiny--metrics--2", "tiny--metrics--isotonic",
    }  # fmt: skip
    first, second = (words(shown[f"tiny--metrics--{k}"]) for k in (1, 2))
    names = [f"plugin-{k:02}" for k in range(13)]
    assert [name for name in [*first, *second] if name in names] == names
    assert "Figure 1 of 2." in note(shown["tiny--metrics--1"])
    ((start, _),) = drawn(shown["tiny--metrics--2"], "atlas-oe/auroc/plugin-12/whisker")
    assert start[0] == pytest.approx(0.1 + 0.01 * 12)
    assert "ccps+isotonic" in words(shown["tiny--metrics--isotonic"])
    assert "ccps+isotonic" not in [*first, *second]


def test_names_of_files_are_safe_and_each_is_written_once(tmp_path, monkeypatch):
    """`a/b` on all tasks and `a` on task `b` would have the same names; a task may be called anything."""
    without_drawing(monkeypatch)
    made = Simulated()
    for model, task in (("a", "b"), ("a", "../up"), ("a/b", "c"), ("a/b", "d")):
        made.add(model=model, task=task, size=10, subjects=2)
    paths = write_figures(tables(made.rows), made.records_of, tmp_path, ["svg"])
    assert len({path.name.casefold() for path in paths}) == len(paths) == 1 + 2 * 4 + 4 * 5
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\.svg", path.name) for path in paths)
    assert all(path.parent == tmp_path for path in paths)
    assert not (tmp_path.parent / "up").exists()
