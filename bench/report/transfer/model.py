"""Numbers of a transfer matrix as values."""

from __future__ import annotations

from dataclasses import dataclass

from bench.results.transfer import About, Corpus
from bench.stats import Average, Interval

METRICS_SHOWN = ("brier", "auroc")
"""Metrics of a matrix, by their names in `bench.metrics.METRICS`."""
LEVEL = 0.95
"""Level of all intervals; 1 - LEVEL is the level of significance."""
CONSTANT = "share of right answers"
"""Name of a confidence that is the same for every answer: the share of right answers in what was learned from. It has
no name that a method could have."""


@dataclass(frozen=True)
class MatrixEntry:
    """One metric of one cell, mean over seeds."""

    method: str
    corpus: Corpus | None
    """None for a method that is told nothing."""
    test: str
    metric: str
    value: float
    interval: Interval


@dataclass(frozen=True)
class Price:
    """Loss of a method by learning elsewhere: positive where it is worse, on the same test questions."""

    method: str
    corpus: Corpus
    """Corpus that it learned on instead."""
    home: Corpus
    """Corpus that this is against."""
    test: str
    metric: str
    points: float
    """In the metric's unit, fractions."""
    interval: Interval
    p: float | None
    """Two-sided, of no price; None where there is no test."""
    p_holm: float | None = None
    """Corrected for all prices of this metric."""

    @property
    def is_shown(self) -> bool:
        """Whether the price is shown not to be 0."""
        return self.p_holm is not None and self.p_holm < 1 - LEVEL


@dataclass(frozen=True)
class MeanPrice:
    """The mean price of the methods that learn."""

    corpus: Corpus
    home: Corpus
    test: str
    metric: str
    points: float
    interval: Interval
    n: int
    """Methods."""


@dataclass(frozen=True)
class Constant:
    """Brier score of a constant confidence, which is the share of right answers in what was learned from.

    Its price is what moving the share alone costs, without any knowledge of single answers.
    """

    corpus: Corpus
    test: str
    value: float
    interval: Interval
    points: float | None
    """Price against the home of the test; None where it has none, or this is it."""
    price_interval: Interval


@dataclass(frozen=True)
class StoredCell:
    """A result that numbers of the matrix are of."""

    method: str
    corpus: Corpus | None
    test: str
    file: str
    """JSON file below the folder of the matrix, with `/`."""
    records_digest: str
    """SHA-256 of its Parquet file."""


@dataclass(frozen=True)
class Worst:
    """A method's worst cell."""

    method: str
    metric: str
    value: float
    corpus: Corpus | None
    test: str
    interval: Interval
    """Interval for the cell that is worst in truth, which may be another."""
    rank: int | None
    """1 plus the number of methods whose worst cell is significantly better; None without a rank."""
    reason: str = ""
    """Reason why there is no rank."""


@dataclass(frozen=True)
class AgainstUntrained:
    """A method that learned elsewhere against all methods that are told nothing, by the Brier score of one test."""

    method: str
    corpus: Corpus
    test: str
    untold: tuple[str, ...]
    """Methods that are told nothing and have a number in every test."""
    against: str
    """The one of these that it differs from least clearly."""
    points: float
    """Brier of the method minus that of this one: positive where it is worse."""
    interval: Interval
    p: float | None
    """Two-sided, of being neither worse than all of them nor better than all: the largest of the pairs, 1 where it is
    worse than one and better than another."""
    p_holm: float | None = None
    """Corrected for all methods that learn, corpora and tests."""


@dataclass(frozen=True)
class Missing:
    """A cell without numbers."""

    method: str
    corpus: Corpus | None
    test: str
    reason: str


@dataclass(frozen=True)
class Matrix:
    """Everything that is told of a matrix."""

    about: About
    entries: tuple[MatrixEntry, ...]
    prices: tuple[Price, ...]
    means: tuple[MeanPrice, ...]
    worst: tuple[Worst, ...]
    against_untrained: tuple[AgainstUntrained, ...]
    missing: tuple[Missing, ...]
    novelty: tuple[Price, ...] = ()
    """Prices of a new subject: without it, against without as many answers at random."""
    novelty_means: tuple[MeanPrice, ...] = ()
    constants: tuple[Constant, ...] = ()
    cells: tuple[StoredCell, ...] = ()
    remarks: tuple[str, ...] = ()
    """Sentences on what was tested: how many questions, and in what results differ from a whole run of the preset."""
    average: Average = "questions"
    """What metrics are of."""

    @property
    def over(self) -> str:
        """Words for what metrics are of."""
        return "over all questions" if self.average == "questions" else "mean over subjects"

    def entry(self, method: str, corpus: Corpus | None, test: str, metric: str) -> MatrixEntry | None:
        """One number; of a method that is told nothing the one that it has for every corpus; None: there is none."""
        own = [e for e in self.entries if (e.method, e.test, e.metric) == (method, test, metric)]
        return next((e for at in (corpus, None) for e in own if e.corpus == at), None)

    def reason(self, method: str, corpus: Corpus, test: str) -> str:
        """Why a cell is missing; empty where it is not."""
        gaps = (m for m in self.missing if (m.method, m.test) == (method, test) and m.corpus in {corpus, None})
        return next((gap.reason for gap in gaps), "")

    def group(self, method: str) -> int:
        """0 for a method that learns, 1 for one that is scaled, 2 for one that is told nothing."""
        return 0 if method in self.about.learners else 1 if method in self.about.scaled else 2

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods with or without numbers: those that learn, those that are scaled, those that are told nothing."""
        names = dict.fromkeys([*(each.method for each in self.entries), *(each.method for each in self.missing)])
        return tuple(sorted(names, key=lambda name: (self.group(name), name)))
