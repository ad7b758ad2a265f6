"""Search spaces of training constants: `bench run --tune N` tries N configurations and chooses one on validation.

A method declares `search = {"learning_rate": Times(0.1, 10)}`. Configuration 0 has the preset's values, the others are
sampled. A sampled value depends only on the run's seed, the method, the configuration's index and the field. So the
first four of eight configurations are those of `--tune 4`, and fixing a field leaves the other fields' values alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bench.api.errors import ContractError

_DIGITS = 3
"""Number of significant digits to which sampled numbers are rounded, so that they are short to read and to type."""


@dataclass(frozen=True)
class Times:
    """Search space: the preset's value times a log-uniform factor between `low` and `high`, which enclose 1."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse bounds that don't enclose 1, the factor that gives the preset's value."""
        _require(0 < self.low <= 1 <= self.high < math.inf and self.low < self.high, self, "0 < low <= 1 <= high")

    def drawn(self, rng: np.random.Generator, preset_value: Any) -> Any:
        """Sample a value of the constant, given its preset value; integers stay integers."""
        value = preset_value * math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return max(round(value), 1) if _is_whole(preset_value) else _rounded(value)

    def words(self, preset_value: Any) -> str:
        """Describe the search space in words, for printing."""
        return f"{self.low:g} to {self.high:g} times {preset_value}"


@dataclass(frozen=True)
class Uniform:
    """Search space: a number uniform between two bounds; with `log`, its logarithm is uniform."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        """Refuse bounds in the wrong order and, with `log`, bounds that are not above 0."""
        lower_limit = 0.0 if self.log else -math.inf
        _require(lower_limit < self.low < self.high < math.inf, self, "0 < low < high" if self.log else "low < high")

    def drawn(self, rng: np.random.Generator, preset_value: Any) -> Any:
        """Sample a value of the constant; if its preset value is an integer, so is the sample."""
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        if _is_whole(preset_value):
            return min(max(round(value), math.ceil(self.low)), math.floor(self.high))
        return min(max(_rounded(value), self.low), self.high)  # rounding can leave the bounds

    def words(self, preset_value: Any) -> str:
        """Describe the search space in words, for printing."""
        return f"{self.low:g} to {self.high:g}{', log-uniform' * self.log}; {preset_value} in the preset"


@dataclass(frozen=True)
class Choice:
    """Search space: one of several values, all with equal probability."""

    values: tuple[float | int | str | bool, ...]

    def __post_init__(self) -> None:
        """Refuse `values` other than a tuple of at least two different values."""
        is_valid = isinstance(self.values, tuple) and all(isinstance(value, float | int | str) for value in self.values)
        _require(is_valid and len(set(self.values)) > 1, self, "a tuple of two numbers or texts at least")

    def drawn(self, rng: np.random.Generator, preset_value: Any) -> Any:
        """Sample one of the values."""
        del preset_value
        return self.values[int(rng.integers(len(self.values)))]

    def words(self, preset_value: Any) -> str:
        """Describe the search space in words, for printing."""
        return f"one of {', '.join(map(str, self.values))}; {preset_value} in the preset"


Search: TypeAlias = Times | Uniform | Choice
"""Type of the search space of one constant."""


def _require(holds: bool, search: object, expected: str) -> None:  # noqa: FBT001
    if not holds:
        raise ContractError(f"search: expected {expected}, got {search!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
