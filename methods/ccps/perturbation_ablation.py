"""Analysis `trajectory` of CCPS: radius, number of steps and direction of the perturbation.

Each variant of CCPS computes its features from the same hidden states and fits its own scaler. The control for the
direction moves each state as far as CCPS does, but in a random direction, uniform on the sphere. In d dimensions the
projection of a random direction on the gradient has a mean square of 1/d, so the answer's log-probability hardly
changes. A second control moves √d times as far. To first order and in the root mean square, the log-probability then
changes as much as along the gradient.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.api import AnalysisInput, Context, Findings, FloatArray, IntArray, Of, Step, TokenIds, Unembedding
from methods.ccps.analyses import ALL, FULL, PreparedData, per_seed, prepare, require_ccps, retrain, retrain_stack
from methods.ccps.columns import FEATURES, OF_ORIGINAL
from methods.ccps.method import Ccps
from methods.ccps.networks import Data, Splits, tokens_needed

RADII = (1 / 16, 1 / 4, 4.0)
"""Factors by which the variants of the analysis multiply the radius of the run."""
STEPS = (1, 2, 10)
"""Numbers of perturbation steps of the variants, in place of the run's number."""
ORIGINAL_ONLY = "original columns only"
RANDOM = "random direction"
FURTHER = "random direction, √d times as far"


@dataclass(kw_only=True, eq=False)
class RandomDirections(Ccps):
    """CCPS with random directions of the perturbation; the step lengths stay those of CCPS.

    The directions of an answer depend only on the question id and the seed.
    """

    seed: int = 0

    def directions(self, ids: Sequence[str], lengths: IntArray, width: int) -> Tensor:
        """Return one random direction per token of all answers, `(tokens, width)` float32, isotropic normal vectors."""
        directions = np.empty((int(lengths.sum()), width), dtype=np.float32)
        ends = np.cumsum(lengths)
        for question, start, end in zip(ids, ends - lengths, ends, strict=True):
            digest = hashlib.sha256(f"{self.seed}\0{question}".encode()).digest()
            generator = np.random.Generator(np.random.SFC64(np.frombuffer(digest, dtype=np.uint32)))
            generator.standard_normal(out=directions[start:end], dtype=np.float32)
        return torch.from_numpy(directions)


def trajectory(data: AnalysisInput) -> Findings:
    """Compare other radii, numbers of steps and random directions with the settings of the run."""
    data = replace(data, method=reduce_padding(data))
    prepared = prepare(data)
    method, width = prepared.method, data.train[Unembedding()].weight.shape[1]
    variants = _variants(method, width)
    controls = (RANDOM, FURTHER)
    fixed = [replace(method, **changes) for name, changes in variants.items() if name not in controls]
    fixed_prepared = [prepare(replace(data, method=each)) for each in fixed]

    def train_variants(ctx: Context) -> FloatArray:
        methods = [RandomDirections(**{**method.params(), **variants[name], "seed": ctx.seed}) for name in controls]
        prepared_variants = [*fixed_prepared, *(prepare(replace(data, method=each)) for each in methods)]
        train, validation = (  # the columns of all variants side by side
            parts[0]._replace(features=torch.cat([part.features for part in parts], -1))
            if (parts := [part for part in of if part is not None])
            else None
            for of in zip(*(each.splits for each in prepared_variants), strict=True)
        )
        assert isinstance(train, Data)  # noqa: S101  # for the type checker
        n = len(FEATURES)
        columns = [list(range(k * n, (k + 1) * n)) for k in range(len(variants))]
        test = torch.cat([each.test for each in prepared_variants], -1)
        return retrain_stack(PreparedData(method, Splits(train, validation), test), columns, ctx)

    confidence = {
        FULL: per_seed(data, partial(retrain, prepared, ALL), FULL),
        ORIGINAL_ONLY: per_seed(data, partial(retrain, prepared, OF_ORIGINAL), ORIGINAL_ONLY),
    }
    by_variant = per_seed(data, train_variants, f"{len(variants)} variants")
    confidence |= {name: by_variant[:, k] for k, name in enumerate(variants)}
    names = [FULL, *variants, ORIGINAL_ONLY]
    return Findings(
        question="How much of CCPS' gain is the direction, and do radius and steps matter?",
        reference=FULL,
        confidence={name: confidence[name] for name in names},
        sizes={name: len(OF_ORIGINAL if name == ORIGINAL_ONLY else FEATURES) for name in names},
        path=(
            Step(ORIGINAL_ONLY),
            Step(RANDOM, "moves in a random direction, and the gradient's norm"),
            Step(FULL, "the direction"),
        ),
        notes=_build_notes(method, width),
    )


def _build_notes(method: Ccps, width: int) -> tuple[str, ...]:
    unit = " times the state's norm" if method.eps_relative else ""
    full = (
        f"{FULL}: radius {method.radius:g}{unit}, {_format_steps(method.steps)}, against the answer; a variant differs"
        " in what its name says."
    )
    at_random = (
        f"{RANDOM}: drawn anew for each seed and token, moved as far as in {FULL}; the gradient's norm stays among the"
        " columns."
    )
    further = (
        f"√d times as far: {math.sqrt(width):.3g} times in states of {width} coordinates, in the same directions; to"
        f" first order and in the root mean square, the answer's log-probability changes as much as in {FULL}."
    )
    return full, at_random, further


def reduce_padding(data: AnalysisInput) -> Ccps:
    """Return CCPS with the smallest `max_tokens` that leaves all maxima over an open answer's tokens unchanged.

    Raises:
        UserError: the method is not CCPS.
    """
    method = require_ccps(data.method)
    batches = [data.train, data.test, *(ctx.validation for ctx in data.contexts.values() if ctx.validation)]
    longest = max(int(batch[TokenIds(Of.ANSWER)].lengths.max(initial=1)) for batch in batches)
    return replace(method, max_tokens=min(method.max_tokens, tokens_needed(longest, len(method.encoder_channels))))


def _variants(method: Ccps, width: int) -> dict[str, dict[str, Any]]:
    """Return name of a variant -> constructor arguments that it changes; random directions are set elsewhere."""
    radii = [factor * method.radius for factor in RADII]
    variants: dict[str, dict[str, Any]] = {f"radius {radius:g}": {"radius": radius} for radius in radii}
    variants |= {_format_steps(steps): {"steps": steps} for steps in STEPS if steps != method.steps}
    return variants | {RANDOM: {}, FURTHER: {"radius": math.sqrt(width) * method.radius}}


def _format_steps(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"
