"""Data of a figure: the methods' values by model and task.

Methods that were not run on a model and task have an empty line there. A line is one method over its seeds. Example:
`build_figure_data(tables).column("tiny", "atlas-oe")[0].estimate("auroc").mean`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.api import UserError
from bench.metrics import METRICS
from bench.report.competition import NOT_TESTED, displayed_value
from bench.report.grouping import Key, common_corpus, tuning_budget
from bench.report.style import Style
from bench.report.tables.legend import LEADS
from bench.report.tables.model import Line, Table
from bench.report.text import count, omitted_subjects, plain, range_text, setting_text
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow

RecordsOf = Callable[[ResultRow], QuestionRecords]
"""Function from a result row (metrics of one method and seed) to its answers and confidences, question by question.

Example: `bench.results.files.read_records`, called with the row's path.
"""
PLACES_NAMED = 2
"""Maximum number of pairs of model and task that a note lists by name. If there are more, the note only counts them."""


@dataclass(frozen=True)
class FigureData:
    """Tables of a figure, and the methods, models and tasks that occur in any of them."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    methods: tuple[Line, ...]
    """Methods (with their settings) in the order of the legend, each as a line of a table without results."""
    tables: Mapping[tuple[str, str], Table]
    """(model, task) -> table."""

    @property
    def model(self) -> str:
        """Name of the model.

        Raises:
            ValueError: the figure has several models.
        """
        return _only(self.models, "model")

    @property
    def where(self) -> str:
        """Words for the title of the figure: the model, and also the task if there is only one."""
        return f"{self.model} on {self.tasks[0]}" if len(self.tasks) == 1 else self.model

    @property
    def single(self) -> tuple[str, str, Table]:
        """Model, task and table of a figure that has only one table.

        Raises:
            ValueError: the figure has several models or tasks.
        """
        place = self.model, _only(self.tasks, "task")
        return *place, self.tables[place]

    @property
    def level(self) -> float | None:
        """Confidence level of the intervals, e.g. 0.95; None if no intervals were computed."""
        return next((table.standings.level for table in self.tables.values() if table.standings), None)

    def column(self, model: str, task: str) -> list[Line]:
        """Return a line for each method on a model and task, in the order of `methods`.

        Methods that were not run there have an empty line.
        """
        by_key = {line.key: line for line in self.sorted_column(model, task)}
        return [by_key[method.key] for method in self.methods]

    def sorted_column(self, model: str, task: str) -> list[Line]:
        """Return a line for each method on a model and task, in the order of the table.

        Methods that were not run there have an empty line at the end.
        """
        table = self.tables.get((model, task))
        lines = table.lines if table else ()
        present = {line.key for line in lines}
        return [*lines, *(method for method in self.methods if method.key not in present)]

    def leaders(self, model: str, task: str) -> tuple[Line, ...]:
        """Return the leading methods on a model and task, the best mean first: no other method is significantly better.

        Empty if no tests were computed.
        """
        table = self.tables.get((model, task))
        return table.leaders() if table else ()

    @property
    def lines(self) -> list[Line]:
        """Lines of all methods on all models and tasks; a method that was not run somewhere has an empty line there."""
        return [line for model in self.models for task in self.tasks for line in self.column(model, task)]

    @property
    def legend(self) -> list[tuple[str, Style]]:
        """Entries of the legend: name and style (colour, marker, dash) of each method."""
        return [(method.key.label, method.style) for method in self.methods]

    @property
    def n_seeds(self) -> int:
        """Number of seeds of the line that has most of them; seeds without a result do not count."""
        return max((len(line.ok_rows) for line in self.lines), default=0)

    def whisker(self, line: Line, metric: str) -> tuple[float, float] | None:
        """Return the ends of a method's whisker in a metric, clipped to the metric's bounds; None if there is none.

        A whisker is the interval for other questions of the same subjects. If no intervals were computed, it is the
        mean ± the standard deviation over subjects.
        """
        estimate = line.estimate(metric)
        ends = estimate.ends
        if self.level is None:
            if estimate.mean is None or estimate.std is None:
                return None
            ends = estimate.mean - estimate.std, estimate.mean + estimate.std
        low, high = (displayed_value(metric, end) for end in METRICS[metric].bounds)
        return None if ends is None else (max(low, ends[0]), min(high, ends[1]))

    def on_whiskers(self, metrics: Sequence[str]) -> str:
        """Return the sentence of the note that explains whiskers, and counts the means without one."""
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

    def note(self, *what: str, metrics: Sequence[str] = ()) -> str:
        """Build the note below a figure: how to read it, sample sizes, settings, and what is left out.

        Args:
            what: sentences about how to read the figure; empty ones are skipped.
            metrics: metrics for which the note says how many subjects were left out of a mean, as they have no value.
        """
        lines = [line for line in self.lines if line.ok_rows]
        rows = [row for line in lines for row in line.ok_rows]
        basis = [f"n {range_text((row.n for row in rows if row.n is not None), count)}"]
        subjects = [len(row.per_subject) for row in rows if row.per_subject]
        if subjects:
            basis[0] += f" in {range_text(subjects, count)} subject{'s' * (max(subjects) > 1)}"
        if presets := sorted({row.preset for row in rows if not row.is_audit}):
            basis.append(f"preset{'s' * (len(presets) > 1)} {', '.join(presets)}")
        limits = sorted({row.limit for row in rows if row.limit is not None})
        if limits:
            basis.append(f"partial: --limit {', '.join(map(str, limits))}")
        limits_of_training = {setting_text(row.config["train_limit"]) for row in rows if "train_limit" in row.config}
        basis += [f"--train-limit {', '.join(sorted(limits_of_training))}"] if limits_of_training else []
        if self.n_seeds > 1:
            basis.append(f"{range_text({len(line.ok_rows) for line in lines}, count)} seeds")
        basis += [f"tuned over {n} configurations" for n in sorted({tuning_budget(row) for row in rows} - {0})]
        corpora = {common_corpus(table.all_rows) or "the tasks' own labels" for table in self.tables.values()}
        basis += [f"learned on {' or '.join(sorted(corpora))}"] * (corpora != {"the tasks' own labels"})
        sources = {row.answers_source for row in rows if not row.is_audit}
        basis += [f"answers: {' or '.join(sorted(sources))}"] * bool(sources - {"generate"})
        deviations = sorted({f"{name}={setting_text(value)}" for row in rows for name, value in row.deviations.items()})
        if deviations:
            basis.append(f"deviations {', '.join(deviations)}")
        undefined = {name: [line.estimate(name).n_undefined for line in lines] for name in metrics}
        left_out = [
            f"{omitted_subjects(METRICS[name].label, counts)}." for name, counts in undefined.items() if any(counts)
        ]
        parts = dict.fromkeys(table.figure for table in self.tables.values())
        return " ".join(filter(None, [*what, f"{'; '.join(basis)}.", *left_out, self._gaps(), *parts]))

    def _gaps(self) -> str:
        """Return a sentence that lists methods, tasks and seeds without a result, with their status; empty if none."""
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
    """Collect tables, one for each model and task, for a figure.

    Raises:
        UserError: no method has a result, or two tables are of one model and task.
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
                f"results of {plain(place[0])} on {plain(place[1])} have different --limit, --train-on, --answers,"
                " --think-budget or protocol, which don't belong in one figure; draw them from folders of their own"
            )
        by_place[place] = table
    methods = {line.key: replace(line, rows=(), estimates={}, notes=(), standing=None) for line in lines}
    return FigureData(
        models=tuple(sorted({model for model, _ in by_place})),
        tasks=tuple(sorted({task for _, task in by_place})),
        methods=tuple(sorted(methods.values(), key=lambda line: line.place)),
        tables=by_place,
    )


def table_id(table: Table) -> tuple[str, str]:
    """Return model and task as they are stored in results, for file names.

    `Table.model` and `Table.task` may differ, as unprintable characters are replaced there.
    """
    row = table.rows[0]
    return row.model, row.task


def unranked_reasons(table: Table, column: Sequence[Line], metric: str | None = None) -> dict[Key, str]:
    """Return, for each method that has results but no rank, the reason why it has none; empty if nothing was tested.

    Ranks are those by `metric`, or by default by the headline metric.
    """
    reasons = {}
    for line in column:
        competition = table.competition(metric, line.key.recalibration)
        reason = competition.excluded.get(line.key, "")
        if line.ok_rows and reason and (competition.ranked or reason != NOT_TESTED):
            reasons[line.key] = reason
    return reasons


def unranked_note(table: Table, column: Sequence[Line], so: str = "", metric: str | None = None) -> str:
    """Return a sentence that lists methods with results but without a rank, and the reasons; empty if there are none.

    `so` is put behind "Not ranked", e.g. ", so hollow". Ranks are those by `metric`, or by default by the headline
    metric.
    """
    by_reason: dict[str, list[str]] = defaultdict(list)
    for key, why in unranked_reasons(table, column, metric).items():
        by_reason[why].append(key.label)
    named = "; ".join(f"{', '.join(labels)} ({why})" for why, labels in by_reason.items())
    return f"Not ranked{so}: {named}." if named else ""


def leaders_first(lines: Sequence[Line], leading: Sequence[Key]) -> list[Line]:
    """Return the lines with the leading methods first, in the order of `leading`; the other lines keep their order."""
    return sorted(lines, key=lambda line: leading.index(line.key) if line.key in leading else len(leading))


def mark_leaders(column: Sequence[Line], leading: Sequence[Line]) -> list[str]:
    """Return the names of the methods in `column`; the names of those in `leading` begin with the leader's sign."""
    keys = {line.key for line in leading}
    return [f"{LEADS} {line.key.label}" if line.key in keys else line.key.label for line in column]
