"""Best numbers of each column of a table, and how sure that is: one rule for every format.

A best mean is *beyond chance* where every other method that it competes with is significantly worse, *not beyond
chance* where one of them isn't, *not tested* where there is no test. Example:
`best_of(lines, standings)[key]["brier"]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from bench.metrics import METRICS
from bench.report import competition
from bench.report.competition import SEVERAL, counted
from bench.report.text import shown

if TYPE_CHECKING:
    from bench.report.grouping import Key
    from bench.report.standings.compute import Standings
    from bench.report.tables.model import Line

Best = Literal["beyond chance", "not beyond chance", "not tested"]
SIGNS: Mapping[Best, str] = MappingProxyType({"beyond chance": "*", "not beyond chance": "~", "not tested": "?"})
"""After a number; plain characters, which survive print, pipes and terminals without colour."""
_UNMARKED = ("ece", "ece_debiased", "ece_ref", "ece_ref_closed", "ece_mass", "smece", "brier_mcb")
"""Raw calibration errors. Confidences that are less spread have less of them by chance alone."""


def best_of(lines: Sequence[Line], standings: Standings | None) -> dict[Key, dict[str, Best]]:
    """The best numbers of a table's lines.

    Args:
        lines: of the table.
        standings: of the table, where they were computed.
    """
    found: dict[Key, dict[str, Best]] = {line.key: {} for line in lines}
    for name, metric in METRICS.items():
        if metric.higher_is_better is None or name in _UNMARKED:
            continue
        for group in competition.groups(lines, standings, name):
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
                found[key][name] = best
    return found
