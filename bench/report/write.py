"""Output of `bench report`: the page and, where asked for, the figures, from a folder of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.report.selection import Wanted
from bench.report.tables.grid import TableViews
from bench.report.tables.model import Table
from bench.report.tables.request import tables_of
from bench.results import files, questions
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.results.transfer import FOLDER
from bench.stats.measured import Measured
from bench.stats.variants import Variants

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bench.report.page.transfer import Shift

Analysed = Variants | Measured
"""Numbers of an analysis of a method: of variants, or measures."""


def write(wanted: Wanted, cache: Path | None, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write the page and the figures; returns their files.

    Args:
        wanted: the request.
        cache: folder where intervals and tests are kept; None keeps none.
        say: told before long work.

    Raises:
        UserError: nothing to show, rows that don't belong together, a result that is not as it must be, or a file that
            can't be written.
    """
    _refuse_folder(wanted.out)
    return written(tables_of(wanted, cache, say), wanted, say)


def _refuse_folder(out: Path) -> None:
    if out.is_dir():
        raise UserError(f"--out {out}: expected the name of a file, got a folder")


def written(tables: Sequence[Table], wanted: Wanted, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write the page and the figures of tables that are there; otherwise as `write`.

    Args:
        tables: what the request chooses.
        wanted: the request.
        say: told before long work.

    Raises:
        UserError: rows that don't belong together, or a file that can't be written.
    """
    from bench.report import page

    _refuse_folder(wanted.out)

    def records_of(row: ResultRow) -> Records:
        return files.read_records(files.place_of(row, wanted.results))

    def asked(task: str, version: int) -> Mapping[str, questions.QuestionText]:
        return questions.read(wanted.results, task, version)

    payload = page.payload(tables, records_of, asked, _shift(tables, wanted, say))
    paths = [page.write(wanted.out, payload)]
    if wanted.figures is not None:
        from bench.report.figures import write_figures

        paths += write_figures(tables, records_of, wanted.figures, say=say)
    return paths


def _shift(tables: Sequence[Table], wanted: Wanted, say: Callable[[str], None]) -> Shift:
    """Matrices of the models of these tables, in the folder of results, and the methods that were asked for."""
    from bench.report.page.transfer import Shift
    from bench.report.transfer.stored import stored

    names = {line.key.method for table in tables for line in table.lines} if wanted.methods else None
    models = {row.model: table.preset for table in tables for row in table.rows[:1]}
    found = stored(wanted.results / FOLDER, models, say)
    return Shift(found, names)


def views_of(found: Analysed, results: Path) -> TableViews:
    """Views of what an analysis gave on one task, beside the published numbers.

    Raises:
        UserError: the file of the published numbers is not as it must be.
    """
    from bench.report import measures, variants

    if isinstance(found, Measured):
        return measures.view(found, measures.read_published(found, results))
    return variants.view(found, variants.read_published(found, results))


def write_analysis(found: Analysed, views: TableViews, out: Path, formats: Sequence[str]) -> list[Path]:
    """Write an analysis: the numbers as JSON, the figure, and coloured texts as a page, where there are such.

    Files are named `<model folder>--<task>--<method>-<analysis>.*`.

    Raises:
        UserError: the folder can't be written.
    """
    from bench.report.analysis_files import write_files
    from bench.report.figures.write import safe_name

    parts = (files.model_folder(found.model), safe_name(found.task), f"{found.method}-{found.analysis}")
    page, figure = _drawn(found)
    return write_files(
        out, files.SEPARATOR.join(parts), views, {} if figure is None else {"": figure}, tables=("json",),
        kinds=formats, pages={} if page is None else {"html": page},
    )  # fmt: skip


def _drawn(found: Analysed) -> tuple[str | None, Figure | None]:
    """Page of coloured texts and figure of an analysis, where there are such."""
    if isinstance(found, Measured):
        from bench.report import measures, strips
        from bench.report.figures.measures import dots_of_measures

        coloured = found.measures.strips
        return None if coloured is None else strips.page(measures.title(found), coloured), dots_of_measures(found)
    from bench.report.figures.variants import differences_of_variants

    return None, differences_of_variants(found)
