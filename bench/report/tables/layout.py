"""Comparison tables as grids of cells: one method a row, or the paper's layout with two models side by side.

Under a method's row may stand rows that belong to it: the published numbers and the difference, or intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from bench.api import UserError
from bench.backbone import models as known_models
from bench.metrics import METRICS
from bench.report import training
from bench.report.standings.compute import Range
from bench.report.tables import legend
from bench.report.tables.best import SIGNS, judged_by
from bench.report.tables.grid import Cell, Column, Grid, GridRow
from bench.report.tables.model import Line, Table
from bench.report.tables.published import Published
from bench.report.text import ARROWS, EN_DASH, count, interval_text, listed, percent, probability, shown, signed, span
from bench.report.verdict import verdict_of

_CALIBRATION_COLUMNS = ("ece_debiased", "ece_floor", "ece_mass", "smece", "brier_mcb")
"""Columns of the second table with statistics; before them stand the test of calibration and the ECE without chance."""
_RANKING_COLUMNS = ("nll", "brier_dsc", "brier_unc", "aurc", "eaurc", "coverage95")
"""Columns of the third."""
_DASH = Cell(EN_DASH)
_BLANK = Cell("")
_SPARED = {"aucpr": 1, "acc": 2}
"""Metrics that a terminal too narrow for all leaves out, the largest number first, unless they were asked for."""
_ESTIMANDS = {"these subjects": "fixed", "other subjects": "clustered"}


# --- one method a row -------------------------------------------------------------------------------------------------


def methods(tables: Sequence[Table], *, stats: bool = False) -> list[Grid]:
    """One grid for each model and task; with statistics, up to four."""
    return [grid for table in tables for grid in _grids(table, stats=stats)]


def _grids(table: Table, *, stats: bool) -> Iterator[Grid]:
    yield _main(table, stats=stats)
    if stats:
        if table.metrics is None or {"ece", *_CALIBRATION_COLUMNS} & set(table.metrics):
            yield _further(table, "calibration", _CALIBRATION_COLUMNS, chance=True)
        if table.metrics is None:
            yield _further(table, "losses and selection", _RANKING_COLUMNS, chance=False)
        if any(line.training for line in table.lines):
            yield _trained(table)


def _main(table: Table, *, stats: bool) -> Grid:
    names, leaders = table.columns, {line.key for line in table.leaders()}
    before, after = list(_before(table)), list(_extras(table, stats=stats))
    columns = [Column("method", is_left=True), *(column for column, _ in before)]
    columns += [_column(name, table) for name in names]
    columns += [column for column, _ in after]
    rows: list[GridRow] = []
    for line, is_apart in _parts(table.lines):
        leads = line.key in leaders
        cells = [_name(line, leads=leads), *(text(line) for _, text in before), *_numbers(line, names)]
        cells += [text(line) for _, text in after]
        rows.append(GridRow([replace(cell, shaded=leads) for cell in cells], is_apart=is_apart))
        rows += [
            GridRow([first, *[_BLANK] * len(before), *numbers, *[_BLANK] * len(after)], is_under=True)
            for first, *numbers in _under(table, line, stats=stats)
        ]
    remarks = (*(_no_intervals(table.lines, names) if stats else ()), *_remarks(table))
    return Grid(
        (*table.facts, *_seeds_in_words(table.lines), *_order_in_words([table])), tuple(columns), tuple(rows),
        legend.legend([table], stats=stats), remarks, verdict_of(table.whole()).sentences, label=_label(table),
    )  # fmt: skip


def _label(table: Table, *more: str) -> str:
    return "-".join((table.model, table.task, *more))


def _column(name: str, table: Table, *, span: str = "", is_bare: bool = False) -> Column:
    metric, is_spared = METRICS[name], table.metrics is None and name != table.headline
    floor = "/floor" * (name == "ece" and not is_bare and any("ece_floor" in li.estimates for li in table.lines))
    label = metric.label + floor + ARROWS[metric.higher_is_better]
    return Column(label, span, droppable=_SPARED.get(name, 0) * is_spared, is_metric=True)


def _name(line: Line, *, leads: bool = False) -> Cell:
    return Cell(line.method, bold=leads, notes=line.notes + (line.reasons if line.status == "ok" else ()))


def _parts(lines: Sequence[Line]) -> Iterator[tuple[Line, bool]]:
    """Lines, and whether each begins a part: recalibrated methods stand apart, and so do groups."""
    before = None
    for line in lines:
        yield line, before not in {None, line.part}
        before = line.part


def _numbers(line: Line, names: Sequence[str], *, is_bare: bool = False) -> list[Cell]:
    """Means; with ± and an ECE's floor unless bare."""
    if line.status != "ok":
        return [Cell(line.status, notes=line.reasons)] * len(names)
    return [_number(line, name, is_bare=is_bare) for name in names]


def _number(line: Line, name: str, *, is_bare: bool) -> Cell:
    estimate = line.estimates.get(name)
    if estimate is None:
        return _DASH
    if estimate.mean is None:
        return Cell("undefined", notes=estimate.notes)
    metric = METRICS[name]
    text = shown(metric, estimate.mean)
    if not is_bare:
        text += "" if estimate.half is None else f" ±{shown(metric, estimate.half)}"
        text += _floor(line) if name == "ece" else ""
    return Cell(text, estimate.best == "beyond chance", _signs(line, name), estimate.notes)


def _floor(line: Line) -> str:
    floor = line.estimate("ece_floor").mean
    return "" if floor is None else f" / {percent(floor)}"


def _signs(line: Line, name: str) -> str:
    """Signs that the legend explains, after a number."""
    best = line.estimates[name].best
    signs = legend.DAGGER * (name == "ece" and line.is_calibrated and line.orders_answers)
    signs += SIGNS[best] if best else ""
    return signs + legend.WORSE * (name == "brier" and line.is_worse_than_constant)


def _before(table: Table) -> Iterator[tuple[Column, Callable[[Line], Cell]]]:
    """The column of ranks, if there are any, with what stands in it."""
    leaders = {line.key for line in table.leaders()}

    def rank(line: Line) -> Cell:
        found, leads = line.rank(table.headline), line.key in leaders
        return _DASH if found is None else Cell(f"{legend.LEADS * leads}{found}", bold=leads)

    if any(line.rank(table.headline) is not None for line in table.lines):
        yield Column("rank"), rank


def _extras(table: Table, *, stats: bool) -> Iterator[tuple[Column, Callable[[Line], Cell]]]:
    """Columns after the metrics that this table needs, with what stands in them."""
    if _seeds_differ(table.lines):
        yield Column("seeds", droppable=3, sentence=legend.SEEDS), _seeds
    if len({line.n for line in table.lines if line.n is not None}) > 1:
        yield Column("n", droppable=4), lambda line: _DASH if line.n is None else Cell(count(line.n))
    yield Column("labels", droppable=5, is_in_latex=stats, sentence=legend.LABELS), _labels


def _seeds(line: Line) -> Cell:
    return Cell(str(line.runs) if len(line.seeds) == line.runs else f"{len(line.seeds)} of {line.runs}")


def _seeds_differ(lines: Sequence[Line]) -> bool:
    return len({line.runs for line in lines}) > 1 or any(0 < len(line.seeds) < line.runs for line in lines)


def _seeds_in_words(lines: Sequence[Line]) -> Iterator[str]:
    if lines and lines[0].runs > 1 and not _seeds_differ(lines):
        yield f"Every method ran with {lines[0].runs} seeds."


def _order_in_words(tables: Sequence[Table]) -> Iterator[str]:
    """Sentence on the metric that rows are ordered by, where no column has it."""
    headline = tables[0].headline
    if not {headline, judged_by(headline)} & {*tables[0].columns, *map(judged_by, tables[0].columns)}:
        yield f"{legend.order_alone(tables)[:-1]}, which is not shown."


def _labels(line: Line) -> Cell:
    """Training / validation, e.g. `1,280 gold/320`."""
    if line.status != "ok":
        return _DASH
    train, validation, gold = (
        span((getattr(labels, split) for labels in line.labels), count) for split in ("train", "validation", "gold")
    )
    if {train, validation, gold} == {"0"}:
        return Cell("none")
    return Cell(
        "/".join((train if gold == "0" else f"{gold} gold" if train == "0" else f"{train}+{gold} gold", validation))
    )


# --- rows under a method ----------------------------------------------------------------------------------------------


def _under(table: Table, line: Line, *, stats: bool) -> Iterator[list[Cell]]:
    """Rows that belong to a method's: their name, then the metrics."""
    if table.published is not None:
        yield from _beside_published(table, line.method, line)
    if stats:
        yield from _beside_intervals(line, table.columns)


def _beside_published(table: Table, method: str, line: Line | None, *, is_bare: bool = False) -> Iterator[list[Cell]]:
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
        return _BLANK
    half = None if is_bare else line.estimate(name).half
    return Cell(signed(METRICS[name], difference) + ("" if half is None else f" ±{shown(METRICS[name], half)}"))


def _published(cell: Published | None, *, is_bare: bool) -> Cell:
    if cell is None:
        return _BLANK
    spread = "" if is_bare or cell.std is None else f" ±{percent(cell.std)}"
    return Cell(percent(cell.mean) + spread, notes=(f"no target: {cell.reason}",) if cell.reason else ())


def _beside_intervals(line: Line, names: Sequence[str], first: Sequence[str] = ()) -> Iterator[list[Cell]]:
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
            yield [Cell(label), *before, *map(_range, names, ranges)]
            before = [Cell("")] * len(before)
    for label, values in (
        ("std over subjects", [estimate.std for estimate in estimates]),
        ("std between seeds", [estimate.spread for estimate in estimates]),
    ):
        if any(value is not None for value in values):
            yield [Cell(label), *before, *map(_spread, names, values)]
            before = [Cell("")] * len(before)


def _no_intervals(lines: Sequence[Line], names: Sequence[str]) -> Iterator[str]:
    """Why intervals are missing."""
    for label, estimand in _ESTIMANDS.items():
        found = [
            getattr(e.standing, estimand)
            for line in lines
            for n, e in line.estimates.items()
            if n in names and e.standing
        ]
        yield from dict.fromkeys(f"no interval ({label}): {range_.reason}" for range_ in found if range_.reason)


def _range(name: str, interval: Range | None) -> Cell:
    if interval is None or interval.low is None or interval.high is None:
        return _BLANK
    text = interval_text(METRICS[name], interval.low, interval.high)
    return Cell(text if interval.low < 0 else text.replace(" to ", EN_DASH))


def _spread(name: str, value: float | None) -> Cell:
    return _BLANK if value is None else Cell(shown(METRICS[name], value))


# --- further statistics -----------------------------------------------------------------------------------------------


def _further(table: Table, title: str, names: Sequence[str], *, chance: bool) -> Grid:
    """Metrics beyond the paper's, without those that the main table has."""
    names = [n for n in names if n not in table.columns and any(n in line.estimates for line in table.lines)]
    names = names if table.metrics is None else []
    head = [Column("method", is_left=True)]
    head += [Column("p calibrated"), Column("ECE without chance ↓")] if chance else []
    rows: list[GridRow] = []
    for line, is_apart in _parts(table.lines):
        failed = Cell(line.status, notes=line.reasons)
        tested = (_tested(line) if line.status == "ok" else [failed, failed]) if chance else []
        rows.append(GridRow([Cell(line.method, notes=line.notes), *tested, *_numbers(line, names)], is_apart=is_apart))
        blank = ("", _range("ece", line.standing.calibration).text) if chance and line.standing else ()
        rows += [GridRow(cells, is_under=True) for cells in _beside_intervals(line, names, blank)]
    sentences = [legend.mean(nats=True), legend.HALF, *legend.marks([table], names)]
    sentences += [legend.CHANCE if chance else legend.DECOMPOSED, *legend.intervals([table])]
    columns = (*head, *(_column(name, table) for name in names))
    return Grid(
        (f"{table.facts[0]}: {title}",), columns, tuple(rows), tuple(sentences),
        tuple(_no_intervals(table.lines, names)), label=_label(table, title),
    )  # fmt: skip


def _tested(line: Line) -> list[Cell]:
    standing = line.standing
    if standing is None:
        return [_DASH, _DASH]
    return [Cell(probability(standing.calibrated_p)), Cell(percent(standing.calibration_error))]


def _trained(table: Table) -> Grid:
    """Training: a row for each method that trained, and one below for each further stage."""
    columns = ("kept step", "taken", "limit", "epochs", "train NLL", "validation NLL", "constant's NLL")
    rows: list[GridRow] = []
    for line in table.lines:
        if not line.training:
            continue
        first, *others = training.stages(line.training) or [training.Stage("", *[EN_DASH] * 4)]
        name = f"{line.method} ({first.name})" if first.name else line.method
        rows.append(GridRow([*map(Cell, (name, *first[1:], *training.losses(line.training)))]))
        rows += [GridRow([*map(Cell, (*stage, "", "", ""))], is_under=True) for stage in others]
    head = (Column("method", is_left=True), *map(Column, columns))
    title = f"{table.facts[0]}: training"
    return Grid((title,), head, tuple(rows), (legend.TRAINING,), label=_label(table, "training"))


def _remarks(table: Table) -> tuple[str, ...]:
    found = any(table.cell(line.method, name) for line in table.lines for name in table.columns)
    nothing = f"The paper has nothing to compare {table.facts[0]} with."
    return (*table.remarks, *[nothing] * (table.published is not None and not found))


# --- two models side by side ------------------------------------------------------------------------------------------


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
            f"{listed(twice)} has several tables on {task} (partial runs, or another protocol), which --layout models"
            " has no place for; leave out --partial and --deviations"
        )


def _side_by_side(tables: Sequence[Table]) -> Grid:
    keys = dict.fromkeys(line.key for table in tables for line in table.lines)
    columns = [Column("method", is_left=True)]
    for table in tables:
        span = table.model if len(tables) > 1 else ""
        columns += [replace(column, span=span) for column, _ in _before(table)]
        columns += [_column(name, table, span=span, is_bare=True) for name in table.columns]
    rows: list[GridRow] = []
    lines = {key: [next((li for li in table.lines if li.key == key), None) for table in tables] for key in keys}
    first = {key: next(line for line in found if line) for key, found in lines.items()}
    for line, is_apart in _parts(sorted(first.values(), key=lambda line: _place(line, lines[line.key], tables))):
        own = [note for found in lines[line.key] if found for note in _name(found).notes]
        cells = [Cell(line.method, notes=tuple(dict.fromkeys(own)))]
        for table, found in zip(tables, lines[line.key], strict=True):
            cells += _block(table, found) if found else _missing(line, table)
        rows.append(GridRow(cells, is_apart=is_apart))
        if tables[0].published is not None:
            rows += _published_side_by_side(tables, line.method, lines[line.key])
    remarks = tuple(dict.fromkeys(remark for table in tables for remark in _remarks(table)))
    return Grid(
        (*_facts(tables), *_order_in_words(tables)), tuple(columns), tuple(rows),
        legend.legend(tables, is_bare=True), remarks, *_verdicts(tables),
        label="-".join((*(table.model for table in tables), tables[0].task)),
    )  # fmt: skip


def _place(line: Line, found: Sequence[Line | None], tables: Sequence[Table]) -> tuple[object, ...]:
    """Sorts lines by part, and in it by the mean over the models; lines that lack a number come last."""
    values = [each.badness(table.headline) if each else None for each, table in zip(found, tables, strict=True)]
    known = [value for value in values if value is not None]
    return line.part, len(known) < len(values), not known, sum(known) / max(len(known), 1), line.place


def _block(table: Table, line: Line) -> list[Cell]:
    """What one model's columns say of a line."""
    leads = line.key in {leader.key for leader in table.leaders()}
    cells = [*(text(line) for _, text in _before(table)), *_numbers(line, table.columns, is_bare=True)]
    return [replace(cell, shaded=leads) for cell in cells]


def _verdicts(tables: Sequence[Table]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Sentences of each model's verdict, and which begin a paragraph."""
    found = [verdict_of(table.whole()).sentences for table in tables]
    names = [f"{table.model}: " * (len(tables) > 1) for table in tables]
    named = [(f"{name}{first}", *rest) for name, (first, *rest) in zip(names, found, strict=True)]
    leads = accumulate((len(sentences) for sentences in named[:-1]), initial=0)
    return tuple(sentence for sentences in named for sentence in sentences), tuple(leads)


def _missing(line: Line, table: Table) -> list[Cell]:
    numbers = [Cell(EN_DASH, notes=(table.not_run(line.key.method),))] * len(table.columns)
    return [*[_DASH for _ in _before(table)], *numbers]


def _published_side_by_side(tables: Sequence[Table], method: str, found: Sequence[Line | None]) -> Iterator[GridRow]:
    blocks = [list(_beside_published(t, method, line, is_bare=True)) for t, line in zip(tables, found, strict=True)]
    for label in ("published", "difference"):
        cells = [Cell(label)]
        for table, block in zip(tables, blocks, strict=True):
            numbers = next((row[1:] for row in block if row[0].text == label), [_BLANK] * len(table.columns))
            cells += [*[_BLANK for _ in _before(table)], *numbers]
        if any(cell.text for cell in cells[1:]):
            yield GridRow(cells, is_under=True)


def _facts(tables: Sequence[Table]) -> tuple[str, ...]:
    """Facts that are the same for both models once, and the rest with the model before it."""
    rest = [table.facts[1:] for table in tables]
    common = [fact for fact in rest[0] if all(fact in facts for facts in rest)]
    own = [f"{t.model}: {fact}" for t, facts in zip(tables, rest, strict=True) for fact in facts if fact not in common]
    return (f"{' and '.join(table.model for table in tables)} on {tables[0].task}", *common, *own)
