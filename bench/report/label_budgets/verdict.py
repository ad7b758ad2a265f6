"""Sentences that state the results of a study of label budgets (metrics by number of labels), from its tests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from bench.report.text import count, metric_name
from bench.report.verdict.phrases import join_with_and, name_first_few
from bench.stats.label_budgets import METRICS_SHOWN, LabelCurves, LeadTest
from bench.stats.variants import MIN_SEEDS

_FEW = 6
"""Maximum number of points without a value that the verdict lists."""
_NAMED = 7
"""Maximum number of names in a sentence. In a longer list, a count of the others takes the place of the last name."""


def verdict(curves: LabelCurves) -> tuple[str, ...]:
    """Return the sentences of the verdict on a study of label budgets.

    They say from how many labels on trained methods beat all untrained ones. They name methods that are worse than
    untrained ones even with the most labels, and points without a value.
    """
    study, largest = curves.study, curves.study.sizes[-1]
    facts: list[str] = []
    for metric in METRICS_SHOWN:
        label = metric_name(metric)
        if not study.untrained:
            facts.append(f"{label}: there is no untrained method to compare with.")
            continue
        tests = [test for test in curves.ahead if test.metric == metric]
        baselines = f"all {len(study.untrained)} untrained methods" if len(study.untrained) > 1 else study.untrained[0]
        gains = [gain for gain in curves.gains if gain.metric == metric]
        compared = {gain.untrained for gain in gains if gain.p is not None}
        if any(test.p is not None for test in tests):
            better = _crossings(curves, [test for test in tests if test.is_shown(study.level)])
            facts.append(f"{label}, shown to beat {baselines}: {name_first_few(better or ['none'], most=_NAMED)}.")
        elif not compared:
            facts.append(f"{label}: nothing was tested, so that no crossing is claimed.")
        else:
            untested = [name for name in study.untrained if name not in compared]
            others = name_first_few(untested, most=_NAMED) if untested else "with each number of labels one"
            facts.append(
                f"{label}: whether a trained method beats {baselines} can't be said, since {others} can't be compared."
            )
        n_better = Counter(  # even with the most labels, corrected for all pairs and sizes
            gain.method
            for gain in gains
            if gain.size == largest and gain.p_all is not None and gain.p_all < 1 - study.level
            and gain.difference and gain.difference.value < 0
        )  # fmt: skip
        losers = []
        for name, n in n_better.items():
            labels = labels_used(curves, name).get(largest, largest)
            losers.append(f"{name} ({n}{f', told {count(labels)}' * (labels < largest)})")
        if losers:
            facts.append(
                f"{label}, even with {count(largest)} labels shown to be worse than untrained methods (than how many):"
                f" {name_first_few(losers, most=_NAMED)}."
            )
    missing: dict[tuple[str, int], list[tuple[int, str, str]]] = {}
    for point in curves.points:
        for reason, draws in point.missing.items():
            missing.setdefault((point.method, point.size), []).append((draws, reason, metric_name(point.metric)))
    gaps = []
    for (name, size), points in missing.items():
        draws, reason = max(test[:2] for test in points)
        metric_note = f", {points[0][2]} alone" * (len({metric for *_, metric in points}) == 1)
        gaps.append(f"{name} with {count(size)} labels, {draws} of {len(study.seeds)} draws ({reason}{metric_note})")
    if gaps:
        more = f"; and {len(gaps) - _FEW} more" if len(gaps) > _FEW else ""
        facts.append(f"Without numbers, and so without interval and test at that size: {'; '.join(gaps[:_FEW])}{more}.")
    if len(study.seeds) < MIN_SEEDS:
        facts.append(
            f"{len(study.seeds)} of at least {MIN_SEEDS} seeds: no intervals, no tests, and so no crossings; name more"
            " with --seed."
        )
    return tuple(facts)


def labels_used(curves: LabelCurves, method: str) -> dict[int, int]:
    """Return the number of labels that a method used, by the requested number.

    The number used may be lower, as a split may have fewer labels than requested.
    """
    return {point.size: point.labels for point in curves.of(method, METRICS_SHOWN[0])}


def _crossings(curves: LabelCurves, shown: Sequence[LeadTest]) -> list[str]:
    """Describe each method that beats every untrained one, and the numbers of labels with which it does.

    Args:
        curves: results of the study.
        shown: significant tests of a trained method against all untrained ones, all of one metric.
    """
    study, largest = curves.study, curves.study.sizes[-1]
    most = f"with {'all ' * (largest == study.available)}{count(largest)} labels"
    texts = list[tuple[float, str]]()
    for name in dict.fromkeys(test.method for test in shown):
        won = {test.size for test in shown if test.method == name}
        start = next((size for size in study.sizes if won >= {s for s in study.sizes if s >= size}), None)
        if start is None:
            texts.append((math.inf, f"{name} with {join_with_and(list(map(count, sorted(won))))} labels only"))
        else:
            texts.append((start, f"{name} {f'from {count(start)} labels on' if start < largest else most}"))
    return [text for _, text in sorted(texts)]
