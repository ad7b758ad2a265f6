"""Dataclasses of a multiverse: universes, rank distributions of methods, and outcomes of the claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.report.multiverse.definitions import FAMILIES, Family
from bench.stats.multiverse import RankSummary

SURVIVES = 0.95
"""A claim survives if its direction holds in at least this share of universes."""
LEVEL = 0.95
"""One minus the significance level of the tests, which are corrected for all pairs of a universe."""


@dataclass(frozen=True)
class Option:
    """One option of a dimension, i.e. of one analysis choice."""

    dimension: str
    name: str
    is_tables: bool
    """Whether the table uses this option; False for every seed, as the table averages seeds."""
    note: str = ""
    """What the option changes, in words; empty where its name says that."""


@dataclass(frozen=True, eq=False)
class Universe:
    """One analysis of the results: one option of each dimension."""

    family: str
    """Family of the claims that this analysis tests."""
    metric: str
    """Name of the metric in `bench.metrics.METRICS`."""
    choices: Mapping[str, str]
    """Dimension -> option."""
    values: Mapping[str, float]
    """Method -> its metric, where that is defined."""
    wins: frozenset[tuple[str, str]] | None
    """(winner, loser) of each significant difference, corrected for all pairs; None where nothing is tested."""


@dataclass(frozen=True)
class OptionShare:
    """Number of universes with one option, and of those among them in which the direction of a claim holds."""

    dimension: str
    option: str
    n: int
    """Number of universes with this option in which both methods have a value."""
    holds: int
    """Number of these in which the direction holds."""


@dataclass(frozen=True)
class PairOutcome:
    """Outcome of a pair of methods over the universes; the first has the better value in the table."""

    family: str
    first: str
    second: str
    difference: float
    """Metric of the first method minus that of the second in the table."""
    p: float | None
    """Corrected p value in the table; None without a test."""
    is_claim: bool
    """Whether the first is significantly better in the table."""
    n: int
    """Number of universes in which both methods have a value."""
    holds: int
    """Number of these n universes in which the first has the better value."""
    tested: int
    """Number of these n universes that have a test."""
    significant: int
    """Number of tested universes in which the first is significantly better."""
    reversed: int
    """Number of tested universes in which the second is significantly better."""
    shares: tuple[OptionShare, ...] = ()
    """For each option of each dimension with several options, in how many universes the first has the better value."""
    explained: Mapping[str, float] | None = None
    """Dimension -> share of the variance of the direction (first better or not) that lies between its options."""

    @property
    def share(self) -> float | None:
        """Share of the n universes in which the first has the better value; None where n is 0."""
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
        """Option under which the direction holds in the smallest share of universes; None if always or never."""
        shares = [share for share in self.shares if share.n]
        if not shares or self.holds in {0, self.n}:
            return None
        return min(shares, key=lambda share: share.holds / share.n)

    @property
    def decides(self) -> str | None:
        """Dimension that explains most of the variance of the direction; None where none explains any."""
        positive = {name: value for name, value in (self.explained or {}).items() if value > 0}
        return max(positive, key=lambda name: positive[name]) if positive else None

    @property
    def explained_most(self) -> float:
        """Share of the variance of the direction that the dimension in `decides` explains; 0 where there is none."""
        return max((self.explained or {}).values(), default=0.0)


def by_survival(claims: Sequence[PairOutcome]) -> list[PairOutcome]:
    """Sort claims: those that don't survive first, then those that hold, and are significant, least often."""
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
    """Rank -> number of universes in which the method has it."""
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
    """Family -> methods that the table compares in it, in the order of tables."""
    options: tuple[Option, ...]
    """Options of all dimensions, dimension by dimension."""
    universes: tuple[Universe, ...]
    contests: tuple[PairOutcome, ...]
    """Outcomes of all pairs of the table, claims and undecided pairs, family by family."""
    places: tuple[RankDistribution, ...]
    """Rank distributions of all methods, family by family."""
    remarks: tuple[str, ...]
    """Sentences on missing combinations and methods, and on results that were left out."""

    @property
    def families(self) -> tuple[Family, ...]:
        """Families of claims that have universes."""
        return tuple(family for family in FAMILIES if self.of(family.name))

    def of(self, family: str) -> list[Universe]:
        """Return the universes of a family of claims."""
        return [universe for universe in self.universes if universe.family == family]

    def complete(self, family: str) -> list[Universe]:
        """Return the universes of a family in which all its methods have values; ranks are computed over these."""
        return [universe for universe in self.of(family) if set(self.methods[family]) <= universe.values.keys()]

    def claims(self, family: str) -> list[PairOutcome]:
        """Return the claims of the table in a family, i.e. the pairs whose difference is significant there."""
        return [pair for pair in self.contests if pair.family == family and pair.is_claim]
