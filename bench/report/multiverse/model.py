"""Numbers of a multiverse as values: universes, places of methods, and claims with what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.report.multiverse.definitions import FAMILIES, Family
from bench.stats.multiverse import PlaceSpread

SURVIVES = 0.95
"""Share of universes in which the direction of a claim has to hold."""
LEVEL = 0.95
"""1 - LEVEL is the level of significance of tests, corrected for all pairs of a universe."""


@dataclass(frozen=True)
class Option:
    """One option of a dimension."""

    dimension: str
    name: str
    is_tables: bool
    """Whether the table itself takes it; for seeds, which it averages, none is."""
    note: str = ""
    """Words on what it changes; empty where its name says it."""


@dataclass(frozen=True, eq=False)
class Universe:
    """One combination of choices."""

    family: str
    metric: str
    """Name in `bench.metrics.METRICS`."""
    choices: Mapping[str, str]
    """Dimension -> option."""
    values: Mapping[str, float]
    """By method; without those that have no number here."""
    wins: frozenset[tuple[str, str]] | None
    """Significant differences: winner and loser, corrected for all pairs; None where there is no test."""


@dataclass(frozen=True)
class OptionShare:
    """Share of universes with one option in which something holds."""

    dimension: str
    option: str
    n: int
    holds: int


@dataclass(frozen=True)
class PairOutcome:
    """Two methods: the one that the table's value says is better, and the other."""

    family: str
    first: str
    second: str
    difference: float
    """The first's value minus the second's in the table."""
    p: float | None
    """Corrected p value in the table; None without a test."""
    is_claim: bool
    """Whether the table shows that the first is better."""
    n: int
    """Universes in which both have a number."""
    holds: int
    """Those of them in which the first is better by value."""
    tested: int
    """Those of them with a test."""
    significant: int
    """Those of them in which the first is significantly better."""
    reversed: int
    """Those of them in which the second is."""
    shares: tuple[OptionShare, ...] = ()
    """Universes in which the first is better, by option of each dimension with several."""
    explained: Mapping[str, float] | None = None
    """Dimension -> share of the variance of the direction that lies between its options."""

    @property
    def share(self) -> float | None:
        """Share of universes in which the first is better; None without universes."""
        return self.holds / self.n if self.n else None

    @property
    def survives(self) -> bool:
        """Whether the direction holds in enough universes, and no universe shows the opposite.

        A direction that nearly always holds, and is significantly reversed in one universe, is none to rely on: there
        is a defensible analysis by which the opposite could have been published.
        """
        return self.share is not None and self.share >= SURVIVES and not self.reversed

    @property
    def is_shown(self) -> bool:
        """Whether it survives, and is significant in enough of the universes with a test."""
        return self.survives and self.tested > 0 and self.significant >= SURVIVES * self.tested

    @property
    def weakest(self) -> OptionShare | None:
        """Option under which the direction holds least; None where it always does, or never."""
        known = [share for share in self.shares if share.n]
        if not known or self.holds in {0, self.n}:
            return None
        return min(known, key=lambda share: share.holds / share.n)

    @property
    def decides(self) -> str | None:
        """Dimension that explains most of where the direction holds; None where it always does, or never."""
        found = {name: value for name, value in (self.explained or {}).items() if value > 0}
        return max(found, key=lambda name: found[name]) if found else None

    @property
    def explained_most(self) -> float:
        """Share of the variance that this dimension explains."""
        return max((self.explained or {}).values(), default=0.0)


def by_survival(claims: Sequence[PairOutcome]) -> list[PairOutcome]:
    """Claims that don't survive first, then those that hold and are significant least often."""
    return sorted(claims, key=lambda c: (c.survives, c.share or 0.0, c.significant / max(c.tested, 1)))


@dataclass(frozen=True)
class RankDistribution:
    """A method's places over the universes of a family in which all of its methods have numbers."""

    family: str
    method: str
    in_table: int | None
    """Rank in the table: 1 plus the methods that are significantly better."""
    spread: PlaceSpread
    counts: Mapping[int, int]
    """Place -> universes."""
    leads: float | None
    """Share of the tested ones of these universes in which no method is significantly better; None without any."""


@dataclass(frozen=True, eq=False)
class Multiverse:
    """Everything that is told of one table's universes."""

    model: str
    task: str
    preset: str
    n: int
    """Questions."""
    seeds: tuple[int, ...]
    """Seeds that the table averages."""
    methods: Mapping[str, tuple[str, ...]]
    """Family -> methods that are ranked there, in the order of tables."""
    options: tuple[Option, ...]
    """Options of all dimensions, dimension by dimension."""
    universes: tuple[Universe, ...]
    contests: tuple[PairOutcome, ...]
    places: tuple[RankDistribution, ...]
    remarks: tuple[str, ...]
    """Sentences on what is not there: combinations, methods, results that were left out."""

    @property
    def families(self) -> tuple[Family, ...]:
        """Families with universes."""
        return tuple(family for family in FAMILIES if self.of(family.name))

    def of(self, family: str) -> list[Universe]:
        """Universes of a family."""
        return [universe for universe in self.universes if universe.family == family]

    def complete(self, family: str) -> list[Universe]:
        """Those of them in which all its methods have numbers, on which places rest."""
        return [universe for universe in self.of(family) if set(self.methods[family]) <= universe.values.keys()]

    def claims(self, family: str) -> list[PairOutcome]:
        """Claims of the table in a family."""
        return [contest for contest in self.contests if contest.family == family and contest.is_claim]
