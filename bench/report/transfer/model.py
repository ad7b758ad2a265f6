"""Dataclasses of a transfer matrix."""

from __future__ import annotations

from dataclasses import dataclass

from bench.results.transfer import About, Corpus
from bench.stats import Average, Interval

METRICS_SHOWN = ("brier", "auroc")
"""Metrics of a matrix, names in `bench.metrics.METRICS`."""
LEVEL = 0.95
"""Level of all intervals; 1 - LEVEL is the significance level."""
CONSTANT = "share of right answers"
"""Name of the baseline with one confidence for every answer: the share of right answers in the training corpus. No
method can have this name."""


@dataclass(frozen=True)
class MatrixEntry:
    """One metric of one cell, mean over seeds."""

    method: str
    corpus: Corpus | None
    """Training corpus; None for an untrained method."""
    test: str
    metric: str
    value: float
    interval: Interval


@dataclass(frozen=True)
class Price:
    """Loss of a method by training on another corpus, on the same test questions: positive where it is worse."""

    method: str
    corpus: Corpus
    """Corpus that the method was trained on."""
    home: Corpus
    """Corpus that it is compared with."""
    test: str
    metric: str
    points: float
    """Price in the unit of the metric, a fraction."""
    interval: Interval
    p: float | None
    """Two-sided p value of a price of 0; None where there is no test."""
    p_holm: float | None = None
    """p by Holm's correction for all prices of this metric."""

    @property
    def is_shown(self) -> bool:
        """Whether the price differs significantly from 0."""
        return self.p_holm is not None and self.p_holm < 1 - LEVEL


@dataclass(frozen=True)
class MeanPrice:
    """Mean price over the trained methods."""

    corpus: Corpus
    home: Corpus
    test: str
    metric: str
    points: float
    interval: Interval
    n: int
    """Number of methods."""


@dataclass(frozen=True)
class Baseline:
    """Brier score of a constant confidence: the share of right answers in the training corpus.

    Its price is the cost of the changed share alone.
    """

    corpus: Corpus
    test: str
    value: float
    interval: Interval
    points: float | None
    """Price against the home corpus of the test; None where there is none, or this is it."""
    price_interval: Interval


@dataclass(frozen=True)
class StoredCell:
    """A result file that the matrix was computed from."""

    method: str
    corpus: Corpus | None
    test: str
    file: str
    """Path of the JSON file below the folder of the matrix, with `/`."""
    records_digest: str
    """SHA-256 of its Parquet file."""


@dataclass(frozen=True)
class WorstCell:
    """The worst cell of a method."""

    method: str
    metric: str
    value: float
    corpus: Corpus | None
    test: str
    interval: Interval
    """Interval of the value in the truly worst cell, which may be another."""
    rank: int | None
    """1 plus the number of methods with a significantly better worst cell; None without a rank."""
    reason: str = ""
    """Why there is no rank."""


@dataclass(frozen=True)
class AgainstUntrained:
    """A method trained elsewhere against all untrained methods, by the Brier score of one test."""

    method: str
    corpus: Corpus
    test: str
    untold: tuple[str, ...]
    """Untrained methods with a value in every test."""
    against: str
    """The one of these with the largest p value."""
    points: float
    """Brier of the method minus that of `against`: positive where it is worse."""
    interval: Interval
    p: float | None
    """Two-sided p value of being neither worse than all of them nor better than all: the largest p of pairs, 1 where
    the method is worse than one and better than another."""
    p_holm: float | None = None
    """p by Holm's correction for all trained methods, corpora and tests."""


@dataclass(frozen=True)
class MissingCell:
    """A cell without values."""

    method: str
    corpus: Corpus | None
    test: str
    reason: str


@dataclass(frozen=True)
class Matrix:
    """All values, prices and tests of a transfer matrix."""

    about: About
    entries: tuple[MatrixEntry, ...]
    prices: tuple[Price, ...]
    means: tuple[MeanPrice, ...]
    worst: tuple[WorstCell, ...]
    against_untrained: tuple[AgainstUntrained, ...]
    missing: tuple[MissingCell, ...]
    novelty: tuple[Price, ...] = ()
    """Prices of a new subject: training without it, against training without as many answers at random."""
    novelty_means: tuple[MeanPrice, ...] = ()
    constants: tuple[Baseline, ...] = ()
    cells: tuple[StoredCell, ...] = ()
    remarks: tuple[str, ...] = ()
    """Remarks: number of questions, and how results deviate from a full run of the preset."""
    average: Average = "questions"
    """What metrics are averaged over."""

    @property
    def over(self) -> str:
        """What metrics are averaged over, in words."""
        return "over all questions" if self.average == "questions" else "mean over subjects"

    def entry(self, method: str, corpus: Corpus | None, test: str, metric: str) -> MatrixEntry | None:
        """Return the value of a cell, for untrained methods that of every corpus; None where there is none."""
        entries = [e for e in self.entries if (e.method, e.test, e.metric) == (method, test, metric)]
        return next((e for c in (corpus, None) for e in entries if e.corpus == c), None)

    def reason(self, method: str, corpus: Corpus, test: str) -> str:
        """Return why a cell is missing; empty where it is not."""
        cells = (m for m in self.missing if (m.method, m.test) == (method, test) and m.corpus in {corpus, None})
        return next((cell.reason for cell in cells), "")

    def group(self, method: str) -> int:
        """Return 0 for a trained method, 1 for a scaled one, 2 for an untrained one."""
        return 0 if method in self.about.learners else 1 if method in self.about.scaled else 2

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods with or without values: trained, scaled, untrained."""
        names = dict.fromkeys([*(cell.method for cell in self.entries), *(cell.method for cell in self.missing)])
        return tuple(sorted(names, key=lambda name: (self.group(name), name)))
