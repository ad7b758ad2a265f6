"""Analyses that a method brings along: trainings of variants of it, which the harness measures and compares.

A method names them in `analyses`. A function of one trains variants on what a run has read, and gives their confidences
in the test answers; labels of these it never sees. Metrics, intervals, tests, tables and figures are the harness's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.api.batch import Batch, FloatArray
from bench.api.methods import ConfidenceMethod, Context


@dataclass(frozen=True, eq=False)
class AnalysisInput:
    """Material of an analysis: a method, and the answers and signals that a run of it has read."""

    method: ConfidenceMethod
    """With the arguments of the run; it has learned nothing yet."""
    train: Batch
    """Labelled, with the signals of `needs.fit`."""
    test: Batch
    """Without labels, with the signals of `needs.predict`."""
    contexts: Mapping[int, Context]
    """Seed of a run -> what `fit` gets in it, validation answers included; those are the same for all seeds."""
    say: Callable[[str], None] = lambda _: None
    """Tells people how far it is."""


@dataclass(frozen=True)
class Step:
    """Variant on the way to the reference."""

    variant: str
    adds: str = ""
    """What it has that the one before lacks, e.g. "the direction"; empty for the first."""


@dataclass(frozen=True, eq=False)
class Findings:
    """Confidences of the variants of a method in the test answers."""

    question: str
    """Question that the analysis asks, e.g. "Which features matter?"."""
    reference: str
    """Variant with which each other one is compared."""
    confidence: Mapping[str, FloatArray]
    """Variant -> `(seeds, n)` in the order of `AnalysisInput.contexts` and of `test`; within [0, 1]."""
    metrics: Sequence[str] = ("ece", "brier", "auroc")
    """Names in `bench.metrics.METRICS`; the last one decides."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Variant -> number of its columns."""
    published: str = ""
    """File below `results/paper` with columns model, task, variant, metric and mean (percent); empty: there is none."""
    path: Sequence[Step] = ()
    """Variants that end with the reference, each with something more: how much of the whole difference is each step?"""
    notes: Sequence[str] = ()
    """Sentences that a reader of the numbers must know."""
