"""Measures of an analysis as rows for people, as data, and beside the paper's numbers where there are some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.api import MeasureColumn
from bench.api.analyses import Value
from bench.report.tables.published import finite, values_of
from bench.report.text import NO_BREAK, count, plain, probability, rounded
from bench.stats.measured import Measured
from bench.stats.variants import Variants

COLUMNS = ("model", "row", "column", "value")
"""Columns of a file of published measures."""
_DECIMALS = {"percent": 1, "points": 1, "number": 3}
_IN_PERCENT = ("percent", "points")

Published = Mapping[tuple[str, str, str], float]
"""Model, row and column -> value, a fraction where it was printed in percent."""


def read_published(found: Measured, results: Path) -> Published:
    """The published numbers of an analysis; empty where there are none.

    Raises:
        UserError: their file is not as it must be.
    """
    kinds = {column.key: column.kind for column in found.measures.columns}

    def value(line: Mapping[str, str]) -> tuple[tuple[str, str, str], float]:
        scale = 100 if kinds.get(line["column"]) in _IN_PERCENT else 1
        return (line["model"], line["row"], line["column"]), finite(line["value"]) / scale

    return dict(values_of(results, found.measures.published, COLUMNS, value, "numbers"))


def title(found: Measured | Variants) -> str:
    """Heading that says of what the numbers are."""
    return (
        f"{found.method} {found.analysis}: {found.model} on {found.task}, preset {found.preset}, seeds"
        f" {', '.join(map(str, found.seeds))}, {found.n:,} questions"
    )


def filled(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Rows without the columns that are empty in all of them."""
    return [{key: row[key] for key in row if any(each[key] for each in rows)} for row in rows]


# --- for people -------------------------------------------------------------------------------------------------------


def value_text(column: MeasureColumn, value: Value) -> str:
    """A value as tables print it; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return plain(value)
    if column.kind == "probability":
        return probability(value)
    if column.kind == "count":
        return count(value)
    text = rounded(*_scaled(column, value))
    return f"+{text}" if column.kind == "points" and value > 0 and text.strip("0.") else text


def interval_text(column: MeasureColumn, row: Mapping[str, Value]) -> str:
    """Ends of the interval of a value, which don't look like 0 unless they are; nothing where there is none."""
    if not column.low or row[column.low] is None or row[column.high] is None:
        return ""
    ends = (row[column.low], row[column.high])
    low, high = (rounded(*_scaled(column, end), never_zero=True) for end in ends if isinstance(end, int | float))
    return f"{low} to {high}"


def _scaled(column: MeasureColumn, value: float) -> tuple[float, int]:
    """Number to print, and its decimals."""
    decimals = _DECIMALS.get(column.kind, 0) if column.decimals is None else column.decimals
    return (100 * value if column.kind in _IN_PERCENT else value), decimals


def blocks(found: Measured, published: Published) -> list[list[dict[str, str]]]:
    """Tables for people, without columns that are empty in all rows: one, or none where nothing was measured."""
    told = []
    for row in found.shown:
        record: dict[str, str] = {}
        for column in found.measures.columns:
            record[column.label] = value_text(column, row[column.key])
            if column.low:
                record[f"{column.label}: interval"] = interval_text(column, row).replace(" ", NO_BREAK)
            paper = published.get((found.model, str(row[found.naming]), column.key))
            record[f"{column.label}: paper"] = value_text(column, paper)
        told.append(record)
    return [filled(told)] if told else []


def verdict(found: Measured) -> str:
    """Question and answer."""
    return f"{found.measures.question} {found.measures.answer}"


def legend(found: Measured, published: Published) -> list[str]:
    """Sentences below the rows."""
    shown, total = len(found.shown), len(found.measures.rows)
    lines = [f"Shown: the first {shown} of {total} rows; CSV and JSON have all."] if shown < total else []
    lines += found.measures.notes
    if any(model == found.model for model, _, _ in published):
        return lines
    for column in found.measures.columns:
        for row in found.measures.rows:
            name = str(row[found.naming])
            values = [value for (_, *where), value in published.items() if where == [name, column.key]]
            if values:
                low, middle, high = (value_text(column, v) for v in (min(values), median(values), max(values)))
                lines.append(
                    f"Paper, {len(values)} other models, single runs: {column.label} of {name} is {low} to {high},"
                    f" median {middle}."
                )
    return lines


# --- as data --------------------------------------------------------------------------------------------------------


def data(found: Measured, published: Published) -> dict[str, object]:
    """Everything, as fractions with all their digits; but for the coloured texts, which are a page."""
    measures = found.measures
    return {
        "method": found.method, "analysis": found.analysis, "model": found.model, "task": found.task,
        "preset": found.preset, "seeds": list(found.seeds), "n": found.n, "question": measures.question,
        "verdict": verdict(found), "columns": [asdict(column) for column in measures.columns],
        "rows": [dict(row) for row in measures.rows], "notes": list(measures.notes),
        "published": [
            {"model": model, "row": row, "column": column, "value": value}
            for (model, row, column), value in published.items()
        ],
    }  # fmt: skip


def records(found: Measured, published: Published) -> Iterator[dict[str, object]]:
    """A record for each row, with all its values and those that the paper has of the same model."""
    printed = dict.fromkeys(column for _, _, column in published)
    for row in found.measures.rows:
        name = str(row[found.naming])
        yield {**row, **{f"published_{key}": published.get((found.model, name, key)) for key in printed}}
