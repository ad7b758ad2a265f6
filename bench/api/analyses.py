"""Input and outputs of analyses: functions that study a method by training the method or variants of it.

A method lists such functions in its attribute `analyses`. An analysis gets the signals of a run and never the labels
of the test answers. It returns `Findings`, confidences of variants, for which the harness computes metrics, intervals,
tests, tables and figures; or `Measures`, a table of numbers with a verdict, which the harness checks, prints and plots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.api.batch import Batch, FloatArray
from bench.api.errors import ContractError
from bench.api.methods import ConfidenceMethod, Context

Pieces = Callable[[Batch], Sequence[Sequence[str]]]
"""Function that returns the text of each token of each answer of a batch: see `AnalysisInput.pieces`."""


def _no_tokenizer(_: Batch) -> Sequence[Sequence[str]]:
    raise ContractError("there is no tokenizer here, so the text of tokens isn't known")


@dataclass(frozen=True, eq=False)
class AnalysisInput:
    """Input of an analysis: a method, and the answers and signals of a run of it."""

    method: ConfidenceMethod
    """The method with the arguments of the run, not fitted."""
    train: Batch
    """Labelled training answers, with the signals of `needs.fit`."""
    test: Batch
    """Test answers without labels, with the signals of `needs.predict`."""
    contexts: Mapping[int, Context]
    """Seed of a run -> context for `fit`; its validation answers are the same for all seeds."""
    say: Callable[[str], None] = lambda _: None
    """Prints a progress message."""
    pieces: Pieces = _no_tokenizer
    """Function that returns, for each answer of a batch with `TokenIds(Of.ANSWER)`, the text of each of its tokens.
    Joined, these are the answer's text; if a character spans several tokens, the last has it and the others have ""."""


@dataclass(frozen=True)
class Step:
    """One variant in `Findings.path`, and what it adds to the variant before it."""

    variant: str
    adds: str = ""
    """Addition in words, e.g. "the direction"; empty for the first variant."""


@dataclass(frozen=True, eq=False)
class Findings:
    """Confidences of a method's variants for the test answers."""

    question: str
    """Question that the analysis answers, e.g. "Which features matter?"."""
    reference: str
    """Variant with which all others are compared."""
    confidence: Mapping[str, FloatArray]
    """Variant -> `(seeds, n)` within [0, 1], ordered as the seeds of `AnalysisInput.contexts` and as its `test`."""
    metrics: Sequence[str] = ("ece", "rmsce", "brier", "auroc")
    """Names in `bench.metrics.METRICS`; the verdict is on the last. An ECE has a value, but no interval or test."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Variant -> number of feature columns that it is trained on; may be empty."""
    published: str = ""
    """File below `results/paper` with columns model, task, variant, metric and mean (percent); empty: there is none."""
    path: Sequence[Step] = ()
    """Variants up to the reference, each with one addition; each one's share in the whole difference is shown."""
    notes: Sequence[str] = ()
    """Sentences that a reader of the numbers must know."""


# --- tables of measurements -----------------------------------------------------------------------------------------


Kind = Literal["text", "count", "percent", "points", "number", "probability"]
"""How the values of a column are shown. text: a string; count: a whole number; percent: a fraction, shown in percent;
points: a difference of fractions, shown in percent with its sign; number: shown as it is; probability: a p value."""
Value = str | int | float | None


@dataclass(frozen=True)
class MeasureColumn:
    """One column of a `Measures` table."""

    key: str
    """Key of the column's value in each row, and name of the column in CSV and JSON."""
    label: str
    """Name of the column in printed tables."""
    kind: Kind = "number"
    low: str = ""
    """Key in each row of the lower end of the value's interval, shown beside the value; empty: there is none."""
    high: str = ""
    """Key in each row of the interval's upper end; `low` and `high` are set both or neither."""
    decimals: int | None = None
    """Number of displayed decimals; by default 1 for percent and points, 3 for numbers."""


@dataclass(frozen=True)
class Piece:
    """Piece of a text, coloured by its value."""

    text: str
    value: float | None = None
    """Number that the colour shows; None: not coloured."""
    mark: str = ""
    """Underline of the piece, a key of `Strips.marks`; empty: none."""
    told: str = ""
    """Text of the tooltip."""


@dataclass(frozen=True)
class Strip:
    """Text whose pieces are coloured by their values."""

    title: str
    pieces: Sequence[Piece]
    caption: str = ""


@dataclass(frozen=True)
class Strips:
    """Coloured texts, written with `--out` as one page with one colour scale, from 0 to the largest value."""

    value: str
    """Name of the values, e.g. "impact in percentage points"."""
    about: str
    """Sentences above the texts: which texts these are, and what their values mean."""
    strips: Sequence[Strip]
    marks: Mapping[str, str] = field(default_factory=dict)
    """Mark -> its meaning; the first mark is a solid line below the text, the second a dotted one."""


@dataclass(frozen=True, eq=False)
class Measures:
    """Table of numbers measured by an analysis, and the verdict from them."""

    question: str
    """Question that the analysis answers, e.g. "Which words matter?"."""
    answer: str
    """Verdict in sentences, computed from the numbers."""
    columns: Sequence[MeasureColumn]
    """The first column is text and names the row; its values are distinct."""
    rows: Sequence[Mapping[str, Value]]
    """One mapping from column key to value for each row; missing and non-finite values count as None."""
    drawn: str = ""
    """Key of the column that the figure plots, as a dot with its interval; empty: no figure."""
    shown: int | None = None
    """Number of first rows that are printed; by default all. CSV, JSON and the figure have all."""
    published: str = ""
    """File below `results/paper` with columns model, row, column and value (percent where the column's kind is percent
    or points); empty: there is none."""
    notes: Sequence[str] = ()
    """Sentences that a reader of the numbers must know."""
    strips: Strips | None = None
