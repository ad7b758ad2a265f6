"""Input and outputs of analyses: functions that study a method by training the method or variants of it.

A method lists such functions in its attribute `analyses`. An analysis gets the signals of a run, but never the labels
of the test answers. An analysis that returns `Findings` gives the confidences of variants; the harness then computes
metrics, intervals, tests, tables and figures. An analysis that returns `Measures` gives a table of numbers and a
verdict in words; the harness checks, prints and plots them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.api.batch import Batch, FloatArray
from bench.api.errors import ContractError
from bench.api.methods import ConfidenceMethod, Context

Pieces = Callable[[Batch], Sequence[Sequence[str]]]
"""Type of a function that splits the answers of a batch into the text of each token: see `AnalysisInput.pieces`."""


def _no_tokenizer(_: Batch) -> Sequence[Sequence[str]]:
    raise ContractError("there is no tokenizer here, so the text of tokens isn't known")


@dataclass(frozen=True, eq=False)
class AnalysisInput:
    """Input of an analysis: a method, and the model's answers and signals for training and test questions."""

    method: ConfidenceMethod
    """The method, with the constants of the run; `fit` has not been called yet."""
    train: Batch
    """Labelled training answers, with the signals of `needs.fit`."""
    test: Batch
    """Test answers without labels, with the signals of `needs.predict`."""
    contexts: Mapping[int, Context]
    """Seed of a run -> the context that `fit` gets with this seed. The validation answers are the same for all
    seeds."""
    say: Callable[[str], None] = lambda _: None
    """Function that prints a progress message."""
    pieces: Pieces = _no_tokenizer
    """Function that splits each answer of a batch into the texts of its tokens; the batch needs `TokenIds(Of.ANSWER)`.
    Joined, the texts are the answer. If a character spans several tokens, the last of them has it, the others have
    ""."""


@dataclass(frozen=True)
class Step:
    """One variant of a method in `Findings.path`, with what it adds to the variant before."""

    variant: str
    adds: str = ""
    """What this variant adds, in words, e.g. "the direction"; empty for the first variant."""


@dataclass(frozen=True, eq=False)
class Findings:
    """Confidences of a method's variants for the test answers."""

    question: str
    """Question that the analysis answers, e.g. "Which features matter?"."""
    reference: str
    """Name of the variant with which all other variants are compared."""
    confidence: Mapping[str, FloatArray]
    """Name of a variant -> its confidences `(seeds, n)` within [0, 1]. Seeds are ordered as in
    `AnalysisInput.contexts`, answers as in `AnalysisInput.test`."""
    metrics: Sequence[str] = ("ece", "rmsce", "brier", "auroc")
    """Names of metrics in `bench.metrics.METRICS`; the verdict is about the last one. For an ECE only the value is
    computed, without interval and test."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Name of a variant -> number of feature columns that it is trained on; may be empty."""
    published: str = ""
    """Name of a CSV file below `results/paper` with published values, or empty. Its columns are model, task, variant,
    metric and mean (percent)."""
    path: Sequence[Step] = ()
    """Variants from the simplest to the reference, each with one addition to the variant before. The report shows which
    share of the whole difference each addition accounts for."""
    notes: Sequence[str] = ()
    """Sentences that are printed with the numbers, for caveats."""


# --- tables of measurements -----------------------------------------------------------------------------------------


Kind = Literal["text", "count", "percent", "points", "number", "probability"]
"""How the values of a column are shown.

- text: a string.
- count: a whole number.
- percent: a fraction, shown in percent.
- points: a difference of fractions, shown in percentage points with its sign.
- number: a number, shown as it is.
- probability: a p value.
"""
Value = str | int | float | None


@dataclass(frozen=True)
class MeasureColumn:
    """One column of a `Measures` table."""

    key: str
    """Key under which each row of the table has this column's value; also the column's name in CSV and JSON."""
    label: str
    """Name of the column in printed tables."""
    kind: Kind = "number"
    low: str = ""
    """Key under which each row has the lower end of the value's interval, shown beside the value; empty: no
    interval."""
    high: str = ""
    """Key under which each row has the upper end of the value's interval. `low` and `high` are set both or neither."""
    decimals: int | None = None
    """Number of displayed decimals; by default 1 for percent and points, 3 for numbers."""


@dataclass(frozen=True)
class Piece:
    """Part of a text, coloured by a number."""

    text: str
    value: float | None = None
    """Number that the colour shows; None leaves the text uncoloured."""
    mark: str = ""
    """Key in `Strips.marks` of the line drawn under the text; empty for no line."""
    told: str = ""
    """Text of the tooltip that opens over this part of the text."""


@dataclass(frozen=True)
class Strip:
    """A text in parts, each coloured by its own number."""

    title: str
    pieces: Sequence[Piece]
    caption: str = ""


@dataclass(frozen=True)
class Strips:
    """Coloured texts, written with `--out` as one HTML page.

    One colour scale serves all texts, from 0 to the largest value.
    """

    value: str
    """What the coloured numbers are, e.g. "impact in percentage points"."""
    about: str
    """Sentences above the texts: which texts are shown, and what their colours mean."""
    strips: Sequence[Strip]
    marks: Mapping[str, str] = field(default_factory=dict)
    """Name of a mark -> its meaning. The first mark is drawn as a solid line below the text, the second as a dotted
    line."""


@dataclass(frozen=True, eq=False)
class Measures:
    """Table of numbers measured by an analysis, with a verdict in words."""

    question: str
    """Question that the analysis answers, e.g. "Which words matter?"."""
    answer: str
    """Verdict in sentences, which the analysis derives from the numbers."""
    columns: Sequence[MeasureColumn]
    """Columns of the table. The first column has a text that names the row; no two rows have the same."""
    rows: Sequence[Mapping[str, Value]]
    """Rows of the table: dicts from column key to value. Missing and non-finite values count as None."""
    drawn: str = ""
    """Key of the column that the figure plots, as one dot with interval per row; empty: no figure."""
    shown: int | None = None
    """Number of rows that are printed, from the top; by default all. CSV, JSON and the figure always have all rows."""
    published: str = ""
    """Name of a CSV file below `results/paper` with published values, or empty. Its columns are model, row, column and
    value, in percent where the column's kind is percent or points."""
    notes: Sequence[str] = ()
    """Sentences that are printed with the numbers, for caveats."""
    strips: Strips | None = None
