"""The verdict of a study of label budgets in words, made from its tests and nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from bench.report.text import count, metric_name
from bench.report.verdict.phrases import joined, named
from bench.stats.labels import METRICS_SHOWN, LabelCurves, LeadTest
from bench.stats.variants import MIN_SEEDS

_FEW = 6
"""Points without numbers that are told one by one."""
_NAMED = 7
"""Names that a sentence gives one by one; of more, one fewer is, and the others are counted."""


def verdict(curves: LabelCurves) -> tuple[str, ...]:
    """Facts, a line each: from how many labels on training is shown to pay, what holds out, and what is missing."""
    study, largest = curves.study, curves.study.sizes[-1]
    told: list[str] = []
    for metric in METRICS_SHOWN:
        label = metric_name(metric)
        if not study.untrained:
            told.append(f"{label}: there is no untrained method to compare with.")
            continue
        ahead = [each for each in curves.ahead if each.metric == metric]
        every = f"all {len(study.untrained)} untrained methods" if len(study.untrained) > 1 else study.untrained[0]
        gains = [gain for gain in curves.gains if gain.metric == metric]
        compared = {gain.untrained for gain in gains if gain.p is not None}
        if any(each.p is not None for each in ahead):
            better = _crossings(curves, [each for each in ahead if each.is_shown(study.level)])
            told.append(f"{label}, shown to beat {every}: {named(better, most=_NAMED) if better else 'none'}.")
        elif not compared:
            told.append(f"{label}: nothing was tested, so that no crossing is claimed.")
        else:
            lacking = [name for name in study.untrained if name not in compared]
            who = named(lacking, most=_NAMED) if lacking else "with each number of labels one"
            told.append(
                f"{label}: whether a trained method beats {every} can't be said, since {who} can't be compared."
            )
        behind = Counter(  # even with the most labels, corrected for all pairs and sizes
            gain.method
            for gain in gains
            if gain.size == largest and gain.p_all is not None and gain.p_all < 1 - study.level
            and gain.difference and gain.difference.value < 0
        )  # fmt: skip
        worse = []
        for name, number in behind.items():
            labels = told_of(curves, name).get(largest, largest)
            worse.append(f"{name} ({number}{f', told {count(labels)}' * (labels < largest)})")
        if worse:
            told.append(
                f"{label}, even with {count(largest)} labels shown to be worse than untrained methods (than how many):"
                f" {named(worse, most=_NAMED)}."
            )
    missing: dict[tuple[str, int], list[tuple[int, str, str]]] = {}
    for point in curves.points:
        for reason, draws in point.missing.items():
            missing.setdefault((point.method, point.size), []).append((draws, reason, metric_name(point.metric)))
    gaps = []
    for (name, size), found in missing.items():
        draws, reason = max(each[:2] for each in found)
        alone = f", {found[0][2]} alone" * (len({metric for *_, metric in found}) == 1)
        gaps.append(f"{name} with {count(size)} labels, {draws} of {len(study.seeds)} draws ({reason}{alone})")
    if gaps:
        more = f"; and {len(gaps) - _FEW} more" if len(gaps) > _FEW else ""
        told.append(f"Without numbers, and so without interval and test at that size: {'; '.join(gaps[:_FEW])}{more}.")
    if len(study.seeds) < MIN_SEEDS:
        told.append(
            f"{len(study.seeds)} of at least {MIN_SEEDS} seeds: no intervals, no tests, and so no crossings; name more"
            " with --seed."
        )
    return tuple(told)


def told_of(curves: LabelCurves, method: str) -> dict[int, int]:
    """Number of labels asked for -> number that a method was told, fewer where there are no more for it."""
    return {point.size: point.labels for point in curves.of(method, METRICS_SHOWN[0])}


def _crossings(curves: LabelCurves, shown: Sequence[LeadTest]) -> list[str]:
    """Methods that beat every untrained one: from a number of labels on up to the most, or with some only."""
    study, largest = curves.study, curves.study.sizes[-1]
    most = f"with {'all ' * (largest == study.available)}{count(largest)} labels"
    told = list[tuple[float, str]]()
    for name in dict.fromkeys(each.method for each in shown):
        own = {each.size for each in shown if each.method == name}
        start = next((size for size in study.sizes if own >= {other for other in study.sizes if other >= size}), None)
        if start is None:
            told.append((math.inf, f"{name} with {joined(list(map(count, sorted(own))))} labels only"))
        else:
            told.append((start, f"{name} {f'from {count(start)} labels on' if start < largest else most}"))
    return [text for _, text in sorted(told)]
