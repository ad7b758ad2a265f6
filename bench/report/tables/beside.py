"""Rows that belong to a method's: the published numbers and the difference, or intervals and spreads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.metrics import METRICS
from bench.report.tables.cells import BLANK
from bench.report.tables.grid import Cell
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, interval_text, percent, shown, signed

_ESTIMANDS = {"these subjects": "fixed", "other subjects": "clustered"}


def published_rows(table: Table, method: str, line: Line | None, *, is_bare: bool = False) -> Iterator[list[Cell]]:
    """The published numbers, which are there also where ours are not, and the differences; nothing without them.

    Of ours minus published, ± is half the width of our interval unless bare.
    """
    printed, differences = [Cell("published")], [Cell("difference")]
    for name in table.columns:
        cell, metric = table.cell(method, name), METRICS[name]
        if cell is None:
            printed.append(BLANK)
        else:
            spread = "" if is_bare or cell.std is None else f" ±{percent(cell.std)}"
            notes = (f"no target: {cell.reason}",) if cell.reason else ()
            printed.append(Cell(percent(cell.mean) + spread, notes=notes))
        difference = None if line is None else table.difference(line, name)
        half = None if is_bare or line is None else line.estimate(name).half
        text = "" if half is None else f" ±{shown(metric, half)}"
        differences.append(BLANK if difference is None else Cell(signed(metric, difference) + text))
    yield from (cells for cells in (printed, differences) if any(cell.text for cell in cells[1:]))


def interval_rows(line: Line, names: Sequence[str], first: Sequence[str] = ()) -> Iterator[list[Cell]]:
    """Intervals of both kinds, the spread over subjects and the one between seeds, where there are any.

    Args:
        line: a method.
        names: metrics.
        first: what stands before these in the first row.
    """
    rows: dict[str, list[str]] = {}
    for name in names:
        own, metric = line.estimate(name), METRICS[name]
        for label, estimand in _ESTIMANDS.items():
            interval = getattr(own.standing, estimand) if own.standing else None
            text = interval_text(metric, *interval.ends) if interval and interval.ends else ""
            text = text if text and interval.low < 0 else text.replace(" to ", EN_DASH)
            rows.setdefault(label, []).append(text)
        for label, value in (("std over subjects", own.std), ("std between seeds", own.spread)):
            rows.setdefault(label, []).append("" if value is None else shown(metric, value))
    before = first
    for label, texts in rows.items():
        if any(texts):
            yield [*map(Cell, (label, *before, *texts))]
            before = [""] * len(first)


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
