"""Tables without files: rows with given metrics, and standings as tests would give them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import NormalDist
from typing import Any

from bench.api.early_stopping import TrainingStage
from bench.metrics import METRICS
from bench.metrics.summary import MetricSummary
from bench.report.competition import NEEDS_ORDER, displayed_value
from bench.report.grouping import Key
from bench.report.standings.compute import LineStanding, Pair, Standings
from bench.report.tables import formats
from bench.report.tables.build import build, table_views
from bench.report.tables.model import Table
from bench.results.row import ResultRow, Training
from bench.stats import TESTED, Estimate, Interval
from tests.kit.world import result_row

CUT_SHORT = Training((TrainingStage("", limit=10, taken=10, kept=10, epochs=2.04, cut_short=True),), 0.31, 0.52, 0.64)
"""Training of a method that was cut short, which is ranked nowhere."""
ERROR, CRITICAL = 0.005, 3.0
"""Standard error of planted differences, and the critical value of their test."""
_MEANS = {"ece": 0.08, "rmsce": 0.06, "brier": 0.15, "acc": 0.77, "aucpr": 0.88, "auroc": 0.85, "ece_floor": 0.02}
_NO_INTERVAL = Interval("clustered", reason="20 subjects are needed")


def render(tables: Sequence[Table], kind: str, *, width: int | None = None) -> str:
    return formats.render(table_views(tables), kind, width=width)


def scored(method: str = "ccps", /, **given: Any) -> ResultRow:
    """A result of 1,200 questions in 8 subjects, the same for all methods but for what is given by name.

    Given are metrics (None is undefined), fields of the row, and `n_undefined`: the subjects without AUCPR and AUROC. A
    result whose status is not ok has neither metrics nor subjects.
    """
    n_undefined = given.pop("n_undefined", 0)
    means = _MEANS | {name: given.pop(name) for name in METRICS if name in given}
    usual: dict[str, Any] = {
        "protocol": "0123456789abcdef", "n": 1200, "llm_accuracy": 0.6725, "n_unparsed": 3, "n_empty": 1,
        "n_shots_dropped": 0, "train_on": "atlas-choice:train",
    }  # fmt: skip
    if given.get("status", "ok") == "ok":
        usual["metrics"] = {
            name: MetricSummary(mean, None if mean is None else 0.02, mean, n_undefined * (name in {"aucpr", "auroc"}))
            for name, mean in means.items()
        }
        usual["per_subject"] = {f"subject {k}": {"n": 150.0} for k in range(8)}
    return result_row(method, **{**usual, **given})


@dataclass(frozen=True)
class Tests:
    """Computes standings from the means of rows: differences are tested as those of a normal distribution.

    Methods are ranked among those that were recalibrated alike and not cut short, if all their pairs have a test; by
    calibration, among those whose AUROC is above 50 %.
    """

    __test__ = False
    error: float = ERROR
    critical: float | None = CRITICAL
    """None if no difference of any size would be significant."""
    around: float = 0.03
    """Half the width of the interval of a mean."""
    constant: float = 0.25
    """Brier score of a constant confidence."""
    calibrated_p: float = 0.5
    labels: Mapping[str, int] = field(default_factory=dict)
    """Method -> number of its labels, where it isn't 0."""
    untested: Collection[frozenset[str]] = ()
    """Pairs of methods without a test."""
    reason: str = "a subject has one question"
    """Why they have none."""
    noisy: Collection[frozenset[str]] = ()
    """Pairs of methods whose test decides nothing."""

    def __call__(self, lines: Mapping[Key, Sequence[ResultRow]]) -> Standings:
        values = {
            key: {name: [row.metrics[name].pooled for row in rows] for name in rows[0].metrics}
            for key, runs in lines.items() if (rows := [row for row in runs if row.status == "ok"])
        }  # fmt: skip
        means: dict[Key, dict[str, float | None]] = {
            key: {n: METRICS[n].mean([v for v in seeds if v is not None]) for n, seeds in of.items()}
            for key, of in values.items()
        }
        cut = {key for key, runs in lines.items() if any(row.training and row.training.is_cut_short for row in runs)}
        constant = {key for key, of in means.items() if (of.get("auroc") or 1.0) - self.around <= 0.5}
        pairs = tuple(
            self._pair(name, first, second, displayed_value(name, a) - displayed_value(name, b))
            for name in TESTED
            for first, second in combinations(means, 2)
            if self._labels(first) == self._labels(second)
            if (a := means[first].get(name)) is not None and (b := means[second].get(name)) is not None
        )
        found = {
            key: LineStanding(
                self._labels(key),
                {n: self._estimate(mean, values[key][n]) for n in TESTED if (mean := of.get(n)) is not None},
                self.calibrated_p,
                {
                    name: rank for name in TESTED
                    if (rank := _rank(name, pairs, key, of, cut | (constant if name in NEEDS_ORDER else set())))
                },
                self.constant,
                beats_constant=(brier := of.get("brier")) is not None and brier + self.around < self.constant,
            )
            for key, of in means.items()
        }  # fmt: skip
        return Standings(0.95, found, pairs, {})

    def _labels(self, key: Key) -> int:
        return self.labels.get(key.method, 0)

    def _estimate(self, mean: float, seeds: Sequence[float | None]) -> Estimate:
        fixed = Interval("fixed-subjects", mean - self.around, mean + self.around, 0.95, "t")
        spread = 0.0123 if len(seeds) > 1 else None
        return Estimate(mean, fixed, _NO_INTERVAL, tuple(value for value in seeds if value is not None), spread, 0)

    def _pair(self, name: str, first: Key, second: Key, difference: float) -> Pair:
        methods = frozenset({first.method, second.method})
        if methods in self.untested:
            none = Interval("fixed-subjects", reason=self.reason)
            return Pair(name, first, second, difference, none, _NO_INTERVAL, None, None)
        half = 1.96 * self.error
        fixed = Interval("fixed-subjects", difference - half, difference + half, 0.95, "t")
        p = 2 * NormalDist().cdf(-abs(difference) / self.error)
        is_sure = self.critical is not None and abs(difference) > self.critical * self.error
        corrected = 0.01 if is_sure and methods not in self.noisy else 0.5
        return Pair(
            name, first, second, difference, fixed, _NO_INTERVAL, p, max(p, corrected), self.error, self.critical
        )


def _rank(
    name: str, pairs: Sequence[Pair], key: Key, means: Mapping[str, float | None], out: Collection[Key]
) -> int | None:
    """Rank among the lines that were recalibrated alike and are not out; None where a pair has no test."""
    block = [
        pair for pair in pairs if pair.metric == name and not {pair.first, pair.second} & {*out}
        and pair.first.recalibration == pair.second.recalibration == key.recalibration
    ]  # fmt: skip
    if key in out or means.get(name) is None or any(pair.p is None for pair in block):
        return None
    return 1 + sum(pair.winner(0.05) not in {None, key} for pair in block if key in {pair.first, pair.second})


def planted(means: Mapping[str, Any], *, rows: Mapping[str, Mapping[str, Any]] | None = None, **tests: Any) -> Table:
    """A table of methods with these Brier scores, or metrics by name, as `Tests` with these options finds them.

    Args:
        means: method -> Brier score or metrics.
        rows: method -> further fields of its row.
        tests: fields of `Tests`.
    """
    own = {method: of if isinstance(of, Mapping) else {"brier": of} for method, of in means.items()}
    cells = [scored(method, **{**of, **(rows or {}).get(method, {})}) for method, of in own.items()]
    (table,) = build(cells, standings_of=Tests(**tests))
    return table
