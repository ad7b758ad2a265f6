"""Verdicts: planted standings and the sentences on them, and the questions that would decide, against a simulation."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.api.early_stopping import TrainingStage
from bench.metrics import METRICS
from bench.metrics.summary import MetricSummary
from bench.report.standings.compute import LineStanding, Pair, Range, Standing, Standings
from bench.report.tables.build import build, render, views
from bench.report.tables.export import RANKED
from bench.report.verdict import record, summary_of, verdict_of
from bench.report.verdict.judgement import judged
from bench.results.row import LabelsSeen, ResultRow, Training
from bench.stats import compare, strata_of, summary
from bench.stats.comparison import Sample

NONE = Range("clustered", reason="20 subjects are needed")
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
            cell(m), metrics={k: MetricSummary(v, 0.01, v, 0) for k, v in of.items() if v is not None},
            training=Training(stages=(stage,)) if m in short else None, **(rows or {}).get(m, {}),
        )
        for m, of in means.items()
    ]  # fmt: skip

    def standings_of(lines):
        keys = {key: means[key.method] for key, runs in lines.items() if runs[0].status == "ok"}
        pairs = [
            pair_of(name, (a, b), keys, error, critical, missing=frozenset({a.method, b.method}) in missing)
            for name in RANKED
            for a, b in combinations(keys, 2)
            if labels.get(a.method, 0) == labels.get(b.method, 0) and None not in {keys[a][name], keys[b][name]}
        ]
        found = {}
        for key, of in keys.items():
            standing = {
                k: Standing(v, around(v), NONE, (v,), None, 0, 0) for k, v in of.items() if v is not None
            }  # fmt: skip
            ranks = {
                name: 1 + sum(beats(pair, key) for pair in block(pairs, name, key, labels, short))
                for name in RANKED
                if of[name] is not None and all(p.p is not None for p in block(pairs, name, key, labels, short))
            }
            own = labels.get(key.method, 0)
            found[key] = LineStanding(
                own, standing, 0.01, NONE, 0.5, {} if key.method in short else ranks, constant
            )  # fmt: skip
        return Standings(0.95, found, tuple(pairs), {})

    return build(cells, standings_of=standings_of)[0]


def around(value):
    return Range("fixed-subjects", value - 0.03, value + 0.03, 0.95, "t")


def pair_of(name, ends, means, error, critical, *, missing):
    difference = means[ends[0]][name] - means[ends[1]][name]
    if missing:
        return Pair(name, *ends, difference, Range("fixed-subjects", reason="a subject has one question"), NONE, None, None)
    half = 1.96 * error
    fixed = Range("fixed-subjects", difference - half, difference + half, 0.95, "t")
    p = 2 * NormalDist().cdf(-abs(difference) / error)
    corrected = 0.01 if abs(difference) > critical * error else 0.5
    return Pair(name, *ends, difference, fixed, NONE, p, max(p, corrected), error, critical)


def block(pairs, name, key, labels, short):
    """Pairs of a line with the others that it is ranked with."""
    others = (
        (pair, pair.second if pair.first == key else pair.first)
        for pair in pairs
        if pair.metric == name and key in {pair.first, pair.second}
    )
    return [
        pair for pair, other in others if other.recalibration == key.recalibration and other.method not in {*short}
    ]


def beats(pair, key):
    winner = pair.winner(0.05)
    return winner is not None and winner != key


def words(table, metric=None):
    return " ".join(verdict_of(table, metric).sentences)


COST = "25 k token positions fed to the model, 1,600 labelled answers and 258 trained parameters"


# --- planted cases ----------------------------------------------------------------------------------------------------


def test_one_clear_winner():
    found = verdict_of(planted({"ccps": {"brier": 0.11, "auroc": 0.9}, "lts": 0.149, "pik": 0.16}))
    assert (found.state, [line.method for line in found.leaders], found.places) == ("sure", ["ccps"], (0,))
    assert found.sentences == (
        "By Brier score, ccps (11.0) is best: significantly better than each of the 2 other ranked methods.",
        "The next, lts, is behind by 3.9 points (95 % interval of this pair 2.9 to 4.9).",
        "ccps also orders answers best (AUROC 90.0), significantly better than each of the 2 others; the next, pik, is"
        " behind by 5.0 points (95 % interval of this pair 4.0 to 6.0).",
        f"ccps needs {COST}.",
    )
    brief = found.brief
    assert (brief.leads, brief.sure, brief.by) == ("ccps", "sure", "+3.9 [2.9, 4.9] over lts")
    assert (brief.orders, brief.cost) == ("ccps", "25 k tokens, 1,600 labels")


def test_two_are_tied_and_both_better_than_the_rest():
    table = planted({"ccps": 0.141, "pik": 0.147, "litcab": 0.17, "ptrue": 0.2})
    found = verdict_of(table)
    assert found.state == "tied"
    n = round(1200 * (3.8416212 * ERROR / 0.006) ** 2, -3)
    assert found.sentences == (
        "By Brier score, no single method is best: ccps (14.1) and pik (14.7) can't be distinguished.",
        "Both are significantly better than each of the 2 other ranked methods; the next, litcab, is behind ccps by"
        " 2.9 points (95 % interval of this pair 1.9 to 3.9).",
        "At ordering right answers before wrong ones (AUROC), none of the 4 ranked methods can be distinguished from"
        " another.",
        "Of the 2 that are tied by Brier score, pik is the cheapest: it needs 25 k token positions fed to the model"
        " (as does ccps), 1,600 labelled answers and 258 trained parameters.",
        f"About {n:,.0f} questions instead of 1,200 would decide between ccps and pik in 4 of 5 such tests, if the"
        " difference is as large as seen (0.6 points; 95 % interval of this pair −0.4 to 1.6).",
    )
    assert found.brief.leads == "ccps, pik (tied)"
    assert found.brief.by == "+0.6 [−0.4, 1.6] over pik"
    assert found.brief.cost == "pik: 25 k tokens, 1,600 labels"
