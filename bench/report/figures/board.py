"""Result rows -> what a figure draws: methods in a fixed order on models and tasks, with seeds and gaps.

A series is a line of a comparison table: one method with its settings on one model and task; its rows differ in the
seed only. Example: `board_of(rows).column("tiny", "atlas-oe")[0].value("auroc").mean`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.api import UserError
from bench.metrics.summary import MetricSummary
from bench.report.grouping import Key, grouped, lines_of
from bench.report.style import Style, place_of, style_of
from bench.report.text import plain
from bench.results.files import Records
from bench.results.row import ResultRow

RecordsOf = Callable[[ResultRow], Records]
"""Gives the questions of a cell, e.g. through `bench.results.files.read_records`."""
UNDEFINED = MetricSummary(None, None, None, 0)


class Value(NamedTuple):
    """A metric of a series: mean over subjects, then over seeds, as fractions."""

    mean: float | None
    """None where it is undefined in every subject, or with no seed."""
    std: float | None
    """Over subjects; mean over seeds."""
    by_seed: tuple[float, ...]
    """Means over subjects, in the order of seeds."""
    n_undefined: int
    """Subjects left out, in the seed where most are."""


@dataclass(frozen=True)
class Series:
    """One line, bar or panel."""

    key: Key
    runs: tuple[ResultRow, ...]
    """Seeds that are ok, ascending."""
    others: tuple[ResultRow, ...]
    """Seeds that are not."""

    @property
    def label(self) -> str:
        """The method, with the settings in which it differs from others of its cell."""
        return plain(f"{self.key.method} ({self.key.variant})" if self.key.variant else self.key.method)

    @property
    def state(self) -> str:
        """`ok` where a seed is, else how the first one ended, or `not run`."""
        if self.runs:
            return "ok"
        return self.others[0].status if self.others else "not run"

    @property
    def style(self) -> Style:
        """How it is drawn."""
        return style_of(self.key.method)

    def value(self, metric: str) -> Value:
        """A metric over the seeds that are ok."""
        summaries = [row.metrics.get(metric, UNDEFINED) for row in self.runs]
        means = tuple(summary.mean for summary in summaries if summary.mean is not None)
        return Value(
            mean=mean_of(means),
            std=mean_of(summary.std for summary in summaries),
            by_seed=means,
            n_undefined=max((summary.n_undefined for summary in summaries), default=0),
        )


@dataclass(frozen=True)
class Board:
    """All series of a figure."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    keys: tuple[Key, ...]
    """Of all series, in the order in which figures show them."""
    cells: Mapping[tuple[str, str], Mapping[Key, Series]]
    """By model and task."""

    def column(self, model: str, task: str) -> list[Series]:
        """All methods on one model and task, also those that were not run there."""
        cell = self.cells.get((model, task), {})
        return [cell.get(key) or Series(key, (), ()) for key in self.keys]

    def everything(self) -> Iterator[tuple[str, str, Series]]:
        """Model, task and series, missing ones included."""
        for model in self.models:
            for task in self.tasks:
                yield from ((model, task, series) for series in self.column(model, task))

    @property
    def labels(self) -> list[str]:
        """Of all series."""
        return [Series(key, (), ()).label for key in self.keys]

    @property
    def legend(self) -> list[tuple[str, Style]]:
        """Label and style of all series."""
        return [(series.label, series.style) for series in (Series(key, (), ()) for key in self.keys)]

    @property
    def rows(self) -> list[ResultRow]:
        """All rows that are ok."""
        return [row for _, _, series in self.everything() for row in series.runs]

    @property
    def n_seeds(self) -> int:
        """Of the series that has most."""
        return max((len(series.runs) for _, _, series in self.everything()), default=0)


def board_of(rows: Sequence[ResultRow]) -> Board:
    """Sort rows into series, as tables do.

    Raises:
        UserError: no row is ok; rows of a model and task were made by different rules; two rows have one seed.
    """
    groups = grouped(rows, preset=None, deviations=True, partial=True)
    if not any(row.status == "ok" for row in rows):
        raise UserError(
            f"none of the {len(rows)} results is ok, so there is nothing to draw; see the table for reasons"
        )
    cells: dict[tuple[str, str], Mapping[Key, Series]] = {}
    for group in groups:
        place = group.rows[0].model, group.rows[0].task
        if place in cells:
            raise UserError(
                f"results of {plain(place[0])} on {plain(place[1])} have different --limit or protocol, which don't"
                " belong in one figure; draw one of them"
            )
        cells[place] = {key: _series(key, seeds) for key, seeds in lines_of(group.rows).items()}
    keys = {key for cell in cells.values() for key in cell}
    return Board(
        models=tuple(dict.fromkeys(model for model, _ in sorted(cells))),
        tasks=tuple(sorted({task for _, task in cells})),
        keys=tuple(sorted(keys, key=lambda key: (place_of(key.method), key.variant))),
        cells=cells,
    )


def _series(key: Key, rows: Sequence[ResultRow]) -> Series:
    done = tuple(row for row in rows if row.status == "ok")
    return Series(key, done, tuple(row for row in rows if row.status != "ok"))


def only(values: Sequence[str], kind: str) -> str:
    """The one model or task of a figure that shows one.

    Raises:
        ValueError: there are several.
    """
    if len(values) != 1:
        raise ValueError(f"expected the rows of one {kind}, got those of {', '.join(values)}")
    return values[0]


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
