"""Search spaces: the constants of a training that `bench run --tune N` may choose on validation, and what from.

A method declares `search = {"learning_rate": Times(0.1, 10)}`; configuration 0 is its preset's own, the others are
drawn. A drawn value depends on the run's seed, the method, its position and the field, and on nothing else: four
configurations are the first four of eight, and a field that is fixed leaves the draws of the others as they are.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bench.api.errors import ContractError

if TYPE_CHECKING:
    from bench.api.methods import ConfidenceMethod

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
        return _like(own, own * math.exp(rng.uniform(math.log(self.low), math.log(self.high))))

    def words(self, own: Any) -> str:
        """Words for what is drawn from."""
        return f"{self.low:g} to {self.high:g} times {own}"


@dataclass(frozen=True)
class LogUniform:
    """A number between two bounds, whose logarithm is uniform."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse bounds that are none of a positive number."""
        _require(0 < self.low < self.high < math.inf, self, "0 < low < high")

    def drawn(self, rng: np.random.Generator, own: Any) -> Any:
        """A value; `own` is the preset's."""
        return _like(own, math.exp(rng.uniform(math.log(self.low), math.log(self.high))))

    def words(self, own: Any) -> str:
        """Words for what is drawn from."""
        return f"{self.low:g} to {self.high:g}, log-uniform; {own} in the preset"


@dataclass(frozen=True)
class Uniform:
    """A number between two bounds."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse bounds that are none."""
        _require(-math.inf < self.low < self.high < math.inf, self, "low < high")

    def drawn(self, rng: np.random.Generator, own: Any) -> Any:
        """A value; `own` is the preset's."""
        return _like(own, rng.uniform(self.low, self.high))

    def words(self, own: Any) -> str:
        """Words for what is drawn from."""
        return f"{self.low:g} to {self.high:g}; {own} in the preset"


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


Search: TypeAlias = Times | LogUniform | Uniform | Choice
"""Kinds of what a constant may be drawn from."""


def _require(holds: bool, search: object, expected: str) -> None:  # noqa: FBT001
    if not holds:
        raise ContractError(f"search: expected {expected}, got {search!r}")


def _like(own: Any, value: float) -> float | int:
    """The number with few digits; whole, and at least 1 of a count, where the preset's is."""
    if isinstance(own, int) and not isinstance(own, bool):
        return max(round(value), min(own, 1))
    return float(f"{value:.{_DIGITS}g}")


# --- configurations ---------------------------------------------------------------------------------------------------


def searched(method: ConfidenceMethod, fixed: Mapping[str, object]) -> dict[str, Search]:
    """Fields of a method that are searched, by name: those that it declares.

    Without those that were set by hand, and without a 0 that could only be multiplied.

    Args:
        method: with its preset's constants.
        fixed: fields that were set by hand.
    """
    own = method.params()
    return {
        name: search
        for name, search in sorted(type(method).search.items())
        if name not in fixed and not (isinstance(search, Times) and not own[name])
    }


def configuration(method: ConfidenceMethod, fields: Mapping[str, Search], seed: int, k: int) -> dict[str, Any]:
    """Values of the searched fields in configuration `k`; 0 is the method as it is.

    Args:
        method: with its preset's constants.
        fields: of `searched`.
        seed: of the run.
        k: position, from 0.
    """
    own = method.params()
    if k == 0:
        return {name: own[name] for name in fields}
    return {
        name: search.drawn(np.random.default_rng(_seed(seed, method.name, k, name)), own[name])
        for name, search in fields.items()
    }


def _seed(*parts: object) -> int:
    digest = hashlib.sha256("\0".join(["tune", *map(str, parts)]).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def refuse_search(who: str, plugin: type[ConfidenceMethod]) -> None:
    """Check that a method declares a search of constants that it has, and that validation can choose among them.

    Raises:
        ContractError: it doesn't.
    """
    if not isinstance(plugin.search, Mapping):
        raise ContractError(f"{who}: search: expected a mapping of fields to Times, Choice, …, got {plugin.search!r}")
    for name, search in plugin.search.items():
        if not isinstance(search, Search):
            raise ContractError(
                f"{who}: search of {name!r}: expected Times, LogUniform, Uniform or Choice, got {search!r}"
            )
        if name not in inspect.signature(plugin).parameters:
            raise ContractError(f"{who}: search names {name!r}, which __init__ does not take")
    if plugin.search and not plugin.trains():
        raise ContractError(f"{who}: search: expected none, since it learns nothing (it has no fit)")
    if plugin.search and plugin.fit_on == "validation":
        raise ContractError(
            f"{who}: search: expected none, since it learns on validation: no answers are left to choose by"
        )
