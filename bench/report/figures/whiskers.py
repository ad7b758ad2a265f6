"""Whiskers around a mean: an interval, where there is one, else the standard deviation over subjects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report.figures.board import Board
from bench.report.tables.model import Line

Ends = tuple[float, float]

INTERVALS = "{level:g} % intervals for other questions of these subjects"
NONE = "none, as there is neither an interval nor a second subject"
SPREAD = "standard deviation over subjects, as there are no intervals"


@dataclass(frozen=True)
class Whiskers:
    """Whiskers of all means of a figure: of one kind, so that a mean without it has none."""

    board: Board
    metrics: Sequence[str]

    def around(self, line: Line, metric: str) -> Ends | None:
        """Ends for these subjects and other questions, or of the standard deviation; None where there are none."""
        return line.estimate(metric).ends if self.board.level is not None else _spread(line, metric)

    @property
    def sentence(self) -> str:
        """The sentence for the note, with the number of means that have none."""
        shown = [(line, metric) for _, _, line in self.board.everything() for metric in self.metrics]
        lacking = [
            self.around(line, metric) is None for line, metric in shown if line.estimate(metric).mean is not None
        ]
        if self.board.level is not None:
            kind = INTERVALS.format(level=100 * self.board.level)
        else:
            kind = NONE if all(lacking) else SPREAD
        none_for = f"; none for {sum(lacking)} of the means" if any(lacking) and not all(lacking) else ""
        return f"Whiskers: {kind}{none_for}."


def _spread(line: Line, metric: str) -> Ends | None:
    """Around the mean by the standard deviation, which says nothing of a single subject."""
    estimate = line.estimate(metric)
    known = [len(row.per_subject) - row.metrics[metric].n_undefined for row in line.done if metric in row.metrics]
    subjects = min(known, default=0)
    if estimate.mean is None or estimate.std is None or subjects < 2:  # noqa: PLR2004 - one has no spread
        return None
    return estimate.mean - estimate.std, estimate.mean + estimate.std
