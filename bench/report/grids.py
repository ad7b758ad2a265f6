"""Comparison tables as grids of cells: one method a row, or the paper's layout with two models side by side.

Under a method's row may stand rows that belong to it: the published numbers and the difference, or intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from bench import models as known_models
from bench.errors import UserError
from bench.metrics import METRICS
from bench.report.groups import recalibration_of
from bench.report.model import Cell, Column, Grid, Line, Row, Table
from bench.report.published import Published
from bench.report.standings import Range, Standing
from bench.report.text import ARROWS, EN_DASH, count, listed, percent, probability, shown, signed, span

COLUMNS = ("ece", "brier", "acc", "aucpr", "auroc")
"""Metrics of the table, in the order of the paper's."""
CALIBRATION_COLUMNS = ("ece_debiased", "ece_floor", "ece_mass", "smece", "brier_mcb")
"""Of the second table with statistics; before them stand the test of calibration and the ECE without chance."""
RANKING_COLUMNS = ("nll", "brier_dsc", "brier_unc", "aurc", "eaurc", "coverage95")
"""Of the third."""
DAGGER = "†"
LEVEL = 0.05
"""Of the test of calibration."""
DASH = Cell(EN_DASH)
RANK_BY = "brier"

MEAN_STD = "macro mean ± std over subjects in percent"
MEAN = "macro mean over subjects in percent"
BOLD = (
    "bold: better than the runner-up of its block beyond chance (Brier: Holm-corrected p < 0.05; others: the 95 %"
    " interval of the paired difference leaves out 0); where nothing is bold, no best method is"
)
NOT_TESTED = "no marks for the best: differences were not tested here, bench table tests them"
CALIBRATED = f"{DAGGER} ECE can't be told from a perfectly calibrated method's (p ≥ 0.05)"
RANKS = "rank: by Brier, shared where methods can't be told from the best of their group"
LABELS = "labels: learned from, train/validation"
SEEDS = "seeds: number ± standard deviation of Brier between them"
PUBLISHED = "published: the paper's, a single run; difference: ours minus it, percentage points"
ESTIMANDS = {"these subjects": "fixed", "other subjects": "clustered"}
FIXED = "95 % interval (these subjects): other questions of the same subjects"
CLUSTERED = "95 % interval (other subjects): subjects as a sample of subjects"
CHANCE = "p calibrated: of an ECE as large from a perfectly calibrated method; ECE, no chance: what infinitely many answers would give, with its interval"  # noqa: E501
DECOMPOSED = "Brier = MCB - DSC + UNC"


# --- one method a row -------------------------------------------------------------------------------------------------


def methods(tables: Sequence[Table], *, stats: bool = False) -> list[Grid]:
    """One grid for each model and task; with statistics, three."""
    return [grid for table in tables for grid in _grids(table, stats=stats)]


def _grids(table: Table, *, stats: bool) -> Iterator[Grid]:
    yield _main(table, stats=stats)
    if stats:
        title = table.facts[0]
        yield _further(table, f"{title}: calibration", CALIBRATION_COLUMNS, chance=True)
        yield _further(table, f"{title}: losses and selection", RANKING_COLUMNS, chance=False)


def _main(table: Table, *, stats: bool) -> Grid:
    columns = [Column("method", is_left=True), *map(_column, COLUMNS)]
    extras = list(_extras(table))
    columns += [column for column, _ in extras]
    rows: list[Row] = []
    for line, is_apart in _blocks(table.lines):
        cells = [_name(line), *_numbers(line, COLUMNS), *(text(line) for _, text in extras)]
        rows.append(Row(cells, is_apart=is_apart))
        rows += [
            Row([*cells, *([Cell("")] * len(extras))], is_under=True) for cells in _under(table, line, stats=stats)
        ]
    legend = tuple(filter(None, _legend(table, stats=stats)))
    remarks = (*(_no_intervals(table.lines, COLUMNS) if stats else ()), *_remarks(table))
    return Grid(table.facts, tuple(columns), tuple(rows), legend, remarks)


def _column(name: str) -> Column:
    return Column(METRICS[name].label + ARROWS[METRICS[name].higher_is_better])


def _name(line: Line) -> Cell:
    return Cell(line.method, notes=line.notes + (line.reasons if line.status == "ok" else ()))


def _blocks(lines: Sequence[Line]) -> Iterator[tuple[Line, bool]]:
    """Lines, and whether each begins a block: recalibrated methods stand apart."""
    before = None
    for line in lines:
        kind = recalibration_of(line.key.method)
        yield line, before not in {None, kind}
        before = kind


def _numbers(line: Line, names: Sequence[str], *, std: bool = True) -> list[Cell]:
    if line.status != "ok":
        return [Cell(line.status, notes=line.reasons)] * len(names)
    return [_number(line, name, std=std) for name in names]


def _number(line: Line, name: str, *, std: bool) -> Cell:
    estimate = line.estimates.get(name)
    if estimate is None:
        return DASH
    if estimate.mean is None:
        return Cell("undefined", notes=estimate.notes)
    metric = METRICS[name]
    spread = f" ± {shown(metric, estimate.std)}" if std and estimate.std is not None else ""
    mark = DAGGER if name == "ece" and _seems_calibrated(line) else ""
    return Cell(shown(metric, estimate.mean) + spread, estimate.best, mark, estimate.notes)


def _seems_calibrated(line: Line) -> bool:
    return line.standing is not None and line.standing.calibrated_p >= LEVEL


def _extras(table: Table) -> Iterator[tuple[Column, Callable[[Line], Cell]]]:
    """Columns beside the metrics that this table needs, with what stands in them."""
    if any(line.standing and line.standing.ranks for line in table.lines):
        yield Column("rank", droppable=1), _rank
    if table.several_seeds:
        yield Column("seeds", droppable=2), _seeds
    if len({line.n for line in table.lines if line.n is not None}) > 1:
        yield Column("n", droppable=3), lambda line: DASH if line.n is None else Cell(count(line.n))
    yield Column("labels", droppable=4), _labels


def _rank(line: Line) -> Cell:
    rank = line.standing.ranks.get(RANK_BY) if line.standing else None
    return DASH if rank is None else Cell(str(rank))


def _seeds(line: Line) -> Cell:
    number = str(line.runs) if len(line.seeds) == line.runs else f"{len(line.seeds)} of {line.runs}"
    standing = line.estimates[RANK_BY].standing if line.estimates else None
    return Cell(number if standing is None or standing.spread is None else f"{number} ± {percent(standing.spread)}")


def _labels(line: Line) -> Cell:
    if line.status != "ok":
        return DASH
    seen = [span((getattr(labels, split) for labels in line.labels), count) for split in ("train", "validation")]
    return Cell("none" if seen == ["0", "0"] else "/".join(seen))


# --- rows under a method ----------------------------------------------------------------------------------------------


def _under(table: Table, line: Line, *, stats: bool) -> Iterator[list[Cell]]:
    """Rows that belong to a method's, without the extra columns."""
    if table.published is not None:
        yield from _beside_published(table, line.method, line)
    if stats:
        yield from _beside_intervals(line, COLUMNS)


def _beside_published(table: Table, method: str, line: Line | None, *, std: bool = True) -> Iterator[list[Cell]]:
    """The published numbers, which are there also where ours are not, and the differences."""
    yield [Cell("published"), *(_published(table.cell(method, name), std=std) for name in COLUMNS)]
    differences = [table.difference(line, name) if line else None for name in COLUMNS]
    if any(difference is not None for difference in differences):
        yield [
            Cell("difference"),
            *(
                DASH if d is None else Cell(signed(METRICS[name], d))
                for name, d in zip(COLUMNS, differences, strict=True)
            ),
        ]


def _published(cell: Published | None, *, std: bool) -> Cell:
    if cell is None:
        return DASH
    spread = f" ± {percent(cell.std)}" if std and cell.std is not None else ""
    return Cell(percent(cell.mean) + spread, notes=(f"no target: {cell.reason}",) if cell.reason else ())


def _beside_intervals(line: Line, names: Sequence[str], first: Sequence[str] = ()) -> Iterator[list[Cell]]:
    """Intervals of both kinds and the spread between seeds, where there are any.

    Args:
        line: a method.
        names: metrics.
        first: what stands before these in the first row.
    """
    standings = [line.estimates[name].standing if name in line.estimates else None for name in names]
    before = list(map(Cell, first))
    for label, estimand in ESTIMANDS.items():
        ranges = [getattr(standing, estimand) if standing else None for standing in standings]
        if any(interval and interval.low is not None for interval in ranges):
            yield [Cell(label), *before, *map(_range, names, ranges)]
            before = [Cell("")] * len(before)
    if any(standing and standing.spread is not None for standing in standings):
        yield [Cell("between seeds"), *before, *map(_spread, names, standings)]


def _no_intervals(lines: Sequence[Line], names: Sequence[str]) -> Iterator[str]:
    """Why intervals are missing."""
    for label, estimand in ESTIMANDS.items():
        found = [
            getattr(e.standing, estimand)
            for line in lines
            for n, e in line.estimates.items()
            if n in names and e.standing
        ]
        yield from dict.fromkeys(f"no interval ({label}): {range_.reason}" for range_ in found if range_.reason)


def _range(name: str, interval: Range | None) -> Cell:
    if interval is None:
        return DASH
    if interval.low is None or interval.high is None:
        return DASH
    metric = METRICS[name]
    ends = shown(metric, interval.low), shown(metric, interval.high)
    return Cell(f"{ends[0]} to {ends[1]}" if interval.low < 0 else EN_DASH.join(ends))


def _spread(name: str, standing: Standing | None) -> Cell:
    return DASH if standing is None or standing.spread is None else Cell(f"± {shown(METRICS[name], standing.spread)}")


# --- further statistics -----------------------------------------------------------------------------------------------


def _further(table: Table, title: str, names: Sequence[str], *, chance: bool) -> Grid:
    """Metrics beyond the paper's."""
    names = [name for name in names if any(name in line.estimates for line in table.lines)]
    head = [Column("method", is_left=True)]
    head += [Column("p calibrated"), Column("ECE, no chance ↓")] if chance else []
    rows: list[Row] = []
    for line, is_apart in _blocks(table.lines):
        failed = Cell(line.status, notes=line.reasons)
        tested = (_tested(line) if line.status == "ok" else [failed, failed]) if chance else []
        rows.append(Row([Cell(line.method, notes=line.notes), *tested, *_numbers(line, names)], is_apart=is_apart))
        blank = ("", _range("ece", line.standing.calibration).text) if chance and line.standing else ()
        rows += [Row(cells, is_under=True) for cells in _beside_intervals(line, names, blank)]
    legend = (MEAN_STD + " (NLL in nats)", *((CHANCE,) if chance else (DECOMPOSED,)), FIXED, CLUSTERED)
    reasons = tuple(_no_intervals(table.lines, names))
    return Grid((title,), (*head, *map(_column, names)), tuple(rows), legend, reasons)


def _tested(line: Line) -> list[Cell]:
    standing = line.standing
    if standing is None:
        return [DASH, DASH]
    return [Cell(probability(standing.calibrated_p)), Cell(percent(standing.calibration_error))]


def _legend(table: Table, *, stats: bool) -> Iterator[str]:
    yield MEAN_STD
    yield from _marks([table])
    yield RANKS if any(line.standing and line.standing.ranks for line in table.lines) else ""
    yield SEEDS if table.several_seeds else ""
    yield LABELS
    yield PUBLISHED if table.published is not None else ""
    yield from (FIXED, CLUSTERED) if stats and table.standings else ()


def _marks(tables: Sequence[Table]) -> Iterator[str]:
    """Of bold and of the dagger."""
    lines = [line for table in tables for line in table.lines if line.estimates]
    if any(sum(bool(line.estimates) for line in table.lines) > 1 for table in tables):
        yield BOLD if any(table.standings for table in tables) else NOT_TESTED
    if any(map(_seems_calibrated, lines)):
        yield CALIBRATED


def _remarks(table: Table) -> tuple[str, ...]:
    return (f"the paper has no numbers of {table.facts[0]}",) if table.published == {} else ()


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
    names = [Column("method", is_left=True)]
    names += [Column(column.label, span=table.model) for table in tables for column in map(_column, COLUMNS)]
    rows: list[Row] = []
    lines = {key: [next((li for li in table.lines if li.key == key), None) for table in tables] for key in keys}
    first = {key: next(line for line in found if line) for key, found in lines.items()}
    ordered = sorted(keys, key=lambda key: "+" in key.method)  # stable: recalibrated ones stay together
    for line, is_apart in _blocks([first[key] for key in ordered]):
        own = [note for found in lines[line.key] if found for note in _name(found).notes]
        cells = [Cell(line.method, notes=tuple(dict.fromkeys(own)))]
        for table, found in zip(tables, lines[line.key], strict=True):
            cells += _numbers(found, COLUMNS, std=False) if found else _missing(line, table)
        rows.append(Row(cells, is_apart=is_apart))
        if tables[0].published is not None:
            rows += _published_side_by_side(tables, line.method, lines[line.key])
    legend = (MEAN, *_marks(tables), *((PUBLISHED,) if tables[0].published is not None else ()))
    remarks = tuple(remark for table in tables for remark in _remarks(table))
    return Grid(_facts(tables), tuple(names), tuple(rows), legend, remarks)


def _missing(line: Line, table: Table) -> list[Cell]:
    return [Cell(EN_DASH, notes=(f"{line.method} was not run with {table.model} on {table.task}",))] * len(COLUMNS)


def _published_side_by_side(tables: Sequence[Table], method: str, found: Sequence[Line | None]) -> Iterator[Row]:
    blocks = [list(_beside_published(t, method, line, std=False)) for t, line in zip(tables, found, strict=True)]
    for i, label in enumerate(("published", "difference")[: max(map(len, blocks))]):
        cells = [block[i][1:] if i < len(block) else [DASH] * len(COLUMNS) for block in blocks]
        yield Row([Cell(label), *(cell for block in cells for cell in block)], is_under=True)


def _facts(tables: Sequence[Table]) -> tuple[str, ...]:
    """What is the same for both models once, and the rest with the model before it."""
    rest = [table.facts[1:] for table in tables]
    common = [fact for fact in rest[0] if all(fact in facts for facts in rest)]
    own = [f"{t.model}: {fact}" for t, facts in zip(tables, rest, strict=True) for fact in facts if fact not in common]
    return (f"{' and '.join(table.model for table in tables)} on {tables[0].task}", *common, *own)
