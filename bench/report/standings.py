"""How sure the numbers of one table are: `bench.stats.summary` of the Parquet files beside its rows, as plain data.

Lines are compared only where they rest on the same answers and labels, question by question. Example:
`standings.lines[Key("ccps", "")].metrics["brier"].fixed.low`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.errors import UserError
from bench.metrics import METRICS
from bench.records import ResultRow
from bench.report.groups import Key, recalibration_of
from bench.results import Records, read_records

if TYPE_CHECKING:
    from bench.stats import Estimate as Estimated
    from bench.stats import Interval, MethodSummary, NoInterval, Settings, Summary

SEEDS_DIFFER = "its seeds rest on different answers or labels: no interval, no rank, never best"


@dataclass(frozen=True)
class Range:
    """An interval and what it is an interval of, or why there is none."""

    estimand: str
    """`fixed-subjects` or `clustered`."""
    low: float | None = None
    high: float | None = None
    level: float | None = None
    """Of confidence, e.g. 0.95."""
    kind: str = ""
    """How it was made: `t`, `basic`, or `inverted test`."""
    reason: str = ""
    """Why there is none; empty where there is one."""

    def excludes_zero(self) -> bool:
        """Whether there is an interval, and 0 lies outside of it."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def reversed(self) -> Range:
        """Of the difference taken the other way round."""
        if self.low is None or self.high is None:
            return self
        return replace(self, low=-self.high, high=-self.low)


@dataclass(frozen=True)
class Standing:
    """One metric of one line: mean over subjects, then over seeds."""

    value: float | None
    """None where it is undefined in every subject."""
    fixed: Range
    """For these subjects and other questions."""
    clustered: Range
    """For other subjects like these."""
    by_seed: tuple[float | None, ...]
    spread: float | None
    """Standard deviation (ddof 1) of `by_seed`; None with one seed."""
    n_undefined: int
    """Subjects left out because the metric is undefined there."""
    n_redrawn: int
    """Resamples of a subject that were replaced because the metric is undefined in them."""


@dataclass(frozen=True)
class LineStanding:
    """All that is told of one line."""

    labels: int
    """Lines with the same number rest on the same answers and labels; 0 has the most lines."""
    metrics: Mapping[str, Standing]
    calibration_error: float
    """Macro ECE without what chance adds to it."""
    calibration: Range
    """Its interval."""
    calibrated_p: float
    """P value of calibration."""
    ranks: Mapping[str, int]
    """By loss; empty where pairs could not be tested."""


@dataclass(frozen=True)
class Pair:
    """Two lines on the same questions; negative differences speak for the first."""

    loss: str
    first: Key
    second: Key
    difference: float
    fixed: Range
    clustered: Range
    p: float | None
    p_holm: float | None
    """Corrected for all pairs of lines with the same labels."""

    def reversed(self) -> Pair:
        """The second minus the first."""
        return replace(
            self, first=self.second, second=self.first, difference=-self.difference, fixed=self.fixed.reversed(),
            clustered=self.clustered.reversed(),
        )  # fmt: skip


@dataclass(frozen=True)
class Standings:
    """Of one table."""

    level: float
    """Of all intervals; 1 - level is the level of significance."""
    lines: Mapping[Key, LineStanding]
    pairs: tuple[Pair, ...]
    leaders: Mapping[str, tuple[Key, ...]]
    """By metric: the line that is better than its runner-up beyond chance, at most one for each labels and block.

    Recalibrated methods are a block of their own, or one and the method that it came from would share each first place.
    """
    left_out: Mapping[Key, str]
    """Lines of which nothing can be told, and why."""


# --- computing --------------------------------------------------------------------------------------------------------


def computed(files: Mapping[Key, Sequence[tuple[ResultRow, Path]]], settings: Settings) -> Standings:
    """Standings of the lines of one table.

    Args:
        files: by line, rows that are ok with their Parquet files.
        settings: of intervals and tests.

    Raises:
        UserError: a file is not as it must be; names it.
    """
    from bench.stats import summary

    records = {key: [_sorted(read_records(path), path) for _, path in runs] for key, runs in files.items()}
    left_out = {key: SEEDS_DIFFER for key, runs in records.items() if any(not _same(a, b) for a, b in pairwise(runs))}
    lines: dict[Key, LineStanding] = {}
    pairs: list[Pair] = []
    leaders: dict[str, list[Key]] = defaultdict(list)
    alike = _by_labels({key: runs for key, runs in records.items() if key not in left_out})
    for number, keys in enumerate(alike):
        first = records[keys[0]][0]
        # Names are numbers because a method and its settings may not be told apart by any separator.
        confidence = {str(i): np.stack([run.confidence for run in records[key]]) for i, key in enumerate(keys)}
        told = summary(confidence, first.correct, first.subject, settings)
        lines.update({key: _line(told, str(i), number) for i, key in enumerate(keys)})
        pairs += _pairs(told, keys)
        for kind in dict.fromkeys(recalibration_of(key.method) for key in keys):
            block = [str(i) for i, key in enumerate(keys) if recalibration_of(key.method) == kind]
            for metric, best in _leaders(told, block).items():
                leaders[metric].append(keys[int(best)])
    return Standings(
        settings.level,
        {key: lines[key] for key in records if key in lines},
        tuple(pairs),
        {metric: tuple(keys) for metric, keys in leaders.items()},
        left_out,
    )


def _sorted(records: Records, path: Path) -> Records:
    """In the order of ids, in which all files are compared."""
    ids = np.asarray(records.id, dtype=object)
    order = np.argsort(ids, kind="stable")
    twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if not ids.size or twice.size:
        what = f"id {ids[order][twice[0]]!r} twice" if twice.size else "no question"
        raise UserError(f"result {path}: expected each question once, got {what}; run that cell again")
    return Records(
        id=ids[order].tolist(), subject=[records.subject[i] for i in order], correct=records.correct[order],
        confidence=records.confidence[order], answer=records.answer, parsed=records.parsed,
    )  # fmt: skip


def _same(a: Records, b: Records) -> bool:
    """Whether both rest on the same questions with the same labels."""
    return a.id == b.id and a.subject == b.subject and bool(np.array_equal(a.correct, b.correct))


def _by_labels(records: Mapping[Key, Sequence[Records]]) -> list[list[Key]]:
    """Lines that rest on the same labels together; the most lines first."""
    alike: list[list[Key]] = []
    for key, runs in records.items():
        for keys in alike:
            if _same(records[keys[0]][0], runs[0]):
                keys.append(key)
                break
        else:
            alike.append([key])
    return sorted(alike, key=len, reverse=True)


def _line(told: Summary, name: str, labels: int) -> LineStanding:
    method: MethodSummary = told.methods[name]
    return LineStanding(
        labels=labels,
        metrics={metric: _standing(estimate) for metric, estimate in method.estimates.items()},
        calibration_error=method.calibration.value,
        calibration=_range(method.calibration.interval),
        calibrated_p=method.calibrated_p,
        ranks={loss: ranks[name] for loss, ranks in told.ranks.items() if name in ranks},
    )


def _standing(estimate: Estimated) -> Standing:
    return Standing(
        estimate.value, _range(estimate.fixed), _range(estimate.clustered), estimate.by_seed, estimate.spread,
        estimate.n_undefined, estimate.n_redrawn,
    )  # fmt: skip


def _range(interval: Interval | NoInterval) -> Range:
    return Range(**asdict(interval))


def _pairs(told: Summary, keys: Sequence[Key]) -> list[Pair]:
    return [
        Pair(
            loss, keys[int(pair.first)], keys[int(pair.second)], pair.difference, _range(pair.interval),
            _range(pair.clustered), pair.p, pair.p_holm,
        )
        for loss, pairs in told.comparisons.items()
        for pair in pairs
    ]  # fmt: skip


def _leaders(told: Summary, names: Sequence[str]) -> dict[str, str]:
    """Metric -> the one of these methods that is better than the runner-up beyond chance, where there is one.

    By Holm's p value for the losses that methods are compared by, else by the interval of the paired difference.
    """
    leaders = {}
    for metric in told.replicates:
        values = {name: told.methods[name].estimates[metric].value for name in names}
        known = {name: value for name, value in values.items() if value is not None}
        ranked = sorted(known, key=lambda name: known[name], reverse=bool(METRICS[metric].higher_is_better))
        if len(ranked) > 1 and _differ(told, metric, ranked[0], ranked[1]):
            leaders[metric] = ranked[0]
    return leaders


def _differ(told: Summary, metric: str, best: str, second: str) -> bool:
    if metric in told.comparisons:
        (pair,) = (pair for pair in told.comparisons[metric] if {pair.first, pair.second} == {best, second})
        return pair.p_holm is not None and pair.p_holm < 1 - told.settings.level and pair.difference != 0
    difference = told.difference(metric, best, second)
    return difference is not None and _range(difference[1]).excludes_zero()


# --- as JSON ---------------------------------------------------------------------------------------------------------


def encoded(standings: Standings) -> str:
    """As JSON; mappings by line become lists, because JSON's keys are strings."""
    body = {
        "level": standings.level,
        "lines": [[key, asdict(line)] for key, line in standings.lines.items()],
        "pairs": [asdict(pair) for pair in standings.pairs],
        "leaders": standings.leaders,
        "left_out": [[key, reason] for key, reason in standings.left_out.items()],
    }
    return json.dumps(body, allow_nan=False)


def decoded(text: str) -> Standings:
    """What was encoded.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is no JSON, or its values are no standings.
    """
    body = json.loads(text)
    return Standings(
        body["level"],
        {Key(*key): _decoded_line(line) for key, line in body["lines"]},
        tuple(_decoded_pair(pair) for pair in body["pairs"]),
        {metric: tuple(Key(*key) for key in keys) for metric, keys in body["leaders"].items()},
        {Key(*key): reason for key, reason in body["left_out"]},
    )


def _decoded_line(line: Mapping[str, Any]) -> LineStanding:
    metrics = {name: Standing(**_with_ranges(values)) for name, values in line["metrics"].items()}
    return LineStanding(**{**line, "metrics": metrics, "calibration": Range(**line["calibration"])})


def _decoded_pair(pair: Mapping[str, Any]) -> Pair:
    ranges = _with_ranges(pair)
    return Pair(**{**ranges, "first": Key(*pair["first"]), "second": Key(*pair["second"])})


def _with_ranges(values: Mapping[str, Any]) -> dict[str, Any]:
    ranges = {"fixed": Range(**values["fixed"]), "clustered": Range(**values["clustered"])}
    seeds = {"by_seed": tuple(values["by_seed"])} if "by_seed" in values else {}
    return {**values, **ranges, **seeds}
