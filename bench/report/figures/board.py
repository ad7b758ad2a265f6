"""Tables -> what a figure draws: their lines in one order on models and tasks, with gaps where a method was not run.

Example: `board_of(tables).column("tiny", "atlas-oe")[0].estimate("auroc").mean`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.api import UserError
from bench.report.competition import NOT_TESTED
from bench.report.grouping import Key
from bench.report.style import Style
from bench.report.tables.legend import LEADS
from bench.report.tables.model import Line, Table
from bench.report.text import plain
from bench.results.records import Records
from bench.results.row import ResultRow

RecordsOf = Callable[[ResultRow], Records]
"""Gives the questions of a result, e.g. through `bench.results.files.read_records`."""


@dataclass(frozen=True)
class Board:
    """All lines of a figure."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    methods: tuple[Line, ...]
    """A line without rows for each method with its settings, in the order in which figures show them."""
    cells: Mapping[tuple[str, str], Mapping[Key, Line]]
    """Cells by model and task."""
    level: float | None
    """Level of the intervals; None where none were computed."""
    tables: Mapping[tuple[str, str], Table]
    """Tables by model and task."""

    @property
    def model(self) -> str:
        """The model of a figure of one.

        Raises:
            ValueError: there are several.
        """
        return _only(self.models, "model")

    @property
    def place(self) -> tuple[str, str]:
        """Model and task of a figure of one table.

        Raises:
            ValueError: there are several.
        """
        return self.model, _only(self.tasks, "task")

    def column(self, model: str, task: str) -> list[Line]:
        """All methods on one model and task, also those that were not run there."""
        cell = self.cells.get((model, task), {})
        return [cell.get(method.key, method) for method in self.methods]

    def sorted_column(self, model: str, task: str) -> list[Line]:
        """The same methods, by result as the table has them; those that were not run there last."""
        cell = self.cells.get((model, task), {})
        return [*cell.values(), *(method for method in self.methods if method.key not in cell)]

    def leading_first(self, model: str, task: str) -> list[Line]:
        """The same methods, the leading group before all others."""
        leading = [leader.key for leader in self.leading(model, task)]
        column = self.sorted_column(model, task)
        return sorted(column, key=lambda line: leading.index(line.key) if line.key in leading else len(leading))

    def leading(self, model: str, task: str, metric: str | None = None) -> tuple[Line, ...]:
        """The leading group of a table, the best mean first; none where nothing was tested."""
        table = self.tables.get((model, task))
        return table.leaders(metric) if table else ()

    def everything(self) -> Iterator[tuple[str, str, Line]]:
        """Model, task and line, missing ones included."""
        for model in self.models:
            for task in self.tasks:
                yield from ((model, task, line) for line in self.column(model, task))

    @property
    def legend(self) -> list[tuple[str, Style]]:
        """Label and style of all methods."""
        return [(method.key.label, method.style) for method in self.methods]

    @property
    def rows(self) -> list[ResultRow]:
        """All results that are ok."""
        return [row for _, _, line in self.everything() for row in line.done]

    @property
    def n_seeds(self) -> int:
        """Seeds of the line that has most."""
        return max((len(line.done) for _, _, line in self.everything()), default=0)


def board_of(tables: Sequence[Table]) -> Board:
    """The board of some tables, one for each model and task.

    Raises:
        UserError: no line is ok, or a model and task have two tables.
    """
    lines = [line for table in tables for line in table.lines]
    if not any(line.done for line in lines):
        n = sum(line.runs for line in lines)
        raise UserError(f"none of the {n} results is ok, so there is nothing to draw; see the table for reasons")
    cells: dict[tuple[str, str], Mapping[Key, Line]] = {}
    for table in tables:
        place = place_of(table)
        if place in cells:
            raise UserError(
                f"results of {plain(place[0])} on {plain(place[1])} have different --limit or protocol, which don't"
                " belong in one figure; draw one of them"
            )
        cells[place] = {line.key: line for line in table.lines}
    methods = {line.key: line.not_run() for line in lines}
    return Board(
        models=tuple(dict.fromkeys(model for model, _ in sorted(cells))),
        tasks=tuple(sorted({task for _, task in cells})),
        methods=tuple(sorted(methods.values(), key=lambda line: line.place)),
        cells=cells,
        tables={place_of(table): table for table in tables},
        level=next((table.standings.level for table in tables if table.standings), None),
    )


def place_of(table: Table) -> tuple[str, str]:
    """Model and task as they are registered, which name files; a table's own are made printable."""
    row = table.rows[0]
    return row.model, row.task


def is_unranked(table: Table, line: Line) -> bool:
    """Whether a line with results stands outside the ranks of the others; see `_why_unranked`."""
    return line.done != () and bool(_why_unranked(table, line))


def _why_unranked(table: Table, line: Line) -> str:
    """Why a line isn't ranked with the others; empty where it is, or where nothing was tested."""
    found = table.competition(recalibration=line.key.recalibration)
    reason = found.excluded.get(line.key, "")
    return "" if reason == NOT_TESTED and not found.ranked else reason


def on_unranked(table: Table, column: Sequence[Line], so: str = "") -> str:
    """The sentence on lines with results that stand outside the ranks; empty where there are none."""
    by_reason: dict[str, list[str]] = {}
    for line in column:
        if is_unranked(table, line):
            by_reason.setdefault(_why_unranked(table, line), []).append(line.key.label)
    named = "; ".join(f"{', '.join(labels)} ({why})" for why, labels in by_reason.items())
    return f"Not ranked{so}: {named}." if named else ""


def marked(line: Line, leading: Sequence[Line]) -> str:
    """Its label, with the sign of the leading group where it is in it."""
    is_leading = any(leader.key == line.key for leader in leading)
    return f"{LEADS} {line.key.label}" if is_leading else line.key.label


def _only(values: Sequence[str], kind: str) -> str:
    if len(values) != 1:
        raise ValueError(f"expected the tables of one {kind}, got those of {', '.join(values)}")
    return values[0]
