"""Dataclasses of a transfer matrix: its cells, prices, worst cells and tests.

A cell is one method, trained on one corpus (the answers of a task) or on none, and tested on one task. Its metrics are
means over seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.results.transfer import About, Corpus
from bench.stats import Average, Interval

METRICS_SHOWN = ("brier", "auroc")
"""Metrics of a transfer matrix (methods by training corpus and test task), as names in `bench.metrics.METRICS`."""
LEVEL = 0.95
"""Confidence level of all intervals; 1 - LEVEL is the significance level."""
CONSTANT = "share of right answers"
"""Name of a baseline whose confidence in every answer is the share of right answers in the training corpus. No method
can have this name."""


@dataclass(frozen=True)
class MatrixEntry:
    """Value of one metric in one cell (method, training corpus, test task), mean over seeds."""

    method: str
    corpus: Corpus | None
    """Training corpus; None for a method that needs no labels. Scaled untrained methods have one, too."""
    test: str
    metric: str
    value: float
    interval: Interval


@dataclass(frozen=True)
class Price:
    """How much worse a method is on the same test questions if it learns from `corpus` instead of `home`.

    A price is negative if the method is better.
    """

    method: str
    corpus: Corpus
    """Corpus that the method was trained on."""
    home: Corpus
    """Reference corpus, with which the price is compared."""
    test: str
    metric: str
    points: float
    """The price in the unit of the metric, e.g. 0.01 for one percentage point."""
    interval: Interval
    p: float | None
    """Two-sided p value of the null that the price is 0; None if it was not tested."""
    p_holm: float | None = None
    """`p` with Holm's correction for all prices of this metric."""

    @property
    def is_shown(self) -> bool:
        """Whether the price differs significantly from 0, with Holm's correction."""
        return self.p_holm is not None and self.p_holm < 1 - LEVEL


@dataclass(frozen=True)
class MeanPrice:
    """Mean price over the trained methods: how much worse they are if they learn from `corpus` instead of `home`."""

    corpus: Corpus
    home: Corpus
    test: str
    metric: str
    points: float
    interval: Interval
    n: int
    """Number of methods in the mean."""
    p: float | None
    """Two-sided p value of the null that the mean price is 0; None if it was not tested."""
    p_holm: float | None = None
    """`p` with Holm's correction for all mean prices of this metric."""


@dataclass(frozen=True)
class Baseline:
    """Brier score of a constant confidence, namely the share of right answers in the training corpus.

    If the corpus leaves answers out for each subject, the confidence is constant only within a subject. The price of
    the baseline is the cost of a changed share of right answers alone.
    """

    corpus: Corpus
    test: str
    value: float
    interval: Interval
    points: float | None
    """Price of `corpus` against the home corpus, the reference of the test task. None if there is no home corpus, if it
    has no baseline, or if `corpus` is the home corpus."""
    price_interval: Interval


@dataclass(frozen=True)
class CellSource:
    """One of the results from which the transfer matrix was computed: its cell and its files."""

    method: str
    corpus: Corpus | None
    test: str
    file: str
    """Path of the result's JSON file, relative to the folder of the matrix, with `/` as separator."""
    records_digest: str
    """SHA-256 of the Parquet file beside the JSON file; it holds answers and confidences."""


@dataclass(frozen=True)
class WorstCell:
    """The cell in which a method has its worst value of a metric, over all training corpora and test tasks.

    Corpora that leave out answers at random (`AT_RANDOM`) are controls and don't count.
    """

    method: str
    metric: str
    value: float
    corpus: Corpus | None
    test: str
    interval: Interval
    """Interval of the method's true worst value; the true worst cell may be another one than the observed."""
    rank: int | None
    """1 plus the number of methods whose worst cell is significantly better; None if the method has no rank."""
    reason: str = ""
    """Why the method has no rank; otherwise empty."""


@dataclass(frozen=True)
class AgainstUntrained:
    """Test of one trained method against all methods without labels at once, by the Brier score on one test task.

    The method's training corpus is not the home corpus, the reference of the test task.
    """

    method: str
    corpus: Corpus
    test: str
    untold: tuple[str, ...]
    """Untrained methods that use no labels and have a Brier score on every test task."""
    against: str
    """The method in `untold` whose comparison has the largest p value."""
    points: float
    """Brier score of `method` minus that of `against`; positive if `method` is worse."""
    interval: Interval
    """Interval of `points`."""
    p: float | None
    """Two-sided p value of the null that `method` is neither worse than all methods in `untold` nor better than all. It
    is the largest p value of the tests against single methods; 1 if `method` is worse than one, better than another."""
    p_holm: float | None = None
    """`p` with Holm's correction for all trained methods, corpora and test tasks."""


@dataclass(frozen=True)
class MissingCell:
    """A cell (method, training corpus, test task) without metrics, and the reason."""

    method: str
    corpus: Corpus | None
    test: str
    reason: str


@dataclass(frozen=True)
class Matrix:
    """A transfer matrix: values, prices and tests of methods by training corpus and test task."""

    about: About
    entries: tuple[MatrixEntry, ...]
    prices: tuple[Price, ...]
    means: tuple[MeanPrice, ...]
    worst: tuple[WorstCell, ...]
    against_untrained: tuple[AgainstUntrained, ...]
    missing: tuple[MissingCell, ...]
    novelty: tuple[Price, ...] = ()
    """Prices of a new subject: training without answers on the tested subject is compared with training on an equally
    small corpus, which lacks randomly drawn answers instead."""
    novelty_means: tuple[MeanPrice, ...] = ()
    constants: tuple[Baseline, ...] = ()
    cells: tuple[CellSource, ...] = ()
    remarks: tuple[str, ...] = ()
    """Sentences on the number of questions, and on how results deviate from a full run of the preset."""
    average: Average = "questions"
    """Whether metrics are computed over all questions, or averaged over subjects."""

    @property
    def over(self) -> str:
        """Words for captions: "over all questions" or "mean over subjects"."""
        return "over all questions" if self.average == "questions" else "mean over subjects"

    def entry(self, method: str, corpus: Corpus | None, test: str, metric: str) -> MatrixEntry | None:
        """Return the value of a metric in a cell; None if there is none.

        A method without labels has one value for each test task, which is returned for every training corpus.
        """
        entries = [e for e in self.entries if (e.method, e.test, e.metric) == (method, test, metric)]
        return next((e for c in (corpus, None) for e in entries if e.corpus == c), None)

    def reason(self, method: str, corpus: Corpus, test: str) -> str:
        """Return why a cell has no metrics; empty if it has some."""
        cells = (m for m in self.missing if (m.method, m.test) == (method, test) and m.corpus in {corpus, None})
        return next((cell.reason for cell in cells), "")

    def group(self, method: str) -> int:
        """Return 0 for a trained method, 1 for an untrained one whose scores are scaled, 2 for one without labels."""
        return 0 if method in self.about.learners else 1 if method in self.about.scaled else 2

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of all methods, also of those with missing cells: trained methods, then scaled ones, then others."""
        names = dict.fromkeys([*(cell.method for cell in self.entries), *(cell.method for cell in self.missing)])
        return tuple(sorted(names, key=lambda name: (self.group(name), name)))
