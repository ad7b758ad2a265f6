"""Simulated answers of methods whose true differences are known, by seed; nothing here knows how they are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Cell:
    """Questions of a size, and how many of their answers are right."""

    name: str
    subjects: int
    questions: int
    """Of each subject."""
    rate: float = 0.65
    """Share of right answers in the long run."""
    values: int | None = None
    """Number of different confidences there are; None for any."""
    data_sets: int = 400

    @property
    def names(self) -> list[str]:
        return [f"s{k}" for k in range(self.subjects) for _ in range(self.questions)]

    def draw(self, rng: np.random.Generator, methods: int, n: int | None = None) -> tuple[Bools, Floats]:
        """Correctness (n,) and confidences (methods, n) of exchangeable methods, which have much in common."""
        return self._drawn(rng, np.full(methods, 1.2), n or self.subjects * self.questions)

    def draw_different(self, rng: np.random.Generator) -> tuple[Bools, Floats]:
        """The same of `DIFFERENT` methods, each of which knows less than the one before."""
        return self._drawn(rng, np.linspace(1.4, 0.8, DIFFERENT), self.subjects * self.questions)

    def _drawn(self, rng: np.random.Generator, knows: Floats, n: int) -> tuple[Bools, Floats]:
        correct = rng.random(n) < self.rate
        logit = knows[:, None] * correct + rng.normal(size=n) + rng.normal(size=(knows.size, n))
        confidence = 1 / (1 + np.exp(-logit))
        if self.values is not None:
            confidence = np.round(confidence * (self.values - 1)) / (self.values - 1)
        return correct, confidence


CELLS = (
    Cell("30 questions, 50 % right", 1, 30, 0.5),
    Cell("200 questions, 2 % right", 1, 200, 0.02, data_sets=1100),
    Cell("200 questions, 5 % right", 1, 200, 0.05),
    Cell("200 questions, 50 % right", 1, 200, 0.5),
    Cell("200 questions, 95 % right", 1, 200, 0.95),
    Cell("200 questions, 98 % right", 1, 200, 0.98, data_sets=1100),
    Cell("57 x 10", 57, 10),
    Cell("57 x 20", 57, 20),
    Cell("8 x 150", 8, 150),
    Cell("8 x 150, 95 % right", 8, 150, 0.95),
    Cell("8 x 50, six confidences", 8, 50, values=6),
    Cell("600 subjects of one question", 600, 1),
    Cell("12,000 questions, 57 subjects", 57, 211, data_sets=100),
)
"""65 % right where nothing else is said. At 2 and 98 % only 35 % of data sets have the 5 answers of the
rarer kind that a test needs, so there are more of these; none has the 20 that AUROC and AUCPR need."""
POWERED = (Cell("8 x 150", 8, 150, data_sets=300), Cell("57 x 20", 57, 20, data_sets=300))
SHAPED = (Cell("57 x 10", 57, 10), Cell("57 x 20", 57, 20), Cell("8 x 150", 8, 150), Cell("57 x 100", 57, 100))
GAPS = ((0.06, 0.06), (0.05, 0.08), (0.04, 0.10))
"""True root mean squared calibration errors of two methods."""
DIFFERENT = 6


Pair = tuple[Bools, Floats, Floats]
WHOLE = np.sqrt(15 / 14)
"""A gap whose sign changes in the middle one of 15 bins is none there; the others make up for it."""


def sharp_flat(a: float, b: float, n: int, rng: np.random.Generator) -> Pair:
    """One says 0.98 or 0.02, the other 0.7 or 0.3; both are too sure everywhere."""
    high = rng.random(n) < 0.6
    correct = rng.random(n) < np.where(high, 0.98 - a, 0.02 + a)
    rate = 0.6 * (0.98 - a) + 0.4 * (0.02 + a)
    above, below = 0.7 - b, 0.3 + b  # shares of right answers where the other one says 0.7 or 0.3
    share = (rate - below) / (above - below)
    flat = rng.random(n) < np.where(correct, above * share / rate, (1 - above) * share / (1 - rate))
    return correct, np.where(high, 0.98, 0.02), np.where(flat, 0.7, 0.3)


def over_under(a: float, b: float, n: int, rng: np.random.Generator) -> Pair:
    """One says too much everywhere, the other too little."""
    true = rng.uniform(0.15, 0.85, n)
    return rng.random(n) < true, true + a, true - b


def constant_signed(a: float, b: float, n: int, rng: np.random.Generator) -> Pair:
    """One says too much everywhere, the other too little below one half and too much above."""
    true = rng.uniform(0.2, 0.8, n)
    return rng.random(n) < true, true + a, true + b * WHOLE * np.sign(true - 0.5)


def spread_narrow(a: float, b: float, n: int, rng: np.random.Generator) -> Pair:
    """One is too sure and says anything, the other says too much with three values near each other."""
    true = 0.07 + 0.86 * rng.beta(0.5, 0.5, n)
    third = np.digitize(true, np.quantile(true, [0.33, 0.66]))
    mean = np.bincount(third, weights=true) / np.bincount(third)
    return rng.random(n) < true, true + a * WHOLE * np.sign(true - 0.5), mean[third] + b


def low_high(a: float, b: float, n: int, rng: np.random.Generator) -> Pair:
    """One says too little below one half, the other too much above; each is right on the other half."""
    true = rng.uniform(0.2, 0.8, n)
    low, root = true < 0.5, np.sqrt(2)
    return rng.random(n) < true, np.where(low, true - a * root, true), np.where(low, true, true + b * root)


SHAPES: dict[str, Callable[[float, float, int, np.random.Generator], Pair]] = {
    "sharp, flat": sharp_flat,
    "over, under": over_under,
    "constant, signed": constant_signed,
    "spread, narrow": spread_narrow,
    "low, high": low_high,
}
