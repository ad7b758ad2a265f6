"""`bench analyze`: analyses of what a run has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from bench.cli import loudness
from bench.cli.commands import Commands
from bench.cli.options import GroupedHelp, options_from
from bench.cli.printing import announcer, console, print_notes, print_written
from bench.run.analyses.request import TransferConfig

app = Commands(help="Look closer at what runs have read and learned.", no_args_is_help=True, rich_markup_mode=None)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")]


@app.command("transfer", cls=GroupedHelp)
@options_from(TransferConfig, without=("cache",), each="seed")
def transfer(configs: Sequence[TransferConfig], *, as_json: AsJson = False) -> None:
    """Train every method on each of several corpora, test it on all, and price the shift.

    Signals are taken from the store: after an ordinary run the model reads nothing more. Results, tables (md, csv,
    json) and a figure are written below --out, which tables of ordinary results leave out.

    Example: bench analyze transfer --model tiny --on atlas-choice,atlas-oe --leave-subject-out
    """
    import sys

    from bench.report import transfer as shown
    from bench.report.tables import formats
    from bench.run.analyses.transfer import run_transfer

    report = run_transfer(configs, loudness.progress())
    about = shown.About(
        report.model, report.preset, report.corpora, report.tests, report.homes, report.learners, report.scaled,
        report.seeds, report.forward_tokens,
    )  # fmt: skip
    matrix = shown.computed(report.cells, about, announcer())
    views = shown.views(matrix)
    written = shown.write(matrix, views, configs[0].out)
    if as_json:
        sys.stdout.write(formats.render(views, "json"))
    else:
        formats.print_terminal(views.grids, console())
        print_written(written)
    print_notes(report.notes)
    raise typer.Exit(1 if report.failed else 0)
