"""Statements of a result about training and labels: they decides marks and ranks, so it must hang together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from bench.api import ConfidenceMethod
from bench.api.early_stopping import best_point
from bench.api.protocol import PRESETS, KeptStep
from bench.api.signals import tells_gold
from bench.results.files import RECALIBRATED, base_of
from bench.results.row import ResultRow, Training

TOLERANCE = 1e-6


def findings(row: ResultRow, method: type[ConfidenceMethod]) -> Iterator[str]:
    """Problems of one row's account of its training.

    Args:
        row: status ok.
        method: that it is of.
    """
    if not method.trains():
        if row.training is not None or row.base_rate is not None:
            yield "its method learns nothing, but it tells of a training"
        return
    if row.training is None or row.base_rate is None:
        yield "its method learns, but it doesn't say what training was like (training, base_rate)"
        return
    # steps of the published training, for methods that may be cut short
    constants = method(**method.presets.get(row.preset, {})).params()
    deviating: Any = row.deviations.get(f"{base_of(row.method)}.published_steps", constants.get("published_steps", 0))
    published = deviating if isinstance(deviating, int) else 0
    for stage in row.training.stages:
        name = f"its training {stage.name}".rstrip()
        if len(stage.steps) != len(stage.losses) or not 0 < stage.kept <= stage.taken <= stage.limit:
            yield f"{name} has steps and losses that don't belong together"
        elif stage.losses and stage.kept != stage.steps[best_point(stage.losses)]:
            yield f"{name} kept step {stage.kept}, which does not have its smallest loss"
        elif stage.cut_short != (bool(stage.losses) and stage.kept == stage.limit < published):
            yield f"{name} says cut_short {stage.cut_short}, which its steps and losses don't"
    told = row.training.validation_nll
    known = [loss for stage in row.training.stages[-1:] for loss in stage.losses if loss is not None]
    if known and (told is None or not math.isclose(told, min(known), rel_tol=1e-4)):
        yield f"its validation_nll is {told}, the smallest loss of its training {min(known)}"
    yield from _of_labels(row, method, row.training)


def _of_labels(row: ResultRow, method: type[ConfidenceMethod], training: Training) -> Iterator[str]:
    seen, gold = row.labels_seen, any(map(tells_gold, method.needs.fit))
    if bool(seen.gold) != gold:
        yield f"its labels_seen has gold {seen.gold}, but its method {'reads' if gold else 'never reads'} right answers"
    if any(stage.losses for stage in training.stages) and not seen.validation:
        yield "a step of its training was chosen on validation, but labels_seen has validation 0"
    chooses = PRESETS[row.preset].kept_step is KeptStep.VALIDATION if row.preset in PRESETS else False
    if not chooses and RECALIBRATED not in row.method and any(stage.losses for stage in training.stages):
        yield f"preset {row.preset} keeps the last step, but losses on validation chose one"


def differing(rows: Sequence[ResultRow]) -> str | None:
    """Difference between cells that learned from the same answers, for their common reader; None where they agree."""
    rates = {round(row.base_rate, 9) for row in rows if row.base_rate is not None}
    if len(rates) > 1:
        return f"base_rate differs between cells that learned on {rows[0].train_on}: {sorted(rates)}"
    seen = {row.labels_seen.train for row in rows} | {row.labels_seen.gold for row in rows}
    if len(seen - {0}) > 1:
        return f"labels_seen differs between cells that learned on {rows[0].train_on}: {sorted(seen - {0})}"
    return None
