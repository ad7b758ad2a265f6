"""`bench analyze`: analyses of stored signals and results.

The commands study one method, transfer between tasks, learning curves over numbers of labels, or a table under
different choices of the analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bench.api.errors import fold_name
from bench.api.options import RUNS
from bench.cli import verbosity
from bench.cli.commands import AsJson, Commands
from bench.cli.options import GroupedHelp, options_from
from bench.cli.printing import OutFormat, announcer, print_analyses, print_listing, print_notes
from bench.report.selection import MultiverseRequest
from bench.run.analyses.request import AnalysisRequest, LabelsConfig, TransferConfig

_METHOD_COMMAND = "METHOD"
"""Name of a hidden command, which runs when `bench analyze` is followed by the name of a method."""


class MethodGroup(TyperGroup):
    """Command group in which any word that is not a command's name is taken as a method's name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command with this name or, without one, the hidden command for methods.

        The hidden command gets the name, which should be a method's, as its first argument.
        """
        if args[0] in self.commands and args[0] != _METHOD_COMMAND:
            return super().resolve_command(ctx, args)
        return _METHOD_COMMAND, self.commands[_METHOD_COMMAND], args


app = Commands(
    help="Look closer at what runs have read: METHOD's own analyses, how methods bear another corpus, or few labels.",
    cls=MethodGroup, no_args_is_help=True, rich_markup_mode=None,
)  # fmt: skip


Format = Annotated[OutFormat, typer.Option("--format", help="How to print.", rich_help_panel="Output")]


@app.command(_METHOD_COMMAND, cls=GroupedHelp)
@options_from(AnalysisRequest)
def analyze(
    request: AnalysisRequest,
    *,
    method: Annotated[str, typer.Argument(help="A method that has analyses, e.g. ccps.")],
    analysis: Annotated[str | None, typer.Argument(help="One of its analyses. Default: list them.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the numbers (JSON), a figure (SVG), and a page where there is one. Default: none.",
            rich_help_panel="Output",
        ),
    ] = None,
    format_: Format = OutFormat.TERMINAL,
) -> None:
    """List a method's analyses, or run one of them.

    An analysis either trains variants of the method again and compares them, or measures something of the trained
    method.

    Example: bench analyze ccps features --model tiny --task atlas-choice
    """
    from bench.run.analyses import method_analyses

    method = fold_name(method)
    if analysis is None:
        analyses = method_analyses.load_analyses(method)
        first_lines = {name: (function.__doc__ or "").strip().partition("\n")[0] for name, function in analyses.items()}
        print_listing([{"name": name, "what": what} for name, what in first_lines.items()])
        return
    if out is not None:
        from bench.results.files import ensure_writable

        ensure_writable(out)
    from bench.report.method_analyses import build_analysis

    results = method_analyses.run_analysis(method, analysis, request, verbosity.progress())
    print_analyses([build_analysis(result, RUNS) for result in results], out, format_)


@app.command("transfer", cls=GroupedHelp)
@options_from(TransferConfig, without=("cache",), each="seed")
def transfer(configs: Sequence[TransferConfig], *, as_json: AsJson = False) -> None:
    """Train every method on each of several corpora, test it on all, and say what a change of corpus costs.

    Signals are taken from the store: after an ordinary run the model reads nothing more. Results, tables (md, csv,
    json) and a figure are written below --out; tables of ordinary results don't show these results.

    Example: bench analyze transfer --model tiny --on atlas-choice,atlas-oe --leave-subject-out
    """
    from bench.report.transfer import build_analysis
    from bench.report.transfer.compute import compute_matrix
    from bench.run.analyses.transfer import run_transfer

    report = run_transfer(configs, verbosity.progress())
    matrix = compute_matrix(report.cells, report.about, announcer())
    print_analyses([build_analysis(matrix)], configs[0].out, OutFormat.JSON if as_json else OutFormat.TERMINAL)
    print_notes(report.notes)
    raise typer.Exit(1 if report.any_failed else 0)


@app.command("labels", cls=GroupedHelp)
@options_from(LabelsConfig, without=("cache",))
def labels(config: LabelsConfig, *, as_json: AsJson = False) -> None:
    """Train methods on 20, 50, ... labelled questions, and say from how many on they beat untrained methods.

    Signals are taken from the store: after an ordinary run the model reads nothing more. Tables (md, csv, json) and a
    figure for each task are written below --out.

    Example: bench analyze labels --model tiny --task atlas-choice --method combined,pik,untrained
    """
    from bench.report.label_budgets import build_analysis, read_counts
    from bench.run.analyses.label_budgets import run_labels

    report = run_labels(config, verbosity.progress())
    counts = read_counts(RUNS)
    studies = [build_analysis(curves, counts) for curves in report.curves]
    print_analyses(studies, config.out, OutFormat.JSON if as_json else OutFormat.TERMINAL)
    print_notes(report.notes)


@app.command("multiverse", cls=GroupedHelp)
@options_from(MultiverseRequest)
def multiverse(request: MultiverseRequest, *, format_: Format = OutFormat.TERMINAL) -> None:
    """Analyse a table under every choice that costs no forward pass, and say which of its claims survive.

    Result files are read and no model is run. Choices are definitions of calibration and discrimination, averages,
    seeds, gradings, and all presets, tunings, judges and recalibrations that have results. Tables (md, csv, json) and
    figures (svg, png) are written below --out.

    Example: bench analyze multiverse --model tiny --task atlas-oe
    """
    from bench.report.multiverse import build_analysis
    from bench.report.multiverse.compute import compute_multiverse
    from bench.results.files import ensure_writable
    from bench.store.disk_cache import cache_folder

    ensure_writable(request.out)
    request = replace(request, methods=tuple(map(fold_name, request.methods)))
    result = compute_multiverse(request, cache_folder(), announcer())
    print_analyses([build_analysis(result, request.methods)], request.out, format_)
