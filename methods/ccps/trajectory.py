"""Analysis of CCPS' trajectory: how far states are moved, in how many steps, and in which direction.

Each variant computes its features anew from the same states and learns its own scaler. Control of the direction are
random ones, drawn uniformly on the sphere: each token is moved as far as by CCPS, and nothing else changes. A random
direction among d has a share of 1/d of the gradient's squared length, so by the same length the answer's
log-probability moves little. Hence a second control moves √d times as far: to first order and in the root mean square,
the log-probability then changes as much as along the gradient.
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
from methods.ccps.analyses import ALL, FULL, Material, by_seed, material_of, required, retrained, retrained_together
from methods.ccps.columns import FEATURES, OF_ORIGINAL
from methods.ccps.method import Ccps
from methods.ccps.networks import Data, Splits, tokens_needed

RADII = (1 / 16, 1 / 4, 4.0)
"""Factors of the radius of the run."""
STEPS = (1, 2, 10)
"""Numbers of steps, beside that of the run."""
BEGINNING = "original columns only"
RANDOM = "random direction"
FURTHER = "random direction, √d times as far"


@dataclass(kw_only=True, eq=False)
class AtRandom(Ccps):
    """CCPS whose states are moved in random directions, as far as by CCPS.

    The directions of an answer follow from its question's id and the seed alone, not from the other answers.
    """

    seed: int = 0

    def directions(self, ids: Sequence[str], lengths: IntArray, width: int) -> Tensor:
        """Directions `(sum of lengths, width)`, float32: normal draws, which favour no direction."""
        drawn = np.empty((int(lengths.sum()), width), dtype=np.float32)
        ends = np.cumsum(lengths)
        for question, start, end in zip(ids, ends - lengths, ends, strict=True):
            digest = hashlib.sha256(f"{self.seed}\0{question}".encode()).digest()
            draws = np.random.Generator(np.random.SFC64(np.frombuffer(digest, dtype=np.uint32)))
            draws.standard_normal(out=drawn[start:end], dtype=np.float32)
        return torch.from_numpy(drawn)


def trajectory(given: AnalysisInput) -> Findings:
    """Other radii, other numbers of steps, and random directions against the radius, steps and direction of the run."""
    given = replace(given, method=narrowed(given))
    own = material_of(given)
    method, width = own.method, given.train[Unembedding()].weight.shape[1]
    variants = _variants(method, width)
    at_random = (RANDOM, FURTHER)
    fixed = [replace(method, **changes) for name, changes in variants.items() if name not in at_random]
    materials = [material_of(replace(given, method=each)) for each in fixed]

    def trained(ctx: Context) -> FloatArray:
        drawn = [AtRandom(**{**method.params(), **variants[name], "seed": ctx.seed}) for name in at_random]
        each_material = [*materials, *(material_of(replace(given, method=each)) for each in drawn)]
        train, validation = (  # the columns of all variants side by side
            parts[0]._replace(features=torch.cat([part.features for part in parts], -1))
            if (parts := [part for part in of if part is not None])
            else None
            for of in zip(*(each.splits for each in each_material), strict=True)
        )
        assert isinstance(train, Data)  # noqa: S101  # for the type checker
        n = len(FEATURES)
        columns = [list(range(k * n, (k + 1) * n)) for k in range(len(variants))]
        test = torch.cat([each.test for each in each_material], -1)
        return retrained_together(Material(method, Splits(train, validation), test), columns, ctx)

    confidence = {
        FULL: by_seed(given, partial(retrained, own, ALL), FULL),
        BEGINNING: by_seed(given, partial(retrained, own, OF_ORIGINAL), BEGINNING),
    }
    together = by_seed(given, trained, f"{len(variants)} variants")
    confidence |= {name: together[:, k] for k, name in enumerate(variants)}
    names = [FULL, *variants, BEGINNING]
    return Findings(
        question="How much of CCPS' gain is the direction, and do radius and steps matter?",
        reference=FULL,
        confidence={name: confidence[name] for name in names},
        sizes={name: len(OF_ORIGINAL if name == BEGINNING else FEATURES) for name in names},
        path=(
            Step(BEGINNING),
            Step(RANDOM, "moves in a random direction, and the gradient's norm"),
            Step(FULL, "the direction"),
        ),
        notes=_notes(method, width),
    )


def _notes(method: Ccps, width: int) -> tuple[str, ...]:
    unit = " times the state's norm" if method.eps_relative else ""
    own = (
        f"{FULL}: radius {method.radius:g}{unit}, {_steps(method.steps)}, against the answer; a variant differs in what"
        " its name says."
    )
    at_random = (
        f"{RANDOM}: drawn anew for each seed and token, moved as far as in {FULL}; the gradient's norm stays among the"
        " columns."
    )
    further = (
        f"√d times as far: {math.sqrt(width):.3g} times in states of {width} coordinates, in the same directions; to"
        f" first order and in the root mean square, the answer's log-probability changes as much as in {FULL}."
    )
    return own, at_random, further


def narrowed(given: AnalysisInput) -> Ccps:
    """The method with no more padding of open answers than gives its networks the same maxima over the tokens.

    Raises:
        UserError: the method is another one.
    """
    method = required(given.method)
    batches = [given.train, given.test, *(ctx.validation for ctx in given.contexts.values() if ctx.validation)]
    longest = max(int(batch[TokenIds(Of.ANSWER)].lengths.max(initial=1)) for batch in batches)
    return replace(method, max_tokens=min(method.max_tokens, tokens_needed(longest, len(method.encoder_channels))))


def _variants(method: Ccps, width: int) -> dict[str, dict[str, Any]]:
    """Changed constants of the variants of all columns, family by family: radius, steps, direction."""
    radii = [factor * method.radius for factor in RADII]
    found: dict[str, dict[str, Any]] = {f"radius {radius:g}": {"radius": radius} for radius in radii}
    found |= {_steps(steps): {"steps": steps} for steps in STEPS if steps != method.steps}
    return found | {RANDOM: {}, FURTHER: {"radius": math.sqrt(width) * method.radius}}


def _steps(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"
