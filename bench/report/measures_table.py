"""Report the measures that an analysis of a method computed (`AnalysisMeasures`), as text and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.api import MeasureColumn
from bench.api.analyses import Value
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.tables.published import finite, values_of
from bench.report.text import NO_BREAK, count, p_text, plain, rounded
from bench.stats.analysis_measures import AnalysisMeasures
from bench.stats.variants import Variants

COLUMNS = ("model", "row", "column", "value")
"""Columns of a CSV file of published measures."""
_DECIMALS = {"percent": 1, "points": 1, "number": 3}
_IN_PERCENT = ("percent", "points")

Published = Mapping[tuple[str, str, str], float]
"""(model, row, column) -> published value. Values that were printed in percent are stored as fractions."""


def read_published(measured: AnalysisMeasures, results: Path) -> Published:
    """Read the values that were published for an analysis; empty if there is no file of such values.

    Raises:
        UserError: the file is malformed.
    """
    kinds = {column.key: column.kind for column in measured.measures.columns}

    def value(line: Mapping[str, str]) -> tuple[tuple[str, str, str], float]:
        scale = 100 if kinds.get(line["column"]) in _IN_PERCENT else 1
        return (line["model"], line["row"], line["column"]), finite(line["value"]) / scale

    return dict(values_of(results, measured.measures.published, COLUMNS, value, "numbers"))


def title(measured: AnalysisMeasures | Variants) -> str:
    """Return the heading of a report: method, analysis, model, task, preset, seeds and number of questions."""
    return (
        f"{measured.method} {measured.analysis}: {measured.model} on {measured.task}, preset {measured.preset}, seeds"
        f" {', '.join(map(str, measured.seeds))}, {measured.n:,} questions"
    )


def about(result: AnalysisMeasures | Variants) -> dict[str, object]:
    """Return the columns with which a CSV record of an analysis begins."""
    return {name: getattr(result, name) for name in ("model", "task", "method", "analysis", "preset")}


def views(measured: AnalysisMeasures, results: Path) -> TableViews:
    """Return the report as a table for people, and as CSV and JSON data.

    Raises:
        UserError: the file of published values in the folder of results is malformed.
    """
    published, answer = read_published(measured, results), verdict(measured)
    table = text_grid(title(measured), measure_rows(measured, published), 1, _legend(measured, published), (answer,))
    return TableViews([table], lambda: [*_records(measured, published)], lambda: [_data(measured, published)])


def text_grid(
    title: str, rows: Sequence[Mapping[str, str]], n_names: int, legend: Sequence[str], verdict: tuple[str, ...] = ()
) -> Grid:
    """Return a table of texts: a row maps column labels to texts, and its first `n_names` columns name it."""
    labels = rows[0] if rows else ()
    columns = [Column(label, is_left=k < n_names, is_metric=k >= n_names) for k, label in enumerate(labels)]
    cells = (GridRow([*map(Cell, row.values())]) for row in rows)
    return Grid((title,), tuple(columns), tuple(cells), tuple(legend), verdict=verdict)


def drop_empty_columns(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of a table without the columns that are empty in all rows."""
    return [{key: row[key] for key in row if any(r[key] for r in rows)} for row in rows]


# --- for people -------------------------------------------------------------------------------------------------------


def value_text(column: MeasureColumn, value: Value) -> str:
    """Format a measured value for a table; None becomes an empty text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return plain(value)
    if column.kind == "probability":
        return p_text(value)
    if column.kind == "count":
        return count(value)
    text = rounded(*_scaled(column, value))
    return f"+{text}" if column.kind == "points" and value > 0 and text.strip("0.") else text


def interval_text(column: MeasureColumn, row: Mapping[str, Value]) -> str:
    """Format the interval of a measured value; empty if the value has none.

    An end is printed as 0 only if it is exactly 0; a small end gets more decimals.
    """
    if not column.low or row[column.low] is None or row[column.high] is None:
        return ""
    ends = (row[column.low], row[column.high])
    low, high = (rounded(*_scaled(column, end), never_zero=True) for end in ends if isinstance(end, int | float))
    return f"{low} to {high}"


def _scaled(column: MeasureColumn, value: float) -> tuple[float, int]:
    """Return a value in printed units, e.g. percent, and the number of decimals to print."""
    decimals = _DECIMALS.get(column.kind, 0) if column.decimals is None else column.decimals
    return (100 * value if column.kind in _IN_PERCENT else value), decimals


def measure_rows(measured: AnalysisMeasures, published: Published) -> list[dict[str, str]]:
    """Return the rows of the table, without empty columns; a row maps column labels to texts."""
    rows = []
    for row in measured.shown_rows:
        record: dict[str, str] = {}
        for column in measured.measures.columns:
            record[column.label] = value_text(column, row[column.key])
            if column.low:
                record[f"{column.label}: interval"] = interval_text(column, row).replace(" ", NO_BREAK)
            published_value = published.get((measured.model, str(row[measured.name_key]), column.key))
            record[f"{column.label}: paper"] = value_text(column, published_value)
        rows.append(record)
    return drop_empty_columns(rows)


def verdict(measured: AnalysisMeasures) -> str:
    """Return the question of the analysis and its answer, as one text."""
    return f"{measured.measures.question} {measured.measures.answer}"


def _legend(measured: AnalysisMeasures, published: Published) -> list[str]:
    """Return the sentences below the table of measures: rows left out, notes, and values published for other models.

    The values of other models are left out if values were published for the measured model.
    """
    shown, total = len(measured.shown_rows), len(measured.measures.rows)
    lines = [f"Shown: the first {shown} of {total} rows; CSV and JSON have all."] if shown < total else []
    lines += measured.measures.notes
    if any(model == measured.model for model, _, _ in published):
        return lines
    for column in measured.measures.columns:
        for row in measured.measures.rows:
            name = str(row[measured.name_key])
            values = [value for (_, *key), value in published.items() if key == [name, column.key]]
            if values:
                low, mid, high = (value_text(column, v) for v in (min(values), median(values), max(values)))
                lines.append(
                    f"Paper, {len(values)} other models, single runs: {column.label} of {name} is {low} to {high},"
                    f" median {mid}."
                )
    return lines


# --- as data --------------------------------------------------------------------------------------------------------


def _data(measured: AnalysisMeasures, published: Published) -> dict[str, object]:
    """Return the whole analysis as JSON data, with unrounded fractions.

    Texts coloured by numbers are left out; the HTML page has them.
    """
    measures = measured.measures
    return {
        "method": measured.method, "analysis": measured.analysis, "model": measured.model, "task": measured.task,
        "preset": measured.preset, "seeds": list(measured.seeds), "n": measured.n, "question": measures.question,
        "verdict": verdict(measured), "columns": [asdict(column) for column in measures.columns],
        "rows": [dict(row) for row in measures.rows], "notes": list(measures.notes),
        "published": [
            {"model": model, "row": row, "column": column, "value": value}
            for (model, row, column), value in published.items()
        ],
    }  # fmt: skip


def _records(measured: AnalysisMeasures, published: Published) -> Iterator[dict[str, object]]:
    """Yield a CSV record for each row: the measured values, and the values published for the same model and row."""
    columns = dict.fromkeys(column for _, _, column in published)
    for row in measured.measures.rows:
        name = str(row[measured.name_key])
        papers = {f"published_{key}": published.get((measured.model, name, key)) for key in columns}
        yield {**about(measured), **row, **papers}
