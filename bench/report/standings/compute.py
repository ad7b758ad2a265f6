"""Uncertainty of the numbers of one table: `bench.stats.summary` of the Parquet files beside its rows, as plain data.

Lines are compared only where they rest on the same answers and labels, question by question. Example:
`standings.lines[Key("ccps", "")].metrics["brier"].fixed.low`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.api import UserError
from bench.report.competition import CALIBRATION
from bench.report.grouping import Key
from bench.results.files import read_records
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.stats import Comparison, Estimate, Settings, ranks, summary

_ORDER_ALONE = "its scores are no probabilities: no interval, no rank, never best"
_SEEDS_DIFFER = "its seeds rest on different answers or labels: no interval, no rank, never best"
CHANCE = 0.5
"""AUROC of confidences that don't order answers."""
ROUNDING = 1e-12


@dataclass(frozen=True)
class LineStanding:
    """All that is told of one line."""

    labels: int
    """Lines with the same number rest on the same answers and labels; 0 has the most lines, then questions."""
    metrics: Mapping[str, Estimate]
    calibrated_p: float
    """P value of calibration."""
    ranks: Mapping[str, int]
    """Ranks by metric; without those whose pairs could not be tested, and empty where training was cut short. In
    calibration, of the lines that order answers alone."""
    constant: float | None = None
    """Brier of a constant confidence, the share of right answers in training; None where no line knows it."""

    @property
    def orders_answers(self) -> bool | None:
        """Whether its AUROC is above 50 % beyond chance; None where it has no interval but may be."""
        return _orders(self.metrics.get("auroc"))

    @property
    def unordered(self) -> str:
        """Why it takes no part in calibration, where it does not."""
        if self.orders_answers:
            return ""
        auroc = self.metrics.get("auroc")
        why = "AUROC is undefined" if auroc is None or auroc.value is None else auroc.fixed.reason
        told = "does not order answers: its AUROC is not above 50 % beyond chance"
        told = f"whether it orders answers can't be told: {why}" if self.orders_answers is None else told
        return f"{told}; it has neither mark nor rank for calibration"

    @property
    def worse_than_constant(self) -> bool:
        """Whether its Brier is no better than that of the constant confidence."""
        brier = self.metrics.get("brier")
        if brier is None or brier.value is None or self.constant is None:
            return False
        return brier.value > self.constant - ROUNDING


Pair = Comparison[Key]
"""Two lines on the same questions; without corrected p value where the better one takes no part in calibration."""


@dataclass(frozen=True)
class Standings:
    """Standings of one table."""

    level: float
    """Level of all intervals; 1 - level is the level of significance."""
    lines: Mapping[Key, LineStanding]
    pairs: tuple[Pair, ...]
    left_out: Mapping[Key, str]
    """Lines of which nothing can be told, and why."""

    @cached_property
    def beaten(self) -> Mapping[tuple[str, Key], frozenset[Key]]:
        """Metric and line -> the lines that are significantly worse."""
        found: dict[tuple[str, Key], frozenset[Key]] = {}
        for pair in self.pairs:
            if (decided := pair.decided(1 - self.level)) is not None:
                better, worse = decided
                found[pair.metric, better] = found.get((pair.metric, better), frozenset()) | {worse}
        return found


# --- computing --------------------------------------------------------------------------------------------------------


def computed(files: Mapping[Key, Sequence[tuple[ResultRow, Path]]], settings: Settings) -> Standings:
    """Standings of the lines of one table.

    Args:
        files: by line, rows that are ok with their Parquet files.
        settings: of intervals and tests.

    Raises:
        UserError: a file is not as it must be; names it.
    """
    records = {key: [_sorted(read_records(path), path) for _, path in runs] for key, runs in files.items()}
    left_out = {key: _SEEDS_DIFFER for key, runs in records.items() if any(not _same(a, b) for a, b in pairwise(runs))}
    left_out |= {key: _ORDER_ALONE for key, runs in records.items() if any(run.probabilities is None for run in runs)}
    # share of right answers in training; for a line that doesn't learn, that of the first line which does
    own = {key: [row.base_rate for row, _ in runs if row.base_rate is not None] for key, runs in files.items()}
    of_table = next((rates for rates in own.values() if rates), [])
    rates = {key: float(np.mean(rates or of_table)) if rates or of_table else None for key, rates in own.items()}
    short = {key for key, runs in files.items() if any(row.training and row.training.is_cut_short for row, _ in runs)}
    lines: dict[Key, LineStanding] = {}
    pairs: list[Pair] = []
    # lines that rest on the same labels together; the most lines first, of as many those on the most questions
    alike: list[list[Key]] = []
    for key in (key for key in records if key not in left_out):
        known = (keys for keys in alike if _same(records[keys[0]][0], records[key][0]))
        if (together := next(known, None)) is None:
            alike.append([key])
        else:
            together.append(key)
    alike.sort(key=lambda keys: (len(keys), len(records[keys[0]][0].id)), reverse=True)
    for number, keys in enumerate(alike):
        first = records[keys[0]][0]
        # Names are numbers because a method and its settings may hold any separator.
        confidence = {str(i): np.stack([run.confidence for run in records[key]]) for i, key in enumerate(keys)}
        score = {
            str(i): np.stack([run.order for run in records[k]])
            for i, k in enumerate(keys)
            if all(run.score is not None for run in records[k])
        }
        # ranked together are lines that were recalibrated alike and not cut short: recalibrated methods are a block of
        # their own, or one and the method that it came from would share each first place
        by_kind: dict[str, list[str]] = {}
        for i, key in enumerate(keys):
            if key not in short:
                by_kind.setdefault(key.recalibration, []).append(str(i))
        blocks = list(by_kind.values())
        told = summary(confidence, first.correct, first.subject, settings, blocks, score)
        able = {name for name, method in told.methods.items() if _orders(method.estimates["auroc"])}
        calibrated, alpha = told.comparisons[CALIBRATION], 1 - settings.level
        of_able = [ranks([name for name in block if name in able], calibrated, alpha=alpha) for block in blocks]
        ranked = {**told.ranks, CALIBRATION: {name: rank for block in of_able for name, rank in block.items()}}
        for i, key in enumerate(keys):
            rate = rates[key]
            loss = np.square((0.0 if rate is None else rate) - first.correct)
            loss = told.strata.means(loss) if settings.average == "subjects" else loss
            method = told.methods[str(i)]
            lines[key] = LineStanding(
                labels=number,
                metrics=method.estimates,
                calibrated_p=method.calibrated_p,
                ranks={metric: found[str(i)] for metric, found in ranked.items() if str(i) in found},
                constant=None if rate is None else float(loss.mean()),
            )
        said = [pair if pair.winner(alpha) in {None, *able} else replace(pair, p_corrected=None) for pair in calibrated]
        pairs += [
            replace(pair, first=keys[int(pair.first)], second=keys[int(pair.second)])  # type: ignore[arg-type,misc]
            for of_metric in {**told.comparisons, CALIBRATION: said}.values()
            for pair in of_metric
        ]
    return Standings(settings.level, {key: lines[key] for key in records if key in lines}, tuple(pairs), left_out)


def _orders(auroc: Estimate | None) -> bool | None:
    if auroc is None or auroc.value is None:
        return None
    if auroc.fixed.low is None and auroc.value > CHANCE + ROUNDING:
        return None
    return (auroc.fixed.low or auroc.value) > CHANCE + ROUNDING


def _sorted(records: Records, path: Path) -> Records:
    """Records in the order of ids, in which all files are compared."""
    ids = np.asarray(records.id, dtype=object)
    order = np.argsort(ids, kind="stable")
    twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if not ids.size or twice.size:
        what = f"id {ids[order][twice[0]]!r} twice" if twice.size else "no question"
        raise UserError(f"result {path}: expected each question once, got {what}; run that cell again")
    return records.take(order)


def _same(a: Records, b: Records) -> bool:
    """Whether both rest on the same questions with the same labels."""
    return a.id == b.id and a.subject == b.subject and bool(np.array_equal(a.correct, b.correct))
