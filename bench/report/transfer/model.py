"""Numbers of a transfer matrix as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bench.results.transfer import Corpus

METRICS_SHOWN = ("brier", "auroc")
"""Metrics of a matrix, by their names in `bench.metrics.METRICS`."""
LEVEL = 0.95
"""Level of all intervals; 1 - LEVEL is the level of significance."""


@dataclass(frozen=True)
class About:
    """Description of a matrix."""

    model: str
    preset: str
    corpora: tuple[Corpus, ...]
    """Rows of the matrix."""
    tests: tuple[str, ...]
    homes: Mapping[str, str]
    """Test -> task that methods learn on by default, where it is one of the corpora."""
    learners: tuple[str, ...]
    scaled: tuple[str, ...]
    """Methods that learn nothing but whose scores become probabilities on the corpus's validation split."""
    seeds: tuple[int, ...]
    forward_tokens: int = 0
    """Token positions that were fed to the model for it."""

    def home(self, test: str) -> Corpus | None:
        """Corpus that methods learn on by default for a test; None where it is none of the corpora."""
        return Corpus(self.homes[test]) if test in self.homes else None


class Ends(NamedTuple):
    """Ends of an interval, or the reason why there is none."""

    low: float | None
    high: float | None
    reason: str = ""


@dataclass(frozen=True)
class Entry:
    """One metric of one cell: mean over subjects, then over seeds."""

    method: str
    corpus: Corpus | None
    """None for a method that is told nothing."""
    test: str
    metric: str
    value: float
    ends: Ends


@dataclass(frozen=True)
class Price:
    """Loss of a method by learning elsewhere: positive where it is worse, on the same test questions."""

    method: str
    corpus: Corpus
    """Corpus that it learned on instead."""
    home: Corpus
    test: str
    metric: str
    points: float
    """In the metric's unit, fractions."""
    ends: Ends
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
    ends: Ends
    n: int
    """Methods."""


@dataclass(frozen=True)
class Worst:
    """A method's worst cell."""

    method: str
    metric: str
    value: float
    corpus: Corpus | None
    test: str
    ends: Ends
    rank: int | None
    """1 plus the number of methods whose worst cell is significantly better; None without a rank."""
    reason: str = ""
    """Reason why there is no rank."""


@dataclass(frozen=True)
class Beside:
    """A method that learned elsewhere beside the untrained method that has the best worst cell."""

    method: str
    corpus: Corpus
    test: str
    reference: str
    points: float
    """Brier of the method minus that of the reference: positive where it is worse."""
    ends: Ends
    p: float | None
    p_holm: float | None = None


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
    entries: tuple[Entry, ...]
    prices: tuple[Price, ...]
    means: tuple[MeanPrice, ...]
    worst: tuple[Worst, ...]
    beside: tuple[Beside, ...]
    missing: tuple[Missing, ...]

    def entry(self, method: str, corpus: Corpus | None, test: str, metric: str) -> Entry | None:
        """One number; None where there is none."""
        key = (method, corpus, test, metric)
        return next((e for e in self.entries if (e.method, e.corpus, e.test, e.metric) == key), None)

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods with or without numbers: those that learn, those that are scaled, those that are told nothing."""
        names = dict.fromkeys([*(each.method for each in self.entries), *(each.method for each in self.missing)])
        groups = (self.about.learners, self.about.scaled)
        place = {name: next((k for k, group in enumerate(groups) if name in group), len(groups)) for name in names}
        return tuple(sorted(names, key=lambda name: (place[name], name)))
