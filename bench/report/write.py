"""Write the output of `bench report` from a folder of results: the HTML page and, on request, the figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.report.selection import ReportRequest
from bench.report.tables.model import Table
from bench.report.tables.request import tables_of
from bench.results import files, question_texts
from bench.results.transfer import FOLDER

if TYPE_CHECKING:
    from bench.report.figures.figure_data import RecordsOf


def write(request: ReportRequest, cache: Path | None, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write the HTML page of a folder of results, and on request the figures; return the paths of the files.

    Args:
        request: results to show, and files to write.
        cache: folder that caches intervals and tests; None caches nothing.
        say: receives a message before long work.

    Raises:
        UserError: nothing to show, rows that don't belong in one table, a damaged result, or an unwritable file.
    """
    _check_out(request.out)
    return write_tables(tables_of(request, cache, say), request, say)


def _check_out(out: Path) -> None:
    if out.is_dir():
        raise UserError(f"--out {out}: expected the name of a file, got a folder")


def write_tables(
    tables: Sequence[Table], request: ReportRequest, say: Callable[[str], None], records: RecordsOf | None = None
) -> list[Path]:
    """Write the HTML page, and on request the figures, of tables that are already built; return the paths of the files.

    Args:
        tables: tables of the requested results. Those without a requested method are left out, as
            the first table's facts then say.
        request: results to show, and files to write.
        say: receives a message before long work.
        records: returns the values per question of a result; by default those of its Parquet file.

    Raises:
        UserError: tables that don't belong on one page or figure, or a file that can't be written.
    """
    from bench.report import page
    from bench.report.page.transfer import Shift
    from bench.report.transfer.stored import load_matrices

    _check_out(request.out)

    left_out = [remark for table in tables if not table.lines for remark in table.remarks]
    tables = [table for table in tables if table.lines]
    if left_out:
        tables[0] = replace(tables[0], facts=(*tables[0].facts, f"Tables left out: {'; '.join(left_out)}."))
    records_of = records or partial(files.records_of, results=request.results)
    # transfer matrices of the models of these tables, and the requested methods
    methods = {line.key.method for table in tables for line in table.lines} if request.methods else None
    models = defaultdict[str, set[str]](set)
    for table in tables:
        models[table.rows[0].model].add(table.preset)
    tasks = {table.rows[0].task for table in tables} if request.tasks else ()
    matrices = load_matrices(request.results / FOLDER, models, tasks, say)
    payload = page.payload(tables, records_of, partial(question_texts.read, request.results), Shift(matrices, methods))
    say("drawing the figures of the page")
    paths = [page.write(request.out, payload, page.pictures(tables, records_of))]
    if request.figures is not None:
        from bench.report.figures.write import write_figures

        paths += write_figures(tables, records_of, request.figures, say=say)
    return paths
