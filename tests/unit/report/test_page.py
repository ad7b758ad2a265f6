"""What the page shows, against definitions written out here: numbers, marks, footnotes, questions, and its size."""

from __future__ import annotations

import json
import math
import random
import statistics
import string
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.api import UserError
from bench.api.protocol import Protocol
from bench.metrics import METRICS, summarise
from bench.metrics.summary import MetricSummary
from bench.report import page
from bench.report.competition import displayed_value
from bench.report.grouping import Key
from bench.report.page import questions
from bench.report.page.lines import _NOT_RUN
from bench.report.page.render import html
from bench.report.standings.compute import LineStanding, Standings
from bench.report.style import built_in
from bench.report.tables.build import _OTHER_LABELS, build
from bench.report.text import value_text
from bench.results.question_records import QuestionRecords
from bench.results.question_texts import QuestionText
from bench.results.row import LabelsSeen, ResultRow
from bench.stats import Estimate, Interval
from tests.fixtures import large_page as large

SUBJECTS = ("bells", "moss", "stars")
NAMES = list(METRICS)


def records_like(n=90, *, seed=0, answers_seed=0, subjects=SUBJECTS):
    """Confidences that say something, of answers that are the same for all methods."""
    told = np.random.default_rng(answers_seed)
    correct = told.random(n) < 0.6
    noise = np.random.default_rng(1000 + seed).normal(0, 0.2, n)
    return QuestionRecords(
        id=[f"rivers/test/{i}" for i in range(n)],
        subject=[subjects[i % len(subjects)] for i in range(n)],
        correct=correct,
        confidence=np.clip(0.45 + 0.25 * correct + noise, 0, 1),
        answer=["ab"[i % 2] for i in range(n)],
        parsed=np.ones(n, dtype=np.bool_),
    )


def row_of(records, method="ccps", **changes):
    scores = summarise(records.confidence, records.correct, records.subject, Protocol())
    row = ResultRow(
        method=method, model="tiny", task="rivers", preset="demo", seed=0, protocol="0123456789abcdef", task_version=1,
        train_on="rivers/train", labels_seen=LabelsSeen(train=320), status="ok", n=len(records.id), n_unparsed=2,
        n_empty=1, n_shots_dropped=0, llm_accuracy=float(np.mean(records.correct)), metrics=scores.metrics,
        per_subject=scores.per_subject, n_parameters=9542, timings={"fit": 2.25, "predict": 0.5},
        forward_tokens_alone=1500,
    )  # fmt: skip
    return replace(row, **changes)


class World:
    """Rows and what belongs to them."""

    def __init__(self):
        self.rows, self.records, self.texts = [], {}, {}

    def add(self, records=None, method="ccps", **changes):
        if records is None:
            unknown = {"metrics": {}, "per_subject": {}, "n": None, "llm_accuracy": None, "cost": {}, "timings": {}}
            row = row_of(records_like(), method, **{**unknown, **changes})
        else:
            row = row_of(records, method, **changes)
            self.records[
                json.dumps([row.method, row.model, row.task, row.seed, row.config, row.limit, row.protocol])
            ] = records
        self.rows.append(row)
        return row

    def records_of(self, row):
        return self.records[
            json.dumps([row.method, row.model, row.task, row.seed, row.config, row.limit, row.protocol])
        ]

    def page(self, **options):
        tables = build(self.rows, deviations=True, partial=True, **options)
        return page.payload(tables, self.records_of, lambda task, version: self.texts)


def comparison():
    """Two methods, one of them with two seeds."""
    world = World()
    world.add(records_like(seed=1))
    world.add(records_like(seed=2), seed=1)
    world.add(records_like(seed=3), "ptrue", train_on=None, labels_seen=LabelsSeen(), n_parameters=0)
    return world


def line_named(built, name, block=0):
    return next(line for line in built["blocks"][block]["lines"] if built["methods"][line["method"]]["name"] == name)


def named(built, block=0):
    return [built["methods"][line["method"]]["name"] for line in built["blocks"][block]["lines"]]


# --- numbers ----------------------------------------------------------------------------------------------------------


def mean_over_seeds(name, values):
    """Their mean; of calibration errors the root of the mean square, where less than 0 counts as 0."""
    if name != "rmsce":
        return statistics.fmean(values)
    return math.sqrt(max(0, statistics.fmean(math.copysign(value**2, value) for value in values)))


def test_means_and_spreads_are_those_over_seeds():
    world = comparison()
    built = world.page()
    line = line_named(built, "ccps")
    for i, name in enumerate(NAMES):
        summaries = [row.metrics[name] for row in world.rows[:2]]
        mean = mean_over_seeds(name, [s.pooled for s in summaries])
        assert line["mean"][i] == pytest.approx(mean, abs=1e-6)
        form, scale = ("{:.1f}", 100) if METRICS[name].is_fraction else ("{:.3f}", 1)
        assert line["text"][i] == form.format(scale * mean).replace("-", "\u2212")
        assert line["std"][i] == form.format(scale * statistics.fmean(s.std for s in summaries))
        assert line["between"][i] == form.format(
            scale * statistics.stdev(displayed_value(name, s.pooled) for s in summaries)
        )
    assert (line["seeds"], line["runs"]) == ([0, 1], 2)
    assert line_named(built, "ptrue")["between"] == [None] * len(NAMES)


def test_numbers_of_subjects_are_means_over_seeds():
    world = comparison()
    built = world.page()
    block = built["blocks"][0]
    assert (block["subjects"], block["sizes"]) == (list(SUBJECTS), [30, 30, 30])
    line = line_named(built, "ccps")
    for i, name in enumerate(NAMES):
        for k, subject in enumerate(SUBJECTS):
            mean = mean_over_seeds(name, [row.per_subject[subject][name] for row in world.rows[:2]])
            assert line["subjects"][i][k] == value_text(METRICS[name], mean)


def test_effort_is_averaged_over_seeds():
    world = comparison()
    world.rows[1] = replace(world.rows[1], timings={"fit": 4.75}, forward_tokens_alone=1600)
    built = world.page()
    line, free = line_named(built, "ccps"), line_named(built, "ptrue")
    assert (line["labels"], line["trained_on"], line["parameters"]) == ([320, 0, 0], "rivers/train", 9542)
    assert (line["tokens"], line["seconds"]) == (1550, 3.75)
    assert (free["labels"], free["trained_on"], free["parameters"]) == ([0, 0, 0], None, 0)


# --- marks and footnotes ----------------------------------------------------------------------------------------------


def test_best_is_what_no_other_beats_at_the_precision_shown():
    world = World()
    for method, auroc, brier in (("a", 0.80041, 0.2), ("b", 0.79962, 0.3), ("c", 0.7, 0.1)):
        row = world.add(records_like(seed=ord(method)), method)
        changed = {"auroc": MetricSummary(auroc, 0.1, auroc, 0), "brier": MetricSummary(brier, 0.1, brier, 0)}
        world.rows[-1] = replace(row, metrics={**row.metrics, **changed})
    built = world.page()
    best = {name: [line_named(built, m)["best"][NAMES.index(name)] for m in "abc"] for name in NAMES}
    assert best["auroc"] == ["not tested", "not tested", None]  # both are 80.0
    assert best["brier"] == [None, None, "not tested"]
    assert best["ece_floor"] == [None] * 3  # a yardstick is neither good nor bad
    assert best["smece"] == best["ece_ref"] == [None] * 3  # raw calibration errors are not compared
    assert best["ece"] == best["ece_debiased"] == [None] * 3
    assert any(best["rmsce"])


def test_alone_nobody_is_best():
    world = World()
    world.add(records_like())
    world.add(None, "ptrue", status="failed", reason="out of memory")
    assert not any(line_named(world.page(), "ccps")["best"])


def test_what_is_not_ok_has_no_numbers_and_a_footnote():
    world = comparison()
    world.add(None, "lts", status="skipped", reason="no <validation> split")
    world.add(None, "ptrue", seed=1, status="failed", reason="loss is NaN")
    built = world.page()
    lts, ptrue = line_named(built, "lts"), line_named(built, "ptrue")
    assert "mean" not in lts
    assert [built["footnotes"][k - 1] for k in lts["reasons"]] == ["skipped: no <validation> split"]
    assert (ptrue["status"], ptrue["seeds"], ptrue["runs"]) == ("ok", [0], 2)
    assert [built["footnotes"][k - 1] for k in ptrue["reasons"]] == ["failed (seed 1): loss is NaN"]


def test_a_method_that_ran_on_one_model_only_is_missing_on_the_other():
    world = comparison()
    world.add(records_like(seed=7), "ptrue", model="other")
    built = world.page()
    missing = line_named(built, "ccps", block=0)
    assert built["blocks"][0]["model"] == "other"
    assert missing["status"] == "missing"
    assert [built["footnotes"][k - 1] for k in missing["reasons"]] == [_NOT_RUN]


def test_subjects_of_one_class_are_left_out_and_counted():
    records = records_like()
    records = replace(
        records, correct=np.array([s == "moss" or c for s, c in zip(records.subject, records.correct, strict=True)])
    )
    world = World()
    world.add(records)
    built = world.page(average="subjects")
    i = NAMES.index("auroc")
    line = line_named(built, "ccps")
    (number,) = line["remarks"][i]
    assert built["footnotes"][number - 1] == "AUROC leaves out 1 of 3 subjects, where it is undefined"
    assert line["subjects"][i][SUBJECTS.index("moss")] is None
    assert line["text"][i] is not None
    assert line_named(world.page(), "ccps")["remarks"][i] == []  # that of all questions leaves none out


def test_a_metric_undefined_everywhere_is_a_dash_with_its_footnote():
    world = World()
    row = world.add(records_like())
    metrics = {**row.metrics, "auroc": MetricSummary(None, None, None, 3)}
    world.rows[0] = replace(row, metrics={name: metrics[name] for name in NAMES if name != "nll"})
    for average, where in (("questions", ""), ("subjects", " in every subject")):
        built = world.page(average=average)
        line = line_named(built, "ccps")
        said = {name: built["footnotes"][line["remarks"][NAMES.index(name)][0] - 1] for name in ("auroc", "nll")}
        assert said == {"auroc": f"AUROC is undefined{where}", "nll": "NLL was not computed"}
        assert line["text"][NAMES.index("auroc")] is None


def standing_of(low, high, name="auroc", p=0.0312):
    """Of one line, with an interval for one metric and none for another."""
    there, none = Interval("fixed-subjects", low, high, 0.95, "t"), Interval("fixed-subjects", reason="one subject")
    found = {name: Estimate(0.75, there, none, (0.75,), None, 0), "ece": Estimate(0.1, none, none, (0.1,), None, 0)}
    return LineStanding(0, found, p, {"brier": 1}, 0.01)


def test_standings_are_put_beside_the_means():
    world = comparison()
    ccps, ptrue = Key("ccps", ""), Key("ptrue", "")
    told = Standings(0.95, {ccps: standing_of(0.0212, 0.799, "rmsce")}, (), {ptrue: "why"})
    asked_for = []
    built = world.page(standings_of=lambda lines: asked_for.append(list(lines)) or told)
    assert asked_for == [[ptrue, ccps]]
    line, i = line_named(built, "ccps"), NAMES.index("rmsce")
    assert line["ci"][i] == ["2.1", "79.9"]
    mean = line["mean"][i]
    assert line["half"][i] == f"{100 * max(0.799 - mean, mean - 0.0212):.1f}"
    assert line["ci"][NAMES.index("ece")] is line["half"][NAMES.index("ece")] is None
    assert (line["rank"], line["calibrated_p"], line["calibrated"]) == ({"brier": 1}, "0.031", False)
    assert (line["constant"], line["worse"]) == ("1.0", False)
    other = line_named(built, "ptrue")
    assert "ci" not in other
    assert [built["footnotes"][k - 1] for k in other["notes"]] == ["why"]
    assert "ci" not in line_named(world.page(), "ccps")


def test_lines_on_other_labels_say_so():
    world = comparison()
    keys = [Key("ccps", ""), Key("ptrue", "")]
    found = [replace(standing_of(0.1, 0.2), labels=k) for k in (0, 1)]
    built = world.page(standings_of=lambda _: Standings(0.95, dict(zip(keys, found, strict=True)), (), {}))
    notes = {name: [built["footnotes"][k - 1] for k in line_named(built, name)["notes"]] for name in ("ccps", "ptrue")}
    assert notes == {"ccps": [], "ptrue": [f"{_OTHER_LABELS}: compared with none"]}


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_only_what_may_be_compared_stands_in_one_block():
    world = comparison()
    world.add(records_like(seed=4), "ccps+isotonic")
    world.add(records_like(30, seed=5), "ccps", limit=30)
    world.add(records_like(seed=6), "ccps", protocol="f" * 16, deviations={"protocol.shots": 2})
    built = world.page()
    found = {
        block["label"]: {name: line_named(built, name, b)["status"] for name in named(built, b)}
        for b, block in enumerate(built["blocks"])
    }
    assert found == {
        "protocol 01234567": {"ptrue": "ok", "ccps": "ok", "ccps+isotonic": "ok"},
        "protocol ffffffff": {"ptrue": "missing", "ccps": "ok"},
        "partial, --limit 30": {"ptrue": "missing", "ccps": "ok"},
    }
    assert named(built, 1)[2] == "ccps+isotonic"


def test_settings_that_differ_make_lines_of_their_own_with_a_note():
    world = comparison()
    world.add(records_like(seed=8), "ccps", config={"ccps.steps": 10}, deviations={"ccps.steps": 10})
    built = world.page()
    lines = [line for line in built["blocks"][0]["lines"] if built["methods"][line["method"]]["name"] == "ccps"]
    notes = {line["variant"]: [built["footnotes"][k - 1] for k in line["notes"]] for line in lines}
    assert notes == {"": [], "ccps.steps=10": ["with ccps.steps=10"]}


def test_settings_that_all_share_are_said_once():
    world = World()
    for method in ("ccps", "ptrue"):
        world.add(records_like(seed=len(method)), method, config={"token_budget": 64})
    block = world.page()["blocks"][0]
    assert "Settings: token_budget 64." in block["facts"]
    assert [line["variant"] for line in block["lines"]] == ["", ""]


def test_the_order_of_files_changes_nothing():
    world = comparison()
    world.add(records_like(seed=7), "ptrue", model="other")
    world.add(None, "lts", status="skipped", reason="why")
    first = world.page()
    random.Random(4).shuffle(world.rows)
    assert world.page() == first


def test_methods_have_their_colour_and_metrics_their_direction():
    built = comparison().page()
    assert built["methods"] == [
        {"name": name, "colour": built_in().of(name).colour, "group": "paper", "part": 0} for name in ("ptrue", "ccps")
    ]
    better = {metric["name"]: metric["better"] for metric in built["metrics"]}
    assert (better["ece"], better["auroc"], better["ece_floor"]) == (-1, 1, 0)
    paper = built["sets"][0]
    assert [NAMES[i] for i in paper["metrics"]] == ["ece", "rmsce", "brier", "acc", "aucpr", "auroc"]
    assert all(metric["about"] for metric in built["metrics"])


def test_groups_stand_below_one_another_also_where_a_method_was_not_run():
    everywhere = ["combined", "ptrue", "sequence-probability", "ccps", "ccps+platt", "combined+platt"]
    world = World()
    for name in everywhere:
        world.add(records_like(), name, task="lakes")
    world.add(records_like(), "combined")
    built = world.page()
    order = ["ptrue", "ccps", "sequence-probability", "combined"]
    names, parts, groups = (
        [[built["methods"][line["method"]][key] for line in block["lines"]] for block in built["blocks"]]
        for key in ("name", "part", "group")
    )
    assert sorted(names) == sorted([order, [*order, "ccps+platt", "combined+platt"]])
    assert [0, 0, 1, 2, 3, 4] in parts
    assert ["paper", "paper", "untrained", "trained"] in groups
    assert built["words"]["groups"].startswith("The paper's methods stand first")
    assert "rows of a group" in built["words"]["ranks"]
    assert comparison().page()["words"]["groups"] is None


def test_provenance_is_said_once_with_its_number_of_results():
    world = comparison()
    for i, dirty in enumerate((True, False, False)):
        told = {"code": {"git_sha": "a" * 40, "dirty": dirty, "reason": None}, "packages": {"numpy": "2.4"}}
        world.rows[i] = replace(world.rows[i], provenance=told)
    built = world.page()
    facts = dict(built["provenance"])
    assert facts["code: git_sha"] == [["a" * 40, 3]]
    assert facts["code: dirty"] == [["false", 2], ["true", 1]]
    assert "code: reason" not in facts
    assert built["count"] == {"results": 3, "ok": 3, "dirty": 1}
    world.rows[0] = replace(world.rows[0], provenance={"code": None, "revisions": []})
    assert world.page()["count"]["dirty"] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda world: world.rows.clear(), "no results"),
        (lambda world: world.add(records_like(), "pik", preset="fixed"), "presets demo, fixed"),
        (lambda world: world.rows.append(replace(world.rows[0], task_version=1)), "two results of ccps have one seed"),
    ],
)
def test_what_can_not_be_one_page_is_refused(change, said):
    world = comparison()
    change(world)
    with pytest.raises(UserError, match=said):
        world.page()


def test_lines_are_in_the_order_of_mean_brier_and_missing_ones_come_last():
    world = World()
    for seed, method in enumerate(("ptrue", "lts", "pik", "ccps")):
        world.add(records_like(seed=seed), method)
    world.add(None, "saplma-f", status="failed", reason="x")
    world.add(records_like(seed=9), "ct", model="other")
    built = world.page()
    place = NAMES.index("brier")
    lines = built["blocks"][1]["lines"]
    means = [line["mean"][place] for line in lines if line["status"] == "ok"]
    assert means == sorted(means)
    assert [line["status"] for line in lines] == ["ok"] * 4 + ["failed", "missing"]


# --- questions --------------------------------------------------------------------------------------------------------


def test_questions_are_the_worst_mistakes_the_worst_hits_and_some_at_random():
    world = World()
    all_records = [records_like(400, seed=k) for k in range(3)]
    for records, method in zip(all_records, ("a", "b", "c"), strict=True):
        world.add(records, method)
    found = world.page()["blocks"][0]["questions"]
    mean = {
        key: statistics.fmean(float(records.confidence[i]) for records in all_records)
        for i, key in enumerate(all_records[0].id)
    }
    wrong = [key for key, hit in zip(all_records[0].id, all_records[0].correct, strict=True) if not hit]
    right = [key for key in mean if key not in set(wrong)]
    shown = {name: [found["id"][i] for i in rows] for name, rows in found["groups"].items()}
    assert shown["mistakes"] == sorted(wrong, key=lambda key: -mean[key])[:50]
    assert shown["hits"] == sorted(right, key=mean.__getitem__)[:50]
    assert len(set(shown["random"])) == 50
    assert found["of"] == {"all": 400, "mistakes": len(wrong), "hits": len(right)}
    for column, records in zip(found["confidence"], all_records, strict=True):
        by_id = dict(zip(records.id, records.confidence.tolist(), strict=True))
        assert column == [round(10_000 * by_id[key]) for key in found["id"]]


def test_random_questions_are_the_same_for_all_models():
    world = World()
    world.add(records_like(300, seed=1, answers_seed=1), model="one")
    world.add(records_like(300, seed=2, answers_seed=2), model="two")
    drawn = []
    for block in world.page()["blocks"]:
        found = block["questions"]
        drawn.append([found["id"][i] for i in found["groups"]["random"]])
    assert drawn[0] == drawn[1]
    assert drawn[0] != [f"rivers/test/{i}" for i in range(50)]


def test_methods_are_matched_by_question_not_by_row():
    world = World()
    first, other = records_like(60, seed=1), records_like(60, seed=2)
    world.add(first, "a")
    back = slice(None, 0, -1)  # in reverse, and without the first question
    turned = {name: list(getattr(other, name))[back] for name in ("id", "subject", "answer")}
    arrays = {name: getattr(other, name)[back] for name in ("correct", "confidence", "parsed")}
    world.add(QuestionRecords(**turned, **arrays), "b")
    found = world.page()["blocks"][0]["questions"]
    by_id = dict(zip(other.id[1:], other.confidence[1:].tolist(), strict=True))
    assert found["confidence"][1] == [None if key not in by_id else round(10_000 * by_id[key]) for key in found["id"]]
    assert found["differing"] == 0


def test_different_answers_are_counted():
    world = World()
    first = records_like(60, seed=1)
    world.add(first, "a")
    world.add(replace(first, answer=["c", "c", *first.answer[2:]]), "b")
    assert world.page()["blocks"][0]["questions"]["differing"] == 2


def test_few_questions_and_one_sided_answers_are_shown_whole():
    world = World()
    records = records_like(7)
    world.add(replace(records, correct=np.ones(7, dtype=np.bool_)))
    found = world.page()["blocks"][0]["questions"]
    assert found["groups"]["mistakes"] == []
    assert sorted(found["groups"]["hits"]) == found["groups"]["random"] == list(range(7))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 2**63 - 1),
    st.integers(1, 20),
)
def test_picked_rows_are_extreme_and_of_their_kind(answers, seed, each):
    confidence = np.array([p for p, _ in answers])
    correct = np.array([hit for _, hit in answers])
    groups = questions.pick(confidence, correct, seed, each)
    for name, side, sign in (("mistakes", ~correct, -1), ("hits", correct, 1)):
        chosen, all_rows = groups[name].tolist(), np.flatnonzero(side).tolist()
        assert len(chosen) == min(each, len(all_rows))
        keys = [(sign * confidence[i], i) for i in all_rows]
        assert [(sign * confidence[i], i) for i in chosen] == sorted(keys)[:each]
    drawn = groups["random"].tolist()
    assert drawn == sorted(set(drawn))
    assert len(drawn) == min(each, len(answers))


def test_texts_stand_once_with_their_options_apart():
    world = World()
    options = "Choices:\n  (a): x\n  (b): y"
    world.texts = {
        f"rivers/test/{i}": QuestionText(f"rivers/test/{i}", "bells", f"Q: {i}?\n\n{options}", ("x", "y"), "b")
        for i in range(90)
    }
    world.add(records_like(seed=1), model="one")
    world.add(records_like(seed=1), model="two")
    built = world.page()
    found = built["blocks"][0]["questions"]
    assert len(built["asked"]) == len(found["id"]) <= 90
    assert built["blocks"][1]["questions"]["asked"] == found["asked"]
    number = int(found["id"][0].rpartition("/")[2])
    assert built["asked"][found["asked"][0]] == [f"Q: {number}?", ["x", "y"], "b"]
    assert found["letter"][0] == number % 2
    assert not built["blocks"][0]["textless"]


def test_an_unusual_layout_stays_as_it_was_shown():
    world = World()
    shown = "x / y: which?"
    world.texts = {f"rivers/test/{i}": QuestionText(f"rivers/test/{i}", "", shown, ("x", "y"), "a") for i in range(90)}
    world.add(records_like())
    assert world.page()["asked"][0] == [shown, [], "a"]


def test_without_texts_the_page_says_so():
    built = comparison().page()
    block = built["blocks"][0]
    assert block["textless"]
    assert set(block["questions"]["asked"]) == {-1}
    assert built["asked"] == []


def test_long_texts_are_cut_to_what_fits_and_short_ones_are_not(monkeypatch):
    monkeypatch.setattr(questions, "_BUDGET", 100_000)
    world = World()
    long = "".join(random.Random(1).choices(string.ascii_lowercase, k=9_000))
    world.texts = {f"rivers/test/{i}": QuestionText(f"rivers/test/{i}", "", long, (), "gold") for i in range(90)}
    records = records_like()
    world.add(replace(records, answer=[long if i == 3 else "a" for i in range(90)]))
    built = world.page()
    limit = built["asked_limit"]
    assert limit == 1_000
    text, _, gold = built["asked"][0]
    assert text == f"{long[:500]} [8,000 characters left out] {long[-500:]}"
    assert gold == "gold"
    assert max(map(len, built["blocks"][0]["questions"]["answer"])) == len(text)
    assert len(html(built).encode()) < 400_000


def test_ten_thousand_characters_alone_are_not_cut():
    world = World()
    world.texts = {"rivers/test/3": QuestionText("rivers/test/3", "", "x" * 10_000, (), "y")}
    world.add(records_like())
    built = world.page()
    assert built["asked_limit"] is None
    assert built["asked"] == [["x" * 10_000, [], "y"]]


@settings(max_examples=50)
@given(st.text(max_size=60), st.integers(2, 40))
def test_cutting_keeps_both_ends(text, limit):
    shown = questions.trim(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        assert shown.startswith(text[: limit // 2])
        assert shown.endswith(text[-(limit // 2) :])


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_eleven_methods_on_four_models_and_five_benchmarks_stay_below_five_megabytes():
    built = large.payload()
    assert len(built["blocks"]) == 20
    assert all(
        len(block["questions"]["groups"][name]) == questions.FEW
        for block in built["blocks"]
        for name in ("mistakes", "hits", "random")
    )
    assert built["asked_limit"] is None
    assert len(html(built).encode()) < 5_000_000
