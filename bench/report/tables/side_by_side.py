"""Lay out tables as grids with two models side by side, as in the paper's main table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from bench.api import UserError
from bench.model import specs as known_models
from bench.report.tables import legend
from bench.report.tables.cells import (
    BLANK,
    DASH,
    general_footnotes,
    lines_with_breaks,
    method_cell,
    metric_cells,
    metric_column,
    order_sentences,
    published_rows,
    rank_columns,
)
from bench.report.tables.grid import Cell, Column, Grid, GridRow
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, join
from bench.report.verdict import verdict_of


def model_grids(tables: Sequence[Table]) -> list[Grid]:
    """Lay out tables as grids that show two models side by side on one task, with means only.

    Models are in the order of `bench list models`, and other models come after them.

    Raises:
        UserError: the tables of a task differ in preset or task version, or a model has several tables of one task.
    """
    by_task: dict[str, list[Table]] = defaultdict(list)
    for table in tables:
        by_task[table.task].append(table)
    order = list(known_models.aliases())
    grids = []
    for task, task_tables in by_task.items():
        for name, remedy in (("preset", "choose one with --preset"), ("task_version", "run the old ones again")):
            values = {getattr(table, name) for table in task_tables}
            if len(values) > 1:
                raise UserError(
                    f"results on {task} have {name.replace('_', ' ')}s {join(values)}, which don't belong side by"
                    f" side; {remedy}"
                )
        repeated = [model for model, n in Counter(table.model for table in task_tables).items() if n > 1]
        if repeated:
            raise UserError(
                f"{join(repeated)} has several tables on {task} (other training questions, partial or tuned runs, or"
                " another protocol), which --layout models has no place for; choose --train-on own or a corpus, leave"
                " out --partial and --deviations, and keep tuned results in a folder of their own"
            )
        task_tables.sort(key=lambda t: (order.index(t.model) if t.model in order else len(order), t.model))
        grids += [_pair_grid(task_tables[i : i + 2]) for i in range(0, len(task_tables), 2)]
    return grids


def _pair_grid(tables: Sequence[Table]) -> Grid:
    columns = [Column("method", is_left=True)]
    for table in tables:
        span = table.model if len(tables) > 1 else ""
        columns += [replace(column, span=span) for column, _ in rank_columns(table)]
        columns += [metric_column(name, table, span=span, is_bare=True) for name in table.columns]
    keys = dict.fromkeys(line.key for table in tables for line in table.lines)
    lines = {key: [next((li for li in table.lines if li.key == key), None) for table in tables] for key in keys}
    leaders = [{line.key for line in table.leaders()} for table in tables]

    def sort_key(line: Line) -> tuple[object, ...]:
        """Return the sort key of a method: its block, then its mean over the models; missing values come last."""
        entries = zip(lines[line.key], tables, strict=True)
        values = [value for entry, table in entries if entry and (value := entry.badness(table.headline)) is not None]
        return (
            line.key.recalibration,
            len(values) < len(tables),
            not values,
            sum(values) / max(len(values), 1),
            line.place,
        )

    rows: list[GridRow] = []
    first_lines = (next(line for line in entries if line) for entries in lines.values())
    for line, begins_block in lines_with_breaks(sorted(first_lines, key=sort_key)):
        entries = lines[line.key]
        # a footnote that doesn't hold for all models with which the method was run names its model
        notes, all_notes = list[str](), [method_cell(entry).notes if entry else None for entry in entries]
        for line_notes, table in zip(all_notes, tables, strict=True):
            for note in line_notes or ():
                is_common = all(note in others for others in all_notes if others is not None)
                notes.append(note if is_common else f"with {table.model}: {note}")
        cells = [Cell(line.method, notes=tuple(dict.fromkeys(notes)))]
        for table, entry, leading_keys in zip(tables, entries, leaders, strict=True):
            if entry is None:
                missing = Cell(EN_DASH, notes=(table.not_run(line.key.method),))
                cells += [DASH] * len(rank_columns(table)) + [missing] * len(table.columns)
            else:
                items = [
                    *(text(entry) for _, text in rank_columns(table)),
                    *metric_cells(entry, table.columns, is_bare=True),
                ]
                cells += [replace(cell, shaded=line.key in leading_keys) for cell in items]
        leads = all(cell.shaded for cell in cells[1:])
        cells[0] = replace(cells[0], bold=leads, shaded=leads)
        rows.append(GridRow(cells, begins_block=begins_block))
        if tables[0].published is None:
            continue
        blocks = [[*published_rows(t, line.method, e, is_bare=True)] for t, e in zip(tables, entries, strict=True)]
        for label in ("published", "difference"):
            cells = [Cell(label)]
            for table, block in zip(tables, blocks, strict=True):
                numbers = next((row[1:] for row in block if row[0].text == label), [BLANK] * len(table.columns))
                cells += [BLANK] * len(rank_columns(table)) + numbers
            if any(cell.text for cell in cells[1:]):
                rows.append(GridRow(cells, is_subrow=True))
    # facts that hold for both models are said once, each other fact after the name of its model
    all_facts = [table.facts[1:] for table in tables]
    facts = [fact for fact in all_facts[0] if all(fact in facts for facts in all_facts)]
    facts += [f"{t.model}: {fact}" for t, f in zip(tables, all_facts, strict=True) for fact in f if fact not in facts]
    sentences, paragraphs = list[str](), list[int]()
    for table in tables:  # the verdict on each table is a paragraph
        paragraphs.append(len(sentences))
        opening, *others = verdict_of(table).sentences
        sentences += [f"{table.model}: " * (len(tables) > 1) + opening, *others]
    remarks = dict.fromkeys(remark for table in tables for remark in general_footnotes(table))
    names = [table.model for table in tables]
    return Grid(
        (f"{' and '.join(names)} on {tables[0].task}", *facts, *order_sentences(tables)), tuple(columns), tuple(rows),
        legend.legend(tables, is_bare=True), tuple(remarks), tuple(sentences), tuple(paragraphs),
        label="-".join((*names, tables[0].task)),
    )  # fmt: skip
