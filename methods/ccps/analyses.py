"""Analyses of CCPS: which of its features matter. They learn from features computed once, and run no model.

`features`: trained with the 12 columns of the original state, with the 63 of the perturbed states, and with all.
`leave-one-out`: trained 75 times, each time without one column.
`trajectory`, in a file of its own, computes other features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bench.api import AnalysisInput, ConfidenceMethod, Context, Findings, FloatArray, UserError
from methods._shared.training import seeded_torch
from methods.ccps.columns import FEATURES, OF_ORIGINAL, OF_PERTURBED
from methods.ccps.method import Ccps
from methods.ccps.networks import Splits, classification, contrastive, probabilities
from methods.ccps.stacked import Stack

FULL = "full"
ALL = range(len(FEATURES))
_SETS: Mapping[str, Sequence[int]] = {FULL: ALL, "original": OF_ORIGINAL, "perturbation": OF_PERTURBED}


class Material(NamedTuple):
    """Features of all answers, standardised as in a fit."""

    method: Ccps
    splits: Splits
    test: Tensor


def features(given: AnalysisInput) -> Findings:
    """All columns against those of the original state and those of the perturbed states (docs/methods.md §5)."""
    material = material_of(given)
    confidence = {name: by_seed(given, partial(retrained, material, own), name) for name, own in _SETS.items()}
    return Findings(
        question="Does CCPS need both kinds of features?",
        reference=FULL,
        confidence=confidence,
        sizes={name: len(own) for name, own in _SETS.items()},
        published="feature_ablation.csv",
    )


def leave_one_out(given: AnalysisInput) -> Findings:
    """All columns against all but one, for each (docs/methods.md §5)."""
    material = material_of(given)
    full = by_seed(given, partial(retrained, material, ALL), FULL)
    without = [[k for k in ALL if k != left_out] for left_out in ALL]
    together = by_seed(given, partial(retrained_together, material, without), "75 times without one column")
    return Findings(
        question="Which feature does CCPS miss most?",
        reference=FULL,
        confidence={FULL: full, **{name: together[:, k] for k, name in enumerate(FEATURES)}},
        metrics=("auroc",),
        sizes={FULL: len(FEATURES), **dict.fromkeys(FEATURES, len(FEATURES) - 1)},
        notes=(
            "A variant is named by the feature that it was trained without.",
            "One with a near copy among the others can be left out with little loss, whatever it is worth.",
        ),
    )


def required(method: ConfidenceMethod) -> Ccps:
    """The method itself.

    Raises:
        UserError: it is another one.
    """
    if not isinstance(method, Ccps):
        raise UserError(f"this analysis is one of ccps, got the method {method.name!r}")
    return method


def material_of(given: AnalysisInput) -> Material:
    """Features of all answers.

    Raises:
        UserError: the method is another one, or states that are not finite.
    """
    method = required(given.method)
    ctx = next(iter(given.contexts.values()))
    splits = method.prepared(given.train, ctx)
    return Material(method, splits, torch.from_numpy(method.test_inputs(given.test)).to(ctx.device))


def by_seed(given: AnalysisInput, trained: Callable[[Context], FloatArray], name: str) -> FloatArray:
    """Result of each seed, `(seeds, ...)`."""
    found = []
    for seed, ctx in given.contexts.items():
        given.say(f"{given.method.name}, {name}: seed {seed}")
        found.append(trained(ctx))
    return np.stack(found)


def retrained(material: Material, columns: Sequence[int], ctx: Context) -> FloatArray:
    """Confidences `(n,)` in the test answers of a network that has these columns."""
    train, validation = (part and part._replace(features=part.features[..., columns]) for part in material.splits)
    network = material.method.trained(Splits(train, validation), ctx)  # type: ignore[arg-type]
    return probabilities(network, material.test[..., columns])


def retrained_together(material: Material, columns: Sequence[Sequence[int]], ctx: Context) -> FloatArray:
    """The same `(k, n)` of k networks, which have as many columns each.

    With dropout each draws masks of its own, so that they are trained one after the other.
    """
    stages = material.method.stages(ctx.format)
    if any(stage.dropout for stage in stages):
        return np.stack([retrained(material, own, ctx) for own in columns])
    with seeded_torch(ctx.seed, ctx.device):
        network = material.method.network(len(columns[0])).to(ctx.device, material.test.dtype)
    stack = Stack(network, torch.tensor(columns, device=ctx.device))
    for learning, stage in zip((contrastive, classification), stages, strict=True):
        stoppings = [stage.stopping(ctx, len(material.splits.train.labels)) for _ in columns]
        stack.train(learning(material.splits, stage, ctx.seed), stage, stoppings)
    found: FloatArray = stack.probabilities(material.test).cpu().numpy()
    return found
