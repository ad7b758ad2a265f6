"""Verdicts: planted standings and the sentences on them, and the questions that would decide, against a simulation."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench.api.early_stopping import TrainingStage
from bench.metrics import METRICS
from bench.metrics.summary import MetricSummary
from bench.report.standings.compute import LineStanding, Pair, Standings
from bench.report.tables.build import build, render, table_views
from bench.report.text import MINUS
from bench.report.verdict import summary_of, verdict_of
from bench.report.verdict.judgement import questions_needed, two_digits
from bench.results.row import LabelsSeen, ResultRow, Training
from bench.stats import (
    TESTED,
    Estimate,
    Influence,
    Interval,
    Sampling,
    Settings,
    StandardErrors,
    compare,
    max_t,
    p_values,
    strata_of,
)

NONE = Interval("clustered", reason="20 subjects are needed")
ERROR, CRITICAL = 0.005, 3.0


def cell(method, **changes):
    row = ResultRow(
        method=method, model="tiny", task="atlas-choice", preset="demo", seed=0, protocol="0123456789abcdef",
        task_version=1, status="ok", n=1200, llm_accuracy=0.6725, labels_seen=LabelsSeen(1280, 320), n_parameters=258,
        forward_tokens_alone=25_400, per_subject={f"subject {k}": {"n": 150.0} for k in range(8)},
    )  # fmt: skip
    return replace(row, **changes)


def planted(metrics, *, rows=None, error=ERROR, critical=CRITICAL, missing=(), constant=None, labels=None, short=()):
    """A table with these means, tested as a normal distribution would: the difference against 3 standard errors.

    Args:
        metrics: method -> means by metric, those not named being the same for all.
        rows: further rows, by method.
        missing: pairs of methods without a test.
        constant: Brier score of a constant confidence.
        labels: method -> number of its labels.
        short: methods whose training was cut short.
    """
    metrics = {method: means if isinstance(means, dict) else {"brier": means} for method, means in metrics.items()}
    means = {m: {**dict.fromkeys(METRICS, 0.15), "auroc": 0.85, **own} for m, own in metrics.items()}
    labels = labels or {}
    stage = TrainingStage(name="", limit=10, taken=10, kept=10, epochs=1.0, cut_short=True)
    cells = [
        replace(
            cell(m), **{
                "metrics": {k: MetricSummary(v, 0.01, v, 0) for k, v in of.items() if v is not None},
                "training": Training(stages=(stage,)) if m in short else None, **(rows or {}).get(m, {}),
            },
        )
        for m, of in means.items()
    ]  # fmt: skip

    def standings_of(lines):
        keys = {key: means[key.method] for key, runs in lines.items() if runs[0].status == "ok"}
        pairs = [
            pair_of(name, (a, b), keys, error, critical, missing=frozenset({a.method, b.method}) in missing)
            for name in TESTED
            for a, b in combinations(keys, 2)
            if labels.get(a.method, 0) == labels.get(b.method, 0) and None not in {keys[a][name], keys[b][name]}
        ]
        found = {
            key: LineStanding(
                labels.get(key.method, 0),
                {name: Estimate(v, around(v), NONE, (v,), None, 0) for name, v in of.items() if v is not None},
                0.5, dict(ranks(pairs, key, of, short)), constant,
            )
            for key, of in keys.items()
        }  # fmt: skip
        return Standings(0.95, found, tuple(pairs), {})

    return build(cells, standings_of=standings_of)[0]


def around(value):
    return Interval("fixed-subjects", value - 0.03, value + 0.03, 0.95, "t")


def pair_of(name, ends, means, error, critical, *, missing):
    difference = means[ends[0]][name] - means[ends[1]][name]
    if missing:
        return Pair(
            name, *ends, difference, Interval("fixed-subjects", reason="a subject has one question"), NONE, None, None
        )
    half = 1.96 * error
    fixed = Interval("fixed-subjects", difference - half, difference + half, 0.95, "t")
    p = 2 * NormalDist().cdf(-abs(difference) / error)
    corrected = 0.01 if abs(difference) > critical * error else 0.5
    return Pair(name, *ends, difference, fixed, NONE, p, max(p, corrected), error, critical)


def ranks(pairs, key, means, short):
    """Ranks of a line among those that were recalibrated alike and not cut short; none where a pair has no test."""
    if key.method in short:
        return
    for name in TESTED:
        block = [
            pair
            for pair in pairs
            if pair.metric == name and not {pair.first.method, pair.second.method} & {*short}
            and pair.first.recalibration == pair.second.recalibration == key.recalibration
        ]  # fmt: skip
        if means[name] is not None and all(pair.p is not None for pair in block):
            yield name, 1 + sum(key in {pair.first, pair.second} and beats(pair, key) for pair in block)


def beats(pair, key):
    winner = pair.winner(0.05)
    return winner is not None and winner != key


def words(table, metric=None):
    return " ".join(verdict_of(table, metric).sentences)


COST = "21 tokens read for each of 1,200 answers (training included), 1,600 labels, 258 trained parameters"


# --- planted cases ----------------------------------------------------------------------------------------------------


def test_one_clear_winner():
    found = verdict_of(
        planted({"ccps": {"brier": 0.11, "auroc": 0.9}, "lts": 0.149, "pik": {"brier": 0.16, "auroc": 0.86}})
    )
    assert (found.state, [line.method for line in found.leaders], found.places) == ("sure", ["ccps"], (0,))
    assert found.sentences == (
        (
            "Best by Brier score: ccps (11.0), significantly better than each of the 2 other ranked methods, 3.9 points"
            " ahead of lts (95 % interval of this pair alone 2.9 to 4.9)."
        ),
        "Orders answers best (AUROC): ccps (90.0).",
        f"Cost of ccps: {COST}.",
    )
    brief = found.brief
    assert (brief.leads, brief.sure, brief.by) == ("ccps", "sure", "+3.9 [2.9, 4.9] over lts")
    assert (brief.orders, brief.cost) == ("ccps", "25 k tokens, 1,600 labels")


def test_two_are_tied_and_ahead_of_the_rest():
    found = verdict_of(planted({"ccps": 0.141, "pik": 0.147, "litcab": 0.17, "ptrue": 0.2}))
    assert found.state == "tied"
    n = round(1200 * (3.8416212 * ERROR / 0.006) ** 2, -3)
    assert found.sentences == (
        (
            "Tied by Brier score: ccps (14.1) and pik (14.7) can't be distinguished; ccps is 2.9 points ahead of litcab"
            " (95 % interval of this pair alone 1.9 to 3.9)."
        ),
        (
            f"About {n:,.0f} questions instead of 1,200 would decide between ccps and pik with a probability of 80 %,"
            " if the difference seen is the true one: ccps is 0.6 points ahead of pik (95 % interval of this pair alone"
            f" {MINUS}0.4 to 1.6)."
        ),
        "Orders answers best (AUROC): ptrue (85.0), pik (85.0), litcab (85.0) and ccps (85.0), tied.",
        f"Cost of pik, the cheapest leader: {COST}.",
    )
    assert found.brief.leads == "ccps and pik (tied)"
    assert found.brief.by == f"+0.6 [{MINUS}0.4, 1.6] over pik"
    assert found.brief.cost == "pik: 25 k tokens, 1,600 labels"


def test_one_leader_that_is_not_better_than_every_other_is_not_sure():
    """The pair of a and c is noisy, while b is better than c."""
    table = planted({"a": 0.10, "b": 0.12, "c": 0.14})
    pairs = [
        replace(pair, p_corrected=0.4) if {pair.first.method, pair.second.method} == {"a", "c"} else pair
        for pair in table.standings.pairs
    ]
    found = verdict_of(replace(table, standings=replace(table.standings, pairs=tuple(pairs))))
    assert (found.state, [line.method for line in found.leaders]) == ("tied", ["a"])
    assert found.sentences[0] == (
        "Leading by Brier score: a (10.0), but it can't be distinguished from c; a is 2.0 points ahead of b (95 %"
        " interval of this pair alone 1.0 to 3.0)."
    )
    assert found.brief.leads == "a (tied)"


def test_of_forty_that_are_tied_a_few_are_named():
    found = verdict_of(planted({f"m{k:02}": 0.14 + k / 1e4 for k in range(40)}))
    assert found.state == "tied"
    assert len(found.leaders) == 40
    assert found.sentences[0] == (
        "Tied by Brier score: m00 (14.0), m01 (14.0), m02 (14.0) and 37 others can't be distinguished."
    )
    assert "between m00 and m39" in found.sentences[1]  # the pair that the fewest questions decide
    assert found.brief.leads == found.brief.orders == "m00, m01 and 38 others (tied)"
    assert max(map(len, found.sentences)) < 320


def test_one_method_alone_has_nothing_to_be_compared_with():
    found = verdict_of(planted({"ccps": 0.14}))
    assert found.state == "not tested"
    assert found.sentences == (
        "Nobody leads by Brier score: there is no other method; the best mean is ccps (14.0).",
        f"Cost of ccps: {COST}.",
    )


def test_where_all_answers_are_right_auroc_is_undefined():
    rows = {m: {"llm_accuracy": 1.0} for m in ("a", "b")}
    found = verdict_of(planted({m: {"brier": v, "auroc": None} for m, v in (("a", 0.1), ("b", 0.2))}, rows=rows))
    assert "Nobody orders answers best: AUROC is undefined, because all answers are right." in found.sentences
    assert found.brief.orders == "undefined"


def test_that_there_are_too_few_questions_is_said_behind_the_leaders_and_in_brief():
    rows = {m: {"n": 60, "llm_accuracy": 0.5} for m in ("a", "b")}
    tables = [planted({"a": 0.1, "b": 0.2}, rows=rows), replace(planted({"a": 0.1, "b": 0.2}), model="two")]
    found = verdict_of(tables[0])
    assert found.sentences[1] == (
        "Too few to tell methods apart unless they differ much: 60 questions of the 100 that are needed."
    )
    assert found.brief.sure == "sure, on few questions"
    assert summary_of(tables).rows[0].sure == "2 of 2, 1 on few questions"


def test_where_no_auroc_is_above_chance_nobody_orders_answers():
    found = verdict_of(planted({"a": {"brier": 0.1, "auroc": 0.52}, "b": {"brier": 0.2, "auroc": 0.45}}))
    assert found.sentences[1] == (
        "Nobody orders answers: no ranked method has an AUROC whose 95 % interval is above 50 %."
    )
    assert found.brief.orders == "none"


def test_leaders_that_are_no_better_than_a_constant_are_named():
    useless = "no better than giving every answer the same confidence, the share of right answers in training (20.5)."
    assert verdict_of(planted({"a": 0.21, "b": 0.25}, constant=0.2047)).sentences[1] == f"a is {useless}"
    assert verdict_of(planted({"a": 0.2, "b": 0.21}, constant=0.2047)).sentences[1] == f"b is {useless}"
    assert verdict_of(planted({"a": 0.205, "b": 0.21}, constant=0.2047)).sentences[1] == f"a and b are {useless}"
    assert "same confidence" not in words(planted({"a": 0.2, "b": 0.25}, constant=0.2047))
    assert "same confidence" not in words(planted({"a": 0.21, "b": 0.25}, constant=0.2047), "auroc")


def test_unranked_methods_are_named_with_their_reason_and_a_better_mean_is_told():
    none = {"status": "skipped", "reason": "no validation split", "metrics": {}, "per_subject": {}}
    rows = {"lts": none, "it": {**none, "status": "failed"}}
    table = planted({"a": 0.12, "b": 0.2, "ct": 0.1, "x": 0.3, "lts": 0.5, "it": 0.5}, rows=rows, short=["ct"],
                    labels={"x": 1})  # fmt: skip
    found = verdict_of(table)
    assert [line.method for line in found.leaders] == ["a"]
    assert found.sentences[-1] == (
        "Not ranked: ct (training cut short); x (other answers or labels); lts (skipped); it (failed); with a better"
        " mean than every ranked method: ct (10.0)."
    )


def test_recalibrated_methods_are_judged_by_themselves():
    found = verdict_of(planted({"a": 0.2, "b": 0.25, "a+isotonic": 0.1, "b+isotonic": 0.11}))
    assert [line.method for line in found.leaders] == ["a"]
    assert found.sentences[0].startswith("Best by Brier score: a (20.0)")
    assert found.sentences[-2] == (
        "Tied by Brier score, recalibrated by isotonic: a+isotonic (10.0) and b+isotonic (11.0) can't be distinguished."
    )


def test_a_pair_without_a_test_leaves_the_table_without_a_leader():
    found = verdict_of(planted({"a": 0.1, "b": 0.2, "c": 0.3}, missing=[frozenset("ab")]))
    assert (found.state, found.leaders) == ("not tested", ())
    assert found.sentences[0] == ("Nobody leads by Brier score: a subject has one question; the best mean is a (10.0).")


@pytest.mark.parametrize(
    ("metric", "words_", "reason"),
    [("aurc", {}, "there is no test of AURC; the best mean is a (10.0)"),
     ("brier", {"b": 1}, "no two methods rest on the same answers and labels")],
)  # fmt: skip
def test_what_was_not_tested_says_why(metric, words_, reason):
    """A mean on other answers is no better one."""
    table = planted({"a": {"brier": 0.1, "aurc": 0.1}, "b": 0.2}, labels=words_)
    found = verdict_of(table, metric)
    assert (found.state, found.brief.sure) == ("not tested", "not tested")
    assert found.sentences[0].endswith(f": {reason}.")


def test_without_standings_nothing_was_tested():
    rows = [cell(m, metrics={"brier": MetricSummary(v, 0.1, v, 0)}) for m, v in (("a", 0.1), ("b", 0.2))]
    assert verdict_of(build(rows)[0]).sentences[0] == (
        "Nobody leads by Brier score: intervals and tests were not computed; the best mean is a (10.0)."
    )


def test_a_yardstick_has_no_best():
    assert verdict_of(planted({"a": 0.1, "b": 0.2}), "ece_floor").sentences[0] == (
        "Nobody leads by ECE floor: it is a yardstick, neither good nor bad."
    )


def test_ece_is_judged_by_what_chance_does_not_explain_and_auroc_is_not_told_twice():
    table = planted({m: {"ece": e, "rmsce": d, "auroc": a} for m, e, d, a in
                     (("a", 0.05, -0.01, 0.9), ("b", 0.04, 0.03, 0.8), ("c", 0.03, 0.0, 0.5))})  # fmt: skip
    first = verdict_of(table, "ece").sentences[0]
    assert first.startswith("Best by RMS calibration error: a (0.0), significantly better")
    assert "c (doesn't order answers beyond chance)" in words(table, "ece")
    by_order = words(table, "auroc")
    assert by_order.count("AUROC") == 1
    assert "Best calibrated (RMS calibration error): a (0.0)." in by_order


def test_a_hopeless_difference_has_no_number_of_questions():
    found = words(planted({"a": 0.1, "b": 0.1001, "c": 0.2}))
    assert "No number of questions that one would ask decides between a and b: they hardly differ." in found
    assert "questions instead of" not in found


@pytest.mark.parametrize(("difference", "told"), [(0.0019, False), (0.0020, True)])
def test_questions_are_counted_above_a_tenth_of_interval(difference, told):
    """The interval is 1.96 points wide."""
    found = words(planted({"a": 0.1, "b": 0.1 + difference, "c": 0.2}, error=0.0196 / 3.92))
    assert ("questions instead of 1,200 would decide between a and b" in found) is told
    assert ("they hardly differ" in found) is not told


def test_of_tied_methods_the_cheapest_is_named_and_one_without_labels():
    rows = {
        "a": {"forward_tokens_alone": 90_000},
        "b": {"generated_tokens_alone": 14_000},
        "c": {"forward_tokens_alone": 40_000, "labels_seen": LabelsSeen(), "generated_tokens_alone": 1_300},
    }
    found = words(planted({"a": 0.1, "b": 0.101, "c": 0.102}, rows=rows))
    assert "Best without labelled answers: c (10.2), tied with the best." in found
    assert "Cost of b, the cheapest leader: 21 tokens read and 12 generated for each of 1,200 answers" in found


def test_the_best_without_labels_is_held_to_the_best():
    rows = {"b": {"labels_seen": LabelsSeen()}, "c": {"labels_seen": LabelsSeen()}}
    assert (
        "Best without labelled answers: b (15.0); a is 5.0 points ahead of b (95 % interval of this pair alone 4.0 to"
        " 6.0)."
    ) in words(planted({"a": 0.1, "b": 0.15, "c": 0.2}, rows=rows))
    assert "without labelled" not in words(planted({"c": 0.1, "a": 0.15, "b": 0.2}, rows=rows))  # the best has none


def test_rounding_does_not_hide_on_which_side_of_0_an_interval_ends():
    assert "95 % interval of this pair alone 0.02 to 2.0" in words(planted({"a": 0.1, "b": 0.11}, error=0.0098 / 1.96))


def test_names_are_escaped_in_each_format():
    table = planted({"a_b*": 0.1, "[red]c|": 0.2, "\\textbf": 0.3})
    first = verdict_of(table).sentences[0]
    assert first in re.sub(r"\s+", " ", render([table], "terminal", width=300))
    assert r"**Best by Brier score: a\_b\* \(10.0\), significantly" in render([table], "md")
    assert r"\textbf{Best by Brier score: a\_b{*} (10.0), significantly" in render([table], "tex")
    assert r"ahead of \[red\]c\| \(95" in render([table], "md")


# --- where it stands --------------------------------------------------------------------------------------------------


def test_the_verdict_stands_between_the_heading_and_the_facts_and_in_the_data():
    table = planted({"a": 0.1, "b": 0.2})
    lines = render([table], "md").splitlines()
    assert lines[0].startswith("### ")
    assert lines[2].startswith(r"**Best by Brier score: a \(10.0\)")
    assert lines[lines.index("", 2) + 1].startswith("The preset is")
    assert table_views([table]).data()[0]["verdict"] == verdict_of(table).record()


def test_models_side_by_side_have_a_paragraph_each():
    tables = [replace(planted({"a": 0.1, "b": b}), model=model) for model, b in (("one", 0.2), ("two", 0.1))]
    text = render(tables, "md")  # a table each
    assert text.count("**Best by Brier score") == text.count("**Tied by Brier score") == 1
    text = "\n".join(line for line in table_views(tables, models=True).grids[0].verdict)
    assert text.count("one: Best by Brier score: a (10.0)") == 1
    assert text.count("two: Tied by Brier score: a (10.0) and b (10.0) can't be distinguished.") == 1


def test_the_verdict_on_a_part_is_that_on_the_whole():
    table = planted({"a": 0.1, "b": 0.2, "c": 0.3})
    part = table.with_lines({line.key for line in table.lines if line.method == "c"})
    found = verdict_of(part)
    assert found.sentences == verdict_of(table).sentences
    assert found.record()["leaders"] == []


def test_a_summary_counts_over_models():
    tables = [
        replace(planted({"ccps": mean, "lts": 0.2, "pik": 0.25}), model=model)
        for model, mean in (("x", 0.1), ("y", 0.15), ("z", 0.199))
    ]
    row = summary_of(tables).rows[0]
    assert (row.task, row.models) == ("atlas-choice", 3)
    assert row.leads == "ccps 3 of 3 (sure 2), lts 1 (tied)"
    assert (row.sure, row.by) == ("2 of 3", "+0.1 to +10.0")
    assert row.cost == "25 k tokens, 1,600 labels"
    grid = table_views(tables).grids[0]
    assert grid.facts == ("Who leads, by Brier score",)
    assert len(table_views(tables[:2]).grids) == 2
    assert summary_of(tables[:1]).rows[0].by == verdict_of(tables[0]).brief.by


# --- claims follow from the pairs -------------------------------------------------------------------------------------


def losers(table, metric):
    """By line, those that a test finds significantly worse, from the pairs themselves."""
    higher = metric == "auroc"
    found = {}
    for pair in table.standings.pairs:
        if pair.metric == metric and pair.p_corrected is not None and pair.p_corrected < 0.05 and pair.difference:
            winner, loser = (pair.first, pair.second) if (pair.difference > 0) == higher else (pair.second, pair.first)
            found.setdefault(winner.method, set()).add(loser.method)
    return found


some_means = st.lists(st.integers(100, 200).map(lambda n: n / 1000), min_size=1, max_size=9)


@settings(deadline=None)
@given(some_means, st.sampled_from([0.001, 0.005, 0.02]), st.sampled_from(["brier", "auroc"]))
def test_leaders_and_what_is_named_as_better_follow_from_the_pairs(values, error, metric):
    table = planted({f"m{k}": {metric: value} for k, value in enumerate(values)}, error=error)
    found, beats_ = verdict_of(table, metric), losers(table, metric)
    names = [line.method for line in table.lines]
    beaten = set().union(*beats_.values())
    assert {line.method for line in found.leaders} == (set(names) - beaten if len(names) > 1 else set())
    is_sure = len(names) > 1 and any(len(worse) == len(names) - 1 for worse in beats_.values())
    assert (found.state == "sure") == is_sure
    assert ("significantly better" in found.sentences[0]) == is_sure


# --- questions that would decide --------------------------------------------------------------------------------------

SUBJECTS = 4
EFFECTS = (0.0, 0.012, 0.03, 0.031)


def experiment(n, effects, rng):
    """Comparison of the first two of some methods, whose losses are normal and have a part in common.

    Args:
        n: questions.
        effects: mean loss of each method.
        rng: of the losses.
    """
    losses = np.array(effects)[:, None] + rng.normal(0, 0.2, n) + rng.normal(0, 0.1, (len(effects), n))
    methods = {
        str(k): Influence(float(loss.mean()), (loss - loss.mean()) / n, np.empty(0)) for k, loss in enumerate(losses)
    }
    strata = strata_of([str(k % SUBJECTS) for k in range(n)])
    sampling = Sampling.of(strata, np.arange(n) % 2 == 0, "questions")
    pairs = compare("brier", methods, sampling, [list(methods)], Settings(draws=1000))
    return next(pair for pair in pairs if (pair.first, pair.second) == ("0", "1"))


def share_decided(repeats):
    """Share of tests that decide, of as many questions as ten first tests of 600 ask for on average."""
    rng = np.random.default_rng(5)
    firsts = [experiment(600, EFFECTS, rng) for _ in range(10)]
    n = two_digits(np.mean([questions_needed(600, EFFECTS[1], first.error, first.critical) for first in firsts]))
    assert 1000 < n < 3000
    return np.mean([experiment(n, EFFECTS, rng).winner(0.05) == "0" for _ in range(repeats)])


def test_as_many_questions_as_named_decide_most_tests():
    """Three standard errors of 100 tests are 0.12."""
    assert share_decided(100) == pytest.approx(0.8, abs=0.12)


@pytest.mark.slow
def test_as_many_questions_as_named_decide_4_of_5_tests():
    """Three standard errors of 600 tests are 0.05; the errors that first tests found have their own chance."""
    assert share_decided(600) == pytest.approx(0.8, abs=0.08)


def test_a_critical_value_is_where_the_corrected_test_decides():
    spread = StandardErrors(np.eye(3), np.array([1.0, 0.1, 3.0]), np.array([12.0, 40.0, 400.0]))

    def tested(difference, **how):
        return max_t(p_values(difference, spread), np.eye(3) * spread.error, spread, Settings(**how))

    _, critical = tested(np.zeros(3))
    for each in range(3):
        (below, *_), (above, *_) = (
            tested(np.where(np.arange(3) == each, critical * spread.error * k, 0))[0][[each]] for k in (0.9999, 1.0001)
        )
        assert above < 0.05 <= below
    sidak = stats.t.ppf(1 - (1 - 0.95 ** (1 / 3)) / 2, spread.freedom)  # of independent ones
    assert critical == pytest.approx(sidak, rel=0.02)
    assert np.isnan(tested(np.zeros(3), draws=10)[1]).all()
    still = StandardErrors(np.zeros((3, 3)), np.zeros(3), spread.freedom)
    assert np.isnan(max_t(np.ones(3), np.eye(3), still, Settings())[1]).all()
