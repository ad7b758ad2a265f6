"""Draw figures of results one at a time, without writing files: `results.figures.reliability(task="atlas-choice")`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.metrics import METRICS
from bench.report import figures
from bench.report.figures.drawing import use_style
from bench.report.figures.figure_data import RecordsOf, table_id
from bench.report.figures.wins import has_matrix
from bench.report.figures.write import MOST_COMPARED, MOST_METHODS, MOST_MODELS, MOST_TASKS
from bench.report.tables.choice import refuse_unknown
from bench.report.tables.model import COLUMNS, Table
from bench.report.text import join
from bench.results.files import recalibration_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Names = str | Iterable[str]
_MODEL_AND_TASK = ("model", "task")
_PIXELS_PER_INCH = 144
"""Pixels per inch at which a notebook shows a figure; the PNG image itself has a higher resolution."""


@dataclass(frozen=True, eq=False, repr=False)
class Figures:
    """Draws figures of comparison tables as matplotlib figures, which a notebook shows and `savefig` writes.

    Options `model`, `task` and `methods` take one name or several, and select what is drawn. Recalibrated methods, e.g.
    `ccps+isotonic`, are drawn if they are named, or if there are no other methods.
    """

    _tables: Sequence[Table]
    _records_of: RecordsOf

    def reliability(self, *, model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw the reliability diagrams of one model, with a panel for each method and task."""
        return self._draw(partial(figures.reliability, records_of=self._records_of), model, task, methods)

    def overview(self, *, model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw reliability curves: each panel shows one model and task, with a curve for each method."""
        draw = partial(figures.reliability_overview, records_of=self._records_of)
        return self._draw(draw, model, task, methods, one=())

    def risk_coverage(self, *, model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw risk-coverage curves of one model: the share of wrong answers among the most confident answers."""
        return self._draw(partial(figures.risk_coverage, records_of=self._records_of), model, task, methods)

    def confidence(self, *, model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw histograms of the confidences of right answers and of wrong answers, for one model."""
        return self._draw(partial(figures.confidence_histograms, records_of=self._records_of), model, task, methods)

    def metrics(self, *, metrics: Names = COLUMNS, model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw metrics of each method with their intervals, for one model."""
        names = _split_names(metrics)
        for name in names:
            refuse_unknown("metrics", "metric", name, METRICS)
        draw = partial(figures.metric_intervals, metrics=names)
        return self._draw(draw, model, task, methods, most=MOST_COMPARED)

    def subjects(self, *, metric: str = "auroc", model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw how far each method is from the leading method by a metric, in every subject of one task."""
        refuse_unknown("metric", "metric", metric, METRICS)
        return self._draw(
            partial(figures.subject_differences, metric=metric), model, task, methods, one=_MODEL_AND_TASK
        )

    def cost(self, *, model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw the quality of methods against their costs, for one model and task."""
        return self._draw(figures.cost_quality, model, task, methods, one=_MODEL_AND_TASK, most=MOST_COMPARED)

    def forest(self, *, model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw the difference of each method to the best method, with its interval, for one model and task."""
        return self._draw(figures.differences_to_best, model, task, methods, one=_MODEL_AND_TASK, most=MOST_COMPARED)

    def wins(self, *, model: Names = (), task: Names = (), methods: Names = ()) -> Figure:
        """Draw a matrix that shows which method is significantly better than which, for one model and task."""
        return self._draw(figures.win_matrix, model, task, methods, one=_MODEL_AND_TASK, most=MOST_COMPARED)

    def _draw(
        self, draw: Callable[[Sequence[Table]], Figure], model: Names, task: Names, methods: Names,
        *, one: Sequence[str] = ("model",), most: int = MOST_METHODS,
    ) -> Figure:  # fmt: skip
        """Draw a figure of the selected tables, with a PNG representation for notebooks.

        Args:
            draw: function that draws tables.
            model: requested models; empty for all.
            task: requested tasks; empty for all.
            methods: requested methods; empty for all that are not recalibrated.
            one: `model`, `task` or both, if the figure has room for only one model or task.
            most: maximum number of methods on the figure.

        Raises:
            UserError: an unknown name, nothing to draw, or more than fits on the figure.
        """
        tables = self._chosen(model, task, methods)
        values = {
            kind: list(dict.fromkeys(table_id(table)[i] for table in tables)) for i, kind in enumerate(_MODEL_AND_TASK)
        }
        for kind in one:
            if len(values[kind]) > 1:
                raise UserError(
                    f"this figure shows one {kind}, and there are {join(values[kind])}; choose one:"
                    f" {kind}={values[kind][0]!r}"
                )
        keys = {line.key for table in tables for line in table.lines}
        for kind, names, limit, option in (
            ("models", values["model"], MOST_MODELS, "model"), ("tasks", values["task"], MOST_TASKS, "task"),
            ("methods", keys, most, "methods"),
        ):  # fmt: skip
            if len(names) > limit:
                raise UserError(f"one figure has room for {limit} {kind}, got {len(names)}; choose some: {option}=...")
        if draw in {figures.differences_to_best, figures.win_matrix} and not has_matrix(tables[0]):
            raise UserError("no two of these methods were tested against each other, so there is nothing to draw")
        figure = draw(tables)
        figure.__class__ = _png_figure_class()  # notebooks show it without matplotlib's inline backend
        return figure

    def _chosen(self, model: Names, task: Names, methods: Names) -> list[Table]:
        """Return the tables of the requested models and tasks, with the lines of the requested methods."""
        models, tasks, requested = _split_names(model), _split_names(task), _split_names(methods)
        tables = list(self._tables)
        for kind, names, number in (("model", models, 0), ("task", tasks, 1)):
            for name in names:
                refuse_unknown(kind, kind, name, {table_id(table)[number] for table in self._tables}, of="result of ")
            tables = [table for table in tables if not names or table_id(table)[number] in names]
        known = {line.key.method for table in tables for line in table.lines}
        for name in requested:
            refuse_unknown("methods", "method", name, known, of="result of ")
        not_recalibrated = {name for name in known if not recalibration_of(name)} or known
        shown = (
            table.with_lines({line.key for line in table.lines if line.key.method in (requested or not_recalibrated)})
            for table in tables
        )
        selected = [table for table in shown if table.lines]
        if not selected:
            raise UserError(f"no result of {join(models)} on {join(tasks)} with these methods to draw")
        return selected


def _split_names(names: Names) -> tuple[str, ...]:
    texts = [names] if isinstance(names, str) else names
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


@cache
def _png_figure_class() -> type[Figure]:
    from matplotlib.figure import Figure as Base

    class Figure(Base):
        """A figure that notebooks show as PNG, with the matplotlib settings of all figures of this package."""

        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            stream = io.BytesIO()
            with use_style():
                self.savefig(stream, format="png")
            width, height = (round(inches * _PIXELS_PER_INCH) for inches in self.get_size_inches())
            return stream.getvalue(), {"width": width, "height": height}

    return Figure
