"""Build the tables of `bench table` from a folder of results, in the forms from which all formats are made.

Example: `build_views(View(Path("results"), against=Against.PAPER), cache)` compares with the paper's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.api import UserError
from bench.report import recomputed, style
from bench.report.selection import AverageOver, Selection, View
from bench.report.standings.cache import StandingsReader
from bench.report.tables import build, comparison, published, reasoning
from bench.report.tables.choice import apply_selection, refuse_unknown_metrics, select_rows
from bench.report.tables.grid import TableViews
from bench.report.tables.model import Table
from bench.results.row import ResultRow


def build_views(view: View, cache: Path | None, say: Callable[[str], None] = lambda _: None) -> TableViews:
    """Build the tables that a request of `bench table` asks for.

    Args:
        view: options of the command.
        cache: folder that caches intervals and tests; None disables the cache.
        say: called with a message before a long computation.

    Raises:
        UserError: options that exclude each other, nothing to show, or a malformed result.
    """
    options = {
        "--against": view.against, "--stats": view.stats, "--method": view.methods, "--sort": view.headline,
    }  # fmt: skip
    conflicting = [name for name, is_on in options.items() if is_on]
    if view.compare is not None and conflicting:
        raise UserError(
            f"--compare makes a table of its own, of the methods that it names; leave out {' and '.join(conflicting)}"
        )
    return views_of(tables_of(view, cache, say), view)


def views_of(tables: Sequence[Table], view: View) -> TableViews:
    """Lay out tables as a request says: compared by pairs, beside the paper's numbers, or by method.

    For people, answers with traces are compared with those without; CSV and JSON have the tables alone.
    """
    if view.compare is not None:
        return comparison.build(tables, view.compare)
    shown = build.add_published(tables, published.read(view.results)) if view.against else tables
    views = build.table_views(shown, stats=view.stats, legend=view.legend)
    paired = [grid for pair in reasoning.paired_views(tables, view.results) for grid in pair.grids]
    return replace(views, grids=[*views.grids, *paired])


def tables_of(
    selection: Selection,
    cache: Path | None,
    say: Callable[[str], None] = lambda _: None,
    rows: Sequence[ResultRow] | None = None,
) -> list[Table]:
    """Load the tables of a selection of results, with intervals, tests and ranks.

    Args:
        selection: folder of results, and which of its results are shown.
        cache: folder that caches intervals and tests; None disables the cache.
        say: called with a message before a long computation.
        rows: rows that a run has just written to the selection's folder; None reads all rows of the folder.

    Raises:
        UserError: nothing to show, an unknown metric, a model, task or method without result, or a malformed result.
    """
    refuse_unknown_metrics(selection)
    folder = selection.results
    select = partial(select_rows, selection=selection)
    if rows is None:
        rows = recomputed.read_recomputed(folder, cache, partial=selection.partial, say=say, chosen=select)
    else:
        rows = select(rows)
    beside_paper = isinstance(selection, View) and selection.against is not None
    average = selection.average or (AverageOver.SUBJECTS if beside_paper else AverageOver.QUESTIONS)
    tables = build.build(
        rows, average=average.value, preset=selection.preset, deviations=selection.deviations, partial=True,
        standings_of=StandingsReader(folder, cache, say, average.value), styles=style.read(folder),
        marks_plugins=True,
    )  # fmt: skip
    return apply_selection(tables, selection)
