"""Guards as tables: a grid for people, records for CSV, data for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.report.guard.model import Guarded, GuardedTable
from bench.report.guard.verdict import lacks, needs, not_less, notes_of, number, share, verdict
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.text import EN_DASH, percent, span

_NONE = "none"


def views(tables: Sequence[GuardedTable]) -> TableViews:
    """The guards for every format."""

    def data() -> list[dict[str, Any]]:
        return [
            {
                "model": found.table.model, "task": found.table.task, "results": found.aside,
                "verdict": list(verdict(found)),
                "feasible": {
                    "calibration_n": found.feasible.n, "calibration_right": found.feasible.right,
                    "fewest_without_mistake": found.feasible.fewest,
                    "fewest_with_one_mistake": found.feasible.fewest_with_one,
                    "least_risk": found.feasible.least_risk, "most_kept": found.feasible.most,
                },
                "remarks": list(found.remarks), "cells": list(_records(found)),
            }
            for found in tables
        ]  # fmt: skip

    return TableViews(
        [_grid(table) for table in tables], lambda: [record for table in tables for record in _records(table)], data
    )


# --- for people -------------------------------------------------------------------------------------------------------


def _grid(found: GuardedTable) -> Grid:
    level = share(found.request.level)
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
    rows: list[GridRow] = []
    for line in found.lines:
        label, notes, done = line.line.key.label, tuple(notes_of(line)), line.done
        if not line.seeds:
            status = line.line.status if not line.line.done else EN_DASH
            rows.append(GridRow([Cell(label), Cell(status, notes=notes), *[Cell("")] * 5]))
        elif len(line.seeds) == 1:
            rows.append(GridRow(_cells(line.seeds[0], label, notes)))
        else:
            risks = [each.realised.risk for each in done if each.realised and each.realised.risk is not None]
            texts = [
                percent(line.coverage) if done else EN_DASH, span(risks, percent) if risks else EN_DASH, "",
                span([each.bound for each in done or line.seeds], percent), "",
            ]  # fmt: skip
            first = Cell(span([each.threshold for each in done], number) if done else _NONE, notes=notes)
            rows.append(GridRow([Cell(label), first, *map(Cell, texts)]))
            rows += [GridRow(_cells(seed, f"seed {seed.row.seed}", ()), is_under=True) for seed in line.seeds]
    legend = [column.sentence for column in columns if column.sentence]
    if len(found.some) < len(found.tested):
        legend.append("Where there is no threshold, bound and calibration are those of the strictest one.")
    times = sum(len(line.seeds) for line in found.lines)
    if times > 1:
        together = 1 - (1 - found.request.level) / times
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
    return Grid((found.title,), columns, tuple(rows), tuple(legend), remarks, tuple(verdict(found)))


def _cells(seed: Guarded, label: str, notes: tuple[str, ...]) -> list[Cell]:
    realised = seed.realised
    texts = [_NONE, EN_DASH, EN_DASH, EN_DASH]
    if realised is not None and seed.threshold is not None:
        texts = [number(seed.threshold), percent(realised.coverage)]
        texts.append(EN_DASH if realised.risk is None else percent(realised.risk))
        texts.append(" to ".join(map(percent, realised.risk_interval or ())) or EN_DASH)
    texts += [percent(seed.bound), f"{seed.mistakes:,} of {seed.kept:,}"]
    return [Cell(label), Cell(texts[0], notes=notes), *map(Cell, texts[1:])]


# --- for programs -----------------------------------------------------------------------------------------------------


def _records(found: GuardedTable) -> Iterator[dict[str, Any]]:
    """A record for each cell, and one for each method without any."""
    terms = {"risk": found.request.risk, "level": found.request.level, "calibrated_on": found.calibrated_on}
    for line in found.lines:
        head = {
            "model": found.table.model, "task": found.table.task, "results": found.aside, "method": line.line.method,
            "variant": line.line.variant,
        }  # fmt: skip
        if not line.seeds:
            yield {**head, "seed": None, **terms, "status": line.line.status, "reason": line.reason}
        for seed in line.seeds:
            realised, lacking = seed.realised, seed.threshold is None
            coverage = (realised and realised.coverage_interval) or (None, None)
            risk = (realised and realised.risk_interval) or (None, None)
            yield {
                **head, "seed": seed.row.seed, **terms,
                "status": "ok", "threshold": seed.threshold,
                "threshold_of": "score" if seed.is_score else "confidence", "bound": seed.bound,
                "calibration_n": len(seed.calibration.values), "calibration_kept": seed.kept,
                "calibration_mistakes": seed.mistakes,
                "thresholds_tested": min(seed.guard.passed + 1, len(seed.guard.grid)),
                "rest_n": len(seed.rest.values), "rest_kept": realised and realised.kept,
                "rest_mistakes": realised and realised.mistakes, "coverage": realised and realised.coverage,
                "coverage_low": coverage[0], "coverage_high": coverage[1], "realised_risk": realised and realised.risk,
                "realised_risk_low": risk[0], "realised_risk_high": risk[1],
                "calibration_needed": seed.needed if lacking else None, "reason": lacks(seed) if lacking else "",
            }  # fmt: skip
