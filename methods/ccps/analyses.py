"""Feature ablations of CCPS: networks retrained on subsets of its features; the language model is not run.

`features`: networks are trained on the 12 feature columns of the original hidden state, on the 63 columns of perturbed
states, and on all 75. `leave-one-out`: networks are trained 75 times, each time without one column. The analysis
`trajectory`, in its own module, computes features with other perturbations.
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
from methods.ccps.networks import Splits, classification_objective, contrastive_objective, probabilities
from methods.ccps.stacked import Stack

FULL = "full"
ALL = range(len(FEATURES))
_SUBSETS: Mapping[str, Sequence[int]] = {FULL: ALL, "original": OF_ORIGINAL, "perturbation": OF_PERTURBED}


class PreparedData(NamedTuple):
    """Standardised features of a run's answers, and the CCPS method that computed the features."""

    method: Ccps
    splits: Splits
    test: Tensor


def features(data: AnalysisInput) -> Findings:
    """Compare all columns with those of the original state and those of the perturbed states (docs/methods.md §5)."""
    prepared = prepare(data)
    confidence = {name: per_seed(data, partial(retrain, prepared, columns), name) for name, columns in _SUBSETS.items()}
    return Findings(
        question="Does CCPS need both kinds of features?",
        reference=FULL,
        confidence=confidence,
        sizes={name: len(columns) for name, columns in _SUBSETS.items()},
        published="feature_ablation.csv",
    )


def leave_one_out(data: AnalysisInput) -> Findings:
    """Compare all columns with all but one, for each column (docs/methods.md §5)."""
    prepared = prepare(data)
    full = per_seed(data, partial(retrain, prepared, ALL), FULL)
    subsets = [[k for k in ALL if k != left_out] for left_out in ALL]
    stacked = per_seed(data, partial(retrain_stack, prepared, subsets), "75 times without one column")
    return Findings(
        question="Which feature does CCPS miss most?",
        reference=FULL,
        confidence={FULL: full, **{name: stacked[:, k] for k, name in enumerate(FEATURES)}},
        metrics=("auroc",),
        sizes={FULL: len(FEATURES), **dict.fromkeys(FEATURES, len(FEATURES) - 1)},
        notes=(
            "A variant is named by the feature that it was trained without.",
            "One with a near copy among the others can be left out with little loss, whatever it is worth.",
        ),
    )


def require_ccps(method: ConfidenceMethod) -> Ccps:
    """Return the method as `Ccps`.

    Raises:
        UserError: the method is not CCPS.
    """
    if not isinstance(method, Ccps):
        raise UserError(f"this analysis is one of ccps, got the method {method.name!r}")
    return method


def prepare(data: AnalysisInput) -> PreparedData:
    """Compute standardised features of all answers.

    Raises:
        UserError: the method is not CCPS, or hidden states are not finite.
    """
    method = require_ccps(data.method)
    ctx = next(iter(data.contexts.values()))
    splits = method.prepare_splits(data.train, ctx)
    return PreparedData(method, splits, torch.from_numpy(method.test_inputs(data.test)).to(ctx.device))


def per_seed(data: AnalysisInput, compute: Callable[[Context], FloatArray], name: str) -> FloatArray:
    """Run a computation once for each seed's context, and return the results stacked to `(seeds, ...)`."""
    results = []
    for seed, ctx in data.contexts.items():
        data.say(f"{data.method.name}, {name}: seed {seed}")
        results.append(compute(ctx))
    return np.stack(results)


def retrain(prepared: PreparedData, columns: Sequence[int], ctx: Context) -> FloatArray:
    """Train a network on the given feature columns, and return its confidences `(n,)` in the test answers."""
    train, validation = (part and part._replace(features=part.features[..., columns]) for part in prepared.splits)
    network = prepared.method.train_network(Splits(train, validation), ctx)  # type: ignore[arg-type]
    return probabilities(network, prepared.test[..., columns])


def retrain_stack(prepared: PreparedData, columns: Sequence[Sequence[int]], ctx: Context) -> FloatArray:
    """Train k networks, each on its own subset of the feature columns, and return their confidences `(k, n)`.

    All subsets have the same size. With dropout the networks are trained one by one, since each needs its own dropout
    masks.
    """
    stages = prepared.method.stage_settings(ctx.format)
    if any(stage.dropout for stage in stages):
        return np.stack([retrain(prepared, subset, ctx) for subset in columns])
    with seeded_torch(ctx.seed, ctx.device):
        network = prepared.method.build_network(len(columns[0])).to(ctx.device, prepared.test.dtype)
    stack = Stack(network, torch.tensor(columns, device=ctx.device))
    for objective, stage in zip((contrastive_objective, classification_objective), stages, strict=True):
        stoppings = [stage.create_early_stopping(ctx, len(prepared.splits.train.labels)) for _ in columns]
        stack.train(objective(prepared.splits, stage, ctx.seed), stage, stoppings)
    confidences: FloatArray = stack.probabilities(prepared.test).cpu().numpy()
    return confidences
