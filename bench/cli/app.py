"""The command line: parsing only; each command calls one function and prints what it gives.

Exit codes: 0 ok, 1 a cell of the comparison failed, 2 the user can mend it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from bench.api import ContractError, UserError

app = typer.Typer(
    name="bench",
    help="Compare confidence methods for LLMs: same model, same answers, same questions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class TableFormat(StrEnum):
    """How `bench table` prints."""

    TERMINAL = "terminal"
    MD = "md"
    CSV = "csv"
    TEX = "tex"
    JSON = "json"


class TableLayout(StrEnum):
    """What stands side by side in `bench table`."""

    METHODS = "methods"
    MODELS = "models"


class Against(StrEnum):
    """What `bench table` compares with."""

    PAPER = "paper"


INTERRUPTED = 130
"""Exit code of a command that was stopped with Ctrl-C."""

Plugins = Annotated[
    list[Path] | None, typer.Option("--plugin", help="A .py file with methods or tasks; it is executed.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of Parquet files with the Hub's columns, instead of the Hub [$CONFBENCH_DATA]."),
]


@app.command()
def run(  # noqa: PLR0913, PLR0917 - one parameter for each option
    method: Annotated[list[str], typer.Option(help="Names, separated by commas, or all.")],
    model: Annotated[str, typer.Option(help="Alias (bench list models), Hub id, or folder.")],
    task: Annotated[list[str] | None, typer.Option(help="Task; may be repeated. Default: the model's own.")] = None,
    train_on: Annotated[str | None, typer.Option(help="TASK[:SPLIT] that methods learn on.")] = None,
    preset: Annotated[str | None, typer.Option(help="paper, refcode, fixed or demo. Default: the model's own.")] = None,
    seed: Annotated[int, typer.Option(help="Of fits, hold-out splits and sampling.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Test questions at most; such results are partial.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="METHOD.FIELD=VALUE or protocol.FIELD=VALUE.")] = None,
    recalibrate: Annotated[
        list[str] | None, typer.Option(help="isotonic, platt, beta or temperature: further rows for every method.")
    ] = None,
    judge: Annotated[str, typer.Option(help="Who grades open answers: match, openai or hf.")] = "match",
    judge_model: Annotated[
        str | None, typer.Option(help="Model of the judge. Default for openai: gpt-4o-mini.")
    ] = None,
    judge_url: Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.")] = None,
    answers: Annotated[str, typer.Option(help="generate, or released[@REVISION] by the paper's authors.")] = "generate",
    exemplar_sets: Annotated[
        int | None, typer.Option(help="Exemplar sets per data set of a training corpus, instead of one per question.")
    ] = None,
    task_file: Annotated[
        list[Path] | None, typer.Option(help="Questions as JSON Lines, CSV or Parquet; may be repeated.")
    ] = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
    device: Annotated[str | None, typer.Option(help="cuda, mps or cpu. Default: the best there is.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    token_budget: Annotated[int, typer.Option(help="Tokens of one forward pass.")] = 1024,
    out: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
    *,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run methods on a model over tasks, score and compare them."""
    from bench.progress import Bars, Lines
    from bench.run.config import RunConfig
    from bench.run.pipeline import run as run_methods

    config = RunConfig(
        methods=_names(method),
        model=model,
        tasks=_names(task or []),
        train_on=train_on,
        preset=preset,
        seed=seed,
        limit=limit,
        overrides=tuple(set_ or ()),
        recalibrate=_names(recalibrate or []),
        judge=judge,
        judge_model=judge_model,
        judge_url=judge_url,
        answers=answers,
        exemplar_sets=exemplar_sets,
        task_files=tuple(task_file or ()),
        data_dir=data_dir,
        plugins=tuple(plugin or ()),
        device=device,
        dtype=dtype,
        token_budget=token_budget,
        out=out,
        trust_remote_code=trust_remote_code,
        dry_run=dry_run,
    )
    report = run_methods(config, Bars() if sys.stderr.isatty() else Lines(sys.stderr))
    if as_json:
        from bench.results.files import to_json

        rows = [json.loads(to_json(row)) for row in report.rows]
        _print_json({"plan": report.plan, "rows": rows, "paths": list(map(str, report.paths)), "notes": report.notes})
    elif report.rows:
        from bench.report.standings.cache import Reader
        from bench.report.tables import build
        from bench.store.folders import cache_folder

        standings_of = Reader(out, cache_folder(), _said if sys.stderr.isatty() else lambda _: None)
        found = build.build(report.rows, deviations=True, partial=True, judge=standings_of)
        build.print_terminal(found, _console())
        for path in report.paths:
            _console().print(Text(f"wrote {path}"), soft_wrap=True)
        for note in report.notes:
            _console(stderr=True).print(Text(f"note: {note}"))
    raise typer.Exit(1 if report.failed else 0)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help="methods, models or tasks.")],
    plugin: Plugins = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List what can be named on the command line."""
    from bench.cli.describe import listing

    lines = listing(kind, plugin or ())
    if as_json:
        _print_json(lines)
    else:
        _console().print(_listed(lines))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A method, a task, a model, or protocol.")],
    example: Annotated[
        int | None, typer.Option(help="Of a task: print the whole prompt of this test question.")
    ] = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show a method's constants, a task's card or prompt."""
    from bench.cli import describe

    if example is not None:
        said = describe.example(name, example, data_dir, plugin or ())
    else:
        said = describe.shown(name, plugin or ())
    if as_json:
        _print_json(said)
    elif example is not None:
        for role, text in said.items():
            _console().print(Text(f"[{role}]\n{text}\n"), soft_wrap=True)
    else:
        _console().print(_fields(said))


@app.command()
def params(
    model: Annotated[list[str], typer.Option(help="Alias, Hub id or folder; may be repeated.")],
    plugin: Plugins = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Count trained parameters, beside the paper's numbers."""
    from bench.cli.parameter_counts import sizes

    records = sizes(_names(model), plugin or ())
    if as_json:
        _print_json(records)
        return
    reasons = list(dict.fromkeys(record["why they differ"] for record in records if record["why they differ"]))
    _console().print(_listed([_size_line(record, reasons) for record in records]))
    for number, reason in enumerate(reasons, start=1):
        _console().print(Text(f"{number}) {reason}"))


@app.command()
def table(  # noqa: PLR0913 - one parameter for each option
    results: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
    format_: Annotated[TableFormat, typer.Option("--format", help="How to print.")] = TableFormat.TERMINAL,
    preset: Annotated[str | None, typer.Option(help="Show this preset only.")] = None,
    against: Annotated[Against | None, typer.Option(help="Put the published numbers beside ours.")] = None,
    compare: Annotated[
        list[str] | None, typer.Option(help="Methods, separated by commas: paired differences, tests, a verdict.")
    ] = None,
    layout: Annotated[
        TableLayout, typer.Option(help="A table for each model and task, or two models side by side.")
    ] = TableLayout.METHODS,
    *,
    stats: Annotated[
        bool, typer.Option("--stats", help="Also intervals, spreads, training, and the metrics beyond the paper's.")
    ] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Also show runs with --limit.")] = False,
    deviations: Annotated[bool, typer.Option("--deviations", help="Also show runs with --set.")] = False,
) -> None:
    """Print the comparison from result files."""
    from bench.report.tables import formats
    from bench.report.tables.request import View, shown
    from bench.store.folders import cache_folder

    view = View(
        results=results,
        preset=preset,
        partial=partial,
        deviations=deviations,
        against=against is not None,
        compare=None if compare is None else _names(compare),
        stats=stats,
        layout=layout.value,
    )
    sheet = shown(view, cache_folder(), _said if sys.stderr.isatty() else lambda _: None)
    if format_ is TableFormat.TERMINAL:
        formats.print_terminal(sheet.grids, _console())
    else:
        sys.stdout.write(formats.render(sheet, format_.value))


@app.command()
def report(  # noqa: PLR0913 - one parameter for each option
    results: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(help="Also draw the figures into this folder.")] = None,
    preset: Annotated[str | None, typer.Option(help="Show this preset only.")] = None,
    port: Annotated[int, typer.Option(help="Of --serve; 0 takes a free one.")] = 8765,
    *,
    serve: Annotated[bool, typer.Option("--serve", help="Show the page on 127.0.0.1 until Ctrl-C.")] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Also show runs with --limit.")] = False,
    deviations: Annotated[bool, typer.Option("--deviations", help="Also show runs with --set.")] = False,
) -> None:
    """Write the comparison as one HTML page, and as figures."""
    from bench.report import page
    from bench.report.write import Wanted, write
    from bench.store.folders import cache_folder

    wanted = Wanted(results, out, figures, preset, partial, deviations)
    for path in write(wanted, cache_folder(), _said if sys.stderr.isatty() else lambda _: None):
        _console().print(Text(f"wrote {path}"), soft_wrap=True)
    if serve:
        page.serve(out, port, lambda address: _console().print(Text(f"{address} (Ctrl-C ends it)")))


@app.command()
def check(
    target: Annotated[
        str | None, typer.Argument(help="A .py file with methods or tasks, or a registered name.")
    ] = None,
    results: Annotated[Path | None, typer.Option(help="Check this folder of result files instead.")] = None,
    rerun: Annotated[
        Path | None, typer.Option(help="Also run this cell of --results again, named by its JSON file, and compare.")
    ] = None,
    data_dir: DataDir = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check that a method or a task keeps the rules of the contract, or that results may be submitted."""
    if (target is None) == (results is None):
        raise UserError("bench check: expected a file, a name, or --results DIR, and one of them only")
    if results is not None:
        _check_results(results, rerun, data_dir, as_json=as_json)
        return
    if rerun is not None:
        raise UserError("--rerun: expected --results DIR as well, the folder that the cell is in")
    _check_plugin(str(target), data_dir, as_json=as_json)


def _check_results(folder: Path, cell: Path | None, data_dir: Path | None, *, as_json: bool) -> None:
    from bench.results.submissions import check_results

    found = check_results(folder, data_dir)
    again = None
    if cell is not None:
        from bench.progress import Bars, Lines
        from bench.run.rerun import rerun, settled

        again = rerun(cell, folder, data_dir, Bars() if sys.stderr.isatty() else Lines(sys.stderr))
        found = settled(found, again)
    if as_json:
        files = [{"file": v.file, "problems": v.problems, "not_checked": v.unchecked} for v in found]
        _print_json(files if again is None else {"files": files, "rerun": asdict(again)})
    else:
        for verdict in found:
            mark = Text("FAILED", style="red") if verdict.problems else Text("ok    ", style="green")
            _console().print(mark, Text(verdict.file), soft_wrap=True)
            for problem in verdict.problems:
                _console().print(Text(f"         {problem}"), soft_wrap=True)
        for reason, n in Counter(reason for verdict in found for reason in verdict.unchecked).items():
            _console().print(Text(f"not checked: {reason} ({n} file{'s' * (n > 1)})"), soft_wrap=True)
        if again is not None:
            _console().print(Text(f"{again.file}, run again: {again.reason}"), soft_wrap=True)
            for note in again.notes:
                _console().print(Text(f"         {note}"), soft_wrap=True)
        _console().print(f"{sum(not v.problems for v in found)} of {len(found)} files may be submitted")
    raise typer.Exit(1 if any(verdict.problems for verdict in found) else 0)


def _check_plugin(target: str, data_dir: Path | None, *, as_json: bool) -> None:
    from bench.data.sources import open_source
    from bench.testing import check_plugin

    found = check_plugin(target, open_source(data_dir) if data_dir else None)
    if as_json:
        _print_json([{"check": result.name, "ok": result.ok, "message": result.message} for result in found])
    else:
        for result in found:
            mark = Text("ok    ", style="green") if result.ok else Text("FAILED", style="red")
            _console().print(mark, Text(result.name), Text(result.message, style="dim"), soft_wrap=True)
        _console().print(f"{sum(r.ok for r in found)} of {len(found)} checks passed")
    raise typer.Exit(0 if all(result.ok for result in found) else 1)


def _names(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for option in options for name in option.split(",") if name.strip())


def _console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False)


def _said(text: str) -> None:
    _console(stderr=True).print(Text(f"{text} ..."))


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def _size_line(record: Mapping[str, Any], reasons: Sequence[str]) -> dict[str, str]:
    ratio, printed, why = record["times ccps"], record["in the paper"], record["why they differ"]
    mark = f" {reasons.index(why) + 1})" if why else ""
    return {
        "model": record["model"],
        "method": record["method"],
        "parameters": f"{record['parameters']:,}",
        "times ccps": "" if ratio is None else f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}",  # noqa: PLR2004
        "in the paper": "" if printed is None else f"{printed:,}{mark}",
    }


def _listed(lines: Sequence[Mapping[str, Any]]) -> RichTable:
    columns = list(dict.fromkeys(key for line in lines for key in line))
    grid = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for line in lines:
        grid.add_row(*(Text(str(line.get(column, ""))) for column in columns))
    return grid


def _fields(record: Mapping[str, Any]) -> Group:
    """A record as lines `name  value`; constants as a table below."""
    grid = RichTable(box=None, pad_edge=False, show_header=False)
    for key, value in record.items():
        if key != "constants":
            grid.add_row(Text(key, style="bold"), Text(_plain(value)))
    below = record.get("constants")
    return Group(grid, Text(), _listed(below)) if below else Group(grid)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {item}" for key, item in value.items())
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def main() -> None:
    """Entry point: user errors become one sentence on stderr and exit code 2."""
    if sys.argv[1:2] == ["list"]:  # half of its time would go into numpy's idle threads and looking for garbage
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        gc.disable()
    try:
        app()
    except (UserError, ContractError) as error:
        _console(stderr=True).print(Text(f"bench: {error}"), soft_wrap=True)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer turns KeyboardInterrupt into this
            _console(stderr=True).print(
                "bench: interrupted; what was finished is stored, run the same command to go on"
            )
        raise
