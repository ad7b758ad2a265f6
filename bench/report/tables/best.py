"""Best numbers of each column of a table, and how sure that is: one rule for every format.

A best mean is *beyond chance* where every other method that it competes with is significantly worse, *not beyond
chance* where one of them isn't, *not tested* where there is no test. Example:
`best_of(means, standings)[key]["brier"]`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from bench.metrics import METRICS
from bench.report.grouping import Key
from bench.report.standings.compute import Standings
from bench.report.text import shown

Best = Literal["beyond chance", "not beyond chance", "not tested"]
SIGNS: Mapping[Best, str] = MappingProxyType({"beyond chance": "*", "not beyond chance": "~", "not tested": "?"})
"""After a number; plain characters, which survive print, pipes and terminals without colour."""
CALIBRATION = "ece_debiased"
"""Metric that calibration is judged by: ECE less what a calibrated method would show, as 0 where it is less."""
_JUDGED_BY = MappingProxyType({"ece": CALIBRATION})
_UNMARKED = ("ece_ref", "ece_ref_closed", "ece_mass", "smece", "brier_mcb")
"""Raw calibration errors. Confidences that are less spread have less of them by chance alone."""
SEVERAL = 2


def best_of(means: Mapping[Key, Mapping[str, float]], standings: Standings | None) -> dict[Key, dict[str, Best]]:
    """The best numbers of a table's lines; ECE has the mark of `CALIBRATION`.

    Lines compete within a block of the same recalibration and the same labels. Those whose training was cut short
    take no part, and in calibration neither do those that don't order answers.

    Args:
        means: by line and metric, of the lines that are ok and were not cut short.
        standings: of the table, where they were computed.
    """
    found: dict[Key, dict[str, Best]] = {key: {} for key in means}
    for block in _blocks(means, standings):
        for name in METRICS:
            for key, best in _of_column(name, block, means, standings):
                found[key][name] = best
                if name == CALIBRATION:
                    found[key]["ece"] = best
    return found


def judged_by(metric: str) -> str:
    """The metric that another one is ordered, ranked and tested by; usually itself.

    >>> judged_by("ece"), judged_by("brier")
    ('ece_debiased', 'brier')
    """
    return _JUDGED_BY.get(metric, metric)


def badness(name: str, value: float) -> float:
    """A metric's value with the sign with which less is better; as counted.

    >>> badness("auroc", 0.8), badness("brier", 0.2)
    (-0.8, 0.2)
    """
    return -value if METRICS[name].higher_is_better else counted(name, value)


def counted(name: str, value: float) -> float:
    """A metric's value as it is ordered by.

    >>> counted("ece_debiased", -0.01), counted("brier", 0.2)
    (0.0, 0.2)
    """
    return max(0.0, value) if name == CALIBRATION else value


def _blocks(means: Mapping[Key, Mapping[str, float]], standings: Standings | None) -> list[list[Key]]:
    blocks: dict[tuple[str, int], list[Key]] = defaultdict(list)
    for key in means:
        if standings is None or key in standings.lines:
            labels = standings.lines[key].labels if standings else 0
            blocks[key.recalibration, labels].append(key)
    return list(blocks.values())


def _of_column(
    name: str, block: Sequence[Key], means: Mapping[Key, Mapping[str, float]], standings: Standings | None
) -> Iterator[tuple[Key, Best]]:
    """The best lines of a block in one metric; those that look alike as printed are best together."""
    metric = METRICS[name]
    if metric.higher_is_better is None or name == "ece" or name in _UNMARKED:
        return
    values = {key: counted(name, means[key][name]) for key in block if name in means[key]}
    if name == CALIBRATION and standings:
        values = {key: value for key, value in values.items() if standings.lines[key].orders_answers}
    if len(values) < SEVERAL:
        return
    best = shown(metric, (max if metric.higher_is_better else min)(values.values()))
    leading = [key for key, value in values.items() if shown(metric, value) == best]
    if standings is None or any(name not in standings.lines[key].ranks for key in values):
        yield from ((key, "not tested") for key in leading)
        return
    sure = [key for key in leading if set(values) - {key} <= standings.beaten.get((name, key), frozenset())]
    yield from ((key, "beyond chance" if sure else "not beyond chance") for key in sure or leading)
