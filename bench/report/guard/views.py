"""Guards as tables: a grid for people, records for CSV, data for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from bench.report.guard.found import Guarded, GuardedLine, GuardedTable
from bench.report.guard.words import lacks, needs, not_less, notes_of, number, share, verdict
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.text import EN_DASH, percent, span

_NONE = "none"


def views_of(tables: Sequence[GuardedTable]) -> TableViews:
    """The guards for every format."""
    return TableViews([_grid(table) for table in tables], partial(_records, tables), partial(_data, tables))


# --- for people -------------------------------------------------------------------------------------------------------


def _grid(found: GuardedTable) -> Grid:
    level = share(found.terms.level)
    columns = (
        Column("method", is_left=True),
        Column(
            "from", is_metric=True,
            sentence="From: answers that are as sure as that, or surer, can be trusted (rounded; CSV and JSON have all"
            " digits).",
        ),
        Column(
            "kept", is_metric=True,
            sentence="Kept: share of the other questions' answers that are as sure as that, in percent.",
        ),
        Column("wrong", is_metric=True, sentence="Wrong: share of mistakes among these, in percent."),
        Column("95 %", droppable=2, sentence="95 %: interval of that share (Clopper and Pearson)."),
        Column(
            "bound", droppable=1, is_metric=True,
            sentence=f"Bound: upper bound of the mistakes at a level of {level}, in percent, of this threshold by"
            " itself; the choice of the threshold is covered by the risk that was asked for.",
        ),
        Column(
            "calibration", droppable=3,
            sentence="Calibration: mistakes among the calibration answers that it keeps.",
        ),
    )  # fmt: skip
    rows = [row for line in found.lines for row in _rows(line)]
    legend = [column.sentence for column in columns if column.sentence]
    if len(found.some) < len(found.tested):
        legend.append("Where there is no threshold, bound and calibration are those of the strictest one.")
    times = sum(len(line.seeds) for line in found.lines)
    if times > 1:
        together = 1 - (1 - found.terms.level) / times
        legend.append(
            f"Each threshold holds by itself. Whoever takes the one that keeps most has looked at {times}: choose the"
            f" method first, or ask for --level {not_less(together)}, at which all of them hold together."
        )
    if any(len(line.seeds) > 1 for line in found.lines):
        legend.append(
            "Each seed is a fit of its own, with a threshold of its own; the line above has their range, and their mean"
            " of Kept."
        )
    remarks = (*needs(found), *found.remarks, *found.table.remarks)
    return Grid((found.title,), columns, tuple(rows), tuple(legend), remarks, verdict(found))


def _rows(line: GuardedLine) -> Iterator[GridRow]:
    label, notes = line.line.key.label, tuple(notes_of(line))
    if not line.seeds:
        status = line.line.status if not line.line.done else EN_DASH
        yield GridRow([Cell(label), Cell(status, notes=notes), *(Cell("") for _ in range(5))])
        return
    if len(line.seeds) == 1:
        yield GridRow(_cells(line.seeds[0], label, notes))
        return
    done = line.done
    risks = [each.realised.risk for each in done if each.realised]
    yield GridRow(
        [
            Cell(label),
            Cell(span([each.threshold for each in done], number) if done else _NONE, notes=notes),
            Cell(percent(line.coverage) if done else EN_DASH),
            Cell(span(risks, percent) if any(risk is not None for risk in risks) else EN_DASH),
            Cell(""),
            Cell(span([each.bound for each in done or line.seeds], percent)),
            Cell(""),
        ]
    )
    for seed in line.seeds:
        yield GridRow(_cells(seed, f"seed {seed.row.seed}", ()), is_under=True)


def _cells(seed: Guarded, label: str, notes: tuple[str, ...]) -> list[Cell]:
    realised, bound, calibration = seed.realised, Cell(percent(seed.bound)), Cell(f"{seed.mistakes:,} of {seed.kept:,}")
    if realised is None or seed.threshold is None:
        return [Cell(label), Cell(_NONE, notes=notes), *(Cell(EN_DASH) for _ in range(3)), bound, calibration]
    interval = realised.risk_interval
    return [
        Cell(label),
        Cell(number(seed.threshold), notes=notes),
        Cell(percent(realised.coverage)),
        Cell(EN_DASH if realised.risk is None else percent(realised.risk)),
        Cell(EN_DASH if interval is None else f"{percent(interval[0])} to {percent(interval[1])}"),
        bound,
        calibration,
    ]


# --- for programs -----------------------------------------------------------------------------------------------------


def _records(tables: Sequence[GuardedTable]) -> list[dict[str, Any]]:
    return [record for table in tables for record in _table_records(table)]


def _table_records(found: GuardedTable) -> Iterator[dict[str, Any]]:
    """A record for each cell, and one for each method without any."""
    for line in found.lines:
        head = {
            "model": found.table.model, "task": found.table.task, "results": found.aside, "method": line.line.method,
            "variant": line.line.variant,
        }  # fmt: skip
        terms = {"risk": found.terms.risk, "level": found.terms.level, "calibrated_on": found.calibrated_on}
        for seed in line.seeds:
            yield {**head, "seed": seed.row.seed, **terms, **record_of(seed)}
        if not line.seeds:
            yield {**head, "seed": None, **terms, "status": line.line.status, "reason": line.reason}


def record_of(seed: Guarded) -> dict[str, Any]:
    """All numbers of a cell."""
    realised = seed.realised
    coverage = (None, None) if realised is None else realised.coverage_interval or (None, None)
    risk = (None, None) if realised is None else realised.risk_interval or (None, None)
    return {
        "status": "ok",
        "threshold": seed.threshold,
        "threshold_of": "score" if seed.is_score else "confidence",
        "bound": seed.bound,
        "calibration_n": len(seed.calibration.values),
        "calibration_kept": seed.kept,
        "calibration_mistakes": seed.mistakes,
        "thresholds_tested": min(seed.guard.passed + 1, len(seed.guard.grid)),
        "rest_n": len(seed.rest.values),
        "rest_kept": None if realised is None else realised.kept,
        "rest_mistakes": None if realised is None else realised.mistakes,
        "coverage": None if realised is None else realised.coverage,
        "coverage_low": coverage[0],
        "coverage_high": coverage[1],
        "realised_risk": None if realised is None else realised.risk,
        "realised_risk_low": risk[0],
        "realised_risk_high": risk[1],
        "calibration_needed": seed.needed if seed.threshold is None else None,
        "reason": "" if seed.threshold is not None else lacks(seed),
    }


def _data(tables: Sequence[GuardedTable]) -> list[dict[str, Any]]:
    return [
        {
            "model": found.table.model,
            "task": found.table.task,
            "results": found.aside,
            "verdict": list(verdict(found)),
            "feasible": {
                "calibration_n": found.feasible.n,
                "calibration_right": found.feasible.right,
                "fewest_without_mistake": found.feasible.fewest,
                "fewest_with_one_mistake": found.feasible.fewest_with_one,
                "least_risk": found.feasible.least_risk,
                "most_kept": found.feasible.most,
            },
            "remarks": list(found.remarks),
            "cells": list(_table_records(found)),
        }
        for found in tables
    ]
