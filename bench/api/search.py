"""Search spaces: the constants of a training that `bench run --tune N` may choose on validation, and what from.

A method declares `search = {"learning_rate": Times(0.1, 10)}`; configuration 0 is its preset's own, the others are
drawn. A drawn value depends on the run's seed, the method, its position and the field, and on nothing else: four
configurations are the first four of eight, and a field that is fixed leaves the draws of the others as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bench.api.errors import ContractError

_DIGITS = 3
"""Significant digits of drawn numbers: so many can be read, typed and told apart."""


@dataclass(frozen=True)
class Times:
    """The preset's own number times a factor, log-uniform between two bounds: whatever the preset, it is inside."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse bounds that don't have 1 between them, the preset's own number."""
        _require(0 < self.low <= 1 <= self.high < math.inf and self.low < self.high, self, "0 < low <= 1 <= high")

    def drawn(self, rng: np.random.Generator, own: Any) -> Any:
        """A value; `own` is the preset's."""
        value = own * math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return max(round(value), 1) if _is_whole(own) else _rounded(value)

    def words(self, own: Any) -> str:
        """Words for what is drawn from."""
        return f"{self.low:g} to {self.high:g} times {own}"


@dataclass(frozen=True)
class Uniform:
    """A number between two bounds; with `log` its logarithm is uniform."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        """Refuse bounds that are none, of a positive number where its logarithm is drawn."""
        least = 0.0 if self.log else -math.inf
        _require(least < self.low < self.high < math.inf, self, "0 < low < high" if self.log else "low < high")

    def drawn(self, rng: np.random.Generator, own: Any) -> Any:
        """A value; `own` is the preset's."""
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        if _is_whole(own):
            return min(max(round(value), math.ceil(self.low)), math.floor(self.high))
        return min(max(_rounded(value), self.low), self.high)  # 0.9999 has more digits than what is drawn

    def words(self, own: Any) -> str:
        """Words for what is drawn from."""
        return f"{self.low:g} to {self.high:g}{', log-uniform' * self.log}; {own} in the preset"


@dataclass(frozen=True)
class Choice:
    """One of several values, each as likely as the others."""

    values: tuple[float | int | str | bool, ...]

    def __post_init__(self) -> None:
        """Refuse what is no choice."""
        plain = isinstance(self.values, tuple) and all(isinstance(value, float | int | str) for value in self.values)
        _require(plain and len(set(self.values)) > 1, self, "a tuple of two numbers or texts at least")

    def drawn(self, rng: np.random.Generator, own: Any) -> Any:
        """A value; `own` is the preset's."""
        del own
        return self.values[int(rng.integers(len(self.values)))]

    def words(self, own: Any) -> str:
        """Words for what is drawn from."""
        return f"one of {', '.join(map(str, self.values))}; {own} in the preset"


Search: TypeAlias = Times | Uniform | Choice
"""Kinds of what a constant may be drawn from."""


def _require(holds: bool, search: object, expected: str) -> None:  # noqa: FBT001
    if not holds:
        raise ContractError(f"search: expected {expected}, got {search!r}")


def _is_whole(own: Any) -> bool:
    return isinstance(own, int) and not isinstance(own, bool)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
