"""The comparison table, from which page, figures and all output formats are made: Table, Line, MetricValue.

Built by `bench.report.tables.build.build`. Example: `table.lines[0].estimate("brier").mean`.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from bench.metrics import METRICS
from bench.metrics.summary import Average
from bench.report.averages import mean_of
from bench.report.competition import Best, Competition, badness, displayed_value, rank, ranked_by
from bench.report.grouping import Key
from bench.report.standings.compute import ROUNDING, LineStanding, Standings
from bench.report.style import Style
from bench.report.tables.published import Published
from bench.report.text import plain
from bench.results.row import LabelsSeen, ResultRow, Status, Training
from bench.stats import Estimate

COLUMNS = ("ece", "rmsce", "brier", "acc", "aucpr", "auroc")
"""Metrics that tables show by default: the paper's, in its order, and after ECE the one that ranks calibration."""
HEADLINE = "brier"
"""Default metric by which lines are sorted and ranked."""
CALIBRATED = 0.05
"""Least p value at which an ECE can't be distinguished from that of a calibrated method."""
GROUPS = ("paper", "untrained", "trained")
"""Groups of methods, in table order."""


@dataclass(frozen=True)
class MetricValue:
    """One metric of one line, as fractions (`nll` in nats): means over seeds.

    The value of a seed is that of all questions, or the mean over subjects, see `Table.average`.
    """

    mean: float | None = None
    """Mean of the metric over seeds; None if it is undefined or was not computed."""
    std: float | None = None
    """Standard deviation over subjects, mean over seeds."""
    by_seed: tuple[float, ...] = ()
    """Value of each seed, in order; seeds where the metric is undefined are left out."""
    n_undefined: int = 0
    """Number of subjects that a mean over subjects leaves out, of the seed with the most."""
    best: Best | None = None
    """What the tests say of the value as the best of its group; None if it is not the best."""
    standing: Estimate | None = None
    """Intervals of the metric; None if standings were not computed."""
    notes: tuple[str, ...] = ()
    """Footnotes at the value."""

    @property
    def half(self) -> float | None:
        """Half the width of the metric's 95 % interval for these subjects; see `Interval.half`."""
        return self.standing.fixed.half(self.mean) if self.standing else None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Ends of the metric's interval for these subjects and other questions; None if there is no interval."""
        return self.standing.fixed.ends if self.standing else None

    @property
    def spread(self) -> float | None:
        """Standard deviation (ddof 1) between seeds, 0 if it is only rounding; None with one seed."""
        std = statistics.stdev(self.by_seed) if len(self.by_seed) > 1 else None
        spread = self.standing.spread if self.standing else std
        return 0.0 if spread is not None and spread < ROUNDING else spread


@dataclass(frozen=True)
class Line:
    """One method of a table, with one set of settings; its rows are its seeds."""

    key: Key
    style: Style
    """Colour, marker and dash."""
    place: tuple[str, int, str, str]
    """Sort key of lines in figures and legends."""
    group: str = "paper"
    """Group of the method: one of `GROUPS`."""
    rows: tuple[ResultRow, ...] = ()
    """Rows, one for each seed, ascending; empty if the method was not run on this model and task."""
    estimates: Mapping[str, MetricValue] = field(default_factory=dict)
    """Values by metric; empty if the line's status isn't ok."""
    notes: tuple[str, ...] = ()
    """Footnotes at the name of the method."""
    standing: LineStanding | None = None
    """Ranks and the test of calibration; None if they were not computed."""

    @property
    def method(self) -> str:
        """Name of the method, as one line of printable text."""
        return plain(self.key.method)

    @property
    def variant(self) -> str:
        """Settings in which the line differs from others of the table, as printable text; usually empty."""
        return plain(self.key.variant)

    @property
    def part(self) -> tuple[str, int]:
        """Part of the table in which the line stands: recalibration, and index of the group in `GROUPS`."""
        return self.key.recalibration, GROUPS.index(self.group)

    @cached_property
    def ok_rows(self) -> tuple[ResultRow, ...]:
        """Rows of the seeds that are ok, whose mean is shown."""
        return tuple(row for row in self.rows if row.status == "ok")

    @property
    def has_confidences(self) -> bool:
        """Whether every ok seed has confidences, not only an order; False without ok seeds."""
        return bool(self.ok_rows) and not any(row.is_order_alone for row in self.ok_rows)

    @property
    def not_ok_rows(self) -> tuple[ResultRow, ...]:
        """Rows of the seeds that are not ok."""
        return tuple(row for row in self.rows if row.status != "ok")

    @property
    def status(self) -> Status | Literal["not run"]:
        """`ok` if at least one seed is ok, else the status of the first seed, or `not run` without seeds."""
        if self.ok_rows:
            return "ok"
        return self.rows[0].status if self.rows else "not run"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds that are ok."""
        return tuple(row.seed for row in self.ok_rows)

    @property
    def n_runs(self) -> int:
        """Number of all seeds, those not ok included."""
        return len(self.rows)

    @property
    def n(self) -> int | None:
        """Number of questions; None if unknown."""
        return next((row.n for row in (*self.ok_rows, *self.rows) if row.n is not None), None)

    @property
    def labels(self) -> tuple[LabelsSeen, ...]:
        """Labels that the method learned from; several if seeds differ, empty if the status isn't ok."""
        return tuple(dict.fromkeys(row.labels_seen for row in self.ok_rows))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why seeds are not ok."""
        several = self.n_runs > 1
        reasons = (
            f"{row.status}{f' (seed {row.seed})' if several else ''}: {row.reason or 'no reason given'}"
            for row in self.not_ok_rows
        )
        return unique(reasons)

    @property
    def training(self) -> tuple[Training, ...]:
        """Training of each seed that is ok and was trained."""
        return tuple(row.training for row in self.ok_rows if row.training)

    @property
    def base_rate(self) -> float | None:
        """Share of right answers in training, mean over seeds; None if the method learned from no answers."""
        return mean_of(row.base_rate for row in self.ok_rows)

    @property
    def parameters(self) -> tuple[float, ...]:
        """Number of trained parameters, by seed, where known."""
        return _not_none(row.n_parameters for row in self.ok_rows)

    @property
    def tokens(self) -> tuple[float, ...]:
        """Token positions fed to the model in passes for this method alone, by seed, where known."""
        return _not_none(row.forward_tokens_alone for row in self.ok_rows)

    @property
    def generated(self) -> tuple[float, ...]:
        """Tokens generated for this method alone, each in a decoding step, by seed, where known."""
        return _not_none(row.generated_tokens_alone for row in self.ok_rows)

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of the method's own stages, by seed, where known."""
        return _not_none(sum(row.timings.values()) if row.timings else None for row in self.ok_rows)

    @property
    def is_calibrated(self) -> bool:
        """Whether the line's ECE can't be distinguished from that of a calibrated method."""
        return self.standing is not None and self.standing.calibrated_p >= CALIBRATED

    @property
    def orders_answers(self) -> bool:
        """Whether the line's AUROC is above 50 % beyond chance, see `LineStanding`; True without a standing."""
        return self.standing is None or bool(self.standing.orders_answers)

    @property
    def is_worse_than_constant(self) -> bool:
        """Whether the line's Brier score is no better than that of a constant confidence; False if unknown."""
        return self.standing is not None and self.standing.worse_than_constant

    def estimate(self, metric: str) -> MetricValue:
        """Return a metric's value in this line; its mean is None if it was not computed."""
        return self.estimates.get(metric, _UNKNOWN)

    def rank(self, metric: str) -> int | None:
        """Return 1 plus the number of ranked methods that are significantly better; None without a rank.

        The rank by ECE is that by `rmsce`.
        """
        return self.standing.ranks.get(ranked_by(metric)) if self.standing else None

    def badness(self, metric: str) -> float | None:
        """Return the number by which lines are sorted by a metric, less is better; None if undefined."""
        mean = self.estimate(ranked_by(metric)).mean
        return None if mean is None else badness(ranked_by(metric), mean)

    def in_subject(self, subject: str, metric: str) -> float | None:
        """Return a metric in one subject, mean over seeds; None if it is undefined there."""
        mean = METRICS[metric].mean(_not_none(row.per_subject.get(subject, {}).get(metric) for row in self.ok_rows))
        return None if mean is None else displayed_value(metric, mean)

    def not_run(self) -> Line:
        """Return this method as a line without rows."""
        return replace(self, rows=(), estimates={}, notes=(), standing=None)


@dataclass(frozen=True)
class Table:
    """A comparison table: all methods on one model and task."""

    model: str
    task: str
    preset: str
    task_version: int
    facts: tuple[str, ...]
    """Caption: a title, then sentences."""
    lines: tuple[Line, ...]
    """Lines shown, sorted by part, then the best mean of the headline metric first; lines without one come last."""
    standings: Standings | None = None
    """Intervals, tests and ranks; None if they were not requested."""
    published: Mapping[tuple[str, str], Published] | None = None
    """Published numbers for this model and task, by method and metric; None if they were not requested."""
    headline: str = HEADLINE
    """Metric that lines are ordered and ranked by."""
    metrics: tuple[str, ...] | None = None
    """Requested metrics in order; None for the default, `COLUMNS`."""
    others: tuple[Line, ...] = ()
    """Hidden lines, which count in ranks, marks and tests."""
    remarks: tuple[str, ...] = ()
    """Footnotes of the table that belong to no cell."""
    average: Average = "questions"
    """What metrics average over."""
    too_few: str = ""
    """Warning that the table has few answers; see `caption.too_few`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Metrics to show."""
        return COLUMNS if self.metrics is None else self.metrics

    @property
    def ordered_lines(self) -> tuple[Line, ...]:
        """Lines in the order in which figures and legends list them."""
        return tuple(sorted(self.lines, key=lambda line: line.place))

    @property
    def rows(self) -> list[ResultRow]:
        """Result rows of all lines shown."""
        return [row for line in self.ordered_lines for row in line.rows]

    @property
    def answers_source(self) -> str:
        """`answers_source` of the table's results, e.g. `generate`; it is the same for all."""
        return next(row.answers_source for line in (*self.lines, *self.others) for row in line.rows)

    @property
    def head(self) -> dict[str, Any]:
        """Fields with which each CSV or JSON record of the table begins."""
        names = ("model", "task", "preset", "answers_source", "average")
        return {name: getattr(self, name) for name in names}

    @property
    def caption(self) -> str:
        """The facts as one text."""
        return ". ".join((self.facts[0], " ".join(self.facts[1:])))

    def cell(self, method: str, metric: str) -> Published | None:
        """Return the published number of a method and metric; None if not requested or not published."""
        return (self.published or {}).get((method, metric))

    def difference(self, line: Line, metric: str) -> float | None:
        """Return the measured mean minus the published one; None if one of them is missing."""
        mean, cell = line.estimate(metric).mean, self.cell(line.method, metric)
        return None if mean is None or cell is None else mean - cell.mean

    def competition(self, metric: str | None = None, recalibration: str | None = None) -> Competition:
        """Rank all lines of one recalibration, hidden ones included, see `competition.rank`.

        Args:
            metric: name in `bench.metrics.METRICS`; the headline metric by default.
            recalibration: recalibration of the lines to rank; by default that of the first block.
        """
        return rank((*self.lines, *self.others), self.standings, metric or self.headline, recalibration)

    def leaders(self, metric: str | None = None) -> tuple[Line, ...]:
        """Return the leading group by a metric, the best mean first; see `Competition.leaders`."""
        return self.competition(metric).leaders

    def ordered_by(self, metric: str) -> Table:
        """Return the table sorted by this headline metric."""

        def place(line: Line) -> tuple[tuple[str, int], bool, float, tuple[str, int, str, str]]:
            value = line.badness(metric)
            return line.part, value is None, value or 0.0, line.place

        return replace(self, headline=metric, lines=tuple(sorted(self.lines, key=place)))

    def with_lines(self, keys: Collection[Key]) -> Table:
        """Return the table with only these lines shown; the others are hidden, but still count in ranks and marks."""
        others = (*self.others, *(line for line in self.lines if line.key not in keys))
        return replace(self, lines=tuple(line for line in self.lines if line.key in keys), others=others)

    def with_hidden_lines(self) -> Table:
        """Return the table with its hidden lines shown."""
        if not self.others:
            return self
        return replace(self, lines=(*self.lines, *self.others), others=()).ordered_by(self.headline)

    def not_run(self, method: str) -> str:
        """Return the message that a method was not run on this model and task."""
        return f"{plain(method)} was not run with {self.model} on {self.task}"


_UNKNOWN = MetricValue()


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct texts, each as one printable line."""
    return tuple(dict.fromkeys(map(plain, texts)))


def one_line_per_method(tables: Sequence[Table]) -> list[Line]:
    """Return one line for each method of the tables, in the order of figures and legends."""
    by_method = {line.key.method: line for table in tables for line in table.lines}
    return sorted(by_method.values(), key=lambda line: line.place)


def _not_none(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)
