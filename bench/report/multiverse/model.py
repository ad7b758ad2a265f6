"""Dataclasses of a multiverse analysis: universes (single analyses), ranks of methods, and outcomes of claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.report.multiverse.definitions import FAMILIES, Family
from bench.stats.multiverse import RankSummary

SURVIVES = 0.95
"""A claim survives if the order of its two methods holds in at least this share of universes (analyses), and if the
opposite is significant in none."""
LEVEL = 0.95
"""One minus the significance level of tests, which are corrected for all pairs of methods in a universe (analysis)."""


@dataclass(frozen=True)
class Option:
    """One option of an analysis choice (dimension), e.g. one grading rule."""

    dimension: str
    name: str
    is_tables: bool
    """Whether the table uses this option; False for every seed, as the table averages seeds."""
    note: str = ""
    """What the option changes, in words; empty if the option's name says so."""


@dataclass(frozen=True, eq=False)
class Universe:
    """A universe: one way to analyse the results, with one option for each analysis choice."""

    family: str
    """Family (kind) of the claims that this analysis examines, e.g. those on calibration."""
    metric: str
    """Name of the metric in `bench.metrics.METRICS`."""
    choices: Mapping[str, str]
    """Analysis choice (dimension) -> chosen option."""
    values: Mapping[str, float]
    """Method -> value of the metric; methods for which the metric is undefined are missing."""
    wins: frozenset[tuple[str, str]] | None
    """(winner, loser) of each significant difference, corrected for all pairs of methods; None if nothing was
    tested."""


@dataclass(frozen=True)
class OptionShare:
    """Number of universes (analyses) with one option, and how many of these keep the order of two methods."""

    dimension: str
    option: str
    n: int
    """Number of universes (analyses) with this option in which both methods have a value."""
    holds: int
    """Number of those n universes (analyses) in which the two methods have the same order as in the table."""


@dataclass(frozen=True)
class PairOutcome:
    """How a pair of methods compares over all universes (analyses); `first` has the better value in the table."""

    family: str
    first: str
    second: str
    difference: float
    """Value of `first` minus value of `second` in the table."""
    p: float | None
    """Corrected p value in the table; None if the pair was not tested."""
    is_claim: bool
    """Whether `first` is significantly better in the table, i.e. whether the table makes a claim about the pair."""
    n: int
    """Number of universes (analyses) in which both methods have a value."""
    holds: int
    """Number of universes (analyses), of those n, in which `first` has the better value."""
    tested: int
    """Number of universes (analyses), of those n, with a significance test of the pair."""
    significant: int
    """Number of universes (analyses) with a test in which `first` is significantly better."""
    reversed: int
    """Number of universes (analyses) with a test in which `second` is significantly better."""
    shares: tuple[OptionShare, ...] = ()
    """For each option of each analysis choice: in how many universes (analyses) `first` has the better value. Choices
    with only one option are left out."""
    explained: Mapping[str, float] | None = None
    """Analysis choice -> how much it explains of whether `first` is better: the share of variance over universes
    (analyses) that lies between the options of the choice."""

    @property
    def share(self) -> float | None:
        """Share of the n universes (analyses) in which `first` has the better value; None if n is 0."""
        return self.holds / self.n if self.n else None

    @property
    def survives(self) -> bool:
        """Whether `first` has the better value in enough universes (analyses), and is significantly worse in none."""
        return self.share is not None and self.share >= SURVIVES and not self.reversed

    @property
    def is_shown(self) -> bool:
        """Whether the claim survives, and most tests confirm it.

        Most are at least the share `SURVIVES` of the universes (analyses) that have a test.
        """
        return self.survives and self.tested > 0 and self.significant >= SURVIVES * self.tested

    @property
    def weakest(self) -> OptionShare | None:
        """Option with which `first` has the better value in the smallest share of universes (analyses).

        None if `first` has the better value always or never.
        """
        shares = [share for share in self.shares if share.n]
        if not shares or self.holds in {0, self.n}:
            return None
        return min(shares, key=lambda share: share.holds / share.n)

    @property
    def decides(self) -> str | None:
        """Analysis choice that explains most of whether `first` is better, by the share of variance over universes.

        None if no choice explains any.
        """
        positive = {name: value for name, value in (self.explained or {}).items() if value > 0}
        return max(positive, key=lambda name: positive[name]) if positive else None

    @property
    def explained_most(self) -> float:
        """Share of variance that the analysis choice in `decides` explains; 0 if no choice explains any."""
        return max((self.explained or {}).values(), default=0.0)


def by_survival(claims: Sequence[PairOutcome]) -> list[PairOutcome]:
    """Sort claims by how well they survive, the weakest first.

    Claims that don't survive come before those that do. Both groups are sorted by how often a claim holds and, if that
    is equal, by how often it is significant; the least often comes first.
    """
    return sorted(claims, key=lambda c: (c.survives, c.share or 0.0, c.significant / max(c.tested, 1)))


@dataclass(frozen=True)
class RankDistribution:
    """Ranks of one method over the universes (analyses) in which all methods have values, for one family of claims.

    A family is a kind of claims, e.g. on calibration.
    """

    family: str
    method: str
    in_table: int | None
    """Rank in the table, i.e. 1 plus the number of significantly better methods; None if the method has no rank."""
    spread: RankSummary
    counts: Mapping[int, int]
    """Rank -> number of universes (analyses) in which the method has this rank."""
    leads: float | None
    """Share of the universes (analyses) with a test in which no other method is significantly better.

    None if there is no such universe.
    """


@dataclass(frozen=True, eq=False)
class Multiverse:
    """A multiverse analysis of one table: all universes (single analyses), and the outcomes for methods and claims."""

    model: str
    task: str
    preset: str
    n: int
    """Number of questions."""
    seeds: tuple[int, ...]
    """Seeds over which the table averages."""
    methods: Mapping[str, tuple[str, ...]]
    """Family (kind of claims) -> methods that the table compares in the family's metric, in the order of tables."""
    options: tuple[Option, ...]
    """Options of all analysis choices, grouped by choice."""
    universes: tuple[Universe, ...]
    contests: tuple[PairOutcome, ...]
    """Outcomes of all pairs of methods, significant in the table or not, grouped by family (kind of claims)."""
    places: tuple[RankDistribution, ...]
    """Rank distributions of all methods, grouped by family (kind of claims, e.g. on calibration)."""
    remarks: tuple[str, ...]
    """Sentences on missing combinations of options, on missing methods, and on results that were left out."""

    @property
    def families(self) -> tuple[Family, ...]:
        """Families (kinds) of claims with at least one universe, i.e. one analysis."""
        return tuple(family for family in FAMILIES if self.of(family.name))

    def of(self, family: str) -> list[Universe]:
        """Return the universes (analyses) of a family of claims, e.g. "calibration"."""
        return [universe for universe in self.universes if universe.family == family]

    def complete(self, family: str) -> list[Universe]:
        """Return the universes (analyses) of a family of claims, e.g. "calibration", in which all methods have values.

        Ranks are computed over these universes.
        """
        return [universe for universe in self.of(family) if set(self.methods[family]) <= universe.values.keys()]

    def claims(self, family: str) -> list[PairOutcome]:
        """Return the examined claims of a family (e.g. "calibration").

        A claim is a pair whose difference is significant in the table; it is examined if some universe has both
        methods.
        """
        return [pair for pair in self.contests if pair.family == family and pair.is_claim and pair.n]
