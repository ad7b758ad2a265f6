"""Lay out tables as grids of cells with one row per method; statistics add grids of further metrics and training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.metrics import METRICS
from bench.report import training
from bench.report.competition import ranked_by
from bench.report.tables import legend
from bench.report.tables.cells import (
    BLANK,
    DASH,
    extra_columns,
    general_footnotes,
    interval_rows,
    latex_label,
    metric_cells,
    metric_column,
    missing_intervals,
    order_sentences,
    published_rows,
    rank_columns,
    seed_sentences,
)  # fmt: skip
from bench.report.tables.grid import MOST_SPREADS, Cell, Column, Grid, GridRow, with_breaks
from bench.report.tables.model import COLUMNS, Table
from bench.report.text import EN_DASH, metric_name, p_text
from bench.report.verdict import summary_of, verdict_of

_CALIBRATION_COLUMNS = ("ece_floor", "ece_debiased", "ece_mass", "smece", "brier_mcb")
"""Metrics of the grid on calibration; its first column is the p value of the test of calibration."""
_RANKING_COLUMNS = tuple(
    name for name in METRICS if name not in {*COLUMNS, *_CALIBRATION_COLUMNS, "ece_ref", "ece_ref_closed"}
)
"""Metrics of the grid on losses and selective prediction: all others except `ece_ref` and `ece_ref_closed`."""
_NAME = Column("method", is_left=True)
_LEADS = (
    "A method leads where no ranked method is significantly better; it is sure where it is significantly better than"
    " every other ranked method, all pairs tested together at 95 %."
)
_MODELS = (
    "Where a benchmark has several models, counts are of models, and from ... to is the smallest and largest of them."
)
_BY = "By is how far the leader is ahead of the next method, with the 95 % interval of this pair alone."
_COST = (
    "Tokens per answer are those that the model reads + generates for the leader, of several for the cheapest, once it"
    " is fitted; labels are those it read."
)


def method_grids(tables: Sequence[Table], *, stats: bool = False) -> list[Grid]:
    """Return one grid (table of cells) for each table, or up to four for each table with `stats`.

    The four grids show the main metrics, calibration, losses and selective prediction, and training.
    """
    grids = []
    for table in tables:
        names, leaders = table.columns, {line.key for line in table.leaders()}
        before, after = rank_columns(table), extra_columns(table, stats=stats)
        columns = [_NAME, *(column for column, _ in before), *(metric_column(name, table) for name in names)]
        columns += [column for column, _ in after]
        rows: list[GridRow] = []
        for line, begins_block in with_breaks(table.lines, lambda line: line.key.recalibration):
            leads = line.key in leaders
            name = Cell(line.method, bold=leads, notes=line.notes + (line.reasons if line.status == "ok" else ()))
            cells = [name, *(text(line) for _, text in before), *metric_cells(line, names)]
            cells += [text(line) for _, text in after]
            rows.append(GridRow(cells, begins_block=begins_block, is_shaded=leads))
            published = list(published_rows(table, line)) if table.published is not None else []
            spreads = list(interval_rows(line, names)) if stats else []
            rows += [
                GridRow(
                    [first, *[BLANK] * len(before), *numbers, *[BLANK] * len(after)],
                    is_subrow=True,
                    is_spread=under is spreads,
                )
                for under in (published, spreads)
                for first, *numbers in under
            ]
        verdict = verdict_of(table)
        remarks = (*(missing_intervals(table.lines, names) if stats else ()), *general_footnotes(table))
        remarks = (*remarks, *(verdict.details if stats else ()))
        main = Grid(
            (*table.facts, *seed_sentences(table.lines), *order_sentences(table)), tuple(columns), tuple(rows),
            legend.legend(table, stats=stats), remarks, verdict.sentences, label=latex_label(table),
        )  # fmt: skip
        grids.append(main)
        if stats and (table.metrics is None or {"ece", *_CALIBRATION_COLUMNS} & set(table.metrics)):
            grids.append(_metrics_grid(table, "calibration", _CALIBRATION_COLUMNS, chance=True))
        if stats and table.metrics is None:
            grids.append(_metrics_grid(table, "losses and selection", _RANKING_COLUMNS, chance=False))
        if stats and any(line.training for line in table.lines):
            grids.append(_training_grid(table))
    return grids


def _metrics_grid(table: Table, title: str, names: Sequence[str], *, chance: bool) -> Grid:
    """Lay out those of the named metrics that the main grid does not show, one row per method.

    If metrics were requested, no further metrics are laid out. `chance` adds a column with the p value of the test of
    calibration.
    """
    names = [n for n in names if n not in table.columns and any(n in line.estimates for line in table.lines)]
    names = names if table.metrics is None else []
    rows: list[GridRow] = []
    for line, begins_block in with_breaks(table.lines, lambda line: line.key.recalibration):
        tested = DASH if line.standing is None else Cell(p_text(line.standing.calibrated_p))
        tested = tested if line.status == "ok" else Cell(line.status, notes=line.reasons)
        cells = [Cell(line.method), *[tested] * chance, *metric_cells(line, names)]
        rows.append(GridRow(cells, begins_block=begins_block))
        spreads = interval_rows(line, names, [""] * chance)
        rows += [GridRow(cells, is_subrow=True, is_spread=True) for cells in spreads]
    sentences = [legend.mean_sentence(table.average, nats=True), legend.HALF, *legend.sign_sentences(table, names)]
    sentences += [legend.CHANCE if chance else legend.DECOMPOSED, *legend.interval_sentences(table)]
    columns = [*[Column("p calibrated")] * chance, *(metric_column(name, table) for name in names)]
    if len(table.lines) > MOST_SPREADS:  # a narrow terminal drops the last columns, and does not print all rows again
        columns = [replace(column, droppable=i, is_metric=False) for i, column in enumerate(columns)]
    already_given = tuple(missing_intervals(table.lines, table.columns))
    reasons = tuple(reason for reason in missing_intervals(table.lines, names) if reason not in already_given)
    titles, label = (f"{table.facts[0]}: {title}",), latex_label(table, title)
    return Grid(titles, (_NAME, *columns), tuple(rows), tuple(sentences), reasons, label=label)


def _training_grid(table: Table) -> Grid:
    """Lay out how methods were trained: a row per trained method, and a subrow per further stage of training."""
    columns = ("kept step", "taken", "limit", "epochs", "train NLL", "validation NLL", "constant's NLL")
    rows: list[GridRow] = []
    for line in table.lines:
        if not line.training:
            continue
        first, *others = training.format_stages(line.training) or [training.Stage("", *[EN_DASH] * 4)]
        name = f"{line.method} ({first.name})" if first.name else line.method
        rows.append(GridRow([*map(Cell, (name, *first[1:], *training.format_losses(line.training)))]))
        rows += [GridRow([*map(Cell, (*stage, "", "", ""))], is_subrow=True) for stage in others]
    head = (_NAME, *map(Column, columns))
    title = f"{table.facts[0]}: training"
    return Grid((title,), head, tuple(rows), (legend.TRAINING,), label=latex_label(table, "training"))


def overview_grid(tables: Sequence[Table]) -> Grid:
    """Lay out which methods lead, in one row per benchmark."""
    summary = summary_of(tables)
    rows = [
        GridRow([*map(Cell, (row.task, str(row.models), row.leads, row.sure, row.by, row.orders, row.cost))])
        for row in summary
    ]
    labels = ("benchmark", "models", "leads", "sure", "by", "orders answers best", "tokens per answer")
    columns = tuple(Column(label, is_left=label != "models") for label in labels)
    several, costs = [_MODELS] * any(row.models > 1 for row in summary), [_COST]
    if tables[0].is_audit:
        columns, rows, costs = columns[:-1], [row._replace(cells=row.cells[:-1]) for row in rows], []
    title = f"Who leads, by {metric_name(ranked_by(tables[0].headline))}"
    return Grid((title,), columns, tuple(rows), (_LEADS, *several, _BY, *costs), is_folded=True)
