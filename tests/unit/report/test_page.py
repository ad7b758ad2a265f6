"""What the page shows, against definitions written out here: numbers, marks, footnotes, questions, and its size."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
import string
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.metrics import METRICS
from bench.metrics.summary import MetricSummary
from bench.report import page
from bench.report.competition import displayed_value
from bench.report.grouping import Key
from bench.report.page import questions
from bench.report.page.render import html
from bench.report.page.verdict import verdict_data
from bench.report.standings.compute import LineStanding, Standings
from bench.report.style import built_in
from bench.report.tables.build import build
from bench.report.text import EN_DASH, value_text
from bench.report.verdict import verdict_of
from bench.results.question_texts import QuestionText
from bench.results.row import LabelsSeen
from bench.results.submissions.recomputation import recompute_row
from bench.stats import TESTED, Estimate, Interval
from tests.fixtures import large_page as large
from tests.kit.golden import as_cases, check_golden
from tests.kit.world import question_records, result_row

NAMES = list(METRICS)
UNTRAINED = {"train_on": None, "labels_seen": LabelsSeen(), "n_parameters": 0}


def records_like(n=90, *, seed=0, answers_seed=0):
    """Confidences that say something, of answers that are the same for all methods."""
    correct = np.random.default_rng(answers_seed).random(n) < 0.6
    noise = np.random.default_rng(1000 + seed).normal(0, 0.2, n)
    return question_records(np.clip(0.45 + 0.25 * correct + noise, 0, 1), correct, task="rivers")


class World:
    """Rows and what belongs to them."""

    def __init__(self):
        self.rows, self.records, self.texts = [], {}, {}

    def add(self, records=None, method="ccps", **changes):
        """A result with these records, or as many answers as usual; without numbers if it failed or was skipped."""
        usual = {"task": "rivers", "protocol": "0123456789abcdef"}
        if changes.get("status", "ok") == "ok":
            usual |= {
                "train_on": "rivers/train", "labels_seen": LabelsSeen(train=320), "n_empty": 1, "n_shots_dropped": 0,
                "n_parameters": 9542, "timings": {"fit": 2.25, "predict": 0.5}, "forward_tokens_alone": 1500,
            }  # fmt: skip
        row = result_row(method, **{**usual, **changes})
        if row.status == "ok":
            records = records or records_like()
            row = recompute_row(replace(row, deviations={}), records)
            row = replace(row, **changes)
            self.records[self._key(row)] = records
        self.rows.append(row)
        return row

    @staticmethod
    def _key(row):
        return json.dumps([row.method, row.model, row.task, row.seed, row.config, row.limit, row.protocol])

    def records_of(self, row):
        return self.records[self._key(row)]

    def page(self, **options):
        tables = build(self.rows, deviations=True, partial=True, **options)
        return page.payload(tables, self.records_of, lambda task, version: self.texts)


COMPARED = (("ccps", 1, {}), ("ccps", 2, {"seed": 1}), ("ptrue", 3, UNTRAINED))
"""Method, noise of its confidences, and fields: two methods, one of them with two seeds."""
SHOTS, STEPS = {"protocol.shots": 2}, {"ccps.steps": 10}
WORLDS = {
    "not ok": (
        *COMPARED, ("lts", 0, {"status": "skipped", "reason": "no <validation> split"}),
        ("ptrue", 0, {"seed": 1, "status": "failed", "reason": "loss is NaN"}), ("ptrue", 7, {"model": "other"}),
    ),
    "apart": (
        *COMPARED, ("ccps+isotonic", 4, {}), ("ccps", 5, {"limit": 30}),
        ("ccps", 6, {"protocol": "f" * 16, "deviations": SHOTS}), ("ccps", 8, {"config": STEPS, "deviations": STEPS}),
    ),
    "shared settings": [(method, len(method), {"config": {"dtype": "float16"}}) for method in ("ccps", "ptrue")],
    "parts": (
        *((name, 0, {"task": "lakes"}) for name in ("combined", "ptrue", "sequence-probability", "ccps", "ccps+platt",
                                                    "combined+platt")),
        ("combined", 0, {}),
    ),
    "ordered": (
        *((method, seed, {}) for seed, method in enumerate(("ptrue", "lts", "pik", "ccps"))),
        ("saplma-f", 0, {"status": "failed", "reason": "x"}), ("ct", 9, {"model": "other"}),
    ),
}  # fmt: skip


def world_of(results=COMPARED):
    world = World()
    for method, noise, fields in results:
        world.add(records_like(fields.get("limit", 90), seed=noise), method, **fields)
    return world


def line_named(built, name, block=0):
    return next(line for line in built["blocks"][block]["lines"] if built["methods"][line["method"]]["name"] == name)


def notes_of(built, line):
    """Its footnotes, each once."""
    remarks = (k for each in line.get("remarks", ()) for k in each)
    numbers = dict.fromkeys([*line.get("reasons", ()), *line.get("notes", ()), *remarks])
    return [built["footnotes"][k - 1] for k in numbers]


def outline(built):
    """Blocks and lines, without numbers."""
    for block in built["blocks"]:
        yield " · ".join(filter(None, (block["model"], block["task"], block["label"])))
        yield from (f"  {fact}" for fact in block["facts"])
        for line in block["lines"]:
            method = built["methods"][line["method"]]
            runs = f"{len(line['seeds'])} of {line['runs']} seeds" if "runs" in line else ""
            part = built["parts"][method["part"]] if built["parts"] else ""
            told = (method["name"], line["variant"], method["group"], part, line["status"], runs)
            yield "  - " + "; ".join(filter(None, (*told, *notes_of(built, line))))


def mean_over_seeds(name, values):
    """Their mean; of calibration errors the root of the mean square, where less than 0 counts as 0."""
    if name != "rmsce":
        return statistics.fmean(values)
    return math.sqrt(max(0, statistics.fmean(math.copysign(value**2, value) for value in values)))


def test_page_numbers_are_means_and_spreads_over_seeds():
    world = world_of()
    world.rows[1] = replace(world.rows[1], timings={"fit": 4.75}, forward_tokens_alone=1600)
    built = world.page()
    block, line, free = built["blocks"][0], line_named(built, "ccps"), line_named(built, "ptrue")
    subjects = ["subject 0", "subject 1", "subject 2"]
    assert (block["subjects"], block["sizes"]) == (subjects, [30, 30, 30])
    for i, name in enumerate(NAMES):
        summaries = [row.metrics[name] for row in world.rows[:2]]
        mean = mean_over_seeds(name, [s.pooled for s in summaries])
        assert line["mean"][i] == pytest.approx(mean, abs=1e-6)
        form, scale = ("{:.1f}", 100) if METRICS[name].is_fraction else ("{:.3f}", 1)
        assert line["text"][i] == form.format(scale * mean).replace("-", "\u2212")
        assert line["std"][i] == form.format(scale * statistics.fmean(s.std for s in summaries))
        between = statistics.stdev(displayed_value(name, s.pooled) for s in summaries)
        assert line["between"][i] == form.format(scale * between)
        for k, subject in enumerate(subjects):
            mean = mean_over_seeds(name, [row.per_subject[subject][name] for row in world.rows[:2]])
            assert line["subjects"][i][k] == value_text(METRICS[name], mean)
    assert (line["seeds"], line["runs"]) == ([0, 1], 2)
    assert (line["labels"], line["trained_on"], line["parameters"]) == ([320, 0, 0], "rivers/train", 9542)
    assert (line["tokens"], line["seconds"]) == (1550, 3.75)
    assert (free["labels"], free["trained_on"], free["parameters"]) == ([0, 0, 0], None, 0)
    assert free["between"] == [None] * len(NAMES)
    assert [own["best"][NAMES.index("brier")] for own in (line, free)] == ["not tested", None]


def test_page_dash_has_its_footnote():
    records, world, i = records_like(), World(), NAMES.index("auroc")
    moss = np.array([s == "subject 1" for s in records.subject])
    world.add(replace(records, correct=records.correct | moss))
    line = line_named(world.page(average="subjects"), "ccps")
    assert (line["subjects"][i][1], line["text"][i] is None, len(line["remarks"][i])) == (None, False, 1)
    assert line_named(world.page(), "ccps")["remarks"][i] == []  # that of all questions leaves none out
    world = World()
    row = world.add()
    metrics = {**row.metrics, "auroc": MetricSummary(None, None, None, 3)}
    world.rows[0] = replace(row, metrics={name: metrics[name] for name in NAMES if name != "nll"})
    for average, where in (("questions", ""), ("subjects", " in every subject")):
        built = world.page(average=average)
        line = line_named(built, "ccps")
        assert {f"undefined{where}: too few answers, or all of them right or all wrong", "NLL was not computed"} == set(
            notes_of(built, line)
        )
        assert line["text"][i] is None


def test_page_cell_sorts_by_its_number_or_last():
    """The script puts cells without `data-v` last: a method that failed isn't the cheapest, one without labels is."""
    rows = re.findall("<tr data-line.*?</tr>", html(world_of(WORLDS["not ok"]).page()))
    cells = [re.findall('<td class="num[^>]*?(?: data-v="([^"]*)")?>([^<]*)', row) for row in rows]
    assert all((value == "") == (text == EN_DASH) for row in cells for value, text in row)
    *_, ccps, ptrue, skipped = (row[-5:] for row in cells)
    assert ccps == [("2", "2"), ("320", "320"), ("1500", "1,500"), ("9542", "9,542"), ("2.75", "2.8")]
    assert ptrue == [("1", "1 of 2"), ("0", "none"), ("1500", "1,500"), ("0", "0"), ("2.75", "2.8")]
    assert skipped == [("", EN_DASH)] * 5


def test_page_rows_are_as_wide_as_their_headings():
    tables = re.findall("<table.*?</table>", html(world_of(WORLDS["parts"]).page()))
    for table in tables:
        rows = [re.findall(r'<t[hd]\b(?:[^>]*? colspan="(\d+)")?', row) for row in re.findall("<tr.*?</tr>", table)]
        assert len({sum(int(span or 1) for span in row) for row in rows}) == 1
    assert sum('scope="rowgroup"' in table for table in tables) == 1 + 6  # the main one, and six of the overview


def standing_of(low, high, name="auroc", **changes):
    """Of one line, with an interval for one metric and none for another."""
    there, none = Interval("fixed-subjects", low, high, 0.95, "t"), Interval("fixed-subjects", reason="one subject")
    found = {name: Estimate(0.75, there, none, (0.75,), None, 0), "ece": Estimate(0.1, none, none, (0.1,), None, 0)}
    return replace(LineStanding(0, found, 0.0312, {"brier": 1}, 0.01), **changes)


def test_page_standings_stand_beside_the_means():
    world = world_of()
    ccps, ptrue = Key("ccps", ""), Key("ptrue", "")
    told = Standings(0.95, {ccps: standing_of(0.0212, 0.799, "rmsce")}, (), {ptrue: "why"})
    asked_for = []
    built = world.page(standings_of=lambda lines: asked_for.append(list(lines)) or told)
    assert asked_for == [[ptrue, ccps]]
    line, other, i = line_named(built, "ccps"), line_named(built, "ptrue"), NAMES.index("rmsce")
    assert line["ci"][i] == ["2.1", "79.9"]
    mean = line["mean"][i]
    assert line["half"][i] == f"{100 * max(0.799 - mean, mean - 0.0212):.1f}"
    assert line["ci"][NAMES.index("ece")] is line["half"][NAMES.index("ece")] is None
    assert (line["rank"], line["calibrated_p"], line["calibrated"]) == ({"brier": 1}, "0.031", False)
    assert (line["constant"], line["worse"]) == ("1.0", False)
    assert "ci" not in other
    assert notes_of(built, other) == ["why"]
    assert "ci" not in line_named(world.page(), "ccps")


def test_page_blocks_are_those_of_the_golden_file():
    """Only what may be compared stands in one block; lines go by their part and the Brier score, missing ones last."""
    keys, world = [Key("ccps", ""), Key("ptrue", "")], world_of()
    labels = Standings(0.95, {key: standing_of(0.1, 0.2, labels=k) for k, key in enumerate(keys)}, (), {})
    cases = {name: outline(world_of(results).page()) for name, results in WORLDS.items()}
    cases["other labels"] = outline(world.page(standings_of=lambda _: labels))
    check_golden("page_blocks.txt", as_cases(cases))


def test_page_is_that_of_any_order():
    world = world_of(WORLDS["not ok"])
    first = world.page()
    world.rows.reverse()
    assert world.page() == first


def test_page_explains_groups_metrics_and_colours():
    built, grouped = world_of().page(), world_of(WORLDS["parts"]).page()
    assert built["methods"] == [
        {"name": name, "colour": built_in().of(name).colour, "group": "paper", "part": 0, "needs": needs}
        for name, needs in {"ptrue": ("logits",), "ccps": ("states",)}.items()
    ]
    better = {metric["name"]: metric["better"] for metric in built["metrics"]}
    assert (better["ece"], better["auroc"], better["ece_floor"]) == (-1, 1, 0)
    assert [NAMES[i] for i in built["sets"][0]["metrics"]] == ["ece", "rmsce", "brier", "acc", "aucpr", "auroc"]
    assert all(metric["about"] for metric in built["metrics"])
    assert grouped["words"]["groups"].startswith("Group: the methods of the paper")
    assert built["words"]["groups"] is None
    assert [cost["key"] for cost in grouped["costs"]].count("group") == 1
    assert "group" not in {cost["key"] for cost in built["costs"]}
    assert html(grouped).count('class="part"') == 3


def test_page_provenance_is_said_once_and_counted():
    world = world_of()
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


@pytest.fixture(scope="module")
def tables():
    return large.tables()


def verdict_words(tables):
    data = verdict_data(tables, [f"table {k}" for k, _ in enumerate(tables)])
    assert data["words"] == [
        [f"table {k}", list(found.sentences), list(found.details)]
        for k, found in enumerate(verdict_of(table, table.headline) for table in tables)
    ]
    rows = [f"{row['state']}: {' | '.join(row['texts'])}" for row in data["rows"]]
    return [data["title"], *data["explained"], " | ".join(long for long, _ in data["columns"]), *rows]


def test_page_verdicts_are_those_of_the_golden_file(tables):
    [untested] = build([row for row in large.rows() if (row.model, row.task) == ("qwen32b", "medmcqa")])
    check_golden("page_verdicts.txt", as_cases({
        "one model": verdict_words([table for table in tables if table.model == large.MODELS[0]]),
        "all models": verdict_words(tables),
        "by NLL": verdict_words([tables[0].ordered_by("nll")]),
        "not tested": verdict_words([untested]),
        "one method": verdict_words([replace(untested, lines=untested.lines[:1])]),
    }))  # fmt: skip


def test_page_orders_and_leaders_are_those_of_tables(tables):
    some = tables[::7]
    built = page.payload(some, large.records_of, lambda task, version: {})
    names = [method["name"] for method in built["methods"]]
    assert next(iter(built["headlines"])) == "brier"
    assert sorted(built["headlines"]) == sorted(TESTED)
    for block, table in zip(built["blocks"], some, strict=True):
        methods = [names[line["method"]] for line in block["lines"]]
        assert methods == [line.method for line in table.lines]
        for headline, found in block["headlines"].items():
            assert [methods[i] for i in found["order"]] == [line.method for line in table.ordered_by(headline).lines]
            assert [methods[i] for i in found["leads"]] == [line.method for line in table.leaders(headline)]
        assert block["headlines"]["brier"]["order"] == list(range(len(methods)))


def shown_questions(*records, **changes):
    """What the page has of the questions of a world with these records, and the world's page."""
    world = World()
    for method, own in zip("abc", records, strict=False):
        world.add(own, method, **changes)
    return world.page()["blocks"][0]["questions"]


def test_page_questions_are_extreme_ones_and_random():
    runs = [records_like(400, seed=k) for k in range(3)]
    found, first = shown_questions(*runs), runs[0]
    mean = {key: statistics.fmean(float(run.confidence[i]) for run in runs) for i, key in enumerate(first.id)}
    wrong = [key for key, hit in zip(first.id, first.correct, strict=True) if not hit]
    right = [key for key in mean if key not in set(wrong)]
    shown = {name: [found["id"][i] for i in rows] for name, rows in found["groups"].items()}
    assert shown["mistakes"] == sorted(wrong, key=lambda key: -mean[key])[:50]
    assert shown["hits"] == sorted(right, key=mean.__getitem__)[:50]
    assert len(set(shown["random"])) == 50
    assert found["of"] == {"all": 400, "mistakes": len(wrong), "hits": len(right)}
    for column, run in zip(found["confidence"], runs, strict=True):
        by_id = dict(zip(run.id, run.confidence.tolist(), strict=True))
        assert column == [round(10_000 * by_id[key]) for key in found["id"]]


def test_page_random_questions_are_alike_for_models():
    world = World()
    for k in (1, 2):
        world.add(records_like(300, seed=k, answers_seed=k), model=f"model {k}")
    one, two = (block["questions"] for block in world.page()["blocks"])
    drawn = [[found["id"][i] for i in found["groups"]["random"]] for found in (one, two)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != [f"rivers/test/{i}" for i in range(50)]


def test_page_names_preset_and_model_where_they_differ():
    world = World()
    world.add(records_like(), model="model 1", task="rivers", preset="demo")
    one = world.page()
    world.add(records_like(), model="model 2", task="lakes", preset="fixed")
    two = world.page()
    assert (one["preset"], two["preset"]) == ("demo", "")
    assert [[fact for fact in block["facts"] if "preset" in fact] for block in one["blocks"]] == [[]]
    said = sorted(fact for block in two["blocks"] for fact in block["facts"] if "preset" in fact)
    assert said == ["The preset is demo.", "The preset is fixed."]
    assert [row["texts"][0] for row in one["verdict"]["rows"]] == ["rivers"]
    assert sorted(row["texts"][0] for row in two["verdict"]["rows"]) == ["lakes (model 2)", "rivers (model 1)"]


def test_page_methods_are_matched_by_question():
    """The second in reverse, without the first question; and with two other answers."""
    first, other = records_like(60, seed=1), records_like(60, seed=2)
    back = slice(None, 0, -1)
    turned = {
        name: getattr(other, name)[back] for name in ("id", "subject", "answer", "correct", "confidence", "parsed")
    }
    found = shown_questions(first, replace(other, **turned))
    by_id = dict(zip(other.id[1:], other.confidence[1:].tolist(), strict=True))
    assert found["confidence"][1] == [None if key not in by_id else round(10_000 * by_id[key]) for key in found["id"]]
    assert found["differing"] == 0
    assert shown_questions(first, replace(first, answer=["c", "c", *first.answer[2:]]))["differing"] == 2


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 2**63 - 1),
    st.integers(1, 20),
)
def test_picked_questions_are_extreme_and_of_their_kind(answers, seed, each):
    confidence, correct = (np.array(column) for column in zip(*answers, strict=True))
    groups = questions.pick(confidence, correct, seed, each)
    for name, side, sign in (("mistakes", ~correct, -1), ("hits", correct, 1)):
        keys = sorted((sign * confidence[i], i) for i in np.flatnonzero(side).tolist())
        assert groups[name].tolist() == [i for _, i in keys[:each]]
    drawn = groups["random"].tolist()
    assert drawn == sorted(set(drawn))
    assert len(drawn) == min(each, len(answers))


def texts(text, options=(), gold="gold", n=90):
    keys = [f"rivers/test/{i}" for i in range(n)]
    return {key: QuestionText(key, "", text.format(i), options, gold) for i, key in enumerate(keys)}


def test_page_texts_stand_once_with_their_options_apart():
    world = World()
    world.texts = texts("Q: {}?\n\nChoices:\n  (a): x\n  (b): y", ("x", "y"), "b")
    for model in ("one", "two"):
        world.add(records_like(seed=1), model=model)
    built = world.page()
    found, other = (block["questions"] for block in built["blocks"])
    assert len(built["asked"]) == len(found["id"]) <= 90
    assert other["asked"] == found["asked"]
    number = int(found["id"][0].rpartition("/")[2])
    assert built["asked"][found["asked"][0]] == [f"Q: {number}?", ["x", "y"], "b"]
    assert found["letter"][0] == number % 2
    assert not built["blocks"][0]["textless"]
    world.texts = texts("x / y: which?", ("x", "y"), "a")
    assert world.page()["asked"][0] == ["x / y: which?", [], "a"]  # an unusual layout, as it was shown


def test_page_without_texts_says_so():
    built = world_of().page()
    block = built["blocks"][0]
    assert (block["textless"], set(block["questions"]["asked"]), built["asked"]) == (True, {-1}, [])


def test_page_cuts_long_texts_to_what_fits(monkeypatch):
    world = World()
    long = "".join(random.Random(1).choices(string.ascii_lowercase, k=9_000))
    world.texts = texts(long)
    records = records_like()
    world.add(replace(records, answer=[long if i == 3 else "a" for i in range(90)]))
    monkeypatch.setattr(questions, "_BUDGET", 100_000)
    built = world.page()
    assert built["asked_limit"] == 1_000
    text, _, gold = built["asked"][0]
    assert (text, gold) == (f"{long[:500]} [8,000 characters left out] {long[-500:]}", "gold")
    assert max(map(len, built["blocks"][0]["questions"]["answer"])) == len(text)
    assert len(html(built).encode()) < 400_000
    monkeypatch.undo()
    world.texts = texts("x" * 10_000, n=1)
    assert [world.page()[key] for key in ("asked_limit", "asked")] == [None, [["x" * 10_000, [], "gold"]]]


@settings(max_examples=50)
@given(st.text(max_size=60), st.integers(2, 40))
def test_trimmed_text_keeps_both_ends(text, limit):
    shown = questions.trim(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        assert shown.startswith(text[: limit // 2])
        assert shown.endswith(text[-(limit // 2) :])


@pytest.mark.slow
def test_largest_page_stays_below_five_megabytes():
    built = large.payload()
    assert len(built["blocks"]) == 20
    groups = [rows for block in built["blocks"] for rows in block["questions"]["groups"].values()]
    assert {len(rows) for rows in groups} == {questions.FEW}
    assert built["asked_limit"] is None
    assert len(html(built).encode()) < 5_000_000
