"""Whiskers around a mean: an interval, where there is one, else the standard deviation over subjects."""

from __future__ import annotations

from collections.abc import Sequence

from bench.metrics import METRICS
from bench.report.competition import counted
from bench.report.figures.board import Board
from bench.report.tables.model import Line


def whisker(board: Board, line: Line, metric: str) -> tuple[float, float] | None:
    """Ends for these subjects and other questions, else of the standard deviation, within possible values."""
    estimate = line.estimate(metric)
    ends = estimate.ends
    if board.level is None:
        known = [len(row.per_subject) - row.metrics[metric].n_undefined for row in line.done if metric in row.metrics]
        if estimate.mean is None or estimate.std is None or min(known, default=0) < 2:  # noqa: PLR2004 - spread of one
            return None
        ends = estimate.mean - estimate.std, estimate.mean + estimate.std
    low, high = (counted(metric, end) for end in METRICS[metric].bounds)
    return None if ends is None else (max(low, ends[0]), min(high, ends[1]))


def on_whiskers(board: Board, metrics: Sequence[str]) -> str:
    """The sentence for the note, with the number of means that have none."""
    shown = [(line, metric) for _, _, line in board.everything() for metric in metrics]
    lacking = [whisker(board, line, metric) is None for line, metric in shown if line.estimate(metric).mean is not None]
    if board.level is not None:
        kind = f"{100 * board.level:g} % intervals for other questions of these subjects"
    elif all(lacking):
        kind = "none, as there is neither an interval nor a second subject"
    else:
        kind = "standard deviation over subjects, as there are no intervals"
    none_for = f"; none for {sum(lacking)} of the means" if any(lacking) and not all(lacking) else ""
    return f"Whiskers: {kind}{none_for}."
