"""Tables of guards (confidence thresholds with a certified error rate): for people, for CSV and for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.report.guard.model import GuardedCell, GuardedTable
from bench.report.guard.verdict import (
    describe_needs,
    footnotes,
    format_level,
    format_share,
    format_threshold,
    verdict,
    why_failed,
)
from bench.report.tables.cells import latex_label
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.report.text import EN_DASH, percent, range_text

_NONE = "none"


def views(tables: Sequence[GuardedTable]) -> TableViews:
    """Return the guards of all tables as grids for people, CSV records and JSON data."""

    def data() -> list[dict[str, Any]]:
        return [
            {
                "model": guards.table.model, "task": guards.table.task, "results": guards.aside,
                "verdict": list(verdict(guards)),
                "feasible": {
                    "calibration_n": guards.feasible.n, "calibration_right": guards.feasible.right,
                    "fewest_without_mistake": guards.feasible.fewest,
                    "fewest_with_one_mistake": guards.feasible.fewest_with_one,
                    "least_risk": guards.feasible.least_risk, "most_kept": guards.feasible.most,
                },
                "remarks": list(guards.remarks), "cells": list(_records(guards)),
            }
            for guards in tables
        ]  # fmt: skip

    return TableViews(
        [_grid(table) for table in tables], lambda: [record for table in tables for record in _records(table)], data
    )


# --- for people -------------------------------------------------------------------------------------------------------


def _grid(guards: GuardedTable) -> Grid:
    level = format_share(guards.request.level)
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
    for line in guards.lines:
        label, notes, done = line.line.key.label, tuple(footnotes(line)), line.passed_seeds
        if not line.seeds:
            status = line.line.status if not line.line.ok_rows else EN_DASH
            rows.append(GridRow([Cell(label), Cell(status, notes=notes), *[Cell("")] * 5]))
        elif all(_outcome(seed) == _outcome(line.seeds[0]) for seed in line.seeds):
            if len(line.seeds) > 1:
                label += f", seeds {', '.join(str(seed.row.seed) for seed in line.seeds)}"
            rows.append(GridRow(_cells(line.seeds[0], label, notes)))
        else:
            risks = [cell.realised.risk for cell in done if cell.realised and cell.realised.risk is not None]
            texts = [
                percent(line.coverage), range_text(risks, percent) if risks else EN_DASH, "",
                range_text([cell.bound for cell in done or line.seeds], percent), "",
            ]  # fmt: skip
            threshold = range_text([cell.threshold for cell in done], format_threshold) if done else _NONE
            if done and len(done) < len(line.seeds):
                threshold += f" in {len(done)} of {len(line.seeds)}"
            rows.append(GridRow([Cell(label), Cell(threshold, notes=notes), *map(Cell, texts)]))
            seeds = line.seeds if done else ()  # what all seeds lack is said once
            rows += [GridRow(_cells(seed, f"seed {seed.row.seed}", ()), is_subrow=True) for seed in seeds]
    legend = [column.sentence for column in columns if column.sentence]
    if len(guards.certified) < len(guards.evaluated):
        legend.append("Where there is no threshold, bound and calibration are those of the strictest one.")
    n = sum(len(line.seeds) for line in guards.lines)
    if n > 1 and guards.certified:
        joint_level = 1 - (1 - guards.request.level) / n
        legend.append(
            f"Each threshold holds by itself. Whoever takes the one that keeps most has looked at {n}: choose the"
            f" method first, or ask for --level {format_level(joint_level)}, at which all of them hold together."
        )
    if any(row.is_subrow for row in rows):
        legend.append(
            "Each seed is a fit of its own, with a threshold of its own; the line above has their range, and their mean"
            " of Kept, in which a seed without a threshold counts as 0."
        )
    remarks = (*describe_needs(guards), *guards.remarks, *guards.table.remarks)
    label = latex_label(guards.table, "guard")
    return Grid((guards.title,), columns, tuple(rows), tuple(legend), remarks, tuple(verdict(guards)), label)


def _outcome(seed: GuardedCell) -> tuple[object, ...]:
    """Return all that a seed's row shows; seeds of a method without randomness have the same."""
    return seed.threshold, seed.realised, seed.bound, seed.n_wrong, seed.accepted


def _cells(seed: GuardedCell, label: str, notes: tuple[str, ...]) -> list[Cell]:
    realised = seed.realised
    texts = [_NONE, percent(0.0), EN_DASH, EN_DASH]
    if realised is not None and seed.threshold is not None:
        texts = [format_threshold(seed.threshold), percent(realised.coverage)]
        texts.append(EN_DASH if realised.risk is None else percent(realised.risk))
        texts.append(" to ".join(map(percent, realised.risk_interval or ())) or EN_DASH)
    texts += [percent(seed.bound), f"{seed.n_wrong:,} of {seed.accepted:,}"]
    return [Cell(label), Cell(texts[0], notes=notes), *map(Cell, texts[1:])]


# --- for programs -----------------------------------------------------------------------------------------------------


def _records(guards: GuardedTable) -> Iterator[dict[str, Any]]:
    """Yield the CSV records: one for each method and seed with a guard, and one for each method without guards."""
    settings = {"risk": guards.request.risk, "level": guards.request.level, "calibrated_on": guards.calibrated_on}
    for line in guards.lines:
        base = {
            "model": guards.table.model, "task": guards.table.task, "results": guards.aside, "method": line.line.method,
            "variant": line.line.variant,
        }  # fmt: skip
        if not line.seeds:
            yield {**base, "seed": None, **settings, "status": line.line.status, "reason": line.reason}
        for row in line.line.not_ok_rows if line.seeds else ():
            yield {**base, "seed": row.seed, **settings, "status": row.status, "reason": row.reason}
        for seed in line.seeds:
            realised, failed = seed.realised, seed.threshold is None
            coverage = (realised and realised.coverage_interval) or (None, None)
            risk = (realised and realised.risk_interval) or (None, None)
            yield {
                **base, "seed": seed.row.seed, **settings,
                "status": "ok", "threshold": seed.threshold,
                "threshold_of": "score" if seed.is_score else "confidence", "bound": seed.bound,
                "calibration_n": len(seed.calibration.values), "calibration_kept": seed.accepted,
                "calibration_mistakes": seed.n_wrong,
                "thresholds_tested": min(seed.guard.passed + 1, len(seed.guard.grid)),
                "rest_n": len(seed.rest.values), "rest_kept": realised and realised.accepted,
                "rest_mistakes": realised and realised.mistakes, "coverage": realised and realised.coverage,
                "coverage_low": coverage[0], "coverage_high": coverage[1], "realised_risk": realised and realised.risk,
                "realised_risk_low": risk[0], "realised_risk_high": risk[1],
                "calibration_needed": seed.answers_needed if failed else None,
                "reason": why_failed(seed) if failed else "",
            }  # fmt: skip
