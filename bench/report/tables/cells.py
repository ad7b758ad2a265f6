"""Build the cells, columns and subrows of a table whose rows are methods.

A subrow stands below a method's row. It holds published numbers, differences, intervals or standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench.metrics import METRICS
from bench.report.competition import SIGNS, ranked_by
from bench.report.grouping import common_corpus
from bench.report.tables import legend
from bench.report.tables.grid import Cell, Column
from bench.report.tables.model import Line, Table
from bench.report.text import ARROWS, EN_DASH, count, interval_text, percent, range_text, signed, value_text
from bench.report.verdict.phrases import cost_phrase

DASH = Cell(EN_DASH)
BLANK = Cell("")
_DROP_PRIORITY = {"aucpr": 6, "acc": 7}
"""Order in which a narrow terminal drops metrics, the largest number first; metrics in `--metrics` are kept."""
_ESTIMANDS = {"these subjects": "fixed", "other subjects": "clustered"}


def latex_label(table: Table, *more: str) -> str:
    """Return the LaTeX label of a table, made of model, task, training corpus and the words in `more`."""
    return "-".join((table.model, table.task, *filter(None, [common_corpus(table.all_rows)]), *more))


def metric_column(name: str, table: Table) -> Column:
    """Return the column of a metric; the heading of ECE also names the ECE floor, if a method has one."""
    metric, is_droppable = METRICS[name], table.metrics is None and name != table.headline
    floor = "/floor" * (name == "ece" and any("ece_floor" in li.estimates for li in table.lines))
    label = metric.label + floor + ARROWS[metric.higher_is_better]
    sentence = legend.ACC if name == "acc" else ""
    return Column(label, droppable=_DROP_PRIORITY.get(name, 0) * is_droppable, is_metric=True, sentence=sentence)


def metric_cells(line: Line, names: Sequence[str]) -> list[Cell]:
    """Return the cells of a method's metrics: means with ± half the interval's width, and the ECE floor behind an ECE.

    Signs and footnotes follow. If no seed of the method is ok, each cell shows the method's status.
    """
    if line.status != "ok":
        return [Cell(line.status, notes=line.reasons)] * len(names)
    cells, floor = [], line.estimate("ece_floor").mean
    for name in names:
        estimate, metric = line.estimates.get(name), METRICS[name]
        if estimate is None or estimate.mean is None:
            cells.append(DASH if estimate is None else Cell("undefined", notes=estimate.notes))
            continue
        text = value_text(metric, estimate.mean)
        text += "" if estimate.half is None else f" ±{value_text(metric, estimate.half)}"
        text += "" if floor is None or name != "ece" else f" / {percent(floor)}"
        signs = legend.DAGGER * (name == "ece" and line.is_calibrated and line.orders_answers)
        signs += SIGNS[estimate.best] if estimate.best else ""
        signs += legend.WORSE * (name == "brier" and line.is_worse_than_constant)
        cells.append(Cell(text, estimate.best == "beyond chance", signs, estimate.notes))
    return cells


def rank_columns(table: Table) -> list[tuple[Column, Callable[[Line], Cell]]]:
    """Return a list with the rank column and the function that fills its cells; an empty list if there are no ranks."""
    leaders = {line.key for line in table.leaders()}

    def rank(line: Line) -> Cell:
        value, is_leader = line.rank(table.headline), line.key in leaders
        return DASH if value is None else Cell(f"{legend.LEADS * is_leader}{value}", bold=is_leader)

    has_ranks = any(line.rank(table.headline) is not None for line in table.lines)
    return [(Column("rank"), rank)] * has_ranks


def extra_columns(table: Table, *, stats: bool) -> list[tuple[Column, Callable[[Line], Cell]]]:
    """Return the columns after the metrics (seeds, n, cost, group), each with the function that fills its cells.

    Left out are groups if all methods are of one; seeds if all methods have as many, and no method has both ok seeds
    and others; the number of questions, n, if it is the same for all.
    """

    def seeds(line: Line) -> Cell:
        return Cell(f"{len(line.seeds)} of " * (len(line.seeds) != line.n_runs) + str(line.n_runs))

    def labels(line: Line) -> Cell:
        totals = [seen.train + seen.validation + seen.gold for seen in line.labels]
        return DASH if line.status != "ok" else Cell(range_text(totals, count) if any(totals) else "none")

    def tokens(line: Line) -> Cell:
        return Cell(cost_phrase(line).partition(", ")[0]) if line.answer_tokens else DASH

    columns: list[tuple[Column, Callable[[Line], Cell]]] = []
    if _seeds_differ(table.lines):
        columns.append((Column("seeds", droppable=3, sentence=legend.SEEDS), seeds))
    if len({line.n for line in table.lines if line.n is not None}) > 1:
        columns.append((Column("n", droppable=4), lambda line: DASH if line.n is None else Cell(count(line.n))))
    if not table.is_audit:
        columns.append((Column("labels", droppable=1, is_in_latex=stats, sentence=legend.LABELS_AS_SUM), labels))
    if any(line.answer_tokens for line in table.lines):
        columns.append((Column("tokens", droppable=2, is_in_latex=stats, sentence=legend.TOKENS), tokens))
    if legend.has_groups(table.lines):
        columns.append((Column("group", droppable=5, sentence=legend.GROUPS), lambda line: Cell(line.group)))
    return columns


def _seeds_differ(lines: Sequence[Line]) -> bool:
    return len({line.n_runs for line in lines}) > 1 or any(0 < len(line.seeds) < line.n_runs for line in lines)


def seed_sentences(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a sentence on the number of seeds, if all methods have the same number and more than one."""
    if lines and lines[0].n_runs > 1 and not _seeds_differ(lines):
        yield f"Every method ran with {lines[0].n_runs} seeds."


def order_sentences(table: Table) -> Iterator[str]:
    """Yield a sentence that names the metric by which rows are sorted, if no column shows this metric."""
    if ranked_by(table.headline) not in table.columns:
        yield f"{legend.order_sentence(table.headline)[:-1]}, which is not shown."


def general_footnotes(table: Table) -> tuple[str, ...]:
    """Return the footnotes of the table that belong to no cell."""
    has_published = any(table.cell(line.method, name) for line in table.lines for name in table.columns)
    missing = f"The paper has nothing to compare {table.facts[0]} with."
    return (*table.remarks, *[missing] * (table.published is not None and not has_published))


def published_rows(table: Table, line: Line) -> Iterator[list[Cell]]:
    """Yield a subrow with a method's published numbers and one with differences, if there are published numbers.

    A difference is the measured mean minus the published mean, with ± half the width of the measured mean's interval.
    """
    printed, differences = [Cell("published")], [Cell("difference")]
    for name in table.columns:
        cell, metric = table.cell(line.method, name), METRICS[name]
        if cell is None:
            printed.append(BLANK)
        else:
            spread = "" if cell.std is None else f" ±{percent(cell.std)}"
            notes = (f"no target: {cell.reason}",) if cell.reason else ()
            printed.append(Cell(percent(cell.mean) + spread, notes=notes))
        difference, half = table.difference(line, name), line.estimate(name).half
        text = "" if half is None else f" ±{value_text(metric, half)}"
        differences.append(BLANK if difference is None else Cell(signed(metric, difference) + text))
    yield from (cells for cells in (printed, differences) if any(cell.text for cell in cells[1:]))


def interval_rows(line: Line, names: Sequence[str], leading: Sequence[str] = ()) -> Iterator[list[Cell]]:
    """Yield the subrows below a method: intervals and standard deviations of each metric.

    Intervals are for the same subjects and for other subjects; deviations are over subjects and between seeds.

    Args:
        line: line (method) of the table.
        names: names of the metrics.
        leading: texts of the cells between the label and the metrics.
    """
    rows: dict[str, list[str]] = {}
    for name in names:
        estimate, metric = line.estimate(name), METRICS[name]
        for label, estimand in _ESTIMANDS.items():
            ends = getattr(estimate.standing, estimand).ends if estimate.standing else None
            text = interval_text(metric, *ends) if ends else ""
            text = text if ends and ends[0] < 0 else text.replace(" to ", EN_DASH)
            rows.setdefault(label, []).append(text)
        none = EN_DASH * (estimate.mean is not None)  # of one subject there is no deviation
        for label, value, no in (("std over subjects", estimate.std, none), ("std between seeds", estimate.spread, "")):
            rows.setdefault(label, []).append(no if value is None else value_text(metric, value))
    for label, texts in rows.items():
        if any(texts):
            yield [*map(Cell, (label, *leading, *texts))]


def missing_intervals(lines: Sequence[Line], names: Sequence[str]) -> Iterator[str]:
    """Yield the distinct reasons why intervals are missing, as sentences."""
    for label, estimand in _ESTIMANDS.items():
        cis = [
            getattr(value.standing, estimand)
            for line in lines
            for name, value in line.estimates.items()
            if name in names and value.standing
        ]
        yield from dict.fromkeys(f"no interval ({label}): {ci.reason}" for ci in cis if ci.reason)
