"""What stands around a mean: an interval, where there is one, else the standard deviation over subjects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.report.figures.board import Board, Series
from bench.report.grouping import Key
from bench.report.standings.compute import Standings
from bench.results.row import ResultRow

StandingsOf = Callable[[Mapping[Key, Sequence[ResultRow]]], Standings]
"""Gives the intervals of the lines of one table, e.g. `bench.report.standings.cache.Reader`."""
Ends = tuple[float, float]

RESAMPLED = "{level:g} % intervals of the mean over these subjects, questions resampled within each"
NONE = "none, as there is neither an interval nor a second subject"
SPREAD = "standard deviation over subjects, as there are no intervals"


@dataclass(frozen=True)
class Whiskers:
    """Of all means of a figure."""

    ends: Mapping[tuple[str, str, Key, str], Ends]
    """By model, task, series and metric."""
    kind: str
    """In words."""

    def around(self, model: str, task: str, series: Series, metric: str) -> Ends | None:
        """Ends, or None where there are none."""
        return self.ends.get((model, task, series.key, metric))

    def said(self, board: Board, metrics: Sequence[str]) -> str:
        """A sentence for the note, with the number of means that have none."""
        if not self.ends:
            return f"Whiskers: {self.kind}."
        lacking = sum(
            series.value(metric).mean is not None and self.around(model, task, series, metric) is None
            for model, task, series in board.everything()
            for metric in metrics
        )
        return f"Whiskers: {self.kind}{f'; none for {lacking} of the means' if lacking else ''}."


def whiskers_of(board: Board, metrics: Sequence[str], standings_of: StandingsOf | None) -> Whiskers:
    """Intervals for these subjects and other questions if given, else the standard deviation.

    One figure has one kind; a mean without it has none.
    """
    if standings_of is not None:
        return _resampled(board, standings_of)
    ends = {
        (model, task, series.key, metric): found
        for model, task, series in board.everything()
        for metric in metrics
        if (found := _spread(series, metric)) is not None
    }
    return Whiskers(ends, SPREAD if ends else NONE)


def _resampled(board: Board, standings_of: StandingsOf) -> Whiskers:
    ends: dict[tuple[str, str, Key, str], Ends] = {}
    level = 0.95
    for (model, task), cell in board.cells.items():
        done = {key: series.runs for key, series in cell.items() if series.runs}
        if not done:
            continue
        standings = standings_of(done)
        level = standings.level
        for key, line in standings.lines.items():
            for metric, standing in line.metrics.items():
                low, high = standing.fixed.low, standing.fixed.high
                if low is not None and high is not None:
                    ends[model, task, key, metric] = (low, high)
    return Whiskers(ends, RESAMPLED.format(level=100 * level))


def _spread(series: Series, metric: str) -> Ends | None:
    """Around the mean by the standard deviation, which says nothing of a single subject."""
    value = series.value(metric)
    subjects = min((len(row.per_subject) for row in series.runs), default=0) - value.n_undefined
    if value.mean is None or value.std is None or subjects < 2:  # noqa: PLR2004 - one has no spread
        return None
    return value.mean - value.std, value.mean + value.std
