"""Compute the standings of one table (means, intervals, tests and ranks) from the Parquet files of its results.

A line is a method with one set of settings. Lines are compared only if they have the same answers and labels for every
question. Example: `standings.lines[Key("ccps", "")].metrics["brier"].fixed.low`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench import stats
from bench.api import UserError
from bench.report.competition import CHANCE, NEEDS_ORDER, badness
from bench.report.grouping import Key
from bench.results.files import read_records
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.stats import Comparison, Estimate, Settings
from bench.stats.holm import with_holm
from bench.stats.intervals import NO_SPREAD

_ORDER_ALONE = "its scores are no probabilities: no interval, no rank, never best"
_SEEDS_DIFFER = "its seeds rest on different answers or labels: no interval, no rank, never best"
ROUNDING = 1e-12
K = TypeVar("K")


@dataclass(frozen=True)
class LineStanding:
    """Statistics of one line of a table, i.e. of one method with its settings, over its seeds."""

    labels: int
    """Index of the line's group: lines of one group have the same answers and labels. Group 0 has the most lines. Of
    groups of equal size, the group with the most questions comes first."""
    metrics: Mapping[str, Estimate]
    """Metric name -> mean of the metric over seeds, with intervals."""
    calibrated_p: float
    """P value of the test of perfect calibration."""
    ranks: Mapping[str, int]
    """Metric name -> rank of the line among lines with the same answers, labels and recalibration: 1 plus the number of
    significantly better ones, and at least the rank of each line with a better mean. A metric without
    tests has no rank, and a line whose training was cut short has no ranks. By a metric of `NEEDS_ORDER`, only lines
    with an AUROC above chance are ranked."""
    constant: float = 0.25
    """Brier score of giving every answer the same confidence, `constant_confidence`."""
    constant_confidence: float = 0.5
    """Share of right answers in the training data. A line without training data takes the share of the line of its
    group that read most labels; if no line has such data, it is the share of the answers that are judged."""
    beats_constant: bool = False
    """Whether the Brier score is significantly better than `constant`, paired by question. The lines that are ranked
    together are tested together (Holm), one that was cut short alone."""

    @property
    def orders_answers(self) -> bool | None:
        """Whether the AUROC is significantly above 50 %; None if that is unknown.

        It is unknown if the AUROC is undefined, or if it is above 50 % but has no interval. An AUROC of 100 % of enough
        answers has none, but is known to be above 50 %.
        """
        return _is_above_chance(self.metrics.get("auroc"))

    @property
    def unordered(self) -> str:
        """Why the line's AUROC excludes it from rankings by a metric of `NEEDS_ORDER`; empty if it does not."""
        if self.orders_answers:
            return ""
        auroc = self.metrics.get("auroc")
        if self.orders_answers is None:
            reason = "AUROC is undefined" if auroc is None or auroc.value is None else auroc.fixed.reason
            return f"whether answers are ordered can't be told, as {reason}"
        if auroc and auroc.fixed.high is not None and auroc.fixed.high < CHANCE:
            return "AUROC below 50 % beyond chance: wrong answers have the higher confidences"
        return "AUROC not above 50 % beyond chance"

    @property
    def worse_than_constant(self) -> bool:
        """Whether the Brier score is at least `constant`, that of a constant confidence; False if it is undefined."""
        brier = self.metrics.get("brier")
        return brier is not None and brier.value is not None and brier.value > self.constant - ROUNDING


Pair = Comparison[Key]
"""Comparison of two lines (methods) on the same questions by one metric. By a metric of `NEEDS_ORDER`, the corrected p
value is missing if the better line can't be ranked, as its AUROC is not above chance."""


@dataclass(frozen=True)
class Standings:
    """Statistics of the lines (methods) of one table, and of pairs of lines."""

    level: float
    """Confidence level of all intervals; tests have the significance level 1 - `level`."""
    lines: Mapping[Key, LineStanding]
    pairs: tuple[Pair, ...]
    left_out: Mapping[Key, str]
    """Lines (methods) without statistics, each mapped to the reason."""

    @cached_property
    def beaten(self) -> Mapping[tuple[str, Key], frozenset[Key]]:
        """(metric, line) -> the lines that are significantly worse than this line by this metric."""
        beaten: dict[tuple[str, Key], frozenset[Key]] = {}
        for pair in self.pairs:
            if (decided := pair.decided(1 - self.level)) is not None:
                better, worse = decided
                beaten[pair.metric, better] = beaten.get((pair.metric, better), frozenset()) | {worse}
        return beaten


# --- computing --------------------------------------------------------------------------------------------------------


def compute_standings(files: Mapping[Key, Sequence[tuple[ResultRow, Path]]], settings: Settings) -> Standings:
    """Compute the standings (means, intervals, tests and ranks) of the lines of one table; a line is a method.

    Args:
        files: line -> rows that are ok, with their Parquet files.
        settings: settings of intervals and tests.

    Raises:
        UserError: a file is damaged; the message names it.
    """
    return standings_of(
        {key: [(row, _sort_by_id(read_records(path), path)) for row, path in runs] for key, runs in files.items()},
        settings,
    )


def standings_of(results: Mapping[Key, Sequence[tuple[ResultRow, QuestionRecords]]], settings: Settings) -> Standings:
    """Compute the standings of the lines of one table from rows that are ok, with their records sorted by id."""
    records = {key: [run for _, run in runs] for key, runs in results.items()}
    left_out = {key: _SEEDS_DIFFER for key, runs in records.items() if len({run.labels for run in runs}) > 1}
    left_out |= {key: _ORDER_ALONE for key, runs in records.items() if any(run.probabilities is None for run in runs)}
    base_rates = {key: [row.base_rate for row, _ in runs if row.base_rate is not None] for key, runs in results.items()}
    short = {key for key, runs in results.items() if any(row.training and row.training.is_cut_short for row, _ in runs)}
    lines: dict[Key, LineStanding] = {}
    pairs: list[Pair] = []
    by_labels: dict[object, list[Key]] = {}
    for key in (key for key in records if key not in left_out):
        by_labels.setdefault(records[key][0].labels, []).append(key)
    # the group with most lines first, then that with most questions
    groups = sorted(by_labels.values(), key=lambda group: (len(group), len(records[group[0]][0].id)), reverse=True)
    for group_index, group in enumerate(groups):
        taught = max(group, key=lambda key: (bool(base_rates[key]), sum(astuple(results[key][0][0].labels_seen))))
        first, default = records[group[0]][0], base_rates[taught]
        # in `summary` a line's name is its index in the group, as methods and settings may contain any separator
        confidence = {str(i): np.stack([run.confidence for run in records[key]]) for i, key in enumerate(group)}
        score = {
            str(i): np.stack([run.ranking_values for run in records[k]])
            for i, k in enumerate(group)
            if all(run.score is not None for run in records[k])
        }
        # lines are ranked among those with the same recalibration, without cut-short ones: a recalibrated method and
        # its original would share each first place
        by_recalibration: dict[str, list[str]] = {}
        for i, key in enumerate(group):
            if key not in short:
                by_recalibration.setdefault(key.recalibration, []).append(str(i))
        blocks = list(by_recalibration.values())
        numbers = stats.summary(confidence, first.correct, first.subject, settings, blocks, score)
        above_chance = {name for name, method in numbers.methods.items() if _is_above_chance(method.estimates["auroc"])}
        alpha, ranked, compared = 1 - settings.level, dict(numbers.ranks), dict(numbers.comparisons)
        for metric in NEEDS_ORDER:
            ordered = [[name for name in block if name in above_chance] for block in blocks]
            by_block = [stats.ranks(block, compared[metric], alpha=alpha) for block in ordered]
            ranked[metric] = {name: rank for block in by_block for name, rank in block.items()}
            compared[metric] = tuple(withhold(compared[metric], above_chance, alpha))
        for metric, by_name in ranked.items():
            ranked[metric] = rising = dict(by_name)
            loss = {n: badness(metric, numbers.methods[n].estimates[metric].value or 0.0) for n in by_name}
            for block in ([n for n in block if n in by_name] for block in blocks):
                for name in block:  # the better mean has no larger rank, though a smaller difference may be significant
                    rising[name] = max(by_name[n] for n in block if n == name or loss[n] < loss[name] - ROUNDING)
        sampling = stats.Sampling.of(numbers.strata, first.correct, settings.average)
        rates = [float(np.mean(base_rates[key] or default or first.correct)) for key in group]
        against_constant = {}
        for i, rate in enumerate(rates):
            # the share may be that of these very answers: as it has the least loss, its own error moves that loss by
            # terms of second order alone, and the influence of the loss p (1 - p) is (1 - 2 p) (correct - p) either way
            brier = {
                who: stats.mean_over_seeds(
                    stats.influence("brier", p, p, first.correct, numbers.strata, settings.average) for p in runs
                )
                for who, runs in (("method", confidence[str(i)]), ("constant", np.full((1, first.correct.size), rate)))
            }
            (pair,) = stats.compare("brier", brier, sampling, [], settings)
            against_constant[str(i)] = pair, brier["constant"]
        beaten = set[str]()
        alone = ([str(i)] for i, key in enumerate(group) if key in short)
        for block in (*blocks, *alone):  # the best of many methods is judged, so they are corrected together
            tests = with_holm([against_constant[name][0] for name in block], "p_corrected")
            beaten |= {name for name, pair in zip(block, tests, strict=True) if pair.winner(alpha) == "method"}
        for i, key in enumerate(group):
            method, constant = numbers.methods[str(i)], against_constant[str(i)][1]
            lines[key] = LineStanding(
                labels=group_index,
                metrics=method.estimates,
                calibrated_p=method.calibrated_p,
                ranks={metric: by_name[str(i)] for metric, by_name in ranked.items() if str(i) in by_name},
                constant=constant.value if constant else 0.0,
                constant_confidence=rates[i],
                beats_constant=str(i) in beaten,
            )
        pairs += [
            replace(pair, first=group[int(pair.first)], second=group[int(pair.second)])  # type: ignore[arg-type,misc]
            for pairs_of_metric in compared.values()
            for pair in pairs_of_metric
        ]
    return Standings(settings.level, {key: lines[key] for key in records if key in lines}, tuple(pairs), left_out)


def compare_on_shared(
    runs: Mapping[Key, Sequence[QuestionRecords]], tests: Sequence[tuple[str, Sequence[Key]]], settings: Settings
) -> tuple[int, list[Pair]]:
    """Compare lines that have answers of their own, on the questions that all of them share; return their number, too.

    Args:
        runs: line -> its records, one for each seed, sorted by id.
        tests: metric, and the lines to compare with each other by it.
        settings: settings of intervals and tests.
    """
    shared = set.intersection(*(set(run.id) for own in runs.values() for run in own))
    if not shared:
        return 0, []
    taken = {key: [run.take(np.flatnonzero([i in shared for i in run.id])) for run in own] for key, own in runs.items()}
    average, pairs = settings.average, list[Pair]()
    plans = {k: stats.Sampling.of(stats.strata_of(run.subject), run.correct, average) for k, (run, *_) in taken.items()}
    for metric, keys in tests:
        influences = {
            key: stats.mean_over_seeds(
                stats.influence(metric, run.confidence, run.ranking_values, run.correct, plans[key].strata, average)
                for run in taken[key]
            )
            for key in keys
        }
        few = {key for key in keys if plans[key].no_interval_reason(metric)}
        # a line with too few right or wrong answers leaves the others their test
        blocks = [key for key in keys if key not in few], *(pair for pair in combinations(keys, 2) if few & {*pair})
        for block in filter(None, blocks):
            rarest = min((plans[key] for key in block), key=lambda of: min(of.correct.sum(), (~of.correct).sum()))
            pairs += stats.compare(metric, {key: influences[key] for key in block}, rarest, [block], settings)
    return len(shared), pairs


def withhold(pairs: Iterable[Comparison[K]], ordered: Collection[K], alpha: float) -> Iterator[Comparison[K]]:
    """Yield pairs, without corrected p value if the winner, by a metric of `NEEDS_ORDER`, is none of `ordered`."""
    for pair in pairs:
        is_told = pair.metric not in NEEDS_ORDER or pair.winner(alpha) in {None, *ordered}
        yield pair if is_told else replace(pair, p_corrected=None)


def _is_above_chance(auroc: Estimate | None) -> bool | None:
    if auroc is None or auroc.value is None:
        return None
    # of 20 right and 20 wrong answers all right ones come first by chance once in 10^11
    if auroc.fixed.reason == NO_SPREAD and auroc.value > 1 - ROUNDING:
        return True
    if auroc.fixed.low is None and auroc.value > CHANCE + ROUNDING:
        return None
    return (auroc.fixed.low or auroc.value) > CHANCE + ROUNDING


def _sort_by_id(records: QuestionRecords, path: Path) -> QuestionRecords:
    """Sort the records of a result by question id, so that the records of two results can be compared row by row.

    Raises:
        UserError: there is no question, or a question occurs twice.
    """
    records = records.by_id()
    twice = next((one for one, other in pairwise(records.id) if one == other), None)
    if twice is not None or not records.id:
        problem = "no question" if twice is None else f"id {twice!r} twice"
        raise UserError(f"result {path}: expected each question once, got {problem}; run that cell again")
    return records
