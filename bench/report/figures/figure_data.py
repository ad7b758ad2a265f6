"""Data of a figure: lines of tables by model and task, with empty lines for methods that were not run.

Example: `build_figure_data(tables).column("tiny", "atlas-oe")[0].estimate("auroc").mean`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.api import UserError
from bench.metrics import METRICS
from bench.report.competition import NOT_TESTED, displayed_value
from bench.report.grouping import Key, tuning_budget
from bench.report.style import Style
from bench.report.tables.legend import LEADS
from bench.report.tables.model import Line, Table
from bench.report.text import count, omitted_subjects, plain, range_text, setting_text
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow

RecordsOf = Callable[[ResultRow], QuestionRecords]
"""Returns the records of a result row, e.g. by `bench.results.files.read_records`: one result, question by question."""
PLACES_NAMED = 2
"""Maximum number of cells (model and task) that a note names; more are only counted."""


@dataclass(frozen=True)
class FigureData:
    """Tables of a figure, with all their methods, models and tasks."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    methods: tuple[Line, ...]
    """For each method and settings a line without rows, in the order in which figures list them."""
    tables: Mapping[tuple[str, str], Table]
    """Tables by model and task."""

    @property
    def model(self) -> str:
        """The only model of the figure.

        Raises:
            ValueError: the figure has several models.
        """
        return _only(self.models, "model")

    @property
    def where(self) -> str:
        """Name of the model, and of the task if there is only one, for titles."""
        return f"{self.model} on {self.tasks[0]}" if len(self.tasks) == 1 else self.model

    @property
    def single(self) -> tuple[str, str, Table]:
        """Model, task and table of a figure with one table.

        Raises:
            ValueError: the figure has several models or tasks.
        """
        place = self.model, _only(self.tasks, "task")
        return *place, self.tables[place]

    @property
    def level(self) -> float | None:
        """Level of the intervals, e.g. 0.95; None if no intervals were computed."""
        return next((table.standings.level for table in self.tables.values() if table.standings), None)

    def column(self, model: str, task: str) -> list[Line]:
        """Return the lines of all methods on a model and task, in the order of `methods`, also of those not run."""
        by_key = {line.key: line for line in self.sorted_column(model, task)}
        return [by_key[method.key] for method in self.methods]

    def sorted_column(self, model: str, task: str) -> list[Line]:
        """Return the lines of all methods on a model and task, in the order of the table; those not run come last."""
        table = self.tables.get((model, task))
        lines = table.lines if table else ()
        present = {line.key for line in lines}
        return [*lines, *(method for method in self.methods if method.key not in present)]

    def leaders(self, model: str, task: str) -> tuple[Line, ...]:
        """Return the leaders of a table, the best mean first; empty without tests."""
        table = self.tables.get((model, task))
        return table.leaders() if table else ()

    @property
    def lines(self) -> list[Line]:
        """Lines of all methods on all models and tasks, also of those not run."""
        return [line for model in self.models for task in self.tasks for line in self.column(model, task)]

    @property
    def legend(self) -> list[tuple[str, Style]]:
        """Label and style of each method."""
        return [(method.key.label, method.style) for method in self.methods]

    @property
    def n_seeds(self) -> int:
        """Number of ok seeds of the line that has most."""
        return max((len(line.ok_rows) for line in self.lines), default=0)

    def whisker(self, line: Line, metric: str) -> tuple[float, float] | None:
        """Return the ends of a line's whisker, clipped to the metric's bounds; None if it has none.

        A whisker is the interval for these subjects and other questions; if the tables have no intervals, it is mean ±
        standard deviation over subjects.
        """
        estimate = line.estimate(metric)
        ends = estimate.ends
        if self.level is None:
            results = [(row, row.metrics[metric]) for row in line.ok_rows if metric in row.metrics]
            known = min((len(row.per_subject) - summary.n_undefined for row, summary in results), default=0)
            if estimate.mean is None or estimate.std is None or known < 2:  # noqa: PLR2004 - spread of one
                return None
            ends = estimate.mean - estimate.std, estimate.mean + estimate.std
        low, high = (displayed_value(metric, end) for end in METRICS[metric].bounds)
        return None if ends is None else (max(low, ends[0]), min(high, ends[1]))

    def on_whiskers(self, metrics: Sequence[str]) -> str:
        """Return the sentence for the note on what whiskers are, and on how many means lack one."""
        shown = [(line, metric) for line in self.lines for metric in metrics if line.estimate(metric).mean is not None]
        lacking = [self.whisker(line, metric) is None for line, metric in shown]
        if self.level is not None:
            kind = f"{100 * self.level:g} % intervals for other questions of these subjects"
        elif all(lacking):
            kind = "none, as there is neither an interval nor a second subject"
        else:
            kind = "standard deviation over subjects, as there are no intervals"
        none_for = f"; none for {sum(lacking)} of the means" if any(lacking) and not all(lacking) else ""
        return f"Whiskers: {kind}{none_for}."

    def note(self, *what: str, metrics: Sequence[str] = (), remark: str = "") -> str:
        """Build the note below a figure: what is drawn, sample sizes and settings, and what is left out.

        Args:
            what: sentences about how to read the figure; empty ones are left out.
            metrics: metrics for which the note counts the subjects that means leave out as undefined.
            remark: last sentence of the note.
        """
        lines = [line for line in self.lines if line.ok_rows]
        rows = [row for line in lines for row in line.ok_rows]
        basis = [f"n {range_text((row.n for row in rows if row.n is not None), count)}"]
        subjects = [len(row.per_subject) for row in rows if row.per_subject]
        if subjects:
            basis[0] += f" in {range_text(subjects, count)} subject{'s' * (max(subjects) > 1)}"
        presets = sorted({row.preset for row in rows})
        basis.append(f"preset{'s' * (len(presets) > 1)} {', '.join(presets)}")
        limits = sorted({row.limit for row in rows if row.limit is not None})
        if limits:
            basis.append(f"partial: --limit {', '.join(map(str, limits))}")
        if self.n_seeds > 1:
            basis.append(f"{range_text({len(line.ok_rows) for line in lines}, count)} seeds")
        basis += [f"tuned over {n} configurations" for n in sorted({tuning_budget(row) for row in rows} - {0})]
        deviations = sorted({f"{name}={setting_text(value)}" for row in rows for name, value in row.deviations.items()})
        if deviations:
            basis.append(f"deviations {', '.join(deviations)}")
        undefined = {name: [line.estimate(name).n_undefined for line in lines] for name in metrics}
        left_out = [
            f"{omitted_subjects(METRICS[name].label, counts)}." for name, counts in undefined.items() if any(counts)
        ]
        return " ".join(filter(None, [*what, f"{'; '.join(basis)}.", *left_out, self._gaps(), remark]))

    def _gaps(self) -> str:
        """Return a sentence that lists cells and seeds without a number, with their status; empty if there are none."""
        gaps: dict[tuple[str, str], list[str]] = defaultdict(list)
        for model in self.models:
            for task in self.tasks:
                place = " and ".join([model] * (len(self.models) > 1) + [task] * (len(self.tasks) > 1))
                for line in self.column(model, task):
                    states = [f"{row.status}{f' with seed {row.seed}' * (line.n_runs > 1)}" for row in line.not_ok_rows]
                    for state in states if line.rows else [line.status]:
                        gaps[line.key.label, state].append(place)
        by_gaps: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
        for (label, state), places in gaps.items():
            by_gaps[state, tuple(places)].append(label)
        total, parts = len(self.models) * len(self.tasks), []
        for (state, missing_places), labels in by_gaps.items():
            where = f" on {', '.join(missing_places)}"
            if len(missing_places) > PLACES_NAMED:
                where = " everywhere" if len(missing_places) == total else f" in {len(missing_places)} of {total} cells"
            named = "all methods" if len(labels) == len(self.methods) else ", ".join(labels)
            parts.append(f"{named}: {state}{where * (total > 1)}")
        return f"Left out: {'; '.join(parts)} (reasons: tables)." if parts else ""


def _only(values: Sequence[str], kind: str) -> str:
    if len(values) != 1:
        raise ValueError(f"expected the tables of one {kind}, got those of {', '.join(values)}")
    return values[0]


def build_figure_data(tables: Sequence[Table]) -> FigureData:
    """Collect tables, one per model and task, for a figure.

    Raises:
        UserError: no line is ok, or a model and task have two tables.
    """
    lines = [line for table in tables for line in table.lines]
    if not any(line.ok_rows for line in lines):
        n = sum(line.n_runs for line in lines)
        raise UserError(f"none of the {n} results is ok, so there is nothing to draw; see the table for reasons")
    by_place: dict[tuple[str, str], Table] = {}
    for table in tables:
        place = table_id(table)
        if place in by_place:
            raise UserError(
                f"results of {plain(place[0])} on {plain(place[1])} have different --limit or protocol, which don't"
                " belong in one figure; draw one of them"
            )
        by_place[place] = table
    methods = {line.key: line.not_run() for line in lines}
    return FigureData(
        models=tuple(sorted({model for model, _ in by_place})),
        tasks=tuple(sorted({task for _, task in by_place})),
        methods=tuple(sorted(methods.values(), key=lambda line: line.place)),
        tables=by_place,
    )


def table_id(table: Table) -> tuple[str, str]:
    """Return model and task as result rows have them, for file names; `Table.model` and `task` are made printable."""
    row = table.rows[0]
    return row.model, row.task


def unranked_reasons(table: Table, column: Sequence[Line]) -> dict[Key, str]:
    """Map lines with results but without a rank to the reason; empty without tests."""
    reasons = {}
    for line in column:
        competition = table.competition(recalibration=line.key.recalibration)
        reason = competition.excluded.get(line.key, "")
        if line.ok_rows and reason and (competition.ranked or reason != NOT_TESTED):
            reasons[line.key] = reason
    return reasons


def unranked_note(table: Table, column: Sequence[Line], so: str = "") -> str:
    """Return a sentence that lists lines with results but without a rank, and why; empty if there are none."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for key, why in unranked_reasons(table, column).items():
        by_reason[why].append(key.label)
    named = "; ".join(f"{', '.join(labels)} ({why})" for why, labels in by_reason.items())
    return f"Not ranked{so}: {named}." if named else ""


def leaders_first(lines: Sequence[Line], leading: Sequence[Key]) -> list[Line]:
    """Sort the leaders before all others, which keep their order."""
    return sorted(lines, key=lambda line: leading.index(line.key) if line.key in leading else len(leading))


def mark_leaders(column: Sequence[Line], leading: Sequence[Line]) -> list[str]:
    """Return the labels of lines; those of leaders begin with the sign of a leader."""
    keys = {line.key for line in leading}
    return [f"{LEADS} {line.key.label}" if line.key in keys else line.key.label for line in column]
