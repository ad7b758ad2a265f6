"""The rows with which the page opens, and the order of its lines, against verdicts and tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.report import page
from bench.report.page import verdict
from bench.report.page.render import html
from bench.report.tables.build import build
from bench.report.tables.model import Table
from bench.report.verdict import verdict_of
from bench.stats import TESTED
from tests.fixtures import large_page as large


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    """20 tables: 4 models on 5 benchmarks."""
    return large.tables()


def rows_of(tables):
    return verdict.verdict_data(tables, [f"table {k}" for k, _ in enumerate(tables)])["rows"]


def test_one_model_has_a_row_for_each_benchmark_with_all_leaders(tables):
    mine = [table for table in tables if table.model == large.MODELS[0]]
    states = set()
    for row, table in zip(rows_of(mine), mine, strict=True):
        found = verdict_of(table)
        states.add(found.state)
        brief = found.brief
        assert row == {
            "state": found.state, "texts": [table.task, brief.leads, brief.sure, brief.by, brief.orders, brief.cost],
        }  # fmt: skip
    assert states == {"sure", "tied"}


def test_models_of_one_benchmark_share_a_row(tables):
    of_task = [table for table in tables if table.task == "mmlu-pro"]
    [row] = rows_of(of_task)
    assert row["state"] == "several"
    best = [verdict_of(table) for table in of_task]
    sure = [found.leaders[0].method for found in best if found.state == "sure"]
    assert row["texts"][2] == f"{len(sure)} of 4"
    first, n = row["texts"][1].split(" of 4")[0].split(" ")
    assert int(n) == sum(first in {line.method for line in found.leaders} for found in best)


def test_what_was_not_tested_is_said_in_words(tables):
    [untested] = build([row for row in large.rows() if (row.model, row.task) == ("qwen32b", "medmcqa")])
    [row] = rows_of([untested])
    assert row["state"] == "not tested"
    assert row["texts"][1:] == [
        "nobody", "not tested", "no second method to compare", "not tested", "nobody leads",
    ]  # fmt: skip
    alone = replace(untested, lines=untested.lines[:1])
    assert all("\u2013" not in text for row in rows_of([alone]) for text in row["texts"])


def test_the_metric_that_judges_is_named_and_explained(tables):
    told = verdict.verdict_data([tables[0].ordered_by("nll")], ["one"])
    assert told["title"] == "Who leads, by NLL"
    assert told["explained"][0].startswith("Methods are judged by NLL: less is better.")
    assert told["columns"][3][0] == "Best ahead of second by (nats)"
    assert told["words"] == [["one", list(verdict_of(tables[0], "nll").sentences)]]


# --- the board's order ------------------------------------------------------------------------------------------------


def test_orders_and_leaders_of_every_headline_are_those_of_the_tables(tables):
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


def test_parts_are_named_and_methods_that_were_not_run_stand_last_in_theirs():
    rows = [row for row in large.rows() if row.task == "medmcqa" and row.model in large.MODELS[:2]]
    first = [row for row in rows if row.model == large.MODELS[0]]
    more = [
        replace(row, method=name) for row in first
        for name in (f"{row.method}+isotonic", "sequence-probability") if row.method in {"lts", "ccps"}
    ]  # fmt: skip
    tables = build([*rows, *more[:3]])
    built = page.payload(tables, lambda row: large.records_of(replace(row, method="lts")), lambda task, version: {})
    assert built["parts"] == [
        "Methods of the paper", "Other methods, which learn nothing", "Methods of the paper, recalibrated by isotonic",
    ]  # fmt: skip
    other = built["blocks"][1]["lines"]
    assert [line["status"] for line in other] == ["ok"] * len(large.QUALITY) + ["missing"]
    assert html(built).count('class="part"') == 5
