"""`Results`: the results of a folder, or of one run, as data frames, tables, verdicts and figures."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.api.options import from_keywords
from bench.report import recomputed, write
from bench.report.figures.figure_data import RecordsOf
from bench.report.notebook import frames
from bench.report.notebook.figures import Figures
from bench.report.notebook.shown import Page, Sentences, ShownTable
from bench.report.selection import ReportRequest, Selection, View
from bench.report.tables import comparison
from bench.report.tables.caption import distinguishing_labels
from bench.report.tables.choice import apply_selection, refuse_unknown_metrics
from bench.report.tables.model import Table
from bench.report.tables.request import tables_of, views_of
from bench.report.text import join
from bench.report.verdict import verdict_of
from bench.results import cells, files, question_texts
from bench.results.row import ResultRow

if TYPE_CHECKING:
    from pandas import DataFrame

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """Result rows and the tables made of them; rows of cells that failed or were skipped are included.

    A cell is one method with one seed, on one model and task.
    """

    selection: Selection
    """Results folder, and which of its results are shown."""
    rows: tuple[ResultRow, ...]
    """One result row for each cell: a method on a model and task with one seed."""
    notes: tuple[str, ...] = ()
    """Sentences on what a reader must know about the results, e.g. that some are not shown."""
    plan: tuple[str, ...] = ()
    """Plan of the run, in lines of text; empty for results that were loaded from a folder."""
    paths: tuple[Path, ...] = ()
    """Files that the run has written; empty for results that were loaded from a folder."""
    whole: tuple[Table, ...] = field(default=(), repr=False)
    """Tables with all methods, before a selection of methods. Marks, ranks and tests take all methods into account."""
    records: RecordsOf | None = field(default=None, repr=False)
    """Returns the values per question of a result; None for those of Parquet files in the results folder."""

    @classmethod
    def load(cls, selection: Selection, cache: Path | None, say: Say) -> Results:
        """Load the results of a folder.

        Args:
            selection: results folder, and which of its results are shown.
            cache: folder that caches intervals and tests; None disables the cache.
            say: called with a message before a long computation.

        Raises:
            UserError: nothing to show, an unknown metric, a model, task or method without result, or a malformed
                result.
        """
        refuse_unknown_metrics(selection)
        notes = cells.skipped_notes(selection.results, partial=selection.partial)
        rows = recomputed.read_recomputed(selection.results, cache, partial=selection.partial, say=say)
        results = cls.from_rows(selection, cache, rows, say)
        apply_selection(results.whole, selection)  # raises if a requested method has no result
        shown = [row for table in results.tables for row in table.rows]
        return replace(results, rows=tuple(shown), notes=tuple(notes))

    @classmethod
    def from_rows(cls, selection: Selection, cache: Path | None, rows: Sequence[ResultRow], say: Say) -> Results:
        """Return the results that a run has just written to the selection's folder.

        Args:
            selection: results folder, and which of its results are shown.
            cache: folder that caches intervals and tests; None disables the cache.
            rows: result rows of the run.
            say: called with a message before a long computation.
        """
        unfiltered = replace(selection, methods=(), metrics=(), headline=None)
        return cls(selection, tuple(rows), whole=tuple(tables_of(unfiltered, cache, say, rows)))

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.selection.results

    @property
    def failed(self) -> bool:
        """Whether at least one cell (a method with one seed) failed."""
        return any(row.status == "failed" for row in self.rows)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """Tables with the requested methods and metrics, one for each model and task."""
        return tuple(self._chosen(self.selection))

    # --- numbers ------------------------------------------------------------------------------------------------------

    def frame(self) -> DataFrame:
        """Return a data frame with a row for each model, task, method, seed and metric.

        `bench.report.notebook.frames.long` describes the columns.
        """
        return frames.long(self.tables)

    def wide(self) -> DataFrame:
        """Return a data frame with a row for each model, task and method, and a column for each metric.

        Without requested metrics, only the default ones have a column. `bench.report.notebook.frames.wide` describes
        the columns.
        """
        return frames.wide(self.tables)

    def questions(self, *, text: bool = True) -> DataFrame:
        """Return a data frame with a row for each model, task, method, seed and question.

        Columns are e.g. confidence, correct, answer and subject. `score` is missing for methods without scores, and
        `text` and `gold` are missing if the run did not store them. A cell (method and seed) that failed or was skipped
        has one row without a question, with status and reason. To get a row per question and a column per method,
        select one model, task, `learned_on`, `tuned`, answers_source and seed, and call
        `.pivot(index="id", columns="method", values="confidence")`.

        Args:
            text: whether to add the questions' texts and right answers.

        Raises:
            UserError: a file of a result is missing or malformed.
        """

        @functools.cache
        def texts(task: str, version: int) -> Mapping[str, question_texts.QuestionText]:
            return question_texts.read(self.folder, task, version) if text else {}

        frame = frames.questions(self.tables, self._records, texts)
        return frame if text else frame.drop(columns=["text", "gold"])

    def compare(self, *methods: str) -> DataFrame:
        """Return a data frame of paired differences between methods on the same questions, with intervals and tests.

        The frame has a row for each pair of methods and each metric. `frame.attrs["missing"]` lists the reasons why
        methods are in no pair.

        Args:
            methods: names of two or more methods.

        Raises:
            UserError: fewer than two names, a repeated or unknown name, or a metric without a test.
        """
        names = [part.strip() for name in methods for part in name.split(",") if part.strip()]
        tables = self._chosen(replace(self.selection, methods=()))
        views = comparison.build(tables, names)
        frame = frames.pairs(views.records())
        frame.attrs["missing"] = [reason for data in views.data() for reason in data["missing"]]
        return frame

    # --- words and pictures -------------------------------------------------------------------------------------------

    def table(self, **options: object) -> ShownTable:
        """Return the comparison table, as `bench table` prints it.

        Args:
            options: `methods` and `metrics` to show, and `sort`, the metric to sort and rank by. `stats=True` adds
                intervals, spreads and training, and `against="paper"` the published numbers (means over subjects).
                `compare="ccps,lts"` shows paired differences. By default options are as given when results were
                loaded.

        Raises:
            UserError: an unknown option or name, options that exclude each other or are chosen when results are loaded,
                or `against` for results that were loaded without `average`.
        """
        field_names = {"sort": "headline", "method": "methods"}  # option of the command line -> field
        replaced = {field_names.get(name, name) for name in options}
        loaded = {name: value for name, value in vars(self.selection).items() if name not in replaced}
        view = from_keywords(View, {**loaded, **options}, "table()")
        for name in ("results", "models", "tasks", "preset", "partial", "deviations", "average", "train_on"):
            if getattr(view, name) != getattr(self.selection, name):
                raise UserError(f"table(): {name} is chosen when results are loaded: load_results(..., {name}=...)")
        if view.against and view.average is None:
            raise UserError("table(): the paper's means are over subjects; load results with average='subjects'")
        refuse_unknown_metrics(view)
        return ShownTable(views_of(self._chosen(view if view.compare is None else replace(view, methods=())), view))

    def verdict(self) -> Sentences:
        """Return a text for each table: the model and task, and which methods are best by the tests.

        If a model and task have several tables, e.g. one of a part of the questions, each text says what distinguishes
        its table.
        """
        tables = [table.with_hidden_lines() for table in self._chosen(self.selection)]
        suffixes = (f" ({words})" if words else "" for words in distinguishing_labels([table.rows for table in tables]))
        return Sentences(
            f"{table.model} on {table.task}{suffix}: {' '.join(verdict_of(table).sentences)}"
            for table, suffix in zip(tables, suffixes, strict=True)
        )

    @property
    def figures(self) -> Figures:
        """Figures of the results, e.g. `results.figures.reliability(task="atlas-choice")`.

        `dir(results.figures)` lists the names of the figures. Tables without a requested method have none.
        """
        return Figures([table for table in self._chosen(self.selection) if table.lines], self._records)

    def write_page(self, out: Path, figures: Path | None, say: Say) -> Page:
        """Write the HTML page to `out`, and the figures to the folder `figures` unless it is None."""
        request = ReportRequest(**{**vars(self.selection), "out": out, "figures": figures})
        return Page(write.write_tables(self._chosen(self.selection), request, say, self.records)[0])

    def __repr__(self) -> str:
        if not self.rows:
            return "\n".join(["Results of a dry run, which has none. The plan:", *(f"  {line}" for line in self.plan)])
        status = Counter(row.status for row in self.rows)
        counts = ", ".join(f"{status[each]} {each}" for each in ("ok", "skipped", "failed") if status[each])
        methods = dict.fromkeys(row.method for row in self.rows)
        places = dict.fromkeys(f"{table.model} on {table.task}" for table in self.tables)
        lines = [f"Results of {len(methods)} methods, {join(places)}: {counts}"]
        lines += [f"{row.method} on {row.task} {row.status}: {row.reason}" for row in self.rows if row.status != "ok"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _chosen(self, selection: Selection) -> list[Table]:
        if not self.whole:
            raise UserError("there are no results: the run was a dry one; run it again without dry_run=True")
        return apply_selection(self.whole, selection)

    @property
    def _records(self) -> RecordsOf:
        return self.records or functools.partial(files.records_of, results=self.folder)
