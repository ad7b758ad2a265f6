"""The note below a figure: what is drawn, on how much it rests, and what is left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from bench.metrics import METRICS
from bench.report.figures.board import Board
from bench.report.grouping import budget_of
from bench.report.tables.model import Line
from bench.report.text import count, leaves_out, setting, span

PLACES_NAMED = 2
"""Cells that a note names one by one; of more it gives the number."""


def note_of(board: Board, *what: str, metrics: Sequence[str] = (), remark: str = "") -> str:
    """A figure's note.

    Args:
        board: what the figure shows.
        what: sentences about how to read it; empty ones are passed over.
        metrics: that are shown as means over subjects, so that undefined ones must be counted.
        remark: a sentence of the caller's.
    """
    sentences = [*what, f"{_basis(board)}.", *_undefined(board, metrics), _left_out(board), remark]
    return " ".join(sentence for sentence in sentences if sentence)


def _basis(board: Board) -> str:
    """Numbers of questions, subjects and seeds, and the rules."""
    rows = board.rows
    pieces = [f"n {span((row.n for row in rows if row.n is not None), count)}"]
    subjects = [len(row.per_subject) for row in rows if row.per_subject]
    if subjects:
        pieces[0] += f" in {span(subjects, count)} subject{'s' * (max(subjects) > 1)}"
    presets = sorted({row.preset for row in rows})
    pieces.append(f"preset{'s' * (len(presets) > 1)} {', '.join(presets)}")
    limits = sorted({row.limit for row in rows if row.limit is not None})
    if limits:
        pieces.append(f"partial: --limit {', '.join(map(str, limits))}")
    seeds = {len(line.done) for _, _, line in board.everything() if line.done}
    if max(seeds) > 1:
        pieces.append(f"{span(seeds, count)} seeds")
    pieces += [f"tuned over {n} configurations" for n in sorted({budget_of(row) for row in rows} - {0})]
    deviations = sorted({f"{name}={setting(value)}" for row in rows for name, value in row.deviations.items()})
    if deviations:
        pieces.append(f"deviations {', '.join(deviations)}")
    return "; ".join(pieces)


def _undefined(board: Board, metrics: Sequence[str]) -> Iterable[str]:
    """Subjects that are in no mean."""
    for metric in metrics:
        counts = [line.estimate(metric).n_undefined for _, _, line in board.everything() if line.done]
        if any(counts):
            yield f"{leaves_out(METRICS[metric].label, counts)}."


def _left_out(board: Board) -> str:
    """Cells and seeds that are not shown, and how they ended: methods with the same gaps are named together."""
    gaps: dict[tuple[str, str], list[str]] = defaultdict(list)
    for model, task, line in board.everything():
        place = " and ".join([model] * (len(board.models) > 1) + [task] * (len(board.tasks) > 1))
        for state in _missing(line):
            gaps[line.key.label, state].append(place)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (label, state), places in gaps.items():
        alike[state, tuple(places)].append(label)
    total = len(board.models) * len(board.tasks)
    parts = [
        f"{'all methods' if len(labels) == len(board.methods) else ', '.join(labels)}: {state}{_where(places, total)}"
        for (state, places), labels in alike.items()
    ]
    return f"Left out: {'; '.join(parts)} (reasons: tables)." if parts else ""


def _missing(line: Line) -> Iterable[str]:
    if not line.rows:
        yield line.status
    for row in line.others:
        yield f"{row.status} with seed {row.seed}" if line.runs > 1 else row.status


def _where(places: Sequence[str], total: int) -> str:
    if total == 1:
        return ""
    if len(places) > PLACES_NAMED:
        return " everywhere" if len(places) == total else f" in {len(places)} of {total} cells"
    return f" on {', '.join(places)}"
