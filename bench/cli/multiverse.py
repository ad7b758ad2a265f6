"""`bench analyze multiverse`: which claims of a table survive every defensible choice, from result files alone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.analyze import OutFormat
from bench.cli.options import options_from
from bench.cli.printing import announcer, console, print_notes, print_written
from bench.report.multiverse.model import MultiverseRequest

if TYPE_CHECKING:
    from pathlib import Path


@options_from(MultiverseRequest)
def multiverse(
    request: MultiverseRequest,
    *,
    format_: Annotated[
        OutFormat, typer.Option("--format", help="How to print.", rich_help_panel="Output")
    ] = OutFormat.TERMINAL,
) -> None:
    """Analyse a table under every choice that costs no forward pass, and say which of its claims survive.

    Result files are read and no model is run. Choices are definitions of calibration and discrimination, averages,
    seeds, gradings, and whatever presets, tunings, judges and recalibrations there are results of. Tables (md, csv,
    json) and figures (svg, png) are written below --out.

    Example: bench analyze multiverse --model tiny --task atlas-oe
    """
    from bench.report import multiverse as shown
    from bench.report.tables import formats
    from bench.results.files import ensure_writable
    from bench.store.folders import cache_folder

    ensure_writable(request.out)
    found = shown.computed(request, cache_folder(), announcer())
    views = shown.views(found, request.methods)
    written: list[Path] = shown.write(found, shown.views(found), request.out)
    if format_ is OutFormat.TERMINAL:
        formats.print_terminal(views.grids, console())
        print_written(written)
    else:
        sys.stdout.write(formats.render(views, format_.value))
        print_notes([f"wrote {path}" for path in written])
