"""Statements of a result about its tuning: the budget, the configurations that were drawn, and which was chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bench.api import ConfidenceMethod
from bench.api.configurations import configuration, searched
from bench.api.early_stopping import best_point
from bench.results.files import base_of
from bench.results.row import ResultRow, Tuning

_ROUNDING = 1e-4
"""Difference between a loss at a training's kept step and the same as the configuration tells it, relative."""


def findings(row: ResultRow, method: type[ConfidenceMethod] | None) -> Iterator[str]:
    """Problems of one row's account of its tuning.

    Args:
        row: status ok or not.
        method: that it is of; None where it is not built in.
    """
    told, named = row.tuning, row.config.get("tune")
    if (None if told is None else told.n) != named:
        yield f"its config has tune {named}, its tuning {None if told is None else told.n} configurations; run it again"
    if told is None:
        return
    if told.configurations:
        losses = [each.validation_nll for each in told.configurations]
        chosen = losses[told.chosen] if told.chosen < len(losses) else None
        own = None if row.training is None else row.training.validation_nll
        if len(losses) != told.n or told.reason is not None:
            yield f"its tuning has {len(losses)} configurations of {told.n}; run it again"
        elif told.chosen != best_point(losses) or chosen is None:
            yield f"its tuning chose configuration {told.chosen}, which does not have the smallest loss on validation"
        elif row.training is not None and (own is None or not math.isclose(chosen, own, rel_tol=_ROUNDING)):
            yield f"its validation_nll is {own}, that of the chosen configuration {chosen}"
        if row.labels_seen.validation == 0:
            yield "its configuration was chosen on validation, but labels_seen has validation 0"
    elif told.reason is None and row.status == "ok":
        yield "it doesn't say why nothing was tuned (tuning.reason); run it again"
    if method is not None and row.status == "ok" and row.preset in (method.presets or {row.preset: {}}):
        yield from _of_draws(row, told, method)


def _of_draws(row: ResultRow, told: Tuning, method: type[ConfidenceMethod]) -> Iterator[str]:
    """Configurations are drawn by the seed, so what a row tells can be drawn again."""
    base = base_of(row.method)
    own = {key.removeprefix(f"{base}."): value for key, value in row.deviations.items() if key.startswith(f"{base}.")}
    made = method(**{**method.presets.get(row.preset, {}), **own})
    fields = searched(made, own)
    if not told.configurations:
        if fields and told.reason is not None and "search" in told.reason:
            yield f"it says that {told.reason}, but {base} searches {', '.join(fields)}"
        return
    drawn = [{k: str(v) for k, v in configuration(made, fields, row.seed, i).items()} for i in range(told.n)]
    if [dict(each.values) for each in told.configurations] != drawn:
        yield "its configurations are not those that its seed draws from the search space of its method; run it again"
