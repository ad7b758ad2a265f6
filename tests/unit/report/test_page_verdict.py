"""The rows with which the page opens, and the order of its lines, against verdicts and tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.report import page
from bench.report.page import verdict
from bench.report.tables.build import build
from bench.report.tables.model import Table
from bench.report.verdict import verdict_of
from bench.stats import TESTED
from tests.fixtures import large_page as large
from tests.kit.golden import as_cases, check_golden


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    """20 tables: 4 models on 5 benchmarks."""
    return large.tables()


def told(tables):
    data = verdict.verdict_data(tables, [f"table {k}" for k, _ in enumerate(tables)])
    assert data["words"] == [
        [f"table {k}", list(verdict_of(table, table.headline).sentences)] for k, table in enumerate(tables)
    ]
    rows = [f"{row['state']}: {' | '.join(row['texts'])}" for row in data["rows"]]
    return [data["title"], *data["explained"], " | ".join(long for long, _ in data["columns"]), *rows]


def test_page_verdicts_are_those_of_the_golden_file(tables):
    [untested] = build([row for row in large.rows() if (row.model, row.task) == ("qwen32b", "medmcqa")])
    check_golden("page_verdicts.txt", as_cases({
        "one model": told([table for table in tables if table.model == large.MODELS[0]]),
        "all models": told(tables),
        "by NLL": told([tables[0].ordered_by("nll")]),
        "not tested": told([untested]),
        "one method": told([replace(untested, lines=untested.lines[:1])]),
    }))  # fmt: skip


def test_page_orders_and_leaders_of_headlines_are_those_of_tables(tables):
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
