"""Rows that belong to a method's: the published numbers and the difference, or intervals and spreads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.metrics import METRICS
from bench.report.tables.cells import BLANK
from bench.report.tables.grid import Cell
from bench.report.tables.model import Line, Table
from bench.report.tables.published import Published
from bench.report.text import EN_DASH, interval_text, percent, shown, signed
from bench.stats import Interval

_ESTIMANDS = {"these subjects": "fixed", "other subjects": "clustered"}


def rows_under(table: Table, line: Line, *, stats: bool) -> Iterator[list[Cell]]:
    """Rows that belong to a method's: their name, then the metrics."""
    if table.published is not None:
        yield from published_rows(table, line.method, line)
    if stats:
        yield from interval_rows(line, table.columns)


def published_rows(table: Table, method: str, line: Line | None, *, is_bare: bool = False) -> Iterator[list[Cell]]:
    """The published numbers, which are there also where ours are not, and the differences; nothing without them."""
    cells = [table.cell(method, name) for name in table.columns]
    if any(cells):
        yield [Cell("published"), *(_published(cell, is_bare=is_bare) for cell in cells)]
    differences = [_difference(table, line, name, is_bare=is_bare) for name in table.columns]
    if any(cell.text for cell in differences):
        yield [Cell("difference"), *differences]


def _difference(table: Table, line: Line | None, name: str, *, is_bare: bool) -> Cell:
    """Ours minus published, ± half the width of our interval unless bare."""
    difference = None if line is None else table.difference(line, name)
    if line is None or difference is None:
        return BLANK
    half = None if is_bare else line.estimate(name).half
    return Cell(signed(METRICS[name], difference) + ("" if half is None else f" ±{shown(METRICS[name], half)}"))


def _published(cell: Published | None, *, is_bare: bool) -> Cell:
    if cell is None:
        return BLANK
    spread = "" if is_bare or cell.std is None else f" ±{percent(cell.std)}"
    return Cell(percent(cell.mean) + spread, notes=(f"no target: {cell.reason}",) if cell.reason else ())


def interval_rows(line: Line, names: Sequence[str], first: Sequence[str] = ()) -> Iterator[list[Cell]]:
    """Intervals of both kinds, the spread over subjects and the one between seeds, where there are any.

    Args:
        line: a method.
        names: metrics.
        first: what stands before these in the first row.
    """
    estimates = [line.estimate(name) for name in names]
    before = list(map(Cell, first))
    for label, estimand in _ESTIMANDS.items():
        ranges = [getattr(e.standing, estimand) if e.standing else None for e in estimates]
        if any(interval and interval.low is not None for interval in ranges):
            yield [Cell(label), *before, *map(range_cell, names, ranges)]
            before = [Cell("")] * len(before)
    for label, values in (
        ("std over subjects", [estimate.std for estimate in estimates]),
        ("std between seeds", [estimate.spread for estimate in estimates]),
    ):
        if any(value is not None for value in values):
            yield [Cell(label), *before, *map(_spread, names, values)]
            before = [Cell("")] * len(before)


def no_intervals(lines: Sequence[Line], names: Sequence[str]) -> Iterator[str]:
    """Why intervals are missing."""
    for label, estimand in _ESTIMANDS.items():
        found = [
            getattr(e.standing, estimand)
            for line in lines
            for n, e in line.estimates.items()
            if n in names and e.standing
        ]
        yield from dict.fromkeys(f"no interval ({label}): {range_.reason}" for range_ in found if range_.reason)


def range_cell(name: str, interval: Interval | None) -> Cell:
    """Ends of an interval; nothing where there is none."""
    if interval is None or interval.low is None or interval.high is None:
        return BLANK
    text = interval_text(METRICS[name], interval.low, interval.high)
    return Cell(text if interval.low < 0 else text.replace(" to ", EN_DASH))


def _spread(name: str, value: float | None) -> Cell:
    return BLANK if value is None else Cell(shown(METRICS[name], value))
