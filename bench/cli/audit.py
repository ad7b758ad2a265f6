"""`bench audit`: judges confidences that somebody already has, from spreadsheets and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.commands import AsJson
from bench.cli.options import options_from
from bench.cli.printing import OutFormat, announcer, console, print_json, print_line, print_notes, print_written
from bench.report.selection import AuditRequest

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="CSV, JSON Lines, JSON, Parquet; logs of Inspect or lm-eval.")
]


@options_from(AuditRequest)
def audit(request: AuditRequest, *, files: Files, as_json: AsJson = False) -> None:
    """Say what confidences that you already have are worth; no model is run.

    Each row is an answer: whether it is right (`correct`), and how sure somebody was. Exits with 1 if a limit of
    --fail-above is broken, or can't be tested.

    Example: bench audit scores.csv --confidence verbal,logprob --by category
    """
    from bench.data.confidence_files import read_sheet
    from bench.report.notebook.audit import Audit
    from bench.report.tables import formats
    from bench.results.files import ensure_writable

    if request.out is not None:
        ensure_writable(request.out)
    found = Audit.of(read_sheet(files), request)
    views = [analysis.views for analysis in found.analyses()]
    if as_json:
        print_json(views[0].data() | {"guards": [part for view in views[1:] for part in view.data()]})
    else:
        for view in views:
            formats.print_terminal(view.grids, console())
        for sentence in found.limits:
            print_line(sentence)
    print_notes(found.notes)
    if request.out is not None:
        written = found.write(request.out, announcer())
        print_written(written, OutFormat.JSON if as_json else OutFormat.TERMINAL)
    raise typer.Exit(1 if found.failed else 0)
