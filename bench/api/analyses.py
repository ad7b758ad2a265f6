"""Analyses that a method brings along: trainings of it, or of variants of it, which answer a question about it.

A method names them in `analyses`. A function of one learns from what a run has read; labels of the test answers it
never sees. It gives `Findings`, confidences of variants, of which metrics, intervals, tests, tables and figures are the
harness's; or `Measures`, a table of numbers of its own with a verdict, which the harness checks, prints and draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.api.batch import Batch, FloatArray
from bench.api.errors import ContractError
from bench.api.methods import ConfidenceMethod, Context

Pieces = Callable[[Batch], Sequence[Sequence[str]]]
"""Text of each answer token, which together are the answer's text."""


def _unknown(_: Batch) -> Sequence[Sequence[str]]:
    raise ContractError("there is no tokenizer here, so the text of tokens isn't known")


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
    pieces: Pieces = _unknown
    """Batch with `TokenIds(Of.ANSWER)` -> for each answer the text of each of its tokens. Joined they are the answer's
    text; a token that ends within a character has the text "", and the one that ends it has the character."""


@dataclass(frozen=True)
class Step:
    """Variant on the way to the reference."""

    variant: str
    adds: str = ""
    """Words for what the one before lacks, e.g. "the direction"; empty for the first."""


@dataclass(frozen=True, eq=False)
class Findings:
    """Confidences of the variants of a method in the test answers."""

    question: str
    """Question that the analysis asks, e.g. "Which features matter?"."""
    reference: str
    """Variant with which each other one is compared."""
    confidence: Mapping[str, FloatArray]
    """Variant -> `(seeds, n)` in the order of `AnalysisInput.contexts` and of `test`; within [0, 1]."""
    metrics: Sequence[str] = ("ece", "rmsce", "brier", "auroc")
    """Names in `bench.metrics.METRICS`; the last one decides. An ECE has a value, but no interval and no test."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Variant -> number of its columns."""
    published: str = ""
    """File below `results/paper` with columns model, task, variant, metric and mean (percent); empty: there is none."""
    path: Sequence[Step] = ()
    """Variants that end with the reference, each with something more: how much of the whole difference is each step?"""
    notes: Sequence[str] = ()
    """Sentences that a reader of the numbers must know."""


# --- what is measured rather than compared ----------------------------------------------------------------------------


Kind = Literal["text", "count", "percent", "points", "number", "probability"]
"""Kind of a column's values. text: a string; count: a whole number; percent: a fraction, shown in percent; points: a
difference of fractions, shown in percent with its sign; number: shown as it is; probability: a p value."""
Value = str | int | float | None


@dataclass(frozen=True)
class MeasureColumn:
    """Column of a table of measures."""

    key: str
    """Its key in a row, and its name in CSV and JSON."""
    label: str
    """Its name for people."""
    kind: Kind = "number"
    low: str = ""
    """Key of the lower end of an interval in the same row, shown beside the value; empty: there is none."""
    high: str = ""
    """Key of the upper end; both or none are given."""
    decimals: int | None = None
    """Decimals for people; by default 1 of percent and points, 3 of numbers."""


@dataclass(frozen=True)
class Piece:
    """Part of a text with a number."""

    text: str
    value: float | None = None
    """None: it is not coloured."""
    mark: str = ""
    """Key in `Strips.marks`; empty: none."""
    told: str = ""
    """Words on it that are shown when it is pointed at."""


@dataclass(frozen=True)
class Strip:
    """Text whose pieces are coloured by their numbers."""

    title: str
    pieces: Sequence[Piece]
    caption: str = ""


@dataclass(frozen=True)
class Strips:
    """Texts that are written with `--out` as one page, coloured on one scale from 0 to the largest number on it."""

    value: str
    """Name of the number, e.g. "impact in percentage points"."""
    about: str
    """Sentences above the texts: which ones these are, and what their numbers mean."""
    strips: Sequence[Strip]
    marks: Mapping[str, str] = field(default_factory=dict)
    """Mark -> what it means; the first is drawn as a solid line below the text, the second as a dotted one."""


@dataclass(frozen=True, eq=False)
class Measures:
    """Numbers that an analysis has measured, and what they answer."""

    question: str
    """Question that the analysis asks, e.g. "Which words matter?"."""
    answer: str
    """Verdict in sentences, made from the numbers."""
    columns: Sequence[MeasureColumn]
    """The first one is text and names the row; no two rows have the same."""
    rows: Sequence[Mapping[str, Value]]
    """Key -> value; what is missing or not finite counts as None."""
    drawn: str = ""
    """Key of the column that the figure draws, as a dot with its interval; empty: there is no figure."""
    shown: int | None = None
    """Rows from the first on that are printed for people; by default all. CSV, JSON and the figure have all."""
    published: str = ""
    """File below `results/paper` with columns model, row, column and value (percent where the column's kind is percent
    or points); empty: there is none."""
    notes: Sequence[str] = ()
    """Sentences that a reader of the numbers must know."""
    strips: Strips | None = None
