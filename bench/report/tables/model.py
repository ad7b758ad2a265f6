"""The comparison table, from which page, figures and all output formats are made: Table, Line, MetricValue.

A line is a method. Tables are built by `bench.report.tables.build.build`. Example:
`table.lines[0].estimate("brier").mean`.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from bench.metrics import METRICS
from bench.metrics.summary import Average
from bench.report.competition import Best, Competition, badness, displayed_value, rank, ranked_by
from bench.report.grouping import Key, common_corpus, tuning_budget
from bench.report.standings.compute import ROUNDING, LineStanding, Standings
from bench.report.style import Style
from bench.report.tables.published import Published
from bench.report.text import mean_of, plain
from bench.results.row import LabelsSeen, ResultRow, Status, Training
from bench.stats import Estimate, Overconfidence

COLUMNS = ("ece", "rmsce", "brier", "acc", "aucpr", "auroc")
"""Metrics that tables show by default: those of the paper, in its order, and RMSCE, which ranks calibration."""
HEADLINE = "brier"
"""Default metric by which lines are sorted and ranked."""
CALIBRATED = 0.05
"""Least p value, in the test of calibration, of a method that counts as calibrated."""


@dataclass(frozen=True)
class MetricValue:
    """One metric of one method, as mean over seeds, in fractions (`nll` in nats).

    For each seed, the metric is computed over all questions, or as mean over subjects; `Table.average` says which.
    """

    mean: float | None = None
    """Mean of the metric over seeds; None if it is undefined or was not computed.

    Of RMSCE it is the root of the mean square, and 0 if that would be negative.
    """
    std: float | None = None
    """Standard deviation of the metric over subjects, as mean over seeds."""
    by_seed: tuple[float, ...] = ()
    """Value of the metric for each seed, in the order of seeds; seeds with an undefined metric are left out.

    A negative RMSCE is given as 0.
    """
    n_undefined: int = 0
    """Number of subjects that a mean over subjects leaves out, as the metric is undefined there; maximum over seeds."""
    best: Best | None = None
    """If this mean is the best of its group: `beyond chance`, `not beyond chance` or `not tested`; else None."""
    standing: Estimate | None = None
    """Mean of the metric with its intervals; None if intervals were not computed."""
    notes: tuple[str, ...] = ()
    """Footnotes behind the value."""

    @property
    def half(self) -> float | None:
        """Distance from the mean to the farther end of its 95 % interval, for other questions of the same subjects.

        None if there is no interval.
        """
        return self.standing.fixed.half(self.mean) if self.standing else None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Ends of the metric's 95 % interval for other questions of the same subjects; None if there is no interval."""
        return self.standing.fixed.ends if self.standing else None

    @property
    def spread(self) -> float | None:
        """Standard deviation (ddof 1) of the metric between seeds; None with one seed.

        It is 0 if values differ only by rounding.
        """
        std = statistics.stdev(self.by_seed) if len(self.by_seed) > 1 else None
        spread = self.standing.spread if self.standing else std
        return 0.0 if spread is not None and spread < ROUNDING else spread


@dataclass(frozen=True)
class Line:
    """Line of a table: one method with one set of settings, and its result rows, one per seed."""

    key: Key
    style: Style
    """Colour, marker and dash of the method in figures."""
    place: tuple[str, int, str, str]
    """Sort key of the method in figures and legends."""
    group: str = "paper"
    """Group of the method: `paper`, `untrained` or `trained`."""
    rows: tuple[ResultRow, ...] = ()
    """Result rows of the method, one for each seed, ascending; empty if it was not run on this model and task."""
    estimates: Mapping[str, MetricValue] = field(default_factory=dict)
    """Metric name -> value of the metric; empty if no seed is ok."""
    notes: tuple[str, ...] = ()
    """Footnotes behind the name of the method."""
    standing: LineStanding | None = None
    """Intervals, ranks and the test of calibration of this method; None if they were not computed.

    They are not computed for methods without an ok seed, and for those in `Standings.left_out`.
    """

    @property
    def method(self) -> str:
        """Name of the method, as one line of printable text."""
        return plain(self.key.method)

    @property
    def variant(self) -> str:
        """Settings in which this line of the table differs from its other lines, as printable text; usually empty."""
        return plain(self.key.variant)

    @cached_property
    def ok_rows(self) -> tuple[ResultRow, ...]:
        """Result rows of the seeds whose status is ok; tables show means over these seeds."""
        return tuple(row for row in self.rows if row.status == "ok")

    @property
    def has_confidences(self) -> bool:
        """Whether every ok seed has confidences, not only scores that order answers; False if no seed is ok."""
        return bool(self.ok_rows) and not any(row.is_order_alone for row in self.ok_rows)

    @property
    def not_ok_rows(self) -> tuple[ResultRow, ...]:
        """Result rows of the seeds that failed or were skipped."""
        return tuple(row for row in self.rows if row.status != "ok")

    @property
    def status(self) -> Status | Literal["not run"]:
        """Status of the method: `ok` if at least one seed is ok, else that of the first seed.

        A method without seeds has the status `not run`.
        """
        if self.ok_rows:
            return "ok"
        return self.rows[0].status if self.rows else "not run"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds whose status is ok."""
        return tuple(row.seed for row in self.ok_rows)

    @property
    def n_runs(self) -> int:
        """Number of all seeds, including those that failed or were skipped."""
        return len(self.rows)

    @property
    def n(self) -> int | None:
        """Number of tested questions; None if unknown."""
        return next((row.n for row in (*self.ok_rows, *self.rows) if row.n is not None), None)

    @property
    def labels(self) -> tuple[LabelsSeen, ...]:
        """Numbers of labels that the method learned from; several if seeds differ, empty if no seed is ok."""
        return tuple(dict.fromkeys(row.labels_seen for row in self.ok_rows))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why seeds failed or were skipped."""
        several = self.n_runs > 1
        reasons = (
            f"{row.status}{f' (seed {row.seed})' if several else ''}: {row.reason or 'no reason given'}"
            for row in self.not_ok_rows
        )
        return unique(reasons)

    @property
    def training(self) -> tuple[Training, ...]:
        """Record of training of each seed that is ok and was trained."""
        return tuple(row.training for row in self.ok_rows if row.training)

    @property
    def base_rate(self) -> float | None:
        """Share of right answers in the training data, as mean over seeds; None for an untrained method."""
        return mean_of(row.base_rate for row in self.ok_rows)

    @property
    def parameters(self) -> tuple[float, ...]:
        """Number of trained parameters of each seed for which it is known."""
        return _not_none(row.n_parameters for row in self.ok_rows)

    @property
    def tokens(self) -> tuple[float, ...]:
        """Token positions fed to the model for this method alone, for each seed for which they are known."""
        return _not_none(row.forward_tokens_alone for row in self.ok_rows)

    @property
    def generated(self) -> tuple[float, ...]:
        """Number of tokens generated for this method alone, for each seed for which it is known."""
        return _not_none(row.generated_tokens_alone for row in self.ok_rows)

    @property
    def answer_tokens(self) -> tuple[float, float] | None:
        """Tokens read and generated for a tested answer once the method is fitted, as means; None if unknown."""
        read = mean_of(_not_none(row.test_forward_tokens for row in self.ok_rows))
        written = mean_of(_not_none(row.test_generated_tokens for row in self.ok_rows))
        return None if read is None or not self.n else (read / self.n, (written or 0.0) / self.n)

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds that the method's own stages took, for each seed for which they are known."""
        return _not_none(sum(row.timings.values()) if row.timings else None for row in self.ok_rows)

    @property
    def is_calibrated(self) -> bool:
        """Whether the method's ECE can't be distinguished from that of a calibrated method; False if not tested."""
        return self.standing is not None and self.standing.calibrated_p >= CALIBRATED

    @property
    def orders_answers(self) -> bool:
        """Whether the method's AUROC is significantly above 50 %; True if tests were not computed."""
        return self.standing is None or bool(self.standing.orders_answers)

    @property
    def is_worse_than_constant(self) -> bool:
        """Whether the Brier score is no better than that of a constant confidence; False if tests were not computed."""
        return self.standing is not None and self.standing.worse_than_constant

    def estimate(self, metric: str) -> MetricValue:
        """Return a metric's value for this method; its mean is None if the metric was not computed."""
        return self.estimates.get(metric, _UNKNOWN)

    def rank(self, metric: str) -> int | None:
        """Return the rank by a metric: 1 plus the number of ranked methods that are significantly better.

        None if this method is not ranked. The rank by ECE is that by `rmsce`.
        """
        return self.standing.ranks.get(ranked_by(metric)) if self.standing else None

    def badness(self, metric: str) -> float | None:
        """Return the number by which tables sort this method by a metric: less is better; None if undefined.

        ECE sorts methods as `rmsce` does.
        """
        mean = self.estimate(ranked_by(metric)).mean
        return None if mean is None else badness(ranked_by(metric), mean)

    def in_subject(self, subject: str, metric: str) -> float | None:
        """Return a metric on the questions of one subject, as mean over seeds; None if it is undefined there."""
        mean = METRICS[metric].mean(_not_none(row.per_subject.get(subject, {}).get(metric) for row in self.ok_rows))
        return None if mean is None else displayed_value(metric, mean)


@dataclass(frozen=True)
class Table:
    """A comparison table: all methods on one model and task."""

    model: str
    task: str
    preset: str
    task_version: int
    facts: tuple[str, ...]
    """Caption of the table: a title, then sentences."""
    lines: tuple[Line, ...]
    """Lines (methods) that the table shows. They are sorted by block, then by the mean of the headline metric, the
    best first; lines without a mean come last in their block."""
    warnings: Mapping[str, str]
    """Name in `caption.WARNINGS` -> why the numbers of the table say little or nothing; empty if they don't."""
    standings: Standings | None = None
    """Intervals, tests and ranks of the methods; None if they were not requested."""
    published: Mapping[tuple[str, str], Published] | None = None
    """(method, metric) -> published number on this model and task; None if published numbers were not requested."""
    headline: str = HEADLINE
    """Metric that lines are ordered and ranked by."""
    metrics: tuple[str, ...] | None = None
    """Requested metrics, in the order of columns; None for the default, `COLUMNS`."""
    others: tuple[Line, ...] = ()
    """Lines (methods) that a selection hides; they still count in ranks, marks and tests."""
    remarks: tuple[str, ...] = ()
    """Footnotes of the table that belong to no cell."""
    average: Average = "questions"
    """Whether metrics are pooled over `questions` or averaged over `subjects`."""
    figure: str = ""
    """Which of several figures shows it, e.g. `Figure 2 of 3.`, the last sentence of the figure's note; else empty."""
    overconfidence: Mapping[Key, Overconfidence] = field(default_factory=dict)
    """In an audit: by how much each line's mean confidence exceeds the share of right answers."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Metrics that the table shows, in the order of columns."""
        return COLUMNS if self.metrics is None else self.metrics

    @property
    def ordered_lines(self) -> tuple[Line, ...]:
        """Lines (methods) that the table shows, in the order of figures and legends."""
        return tuple(sorted(self.lines, key=lambda line: line.place))

    @property
    def rows(self) -> list[ResultRow]:
        """Result rows of all lines (methods) that the table shows."""
        return [row for line in self.ordered_lines for row in line.rows]

    @property
    def all_rows(self) -> list[ResultRow]:
        """Result rows of all lines (methods), also of hidden ones: by these a table is told from others."""
        return [row for line in (*self.lines, *self.others) for row in line.rows]

    @property
    def answers_source(self) -> str:
        """Where the answers of all results of the table come from, e.g. `generate` if the runs generated them."""
        return self.all_rows[0].answers_source

    @property
    def is_audit(self) -> bool:
        """Whether confidences come from a file of `bench audit`; then nothing is said of labels, tokens or costs."""
        return any(row.is_audit for row in self.all_rows[:1])

    @property
    def head(self) -> dict[str, Any]:
        """Fields with which each CSV or JSON record of the table begins; they tell it from tables of the same task."""
        rows = self.all_rows
        return {
            "model": self.model, "task": self.task, "preset": self.preset, "limit": rows[0].limit,
            "answers_source": self.answers_source, "learned_on": plain(common_corpus(rows)),
            "tuned": tuning_budget(rows[0]), "average": self.average,
        }  # fmt: skip

    @property
    def caption(self) -> str:
        """Title and sentences of the caption as one text."""
        return ". ".join((self.facts[0], " ".join(self.facts[1:])))

    def cell(self, method: str, metric: str) -> Published | None:
        """Return the published number of a method and metric; None if it was not published or not requested."""
        return (self.published or {}).get((method, metric))

    def difference(self, line: Line, metric: str) -> float | None:
        """Return a method's measured mean of a metric minus the published one; None if either is missing."""
        mean, cell = line.estimate(metric).mean, self.cell(line.method, metric)
        return None if mean is None or cell is None else mean - cell.mean

    def competition(self, metric: str | None = None, recalibration: str | None = None) -> Competition:
        """Rank all methods with one recalibration by a metric, including hidden methods; see `competition.rank`.

        Args:
            metric: name in `bench.metrics.METRICS`; the headline metric by default.
            recalibration: recalibration of the methods to rank; an empty string stands for none. By default it is that
                of the table's first block.
        """
        return rank((*self.lines, *self.others), self.standings, metric or self.headline, recalibration)

    def competitions(self, metric: str | None = None) -> list[Competition]:
        """Rank the methods of each recalibration by a metric; those without recalibration come first."""
        kinds = sorted({line.key.recalibration for line in (*self.lines, *self.others)})
        return [self.competition(metric, kind) for kind in kinds]

    def leaders(self, metric: str | None = None) -> tuple[Line, ...]:
        """Return the methods that lead by a metric, the best mean first; see `Competition.leaders`."""
        return self.competition(metric).leaders

    def ordered_by(self, metric: str) -> Table:
        """Return the table sorted by this metric, which becomes the headline metric."""

        def place(line: Line) -> tuple[str, bool, float, tuple[str, int, str, str]]:
            value = line.badness(metric)
            return line.key.recalibration, value is None, value or 0.0, line.place

        return replace(self, headline=metric, lines=tuple(sorted(self.lines, key=place)))

    def with_lines(self, keys: Collection[Key]) -> Table:
        """Return the table with only these lines (methods) shown.

        The other lines are hidden, but still count in ranks and marks.
        """
        others = (*self.others, *(line for line in self.lines if line.key not in keys))
        return replace(self, lines=tuple(line for line in self.lines if line.key in keys), others=others)

    def with_hidden_lines(self) -> Table:
        """Return the table with its hidden lines (methods) shown."""
        if not self.others:
            return self
        return replace(self, lines=(*self.lines, *self.others), others=()).ordered_by(self.headline)

    def no_result_of(self, method: str) -> str:
        """Return the message that this table has no result of a method; another one of the model and task may."""
        return f"{plain(method)} has no result in the table of {self.facts[0]}"


_UNKNOWN = MetricValue()


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct texts, each as one printable line."""
    return tuple(dict.fromkeys(map(plain, texts)))


def one_line_per_method(tables: Sequence[Table]) -> list[Line]:
    """Return one line for each method of the tables, in the order of figures and legends.

    A method that several tables have is represented by its line in one of them.
    """
    by_method = {line.key.method: line for table in tables for line in table.lines}
    return sorted(by_method.values(), key=lambda line: line.place)


def _not_none(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)
