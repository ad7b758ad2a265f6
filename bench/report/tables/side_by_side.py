"""Tables as grids of cells, two models side by side, as in the paper's main table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from bench.api import UserError
from bench.backbone import models as known_models
from bench.report.tables import legend
from bench.report.tables.beside import published_rows
from bench.report.tables.cells import (
    BLANK,
    DASH,
    column_of,
    name_of,
    numbers_of,
    order_in_words,
    parts,
    ranks,
    remarks_of,
)
from bench.report.tables.grid import Cell, Column, Grid, GridRow
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, listed
from bench.report.verdict import verdict_of


def models(tables: Sequence[Table]) -> list[Grid]:
    """The paper's main table: for each task, blocks of two models, means only.

    Models stand in the order of `bench list models`, others after them.

    Raises:
        UserError: the tables of a task differ in preset or task version, or a model has two tables of it.
    """
    by_task: dict[str, list[Table]] = defaultdict(list)
    for table in tables:
        by_task[table.task].append(table)
    order = list(known_models.aliases())
    found = []
    for task, of_task in by_task.items():
        _refuse_mixtures(task, of_task)
        of_task.sort(key=lambda t: (order.index(t.model) if t.model in order else len(order), t.model))
        found += [_side_by_side(of_task[i : i + 2]) for i in range(0, len(of_task), 2)]
    return found


def _refuse_mixtures(task: str, tables: Sequence[Table]) -> None:
    for name, way_out in (("preset", "choose one with --preset"), ("task_version", "run the old ones again")):
        values = {getattr(table, name) for table in tables}
        if len(values) > 1:
            raise UserError(
                f"results on {task} have {name.replace('_', ' ')}s {listed(values)}, which don't belong side by side;"
                f" {way_out}"
            )
    twice = sorted(model for model in {t.model for t in tables} if sum(t.model == model for t in tables) > 1)
    if twice:
        raise UserError(
            f"{listed(twice)} has several tables on {task} (partial or tuned runs, or another protocol), which --layout"
            " models has no place for; leave out --partial and --deviations, and keep tuned results in a folder of"
            " their own"
        )


def _side_by_side(tables: Sequence[Table]) -> Grid:
    keys = dict.fromkeys(line.key for table in tables for line in table.lines)
    columns = [Column("method", is_left=True)]
    for table in tables:
        span = table.model if len(tables) > 1 else ""
        columns += [replace(column, span=span) for column, _ in ranks(table)]
        columns += [column_of(name, table, span=span, is_bare=True) for name in table.columns]
    rows: list[GridRow] = []
    lines = {key: [next((li for li in table.lines if li.key == key), None) for table in tables] for key in keys}
    first = {key: next(line for line in found if line) for key, found in lines.items()}
    for line, is_apart in parts(sorted(first.values(), key=lambda line: _place(line, lines[line.key], tables))):
        own = list(_notes(lines[line.key], tables))
        cells = [Cell(line.method, notes=tuple(dict.fromkeys(own)))]
        for table, found in zip(tables, lines[line.key], strict=True):
            cells += _block(table, found) if found else _missing(line, table)
        leads = all(cell.shaded for cell in cells[1:])
        cells[0] = replace(cells[0], bold=leads, shaded=leads)
        rows.append(GridRow(cells, is_apart=is_apart))
        if tables[0].published is not None:
            rows += _published_side_by_side(tables, line.method, lines[line.key])
    remarks = tuple(dict.fromkeys(remark for table in tables for remark in remarks_of(table)))
    return Grid(
        (*_facts(tables), *order_in_words(tables)), tuple(columns), tuple(rows),
        legend.legend(tables, is_bare=True), remarks, *_verdicts(tables),
        label="-".join((*(table.model for table in tables), tables[0].task)),
    )  # fmt: skip


def _place(line: Line, found: Sequence[Line | None], tables: Sequence[Table]) -> tuple[object, ...]:
    """Sorts lines by part, and in it by the mean over the models; lines that lack a number come last."""
    values = [each.badness(table.headline) if each else None for each, table in zip(found, tables, strict=True)]
    known = [value for value in values if value is not None]
    return line.part, len(known) < len(values), not known, sum(known) / max(len(known), 1), line.place


def _block(table: Table, line: Line) -> list[Cell]:
    """Cells of one model's columns for a line."""
    leads = line.key in {leader.key for leader in table.leaders()}
    cells = [*(text(line) for _, text in ranks(table)), *numbers_of(line, table.columns, is_bare=True)]
    return [replace(cell, shaded=leads) for cell in cells]


def _notes(found: Sequence[Line | None], tables: Sequence[Table]) -> Iterator[str]:
    """Footnotes at a method's name; one that doesn't hold for all the models that it was run with names its model."""
    notes = [name_of(line).notes if line else None for line in found]
    for of_model, table in zip(notes, tables, strict=True):
        for note in of_model or ():
            is_common = all(note in others for others in notes if others is not None)
            yield note if is_common else f"with {table.model}: {note}"


def _verdicts(tables: Sequence[Table]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Sentences of each model's verdict, and which begin a paragraph."""
    found = [verdict_of(table.whole()).sentences for table in tables]
    names = [f"{table.model}: " * (len(tables) > 1) for table in tables]
    named = [(f"{name}{first}", *rest) for name, (first, *rest) in zip(names, found, strict=True)]
    leads = accumulate((len(sentences) for sentences in named[:-1]), initial=0)
    return tuple(sentence for sentences in named for sentence in sentences), tuple(leads)


def _missing(line: Line, table: Table) -> list[Cell]:
    numbers = [Cell(EN_DASH, notes=(table.not_run(line.key.method),))] * len(table.columns)
    return [*[DASH for _ in ranks(table)], *numbers]


def _published_side_by_side(tables: Sequence[Table], method: str, found: Sequence[Line | None]) -> Iterator[GridRow]:
    blocks = [list(published_rows(t, method, line, is_bare=True)) for t, line in zip(tables, found, strict=True)]
    for label in ("published", "difference"):
        cells = [Cell(label)]
        for table, block in zip(tables, blocks, strict=True):
            numbers = next((row[1:] for row in block if row[0].text == label), [BLANK] * len(table.columns))
            cells += [*[BLANK for _ in ranks(table)], *numbers]
        if any(cell.text for cell in cells[1:]):
            yield GridRow(cells, is_under=True)


def _facts(tables: Sequence[Table]) -> tuple[str, ...]:
    """Facts that are the same for both models once, and the rest with the model before it."""
    rest = [table.facts[1:] for table in tables]
    common = [fact for fact in rest[0] if all(fact in facts for facts in rest)]
    own = [f"{t.model}: {fact}" for t, facts in zip(tables, rest, strict=True) for fact in facts if fact not in common]
    return (f"{' and '.join(table.model for table in tables)} on {tables[0].task}", *common, *own)
