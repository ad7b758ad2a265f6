"""Dataclasses of a transfer matrix: its cells, prices, worst cells and tests.

A cell is one method, trained on one corpus (or on none) and tested on one task; its metrics are means over seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.results.transfer import About, Corpus
from bench.stats import Average, Interval

METRICS_SHOWN = ("brier", "auroc")
"""Names in `bench.metrics.METRICS` of the metrics of a matrix."""
LEVEL = 0.95
"""Confidence level of all intervals; 1 - LEVEL is the significance level."""
CONSTANT = "share of right answers"
"""Name of the baseline whose confidence in every answer is the share of right answers in the training corpus. No method
can have this name."""


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
    """How much worse a method is on the same test questions if it learns from another corpus; negative if better."""

    method: str
    corpus: Corpus
    """Corpus that the method was trained on."""
    home: Corpus
    """Reference corpus: the price is 0 for training on it."""
    test: str
    metric: str
    points: float
    """The price in the unit of the metric: a fraction, not percentage points."""
    interval: Interval
    p: float | None
    """Two-sided p value of the null of no price; None where there is no test."""
    p_holm: float | None = None
    """`p` by Holm's correction for all prices of this metric."""

    @property
    def is_shown(self) -> bool:
        """Whether the price differs significantly from 0."""
        return self.p_holm is not None and self.p_holm < 1 - LEVEL


@dataclass(frozen=True)
class MeanPrice:
    """Mean over the trained methods of the price of training on `corpus` instead of `home`."""

    corpus: Corpus
    home: Corpus
    test: str
    metric: str
    points: float
    interval: Interval
    n: int
    """Number of methods in the mean."""


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
    """Price against the home corpus of the test; None where the test has no home corpus, or `corpus` is it."""
    price_interval: Interval


@dataclass(frozen=True)
class CellSource:
    """A result that the matrix was computed from: its cell and its files."""

    method: str
    corpus: Corpus | None
    test: str
    file: str
    """Path of the result's JSON file below the folder of the matrix, with `/` as separator."""
    records_digest: str
    """SHA-256 of the Parquet file beside it."""


@dataclass(frozen=True)
class WorstCell:
    """The worst cell of a method by one metric, over corpora and tests."""

    method: str
    metric: str
    value: float
    corpus: Corpus | None
    test: str
    interval: Interval
    """Interval of the true worst value of the method, which may be in another cell than the observed one."""
    rank: int | None
    """1 plus the number of methods with a significantly better worst cell; None where `reason` says why not."""
    reason: str = ""
    """Why the method has no rank; empty where it has one."""


@dataclass(frozen=True)
class AgainstUntrained:
    """Test of a method trained on another corpus against all untrained methods, by the Brier score on one task."""

    method: str
    corpus: Corpus
    test: str
    untold: tuple[str, ...]
    """Untrained methods without labels that have a Brier score on every test."""
    against: str
    """The method in `untold` with the largest p value."""
    points: float
    """Brier score of the method minus that of `against`: positive where the method is worse."""
    interval: Interval
    """Interval of `points`."""
    p: float | None
    """Two-sided p value of the null that the method is neither worse nor better than all in `untold`: the largest p
    value of the pairs, or 1 where the method is worse than one and better than another."""
    p_holm: float | None = None
    """`p` by Holm's correction for all trained methods, corpora and tests."""


@dataclass(frozen=True)
class MissingCell:
    """A cell without metrics, and the reason."""

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
    cells: tuple[CellSource, ...] = ()
    remarks: tuple[str, ...] = ()
    """Sentences on the number of questions, and on how results deviate from a full run of the preset."""
    average: Average = "questions"
    """Whether metrics are pooled over questions or averaged over subjects."""

    @property
    def over(self) -> str:
        """Words that say whether metrics are pooled over questions or averaged over subjects."""
        return "over all questions" if self.average == "questions" else "mean over subjects"

    def entry(self, method: str, corpus: Corpus | None, test: str, metric: str) -> MatrixEntry | None:
        """Return a metric of a cell, or None; that of an untrained method stands for every training corpus."""
        entries = [e for e in self.entries if (e.method, e.test, e.metric) == (method, test, metric)]
        return next((e for c in (corpus, None) for e in entries if e.corpus == c), None)

    def reason(self, method: str, corpus: Corpus, test: str) -> str:
        """Return why a cell has no metrics; empty where it has."""
        cells = (m for m in self.missing if (m.method, m.test) == (method, test) and m.corpus in {corpus, None})
        return next((cell.reason for cell in cells), "")

    def group(self, method: str) -> int:
        """Return 0 for a trained method, 1 for one whose scores are scaled, 2 for one that uses no labels."""
        return 0 if method in self.about.learners else 1 if method in self.about.scaled else 2

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods of the matrix, those whose cells are missing included: trained, then scaled, then the others."""
        names = dict.fromkeys([*(cell.method for cell in self.entries), *(cell.method for cell in self.missing)])
        return tuple(sorted(names, key=lambda name: (self.group(name), name)))
