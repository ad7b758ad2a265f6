"""Output of `bench report`: the page and, where asked for, the figures, from a folder of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.api import UserError
from bench.report.selection import Wanted
from bench.report.tables.model import Table
from bench.report.tables.request import tables_of
from bench.results import files, questions
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.results.transfer import FOLDER


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
    from bench.report.page.transfer import Shift
    from bench.report.transfer.stored import load_matrices

    _refuse_folder(wanted.out)

    def records_of(row: ResultRow) -> Records:
        return files.read_records(files.place_of(row, wanted.results))

    def asked(task: str, version: int) -> Mapping[str, questions.QuestionText]:
        return questions.read(wanted.results, task, version)

    # matrices of the models of these tables, in the folder of results, and the methods that were asked for
    names = {line.key.method for table in tables for line in table.lines} if wanted.methods else None
    models = {row.model: table.preset for table in tables for row in table.rows[:1]}
    found = load_matrices(wanted.results / FOLDER, models, say)
    payload = page.payload(tables, records_of, asked, Shift(found, names))
    say("drawing the figures of the page")
    paths = [page.write(wanted.out, payload, page.pictures(tables, records_of))]
    if wanted.figures is not None:
        from bench.report.figures import write_figures

        paths += write_figures(tables, records_of, wanted.figures, say=say)
    return paths
