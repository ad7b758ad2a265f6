"""Figures: what they draw are the metrics, whatever is missing; every format is written whole and the same each time.

Artists carry labels such as `atlas-oe/ccps/rate`, through which the tests read back what was drawn.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import combinations
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.isotonic import IsotonicRegression

from bench import metrics, registry
from bench.api import UserError
from bench.metrics.summary import MetricSummary
from bench.report import figures
from bench.report.bins import bin_records
from bench.report.corp import reliability_curve
from bench.report.figures.variants import differences_of_variants
from bench.report.figures.write import write_figures
from bench.report.notebook.figures import Figures
from bench.report.standings.compute import LineStanding, Pair, Standings
from bench.report.style import MAX_HEIGHT, TEXT_WIDTH, built_in
from bench.report.tables.build import build
from bench.results.row import Tuning, answers_after_traces
from bench.stats import Estimate, Interval
from tests.fixtures.readable import artist, artists, check_readable, drawn, labels, look, note, words
from tests.kit.golden import as_cases, check_golden
from tests.kit.world import question_records, result_row
from tests.unit.report.test_method_analyses import compared as variants

METHODS = tuple(name for name in built_in().named if name in {*registry.paper_methods(), "sequence-probability"})
"""Those of the committed comparison."""
MODELS = ("Qwen/Qwen2.5-14B-Instruct", "llama8b", "mistral24b", "qwen32b")
TASKS = ("medmcqa-choice", "mmlu-choice", "mmlu-oe", "mmlu-pro-choice", "mmlu-pro-oe")
MANY = "mmlu-choice"
NAMES = ("ece", "rmsce", "brier", "acc", "aucpr", "auroc")
SIZES = {"ptrue": 0, "lts": 1, "pik": 8194, "it": 4_194_304, "ct": 4_194_304, "litcab": 525_464_832, "ccps": 9542}


# --- simulated results ------------------------------------------------------------------------------------------------


def tables(rows, standings_of=None, average="questions"):
    return build(rows, average=average, deviations=True, partial=True, standings_of=standings_of)


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
        self.rows.append(row_of(records, method, model=model, task=task, seed=seed, **changes))
        return self

    def missing(self, method, model="tiny", task="atlas-oe", *, status="failed", seed=0):
        reason = f"{status} for the test"
        row = result_row(method, model=model, task=task, seed=seed, status=status, reason=reason, protocol="p")
        self.rows.append(row)
        return self


def simulated(place, method, subjects, size):
    """Records with confidences that are calibrated after a distortion of the method's own."""
    rng, own = np.random.default_rng(sum(map(ord, place))), np.random.default_rng(sum(map(ord, method)))
    n = subjects * size
    names = [f"high_school_european_history {k}" if k % 9 == 4 else f"subject {k}" for k in range(subjects)]
    truth = rng.beta(2.2, 1.0, n)
    correct = rng.random(n) < truth
    logit = np.log(truth / (1 - truth))
    bent = own.uniform(0.4, 2.5) * logit + own.uniform(-1, 1) + own.normal(0, own.uniform(0.3, 2), n)
    confidence = 1 / (1 + np.exp(-bent))
    if method.startswith("self-consistency"):
        confidence = np.round(confidence, 1)
    return question_records(confidence, correct, subject=[names[k] for k in range(subjects) for _ in range(size)])


def row_of(records, method, **changes):
    per_subject, subjects = {}, np.array(records.subject)
    for subject in dict.fromkeys(records.subject):
        mine = subjects == subject
        p, o = records.confidence[mine], records.correct[mine]
        per_subject[subject] = {"n": float(mine.sum()), **{m: metrics.METRICS[m].compute(p, o) for m in NAMES}}
    found = {m: summary_of(m, records, [values[m] for values in per_subject.values()]) for m in NAMES}
    usual = {
        "n": len(records.id), "llm_accuracy": float(records.correct.mean()), "per_subject": per_subject,
        "metrics": found | {"ece_floor": MetricSummary(0.05, 0.01, 0.02, 0)}, "protocol": "p",
        "n_parameters": SIZES.get(method, 1_089_858), "forward_tokens_alone": 35_490, "generated_tokens_alone": 120,
        "timings": {"predict": 0.01, "fit": 12.5} if method == "ccps" else {"predict": 0.01},
    }  # fmt: skip
    return result_row(method, **{**usual, **changes})


def summary_of(metric, records, values):
    known = [value for value in values if value is not None]
    pooled = metrics.METRICS[metric].compute(records.confidence, records.correct)
    std = float(np.std(known)) if known else None
    return MetricSummary(metrics.METRICS[metric].mean(known), std, pooled, len(values) - len(known))


def comparison(models=MODELS, tasks=TASKS, **settings):
    made = Simulated()
    for model, task, method in ((model, task, method) for model in models for task in tasks for method in METHODS):
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


ONE_TASK = {
    "reliability": lambda made, rows: figures.reliability(tables(rows), made.records_of),
    "confidence": lambda made, rows: figures.confidence_histograms(tables(rows), made.records_of),
    "risk": lambda made, rows: figures.risk_coverage(tables(rows), made.records_of),
    "overview": lambda made, rows: figures.reliability_overview(tables(rows), made.records_of),
    "metrics": lambda made, rows: figures.metric_intervals(tables(rows)),
    "subjects": lambda made, rows: figures.subject_differences(tables(rows)),
    "cost": lambda made, rows: figures.cost_quality(tables(rows)),
}
"""Every figure there is, by what a user calls it."""
SEVERAL_TASKS = {name: draw for name, draw in ONE_TASK.items() if name not in {"subjects", "cost"}}


# --- what is drawn are the numbers ------------------------------------------------------------------------------------


def test_reliability_shows_a_bin_of_one_answer(one):
    records = question_records(np.array([0.05] + [0.95] * 9), np.arange(10) > 1)
    figure = figures.reliability(tables(one[:1]), lambda _: records)
    of = {kind: drawn(figure, f"mmlu-oe/{one[0].method}/{kind}").tolist() for kind in ("few", "rate")}
    assert of == {"few": [[0.05, 0.0]], "rate": [[pytest.approx(0.95), pytest.approx(8 / 9)]]}


@pytest.mark.parametrize("method", ["ccps", "self-consistency"])
def test_reliability_shows_each_bin_with_interval_and_count(made, one, method):
    figure = figures.reliability(tables(one), made.records_of)
    (row,) = (row for row in one if row.method == method)
    records = made.records_of(row)
    bins = np.minimum((records.confidence * 10 + 1e-9).astype(int), 9)
    of = {k: [records.confidence[bins == k].mean(), records.correct[bins == k].mean()] for k in np.unique(bins)}
    size = np.bincount(bins, minlength=10)
    rate = drawn(figure, f"mmlu-oe/{method}/rate")
    np.testing.assert_allclose(rate, [place for k, place in of.items() if size[k] >= 5])
    few = [place for k, place in of.items() if size[k] < 5]
    np.testing.assert_allclose(drawn(figure, f"mmlu-oe/{method}/few"), np.reshape(few, (-1, 2)))
    through = drawn(figure, f"mmlu-oe/{method}/joined")
    expected = [place if size[k] >= 5 else [np.nan, np.nan] for k, place in of.items()]
    np.testing.assert_allclose(through, expected)
    ends = drawn(figure, f"mmlu-oe/{method}/interval")
    np.testing.assert_allclose(ends[:, :, 0], np.repeat(rate[:, :1], 2, axis=1))
    curve = drawn(figure, f"mmlu-oe/{method}/curve")
    oracle = IsotonicRegression().fit(records.confidence, records.correct)
    np.testing.assert_allclose(curve[:, 1], oracle.predict(curve[:, 0]), atol=1e-9)
    outline = artist(figure, f"mmlu-oe/{method}/band").get_paths()[0].vertices
    told = reliability_curve([records])
    for place in np.column_stack([told.confidence, told.low]).tolist() + np.column_stack(told[::3]).tolist():
        assert np.isclose(outline, place).all(axis=1).any()
    bars, counts = drawn(figure, f"mmlu-oe/{method}/counts"), np.unique(bins, return_counts=True)[1]
    np.testing.assert_allclose(bars[:, 3] / bars[:, 3].max(), counts / counts.max())
    ece, mcb = (100 * of(records.confidence, records.correct) for of in (metrics.ece, metrics.brier_mcb))
    assert f"ECE {ece:.1f}, MCB {mcb:.1f}" in words(figure)
    assert f"{counts.max():,}" in words(figure)


def test_reliability_number_is_of_all_seeds_together():
    """Not the mean over seeds, which is another number here."""
    made = seeds(subjects=4, size=30)
    runs = [made.records_of(row) for row in made.rows if row.method == "ccps"]
    p, o = (np.concatenate([getattr(run, name) for run in runs]) for name in ("confidence", "correct"))
    bins = np.minimum((p * 10 + 1e-9).astype(int), 9)
    ece = sum(abs((p - o)[bins == k].sum()) for k in range(10)) / len(p)
    of_seeds = [row.metrics["ece"].pooled for row in made.rows if row.method == "ccps"]
    assert f"{100 * ece:.1f}" != f"{100 * np.mean(of_seeds):.1f}"
    figure = figures.reliability(tables(made.rows), made.records_of)
    assert any(text.startswith(f"ECE {100 * ece:.1f}, ") for text in words(figure))
    assert "of the answers of all subjects and seeds together." in note(figure)


def order_alone():
    made = Simulated().add("ccps").add("ptrue")
    metrics_of = made.rows[1].metrics
    made.rows[1] = replace(made.rows[1], metrics={name: metrics_of[name] for name in ("auroc", "aucpr")})
    return made


def test_scores_without_a_scale_have_no_diagram():
    made = order_alone()
    figure = figures.reliability(tables(made.rows), made.records_of)
    assert "only an order" in words(figure)
    assert "atlas-oe/ptrue/curve" not in labels(figure)
    assert words(figures.metric_intervals(tables(made.rows))).count("only an order") == 4  # ECE, RMSCE, Brier and ACC


def test_overview_shows_the_curves_of_reliability(made):
    shown = [row for row in made.rows if row.method in METHODS[:4]]
    figure = figures.reliability_overview(tables(shown), made.records_of)
    for m, model in enumerate(sorted(MODELS[:2])):
        for k, task in enumerate(sorted(TASKS[1:3])):
            rows = [row for row in shown if (row.model, row.task) == (model, task)]
            alone = figures.reliability(tables(rows), made.records_of)
            for method in METHODS[:4]:
                rate = drawn(alone, f"{task}/{method}/joined")
                np.testing.assert_allclose(drawn(figure, f"{m}/{k}/{method}/rate"), rate)
                ends = drawn(alone, f"{task}/{method}/interval")
                found = {tuple(place) for place in drawn(figure, f"{m}/{k}/{method}/interval")[:, 0].tolist()}
                assert {tuple(place) for place in ends[:, 0].tolist()} <= found
                answers = bin_records([made.records_of(row) for row in rows if row.method == method]).answers
                sizes = [each.get_markersize() for name, each in artists(figure) if name == f"{m}/{k}/{method}/marker"]
                order = np.argsort(answers[answers > 0], kind="stable").tolist()
                assert np.argsort(sizes, kind="stable").tolist() == order


def test_histograms_are_of_right_and_wrong_answers(made, one):
    figure = figures.confidence_histograms(tables(one), made.records_of)
    records = made.records_of(next(row for row in one if row.method == "litcab"))
    right, wrong = (drawn(figure, f"mmlu-oe/litcab/{side}") for side in ("right", "wrong"))
    assert right[:, 3].sum() == pytest.approx(records.correct.mean())
    assert -wrong[:, 1].sum() == pytest.approx((~records.correct).mean())
    axes = next(axes for axes in figure.axes if axes.get_label() == "mmlu-oe/litcab")
    (share,) = (text for text in axes.texts if text.get_text().endswith(" %"))
    tallest = np.argmax([*right[:, 3], *-wrong[:, 1]]) % len(right)
    assert (share.get_position()[0] < 0.5) == (tallest >= len(right) / 2)  # written where the tallest bar isn't
    for left, _, end, share in right:
        inside = records.correct & (records.confidence >= left) & ((records.confidence < end) | (end == 1))
        assert share == pytest.approx(inside.mean())


def test_risk_curve_has_the_area_of_aurc(made, one):
    figure = figures.risk_coverage(tables(one), made.records_of)
    for row in one:
        records = made.records_of(row)
        curve = drawn(figure, f"mmlu-oe/{row.method}/risk")
        assert curve[:, 1].mean() == pytest.approx(metrics.aurc(records.confidence, records.correct))
        assert curve[-1] == pytest.approx([1, 1 - row.llm_accuracy])
    assert drawn(figure, "mmlu-oe/all kept").tolist() == [[0, curve[-1, 1]], [1, curve[-1, 1]]]


def test_metric_dots_are_the_means_of_the_tables(made):
    rows = [row for row in made.rows if row.model == "llama8b"]
    made_of = {table.task: table for table in tables(rows)}
    figure = figures.metric_intervals(list(made_of.values()))
    for row in rows:
        for metric in NAMES:
            summary = row.metrics[metric]
            ((mean, y),) = drawn(figure, f"{row.task}/{metric}/{row.method}/mean")
            value = max(0, summary.pooled) if metric == "rmsce" else summary.pooled
            assert mean == pytest.approx(value)
            assert y == [line.key.method for line in made_of[row.task].lines].index(row.method)
            ((start, end),) = drawn(figure, f"{row.task}/{metric}/{row.method}/whisker")
            assert start[0] == pytest.approx(max(0, value - summary.std))
            assert end[0] == pytest.approx(min(value + summary.std, 1.0))
        (((floor, _), _),) = drawn(figure, f"{row.task}/ece/{row.method}/floor")
        assert floor == row.metrics["ece_floor"].pooled
    assert "Dots: of all questions at once." in note(figure)
    assert "standard deviation over subjects, as there are no intervals" in note(figure)


def standings(lines):
    """Intervals that say which line they belong to."""
    made = {}
    for k, key in enumerate(lines):
        ends = Interval("fixed-subjects", 0.1 + 0.01 * k, 0.9, 0.9, "t")
        value = Estimate(0.5, ends, ends, (0.5,), None, 0)
        made[key] = LineStanding(0, dict.fromkeys(NAMES, value), 0.5, {})
    return Standings(0.9, made, (), {})


def test_computed_intervals_are_drawn(one):
    for figure, label, axis in (
        (figures.metric_intervals(tables(one, standings)), "mmlu-oe/auroc/{}/whisker", 0),
        (figures.cost_quality(tables(one, standings)), "tokens/auroc/{}/whisker", 1),
    ):
        for k, method in enumerate(METHODS):
            ((start, end),) = drawn(figure, label.format(method))
            assert (start[axis], end[axis]) == pytest.approx((0.1 + 0.01 * k, 0.9))
        assert "90 % intervals for other questions of these subjects." in note(figure)


@pytest.mark.parametrize("metric", ["auroc", "brier"])
def test_subjects_show_the_differences_to_the_leader(made, one, metric):
    figure = figures.subject_differences(tables(one), metric=metric)
    assert words(Figures(tables(one), made.records_of).subjects(metric=metric)) == words(figure)  # in a notebook
    names = [text.split(" (")[0] for text in words(figure) if text.startswith("subject ")]
    assert sorted(names) == [f"subject {k}" for k in range(4)]
    best = {"auroc": max, "brier": min}[metric](one, key=lambda row: row.metrics[metric].pooled)
    own = [best.per_subject[name][metric] for name in names]
    assert own == sorted(own, reverse=True)
    assert [f"{100 * value:.1f}" in words(figure) for value in own] == [True] * 4
    for row in one:
        mean, *dots = drawn(figure, f"subjects/{row.method}/dots")
        differences = [row.per_subject[name][metric] - value for name, value in zip(names, own, strict=True)]
        assert [x for x, _ in dots] == pytest.approx(differences)
        assert [round(y) for _, y in dots] == [1, 2, 3, 4]
        assert mean[0] == pytest.approx(row.metrics[metric].pooled - best.metrics[metric].pooled)
    places = [drawn(figure, f"subjects/{row.method}/dots")[1, 1] for row in one]
    assert len(set(places)) == len(one)  # so that equal values are seen


def test_subjects_are_compared_with_the_first_leader():
    """Of two that tests can't tell apart, whatever the mean of a third."""
    made = priced(a=(10, 0.9, 0.1), b=(10, 0.89, 0.11), c=(10, 0.95, 0.05))
    figure = figures.subject_differences(tables(made.rows, ladder))
    assert [drawn(figure, f"subjects/{name}/dots")[0, 0] for name in "ac"] == pytest.approx([0, 0.05])


def test_subjects_stand_below_all_questions_or_their_mean(one):
    for average, name in (("questions", "all"), ("subjects", "mean")):
        figure = figures.subject_differences(tables(one, average=average), metric="brier")
        best = min(row.metrics["brier"].of(average) for row in one)
        assert name in words(figure)
        assert f"{100 * best:.1f}" in words(figure)
        for row in one:
            apart = row.metrics["brier"].of(average) - best
            assert drawn(figure, f"subjects/{row.method}/dots")[0, 0] == pytest.approx(apart)


def test_calibration_error_below_0_is_drawn_as_0(one):
    less = MetricSummary(-0.1, 0.05, -0.2, 0)
    rows = [replace(row, seed=k, metrics={**row.metrics, "rmsce": less}) for row in one[:2] for k in range(2)]
    rows = [replace(row, per_subject={s: {**v, "rmsce": -0.3} for s, v in row.per_subject.items()}) for row in rows]
    figure = figures.metric_intervals(tables(rows))
    assert drawn(figure, f"mmlu-oe/rmsce/{rows[0].method}/mean")[0, 0] == 0
    assert drawn(figure, f"mmlu-oe/rmsce/{rows[0].method}/seeds")[:, 0].tolist() == [0, 0]
    ((start, end),) = drawn(figure, f"mmlu-oe/rmsce/{rows[0].method}/whisker")
    assert (start[0], end[0]) == (0, 0.05)
    alone = figures.subject_differences(tables(rows[:2]), metric="rmsce")
    assert not drawn(alone, f"subjects/{rows[0].method}/dots")[:, 0].any()


def test_subjects_of_one_method_show_its_values(one):
    (row,) = alone = [row for row in one if row.method == "ccps"]
    figure = figures.subject_differences(tables(alone), metric="brier")
    values = sorted((each["brier"] for each in row.per_subject.values()), reverse=True)
    assert drawn(figure, "subjects/ccps/dots")[1:, 0] == pytest.approx(values)
    assert "Brier \u2193 (%)" in words(figure)
    assert not any("minus" in text for text in words(figure))


def test_costs_stand_on_logarithmic_axes(one):
    figure = figures.cost_quality(tables(one))
    of = {
        "parameters": lambda row: row.n_parameters,
        "tokens": lambda row: row.forward_tokens_alone,
        "generated": lambda row: row.generated_tokens_alone,
        "seconds": lambda row: sum(row.timings.values()),
    }
    for cost, value in of.items():
        for row in one:
            for metric in ("auroc", "brier"):
                ((x, y),) = drawn(figure, f"{cost}/{metric}/{row.method}/mean")
                assert y == pytest.approx(row.metrics[metric].pooled)
                assert x == pytest.approx(value(row))  # also where others cost the same
        axes = next(axes for axes in figure.axes if axes.get_label() == f"{cost}/brier")
        assert axes.get_xscale() == ("symlog" if cost == "parameters" else "log")
    named = {axes.get_label(): axes.get_xlabel() for axes in figure.axes}
    assert [bool(label) for place, label in named.items() if place.endswith("/auroc")] == [False] * 4  # brier is below
    assert len({label for label in named.values() if label}) == 4


def test_legend_stands_beside_the_axes(one):
    figure = figures.cost_quality(tables(one))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert not [axes.get_label() for axes in figure.axes if axes.get_window_extent().overlaps(box)]


@pytest.mark.parametrize("costs", [(0, 1, 8194, 525_464_832), (3, 3), (0, 0), (0.0002, 7), (1, 1e12)])
def test_cost_axis_holds_all_and_nothing_too(costs):
    made = priced(**{f"m{k}": (cost, 0.7, 0.2) for k, cost in enumerate(costs)})
    (axes,) = figures.cost_quality(tables(made.rows), metrics=("brier",), costs=("tokens",)).axes
    left, right = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if left <= tick <= right]
    assert all(left < cost < right for cost in costs)
    assert len(ticks) >= 2
    assert (0 in ticks) == (0 in costs)
    places = axes.transData.transform([(cost, 0.2) for cost in sorted(set(costs))])[:, 0]
    assert (np.diff(places) > 5).all()


def priced(**costs):
    """Methods with these positions, AUROC and Brier; every one generates as many tokens as its name is long."""
    made = Simulated()
    for method, (tokens, auroc, brier) in costs.items():
        made.add(method, forward_tokens_alone=tokens, generated_tokens_alone=len(method), subjects=2, size=20)
        means = {"auroc": MetricSummary(None, 0.1, auroc, 0), "brier": MetricSummary(None, 0.1, brier, 0)}
        made.rows[-1] = replace(made.rows[-1], metrics={**made.rows[-1].metrics, **means})
    return made


def test_cost_front_is_stepped_and_leaves_out_unranked_methods():
    made = priced(a=(10, 0.7, 0.2), b=(100, 0.9, 0.1), c=(100, 0.8, 0.15), d=(1000, 0.8, 0.12), e=(5000, 0.75, 0.3))
    figure = figures.cost_quality(tables(made.rows, lambda lines: ladder(lines, unranked="b")))
    for metric, on in (("auroc", [[10, 0.7], [100, 0.8]]), ("brier", [[10, 0.2], [100, 0.15], [1000, 0.12]])):
        *corners, (right, last) = drawn(figure, f"tokens/{metric}/front").tolist()
        assert corners == on
        assert (right > 5000, last) == (True, on[-1][1])
        assert artist(figure, f"tokens/{metric}/front").get_drawstyle() == "steps-post"
    fills = {method: artist(figure, f"tokens/auroc/{method}/mean").get_fillstyle() for method in "abc"}
    assert fills == {"a": "full", "b": "none", "c": "full"}
    assert "Not ranked, so hollow and not on the front: b (not tested)." in note(figure)
    dots = figures.metric_intervals(tables(made.rows, lambda lines: ladder(lines, unranked="b")))
    assert artist(dots, "atlas-oe/auroc/b/mean").get_fillstyle() == "none"
    assert "so hollow: b (not tested)." in note(dots)


# --- against the best -------------------------------------------------------------------------------------------------


def ladder(lines, unranked=None):
    """Standings in which each method is a point worse than the one before; a difference of one point is a tie."""
    keys = sorted(lines)
    ends = Interval("fixed-subjects", 0.4, 0.6, 0.95, "t")
    value = Estimate(0.5, ends, ends, (0.5,), None, 0)
    ranks = {key: 1 if i < 2 else i for i, key in enumerate(keys)}
    found = {
        key: LineStanding(
            0, dict.fromkeys(NAMES, value), 0.5,
            {} if key.method == unranked else dict.fromkeys(("brier", "auroc"), ranks[key]), constant=0.6,
        )
        for key in keys
    }  # fmt: skip
    pairs = []
    for metric, sign in (("brier", 1), ("auroc", -1)):
        for (i, one), (j, other) in combinations(enumerate(keys), 2):
            difference = sign * 0.01 * (i - j)
            around = Interval("fixed-subjects", difference - 0.005, difference + 0.005, 0.95, "t")
            p = 0.5 if j - i == 1 else 0.001
            pairs.append(Pair(metric, one, other, difference, around, around, p, p))
    return Standings(0.95, found, tuple(pairs), {})


@pytest.fixture(scope="module")
def ordered():
    """Four methods whose means go with `ladder`."""
    return priced(a=(10, 0.9, 0.1), b=(10, 0.89, 0.11), c=(10, 0.88, 0.12), d=(10, 0.87, 0.13))


def test_forest_shows_differences_to_the_best(ordered):
    figure = figures.differences_to_best(tables(ordered.rows, ladder))
    for metric, sign in (("brier", 1), ("auroc", -1)):
        for i, method in enumerate("bcd", start=1):
            ((difference, y),) = drawn(figure, f"{metric}/{method}/difference")
            assert (difference, y) == pytest.approx((sign * 0.01 * i, i))
            ((low, high),) = drawn(figure, f"{metric}/{method}/interval")
            assert (low[0], high[0]) == pytest.approx((sign * 0.01 * i - 0.005, sign * 0.01 * i + 0.005))
            is_white = artist(figure, f"{metric}/{method}/difference").get_markerfacecolor() == "white"
            assert is_white is (method == "b")
        assert drawn(figure, f"{metric}/a/best").tolist() == [[0, 0]]
    assert {"\u2248 +1.0 (0.5 to 1.5)", "+2.0 (1.5 to 2.5)"} <= set(words(figure))
    assert words(figure).count("best") == 2
    assert {"\u25b8 a", "\u25b8 b", "c", "d"} <= set(words(figure))
    check_readable(figure)


def test_matrix_shows_wins_ties_and_losses(ordered):
    figure = figures.win_matrix(tables(ordered.rows, ladder))
    cells = {state: drawn(figure, f"brier/{state}").tolist() for state in ("win", "tie", "loss")}
    for state, apart in (("win", lambda d: d > 1), ("tie", lambda d: abs(d) == 1), ("loss", lambda d: d < -1)):
        expected = [[j, i] for i in range(4) for j in range(4) if apart(j - i)]
        assert cells[state] == expected
    counts = [text for text in words(figure) if re.fullmatch(r"\d–\d–\d", text)]  # noqa: RUF001 - as it is drawn
    assert counts == [*["2–1–0", "1–2–0", "0–2–1", "0–1–2"] * 2]  # noqa: RUF001
    check_readable(figure)


def test_looks_of_figures(made, one, ordered):
    some = [[row for row in rows if row.method in {"ccps", "ptrue", "self-consistency"}] for rows in (one, made.rows)]
    tested = tables(ordered.rows, ladder)
    drawn_here = {name: draw(made, some[name == "overview"]) for name, draw in ONE_TASK.items()}
    two_tasks = [row for row in some[1] if row.model == MODELS[1]]
    drawn_here["reliability of two tasks"] = figures.reliability(tables(two_tasks), made.records_of)
    drawn_here |= {"forest": figures.differences_to_best(tested), "wins": figures.win_matrix(tested)}
    check_golden("looks-figures.txt", as_cases({name: look(figure) for name, figure in drawn_here.items()}))


def test_forest_and_matrix_need_tested_pairs(ordered):
    for draw in (figures.differences_to_best, figures.win_matrix):
        with pytest.raises(ValueError, match="expected a table with tested pairs, got none"):
            draw(tables(ordered.rows))


@pytest.mark.parametrize(("shown", "expected"), [("a", set()), ("c", {"forest"}), ("ab", {"forest", "wins"})])
def test_forest_and_matrix_of_chosen_methods(ordered, tmp_path, monkeypatch, shown, expected):
    """One method alone has no matrix; one that isn't the best has its difference to the best, which isn't shown."""
    stems = without_drawing(monkeypatch, "differences_to_best", "win_matrix")
    (table,) = tables(ordered.rows, ladder)
    some = table.with_lines([line.key for line in table.lines if line.method in shown])
    write_figures([some], ordered.records_of, tmp_path, ["svg"])
    assert {kind for kind in ("forest", "wins") if f"tiny--atlas-oe--{kind}" in stems} == expected
    if shown == "c":
        ((difference, _),) = drawn(stems["tiny--atlas-oe--forest"], "brier/c/difference")
        assert difference == pytest.approx(0.02)


@pytest.mark.parametrize(
    "draw", [figures.differences_to_best, figures.win_matrix, figures.metric_intervals, figures.cost_quality]
)
def test_figure_of_twenty_eight_methods_is_readable(draw):
    made = priced(**{f"some-plugin-{k:02}": (10 + k, 0.9 - 0.01 * k, 0.1 + 0.01 * k) for k in range(28)})
    figure = draw(tables(made.rows, ladder))
    assert figure.get_size_inches()[1] <= MAX_HEIGHT
    check_readable(figure)


def seeds(**size):
    made = Simulated()
    for seed in range(3):
        made.add("ccps", seed=seed, **size).add("ptrue", seed=seed, **size)
    return made


def test_seeds_are_averaged_and_each_is_shown():
    made = seeds()
    ccps = [row for row in made.rows if row.method == "ccps"]
    means = [row.metrics["auroc"].pooled for row in ccps]
    bars = figures.metric_intervals(tables(made.rows))
    assert drawn(bars, "atlas-oe/auroc/ccps/mean")[0, 0] == pytest.approx(np.mean(means))
    assert drawn(bars, "atlas-oe/auroc/ccps/seeds")[:, 0] == pytest.approx(means)
    curves = figures.risk_coverage(tables(made.rows), made.records_of)
    aurcs = [metrics.aurc(made.records_of(row).confidence, made.records_of(row).correct) for row in ccps]
    assert drawn(curves, "atlas-oe/ccps/risk")[:, 1].mean() == pytest.approx(np.mean(aurcs), rel=0.02)
    assert "atlas-oe/ccps/seeds" in labels(curves)
    assert {f"atlas-oe/ccps/seed {k}" for k in range(3)} <= set(
        labels(figures.reliability(tables(made.rows), made.records_of))
    )
    assert drawn(figures.cost_quality(tables(made.rows)), "seconds/auroc/ccps/seeds")[:, 1] == pytest.approx(means)


# --- what is missing is said ------------------------------------------------------------------------------------------


def failed():
    made = Simulated().add("ptrue").add("ccps").add("lts", seed=0).missing("lts", seed=1)
    return made.missing("it").missing("litcab", status="skipped")


def not_run():
    return Simulated().add("ptrue", task="a").add("ccps", task="a").add("ccps", task="b").missing("ccps", task="c")


def many_places():
    made = Simulated()
    for task in "abcd":
        made.add("ccps", task=task).missing("it", task=task)
        made.missing("litcab", task=task) if task != "a" else made.add("litcab", task=task)
    return made


def no_task():
    """A model without results on one of two tasks."""
    return Simulated().add(model="a", task="x").add(model="a", task="y").add(model="b", task="x")


def one_class(n=50):
    """Two subjects, in one of which every answer is right, or with n = 100 in both."""
    records = simulated("x", "ccps", 2, 50)
    correct = records.correct | (np.arange(100) < n)
    return Simulated().add("ccps", records=replace(records, correct=correct))


def costs_unknown():
    made = Simulated().add("ccps", forward_tokens_alone=None, timings={}).add("ptrue")
    made.rows = [replace(row, generated_tokens_alone=None) for row in made.rows]
    return made


def deviating():
    return Simulated().add("ccps", limit=400, deviations={"ccps.steps": 10}, preset="fixed")


def learned_elsewhere():
    config, source = {"train_on": "ct-oe", "think_budget": 320}, answers_after_traces("generate", 320)
    return Simulated().add("ccps", config=config, answers_source=source).add("ptrue", answers_source=source)


NOTES = [
    *((name, failed, "Left out: lts: failed with seed 1; it: failed; litcab: skipped (reasons: tables).")
      for name in ONE_TASK),
    *((name, not_run, "Left out: ptrue: not run on b, c; ccps: failed on c (reasons: tables).")
      for name in SEVERAL_TASKS),
    *((name, seeds, "3 seeds") for name in ONE_TASK),
    ("overview", many_places, "Left out: it: failed everywhere; litcab: failed in 3 of 4 cells (reasons: tables)."),
    ("overview", no_task, "Left out: all methods: not run on b and y (reasons: tables)."),
    ("reliability", order_alone, "Only an order, so no diagram: ptrue (scores without a scale)."),
    ("subjects", one_class, "AUROC of ccps is undefined in 1 of 2 subjects."),
    ("subjects", lambda: one_class(100).add("ptrue"), "AUROC is undefined for ccps."),
    ("cost", costs_unknown, ("Not known, and so not drawn: token positions read: ccps; tokens generated: all methods;"
     " seconds of its own stages: ccps.")),
    ("metrics", deviating, "preset fixed; partial: --limit 400; deviations ccps.steps=10."),
    ("metrics", learned_elsewhere, "learned on ct-oe; answers: generate after traces of at most 320 tokens."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "world", "said"), NOTES)
def test_figure_note_says_what_is_missing(name, world, said):
    made = world()
    figure = ONE_TASK[name](made, made.rows)
    assert said in note(figure)
    if world is not_run:
        check_readable(figure)


@pytest.mark.parametrize("name", ONE_TASK)
def test_failed_methods_have_no_number(name):
    made = failed()
    figure = ONE_TASK[name](made, made.rows)
    drawn_of_them = re.compile(r"/(it|litcab)/(rate|curve|risk|mean|right|dots)")
    assert not [label for label in labels(figure) if drawn_of_them.search(label)]
    if name in {"reliability", "confidence", "metrics"}:
        assert {"failed", "skipped"} <= set(words(figure))


def test_cells_that_were_not_run_say_so():
    made = no_task()
    assert "not run" in words(figures.reliability_overview(tables(made.rows), made.records_of))


def test_subjects_without_a_value_are_counted():
    """Where numbers are means over subjects; that of all questions leaves none out."""
    made = one_class()
    for average in ("subjects", "questions"):
        for draw in (figures.metric_intervals, figures.subject_differences, figures.cost_quality):
            figure = draw(tables(made.rows, average=average))
            said = "AUROC leaves out 1 subject, where it is undefined." in note(figure)
            assert said is (average == "subjects")
    figure = figures.metric_intervals(tables(made.rows))
    assert drawn(figure, "atlas-oe/auroc/ccps/mean")[0, 0] == pytest.approx(made.rows[0].metrics["auroc"].pooled)
    assert "atlas-oe/auroc/ccps/whisker" not in labels(figure)  # one subject has no spread
    figure = figures.subject_differences(tables(made.rows))
    assert drawn(figure, "subjects/ccps/dots").shape == (2, 2)  # all, and one of two subjects


def test_metric_without_any_value_says_so():
    alone, made = one_class(100), one_class(100).add("ptrue")
    assert words(figures.metric_intervals(tables(made.rows))).count("undefined") == 2  # AUCPR and AUROC
    assert "undefined" in words(figures.subject_differences(tables(alone.rows)))
    assert "tokens/auroc/ccps/mean" not in labels(figures.cost_quality(tables(made.rows)))


def test_settings_tell_series_of_one_method_apart():
    made = Simulated().add("ccps", deviations={"ccps.steps": 10}).add("ccps", seed=0)
    assert {"ccps", "ccps (ccps.steps=10)"} <= set(words(figures.metric_intervals(tables(made.rows))))


# --- every figure is fit for print ------------------------------------------------------------------------------------

ODD_NAMES = (
    "my_$x^2$_method", "想法", "a-plugin-with-a-really-long-name-that-goes-on", "ccps+isotonic", "mine<b>&amp;",
)  # fmt: skip


@cache
def small_and_odd():
    """Results at the edge of what there can be."""
    constant = simulated("x", "ccps", 3, 20)
    odd, model = Simulated(), "meta-llama/Llama-3.1-8B-Instruct-of-mine"
    for name in ODD_NAMES:
        odd.add(name, model, r"task_with_$\alpha$_and_a_name_of_its_own", subjects=70, size=3)
    return {
        "one method, one subject": Simulated().add(subjects=1, size=30),
        "one question": Simulated().add(subjects=1, size=1).add("ptrue", subjects=1, size=1),
        "sure of everything": Simulated().add(records=replace(constant, confidence=np.ones(60))),
        "sure of nothing": Simulated().add(records=replace(constant, confidence=np.zeros(60))),
        "always right": Simulated().add(records=replace(constant, correct=np.ones(60, dtype=bool))),
        "odd names, many subjects": odd,
    }


ODD = [
    pytest.param(case, name, id=f"{case}-{name}", marks=pytest.mark.slow if case in alike and name in alike else ())
    for alike in [{"sure of everything", "sure of nothing", "always right", "cost", "metrics"}]
    for case in small_and_odd()
    for name in ONE_TASK
]


@pytest.mark.parametrize(("case", "name"), ODD)
def test_odd_results_are_readable(name, case, recwarn):
    made = small_and_odd()[case]
    check_readable(ONE_TASK[name](made, made.rows))
    assert not recwarn.list


def test_difference_axis_has_three_ticks_or_more():
    """Differences of up to 18 points are read off at 0, 5, 10 and 15."""
    figure = differences_of_variants(variants(0.01))
    check_readable(figure)
    assert {"0", "5", "10", "15"} <= set(words(figure))


@pytest.fixture(scope="module")
def largest():
    """Four models, five tasks, eleven methods; 57 subjects on one task of the first model, which is drawn alone."""
    made = comparison(subjects=2, size=15)
    made.rows = [row for row in made.rows if (row.model, row.task) != (MODELS[0], MANY)]
    for method in METHODS:
        made.add(method, MODELS[0], MANY, subjects=57, size=3)
    return made


LARGEST = [
    *((name, 1) for name in ONE_TASK),
    *(pytest.param(name, 5, marks=() if name in {"risk", "metrics"} else pytest.mark.slow) for name in SEVERAL_TASKS),
]


@pytest.mark.parametrize(("name", "n_tasks"), LARGEST)
def test_largest_comparison_fits_on_a_page(largest, name, n_tasks):
    rows = largest.rows if name == "overview" else [row for row in largest.rows if row.model == MODELS[0]]
    if n_tasks == 1:
        rows = [row for row in rows if row.task == MANY]
    figure = ONE_TASK[name](largest, rows)
    check_readable(figure)
    assert set(METHODS) <= set(words(figure))
    width, height = figure.get_size_inches()
    assert width <= TEXT_WIDTH
    assert height <= MAX_HEIGHT + 0.5


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


def without_drawing(monkeypatch, *kinds):
    """Makes `write_figures` give figures by name and touch files; with `kinds`, all others are blank."""
    shown = {}
    for name in set(figures.__all__) - {"save", *(kinds or figures.__all__)}:
        monkeypatch.setattr(figures, name, lambda _tables, **_settings: Figure())

    def touch(figure, path):
        path.touch()
        shown[path.stem] = figure
        return path

    monkeypatch.setattr(figures.write, "save", touch)
    return shown


def test_figures_are_written_in_every_format(tmp_path, monkeypatch):
    """Of what has numbers; records are asked for once, and intervals once a table."""
    made, said, asked = small().missing("ccps", "other", "atlas-oe").missing("ccps", "tiny", "third"), [], []
    without_drawing(monkeypatch)

    def standings_of(lines):
        asked.append(tuple({row.task for rows in lines.values() for row in rows}))
        return standings(lines)

    def records_of(row):
        asked.append((row.task, row.method))
        return made.records_of(row)

    out = tmp_path / "new" / "folder"
    paths = write_figures(tables(made.rows, standings_of), records_of, out, say=said.append)
    assert {path.name for path in paths} == {f"{stem}.{kind}" for stem in EXPECTED for kind in ("svg", "png", "pdf")}
    assert sorted(out.iterdir()) == sorted(paths)
    assert set(said) == EXPECTED
    tasks = ("atlas-choice", "atlas-oe")
    assert sorted(asked) == sorted(
        [
            *((task,) for task in (*tasks, "atlas-oe", "third")),
            *((task, method) for task in tasks for method in ("ptrue", "ccps")),
        ]
    )


def test_tuned_results_corpora_and_traces_have_own_figures(tmp_path, monkeypatch):
    made = Simulated().add(size=10, subjects=2, train_on="atlas-oe/train")
    tuned = Simulated().add(size=10, subjects=2, config={"tune": 4}, tuning=Tuning(4, reason="it learns nothing"))
    elsewhere = Simulated().add(size=10, subjects=2, config={"train_on": "ct-oe"})
    traced = Simulated().add(
        size=10, subjects=2, config={"think_budget": 320}, answers_source=answers_after_traces("generate", 320)
    )
    stems, rows = (
        without_drawing(monkeypatch, "reliability"),
        [row for of in (made, tuned, elsewhere, traced) for row in of.rows],
    )
    write_figures(tables(rows), made.records_of, tmp_path, ["svg"])
    endings = ("", "--tuned4", "--on-ct-oe", "--traces320")
    assert {f"tiny--atlas-oe--reliability{end}" for end in endings} <= set(stems)


def files_of(figure, folder):
    folder.mkdir()
    return {kind: figures.save(figure, folder / f"figure.{kind}").read_bytes() for kind in ("svg", "png", "pdf")}


@pytest.fixture(scope="module")
def files(made, one, tmp_path_factory):
    return files_of(figures.reliability(tables(one[:3]), made.records_of), tmp_path_factory.mktemp("files") / "a")


def test_figure_formats_are_what_a_publisher_asks_for(files):
    assert files["png"].startswith(b"\x89PNG")
    assert np.frombuffer(files["png"][16:20], dtype=">u4")[0] == 1620  # 5.4 inches at 300 dots per inch
    assert files["pdf"].startswith(b"%PDF")
    assert b"/FontFile2" in files["pdf"]  # TrueType
    assert b"/Type3" not in files["pdf"]
    assert ElementTree.fromstring(files["svg"]).get("width") == "388.8pt"  # noqa: S314 - written here


def test_svg_text_is_text(tmp_path):
    made = Simulated().add("mine<b>&amp;", task="task_$x^2$", size=10)
    path = figures.save(figures.metric_intervals(tables(made.rows)), tmp_path / "figure.svg")
    names = "{http://www.w3.org/2000/svg}text"
    texts = [element.text for element in ElementTree.parse(path).iter(names)]  # noqa: S314 - written here
    assert "tiny on task_$x^2$: metrics of all methods" in texts
    assert "mine<b>&amp;" in texts
    assert "AUROC ↑ (%)" in texts


@contextmanager
def settings_of_mine(monkeypatch):
    """Another day, and a user's own settings of matplotlib, which stay as they are."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    mine = {"font.size": 30, "svg.fonttype": "path", "svg.hashsalt": None, "savefig.dpi": 50, "lines.linewidth": 9}
    mine |= {"lines.scale_dashes": False, "path.sketch": (1, 100, 2), "savefig.bbox": "tight"}
    with matplotlib.rc_context(mine):
        kept = dict(matplotlib.rcParams)
        yield
        assert dict(matplotlib.rcParams) == kept


def test_figure_of_the_same_results_is_the_same_bytes_in_every_format(files, made, one, tmp_path, monkeypatch):
    """Whatever the order of the rows, the folder, the user's own settings of matplotlib, and the day."""
    with settings_of_mine(monkeypatch):
        assert files_of(figures.reliability(tables(one[2::-1]), made.records_of), tmp_path / "b") == files


@pytest.mark.slow
def test_figures_of_the_same_results_are_the_same_bytes(tmp_path, monkeypatch):
    made = Simulated().add(size=10, subjects=2).add("ptrue", size=10, subjects=2)
    paths = write_figures(tables(made.rows), made.records_of, tmp_path / "a", ["svg"])
    before = {path.name: path.read_bytes() for path in paths}
    with settings_of_mine(monkeypatch):
        after = write_figures(tables(made.rows[::-1]), made.records_of, tmp_path / "b", ["svg"])
    assert {path.name: path.read_bytes() for path in after} == before


def test_figure_that_can_not_be_finished_is_not_there(tmp_path, monkeypatch):
    made = Simulated().add(size=10)
    (tmp_path / "reliability-overview.svg").write_text("older")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match=r"reliability-overview' can't be written \(No space left on device\)"):
        write_figures(tables(made.rows), made.records_of, tmp_path, ["svg"])
    assert [path.name for path in tmp_path.iterdir()] == ["reliability-overview.svg"]
    assert (tmp_path / "reliability-overview.svg").read_text() == "older"
    with pytest.raises(UserError, match="can't be written"):
        write_figures(tables(made.rows), made.records_of, tmp_path / "reliability-overview.svg", ["svg"])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (Simulated(), "there are no results"),
        (Simulated().missing("ccps").missing("lts"), "none of the 2 results is ok"),
        (Simulated().add(size=5).add("lts", preset="fixed", size=5),
         "results of tiny on atlas-oe have presets demo, fixed"),
        (Simulated().add(size=5).add("lts", limit=4, size=5), "different --limit, --train-on, .* or protocol"),
    ],
)  # fmt: skip
def test_figures_that_can_not_be_drawn_are_refused_first(tmp_path, made, message):
    with pytest.raises(UserError, match=message):
        write_figures(tables(made.rows), None, tmp_path / "out", ["svg"])
    assert not (tmp_path / "out").exists()


def test_figure_of_one_model_refuses_several(made):
    with pytest.raises(ValueError, match="expected the tables of one model, got those of Qwen"):
        figures.reliability(tables(made.rows), made.records_of)
    with pytest.raises(ValueError, match="expected the tables of one task"):
        figures.subject_differences(tables([row for row in made.rows if row.model == "llama8b"]))


def test_figures_that_do_not_fit_are_several(tmp_path, monkeypatch):
    """Recalibrated methods, too, have figures of their own; intervals stay those of the whole table."""
    made = Simulated()
    for k in range(31):
        made.add(f"plugin-{k:02}", size=10, subjects=2)
    made.add("ccps+isotonic", size=10, subjects=2)
    shown = without_drawing(monkeypatch, "metric_intervals")
    write_figures(tables(made.rows, standings), made.records_of, tmp_path, ["svg"])
    assert {stem for stem in shown if "metrics" in stem} == {
        "tiny--metrics--1", "tiny--metrics--2", "tiny--metrics--isotonic",
    }  # fmt: skip
    first, second = (words(shown[f"tiny--metrics--{k}"]) for k in (1, 2))
    found = [
        name
        for name in (word.removeprefix("\u25b8 ") for word in [*first, *second])
        if re.fullmatch(r"plugin-\d\d", name)
    ]
    assert found == [line.method for line in tables(made.rows, standings)[0].lines if "+" not in line.method]
    assert "Figure 1 of 2." in note(shown["tiny--metrics--1"])
    last = found[-1]  # the worst of all are on the second one
    ((start, _),) = drawn(shown["tiny--metrics--2"], f"atlas-oe/auroc/{last}/whisker")
    assert start[0] == pytest.approx(0.1 + 0.01 * int(last[-2:]))
    assert "ccps+isotonic" in words(shown["tiny--metrics--isotonic"])
    assert "ccps+isotonic" not in [*first, *second]


def test_figure_files_have_safe_names_once(tmp_path, monkeypatch):
    """`a/b` on all tasks and `a` on task `b` would have the same names; a task may be called anything."""
    without_drawing(monkeypatch, "cost_quality")
    made = Simulated()
    for model, task in (("a", "b"), ("a", "../up"), ("a/b", "c"), ("a/b", "d")):
        made.add(model=model, task=task, size=10, subjects=2)
    paths = write_figures(tables(made.rows), made.records_of, tmp_path, ["svg"])
    assert len({path.name.casefold() for path in paths}) == len(paths) == 1 + 2 * 4 + 4 * 5
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\.svg", path.name) for path in paths)
    assert all(path.parent == tmp_path for path in paths)
    assert not (tmp_path.parent / "up").exists()
