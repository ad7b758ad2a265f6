"""Who competes with whom by a metric, and who leads: one rule for tables, verdicts, figures, page and analyses.

Methods compete that were recalibrated alike and rest on the same answers and labels. Example:
`rank(table.lines, table.standings, "brier").leaders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from bench.metrics import METRICS
from bench.report.text import metric_name, plain, shown

if TYPE_CHECKING:
    from bench.report.grouping import Key
    from bench.report.standings.compute import Standings
    from bench.report.tables.model import Line

CALIBRATION = "rmsce"
"""Metric that calibration is judged by: part of an ECE is chance, and a larger one where confidences are near 50 %."""
_JUDGED_BY = MappingProxyType({"ece": CALIBRATION})
SEVERAL = 2
"""Ranked methods without which nobody leads."""
NOT_TESTED = "not tested"
OTHER_LABELS = "other answers or labels"
Best = Literal["beyond chance", "not beyond chance", "not tested"]
SIGNS: Mapping[Best, str] = MappingProxyType({"beyond chance": "*", "not beyond chance": "~", "not tested": "?"})
"""After a number; plain characters, which survive print, pipes and terminals without colour."""
_UNMARKED = ("ece", "ece_debiased", "ece_ref", "ece_ref_closed", "ece_mass", "smece", "brier_mcb")
"""Raw calibration errors. Confidences that are less spread have less of them by chance alone."""


def ranked_by(metric: str) -> str:
    """The metric that another one is ordered, ranked and tested by; usually itself.

    >>> ranked_by("ece"), ranked_by("brier")
    ('rmsce', 'brier')
    """
    return _JUDGED_BY.get(metric, metric)


def counted(name: str, value: float) -> float:
    """A metric's value as it is ordered by.

    >>> counted("rmsce", -0.01), counted("brier", 0.2)
    (0.0, 0.2)
    """
    return max(0.0, value) if METRICS[name].is_root else value


def badness(name: str, value: float) -> float:
    """A metric's value with the sign with which less is better; as counted.

    >>> badness("auroc", 0.8), badness("brier", 0.2)
    (-0.8, 0.2)
    """
    return -value if METRICS[name].higher_is_better else counted(name, value)


@dataclass(frozen=True)
class Competition:
    """Methods of one table that were recalibrated alike, by one metric."""

    metric: str
    """Metric that judges: `rmsce` where ECE was asked for."""
    recalibration: str
    """Recalibration of these methods; empty for none."""
    comparable: tuple[Line, ...]
    """Methods with a value on the answers and labels that most rest on, the best mean first, tested or not."""
    excluded: Mapping[Key, str]
    """Why each other method, and each comparable one that was not tested, is not ranked."""

    @cached_property
    def ranked(self) -> tuple[Line, ...]:
        """Comparable methods that were tested against each other."""
        return tuple(line for line in self.comparable if line.rank(self.metric) is not None)

    @cached_property
    def first(self) -> tuple[Line, ...]:
        """Ranked methods than which none of the table is significantly better."""
        return tuple(line for line in self.ranked if line.rank(self.metric) == 1)

    @property
    def leaders(self) -> tuple[Line, ...]:
        """The first ones where several were ranked: one ranked method alone leads nobody."""
        return self.first if len(self.ranked) >= SEVERAL else ()


def rank(
    lines: Iterable[Line], standings: Standings | None, metric: str, recalibration: str | None = None
) -> Competition:
    """The competition of methods by a metric.

    Left out are methods without results, whose training was cut short, without a value, on other answers or labels than
    most ranked ones, and in calibration those that don't order answers, as a constant confidence is calibrated, too, or
    of which that can't be told.

    Args:
        lines: of a table, those that are not shown included.
        standings: of the table, where they were computed.
        metric: in `bench.metrics.METRICS`.
        recalibration: of the methods that compete; by default the first one of the table, which is none where there are
            methods without.
    """
    all_lines, name = tuple(lines), ranked_by(metric)
    kind = min((line.key.recalibration for line in all_lines), default="") if recalibration is None else recalibration
    candidates = sorted(
        (line for line in all_lines if line.key.recalibration == kind),
        key=lambda line: (line.badness(name) or 0.0, line.place),
    )
    excluded = {line.key: reason for line in candidates if (reason := _exclusion_reason(line, standings, name))}
    eligible = [line for line in candidates if line.key not in excluded]
    # labels that most methods of a table rest on have the smallest number
    labels = min(map(_labels, [line for line in eligible if line.rank(name) is not None] or eligible), default=0)
    for line in eligible:
        if _labels(line) != labels:
            excluded[line.key] = OTHER_LABELS
        elif line.rank(name) is None:
            excluded[line.key] = NOT_TESTED
    return Competition(name, kind, tuple(line for line in eligible if _labels(line) == labels), excluded)


def comparable_groups(lines: Sequence[Line], standings: Standings | None, metric: str) -> list[list[Line]]:
    """Methods that can be compared with each other by a metric: each recalibration, on each set of labels."""
    name = ranked_by(metric)
    by_labels: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        if not _exclusion_reason(line, standings, name):
            by_labels.setdefault((line.key.recalibration, _labels(line)), []).append(line)
    return list(by_labels.values())


def find_best(lines: Sequence[Line], standings: Standings | None) -> dict[Key, dict[str, Best]]:
    """The best numbers of each column of a table: one rule for every format.

    A best mean is *beyond chance* where every other method that it competes with is significantly worse, *not beyond
    chance* where one of them isn't, *not tested* where there is no test.

    Args:
        lines: of the table.
        standings: of the table, where they were computed.
    """
    marks: dict[Key, dict[str, Best]] = {line.key: {} for line in lines}
    for name, metric in METRICS.items():
        if metric.higher_is_better is None or name in _UNMARKED:
            continue
        for group in comparable_groups(lines, standings, name):
            values = {line.key: counted(name, mean) for line in group if (mean := line.estimate(name).mean) is not None}
            if len(values) < SEVERAL:
                continue
            # those that look alike as printed are best together
            top = shown(metric, (max if metric.higher_is_better else min)(values.values()))
            leading = [key for key, value in values.items() if shown(metric, value) == top]
            best: Best = "not tested"
            if standings is not None and all(line.rank(name) is not None for line in group):
                sure = [key for key in leading if set(values) - {key} <= standings.beaten.get((name, key), frozenset())]
                leading, best = (sure, "beyond chance") if sure else (leading, "not beyond chance")
            for key in leading:
                marks[key][name] = best
    return marks


def _exclusion_reason(line: Line, standings: Standings | None, metric: str) -> str:
    """Why a method takes no part, whatever the others are like; empty where it does."""
    if line.status != "ok":
        return line.status
    if standings is not None and line.key in standings.left_out:
        return plain(standings.left_out[line.key].partition(":")[0])
    if any(training.is_cut_short for training in line.training):
        return "training cut short"
    if metric == CALIBRATION and not line.orders_answers:
        is_tested = line.standing and line.standing.orders_answers is not None
        return "doesn't order answers beyond chance" if is_tested else "it can't be told whether it orders answers"
    return f"{metric_name(metric)} undefined" if line.badness(metric) is None else ""


def _labels(line: Line) -> int:
    """Number of the answers and labels that a method rests on; 0 where nothing was compared."""
    return line.standing.labels if line.standing else 0
