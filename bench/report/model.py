"""What a comparison table holds, before it is written in any format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.records import Status


@dataclass(frozen=True)
class Estimate:
    """A metric of one method, as fractions: mean over subjects, then over seeds."""

    mean: float | None
    """None where it is undefined in every subject."""
    std: float | None
    """Over subjects; mean over seeds."""
    best: bool = False
    """No other method's mean is better at the precision shown; never set where there is nothing to compare."""
    notes: tuple[int, ...] = ()
    """Numbers of footnotes."""


@dataclass(frozen=True)
class Line:
    """One method of a table."""

    method: str
    variant: str
    """Settings in which this line differs from others of the table, e.g. `ccps.steps=10`; usually empty."""
    status: Status
    """ok where at least one seed is."""
    seeds: tuple[int, ...]
    """Seeds that are ok, whose mean is shown."""
    runs: int
    """All seeds, those not ok included."""
    n: int | None
    """Questions."""
    ece_floor: float | None
    """Macro ECE that these confidences would have if they were perfectly calibrated."""
    estimates: Mapping[str, Estimate]
    """By metric; empty where the status isn't ok."""
    reasons: tuple[int, ...]
    """Numbers of footnotes that say why it, or one of its seeds, isn't ok."""
    notes: tuple[int, ...]
    """Numbers of footnotes on what else a reader should know."""


@dataclass(frozen=True)
class Table:
    """All methods on one model and task."""

    model: str
    task: str
    preset: str
    facts: tuple[str, ...]
    """What the caption says, piece by piece."""
    columns: tuple[str, ...]
    """Names of metrics."""
    lines: tuple[Line, ...]
    footnotes: tuple[str, ...]
    """Number k is at k - 1."""

    @property
    def several_seeds(self) -> bool:
        """Whether any method ran with more than one seed."""
        return any(line.runs > 1 for line in self.lines)
