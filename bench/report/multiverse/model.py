"""Dataclasses of a multiverse: universes, rank distributions of methods, and outcomes of the claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.report.multiverse.definitions import FAMILIES, Family
from bench.stats.multiverse import RankSummary

SURVIVES = 0.95
"""Share of universes in which the direction of a surviving claim holds, at least."""
LEVEL = 0.95
"""1 - significance level of the tests, which are corrected for all pairs of a universe."""


@dataclass(frozen=True)
class Option:
    """One option of a dimension."""

    dimension: str
    name: str
    is_tables: bool
    """Whether it is the option of the table; no seed is, as the table averages seeds."""
    note: str = ""
    """What it changes, in words; empty where its name says it."""


@dataclass(frozen=True, eq=False)
class Universe:
    """One combination of choices."""

    family: str
    metric: str
    """Name in `bench.metrics.METRICS`."""
    choices: Mapping[str, str]
    """Dimension -> option."""
    values: Mapping[str, float]
    """Method -> value, where it is defined."""
    wins: frozenset[tuple[str, str]] | None
    """(winner, loser) of each significant difference, corrected for all pairs; None where nothing is tested."""


@dataclass(frozen=True)
class OptionShare:
    """In how many of the universes with one option a claim holds."""

    dimension: str
    option: str
    n: int
    holds: int


@dataclass(frozen=True)
class PairOutcome:
    """A pair of methods over the universes; the first has the better value in the table."""

    family: str
    first: str
    second: str
    difference: float
    """Value of the first minus that of the second in the table."""
    p: float | None
    """Corrected p value in the table; None without a test."""
    is_claim: bool
    """Whether the first is significantly better in the table."""
    n: int
    """Universes in which both have a value."""
    holds: int
    """Of these, universes in which the first has the better value."""
    tested: int
    """Of these, universes with a test."""
    significant: int
    """Of these, universes in which the first is significantly better."""
    reversed: int
    """Of these, universes in which the second is significantly better."""
    shares: tuple[OptionShare, ...] = ()
    """Universes in which the first is better, by option of each dimension with several options."""
    explained: Mapping[str, float] | None = None
    """Dimension -> share of the variance of the direction that lies between its options."""

    @property
    def share(self) -> float | None:
        """Share of universes in which the first is better; None without universes."""
        return self.holds / self.n if self.n else None

    @property
    def survives(self) -> bool:
        """Whether the direction holds in enough universes and is significantly reversed in none.

        One significant reversal is enough: a defensible analysis exists by which the opposite could have been
        published.
        """
        return self.share is not None and self.share >= SURVIVES and not self.reversed

    @property
    def is_shown(self) -> bool:
        """Whether the claim survives and is significant in enough of the universes with a test."""
        return self.survives and self.tested > 0 and self.significant >= SURVIVES * self.tested

    @property
    def weakest(self) -> OptionShare | None:
        """Option under which the direction holds least often; None where it holds always or never."""
        shares = [share for share in self.shares if share.n]
        if not shares or self.holds in {0, self.n}:
            return None
        return min(shares, key=lambda share: share.holds / share.n)

    @property
    def decides(self) -> str | None:
        """Dimension that explains most of the variance of the direction; None where it holds always or never."""
        positive = {name: value for name, value in (self.explained or {}).items() if value > 0}
        return max(positive, key=lambda name: positive[name]) if positive else None

    @property
    def explained_most(self) -> float:
        """Share of the variance that the dimension `decides` explains."""
        return max((self.explained or {}).values(), default=0.0)


def by_survival(claims: Sequence[PairOutcome]) -> list[PairOutcome]:
    """Sort claims: those that don't survive first, then by how often they hold and are significant."""
    return sorted(claims, key=lambda c: (c.survives, c.share or 0.0, c.significant / max(c.tested, 1)))


@dataclass(frozen=True)
class RankDistribution:
    """Ranks of a method over the universes of a family in which all methods have values."""

    family: str
    method: str
    in_table: int | None
    """Rank in the table: 1 plus the number of significantly better methods."""
    spread: RankSummary
    counts: Mapping[int, int]
    """Rank -> number of universes."""
    leads: float | None
    """Share of universes with a test in which no method is significantly better; None without such universes."""


@dataclass(frozen=True, eq=False)
class Multiverse:
    """All universes of one table, and what was computed over them."""

    model: str
    task: str
    preset: str
    n: int
    """Number of questions."""
    seeds: tuple[int, ...]
    """Seeds that the table averages."""
    methods: Mapping[str, tuple[str, ...]]
    """Family -> ranked methods, in the order of tables."""
    options: tuple[Option, ...]
    """Options of all dimensions, dimension by dimension."""
    universes: tuple[Universe, ...]
    contests: tuple[PairOutcome, ...]
    places: tuple[RankDistribution, ...]
    remarks: tuple[str, ...]
    """Sentences on missing combinations and methods, and on results that were left out."""

    @property
    def families(self) -> tuple[Family, ...]:
        """Families with universes."""
        return tuple(family for family in FAMILIES if self.of(family.name))

    def of(self, family: str) -> list[Universe]:
        """Universes of a family."""
        return [universe for universe in self.universes if universe.family == family]

    def complete(self, family: str) -> list[Universe]:
        """Universes of a family in which all its methods have values; ranks are computed over these."""
        return [universe for universe in self.of(family) if set(self.methods[family]) <= universe.values.keys()]

    def claims(self, family: str) -> list[PairOutcome]:
        """Claims of the table in a family."""
        return [pair for pair in self.contests if pair.family == family and pair.is_claim]
