"""Where figures get records and intervals from: each is asked for once, whatever the number of figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.report.figures.board import Board, RecordsOf
from bench.report.figures.whiskers import StandingsOf
from bench.report.grouping import Key
from bench.report.standings.compute import LineStanding, Standings
from bench.results.files import Records, config_digest
from bench.results.row import ResultRow

Cell = tuple[object, ...]
"""What tells a row from all others of its folder: what its path is made of."""


class Source:
    """Remembers what the rows of a board were answered with."""

    def __init__(self, board: Board, records_of: RecordsOf, standings_of: StandingsOf | None) -> None:
        """Nothing is asked for yet.

        Args:
            board: all rows that figures will show.
            records_of: gives the questions of a row.
            standings_of: gives the intervals of a table.
        """
        self._board = board
        self._records_of = records_of
        self._standings_of = standings_of
        self._records: dict[Cell, Records] = {}
        self._standings: dict[tuple[str, str], tuple[Standings, Mapping[tuple[Cell, ...], LineStanding]]] = {}

    def records(self, row: ResultRow) -> Records:
        """Of a row; texts are not kept, which figures don't show."""
        cell = _cell_of(row)
        if cell not in self._records:
            self._records[cell] = replace(self._records_of(row), id=(), subject=(), answer=())
        return self._records[cell]

    @property
    def standings(self) -> StandingsOf | None:
        """Gives intervals of some lines of a table; None where there is nobody to ask."""
        return None if self._standings_of is None else self._of_lines

    def _of_lines(self, lines: Mapping[Key, Sequence[ResultRow]]) -> Standings:
        """The lines' part of the table's intervals; a line is known by its rows, as its name depends on the others."""
        first = next(iter(lines.values()))[0]
        whole, by_rows = self._of_table(first.model, first.task)
        found = {key: by_rows[_rows_of(rows)] for key, rows in lines.items() if _rows_of(rows) in by_rows}
        return replace(whole, lines=found)

    def _of_table(self, model: str, task: str) -> tuple[Standings, Mapping[tuple[Cell, ...], LineStanding]]:
        if (model, task) not in self._standings:
            assert self._standings_of is not None  # noqa: S101 - for the type checker
            done = {key: series.runs for key, series in self._board.cells[model, task].items() if series.runs}
            whole = self._standings_of(done)
            self._standings[model, task] = whole, {_rows_of(done[key]): line for key, line in whole.lines.items()}
        return self._standings[model, task]


def _rows_of(rows: Sequence[ResultRow]) -> tuple[Cell, ...]:
    return tuple(map(_cell_of, rows))


def _cell_of(row: ResultRow) -> Cell:
    return row.model, row.task, row.method, row.preset, row.seed, row.limit, config_digest(row.config)
