"""The commands of `bench`: they parse options, call one function each, and print its result.

Exit codes: 0 success; 1 a cell of the comparison, a check or a limit of an audit failed, or the user answered no; 2
user error, or what was printed could not be written; 128 + n stopped by signal n.
"""

from __future__ import annotations

import gc
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.api import UserError
from bench.cli import analyze, cache, describe, heads, new, parameter_counts, reproduce
from bench.cli.audit import audit
from bench.cli.commands import AsJson, Commands, root
from bench.cli.doctor import doctor
from bench.cli.drift import drift
from bench.cli.exit_codes import exit_code
from bench.cli.guard import guard
from bench.cli.options import KINDS, MODEL, SHOWN, GroupedHelp, help_of, options_from, split_list
from bench.cli.printing import (
    OutFormat,
    announcer,
    console,
    print_fields,
    print_json,
    print_line,
    print_listing,
    print_memory,
    print_notes,
    print_sizes,
    print_views,
    print_written,
)
from bench.cli.run import run
from bench.report.selection import ReportRequest, View
from bench.run.config import RunConfig
from bench.store.disk_cache import cache_folder

app = Commands(name="bench", callback=root, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command(cls=GroupedHelp)(run)
app.command()(doctor)
app.command()(drift)
app.command()(heads.score)
app.command(context_settings=reproduce.PASS_OPTIONS_ON)(reproduce.reproduce)
app.command(cls=GroupedHelp)(guard)
app.command(cls=GroupedHelp)(audit)
app.add_typer(cache.app, name="cache")
app.add_typer(new.app, name="new")
app.add_typer(heads.app, name="head")
app.add_typer(analyze.app, name="analyze")


class Tool(StrEnum):
    """Tool that wrote the log which `bench import` converts."""

    LM_EVAL = "lm-eval"
    INSPECT = "inspect"


HELP = help_of(RunConfig)
Plugins = Annotated[list[Path] | None, typer.Option("--plugin", help=HELP["plugins"])]
DataDir = Annotated[Path | None, typer.Option(help=HELP["data_dir"])]


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help="methods, models or tasks. Default: all three.", autocompletion=KINDS)
    ] = None,
    plugin: Plugins = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the methods, models or tasks that commands can name; in a pipe, one tab-separated line for each.

    If all kinds are listed in a pipe, each line begins with its kind.
    """
    records = {each: describe.list_records(each, plugin or ()) for each in ([kind] if kind else describe.KINDS)}
    if as_json:
        print_json(records[kind] if kind else records)
        return
    for each, listed in records.items():
        if not kind and console().is_terminal:
            print_line(each.upper() if each == describe.KINDS[0] else f"\n{each.upper()}")
        print_listing(listed if kind or console().is_terminal else [{"kind": each, **record} for record in listed])


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(help="A method, a task, a model, or protocol.", autocompletion=SHOWN)
    ] = None,
    task_file: Annotated[
        Path | None, typer.Option(help="Show the task of this question file (JSON Lines, CSV or Parquet) instead.")
    ] = None,
    example: Annotated[
        int | None,
        typer.Option(
            help="Of a task: print the whole prompt of the question with this index, from 0, in the test split; in the"
            " train split if the task has no test split."
        ),
    ] = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
    *,
    constants: Annotated[
        bool, typer.Option("--constants", help="Of a method: also show its constants, and what it does not reproduce.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a method and its constants, a task's card or prompt, a model, or the protocol."""
    if (name is None) == (task_file is None):
        raise UserError("bench show: expected a name (see: bench list) or --task-file FILE, and one of them only")
    if example is not None:
        record = describe.example(name, example, data_dir, plugin or (), task_file)
    else:
        record = describe.show_record(name, plugin or (), task_file)
    if as_json:
        print_json(record)
    elif example is not None:
        for role, text in record.items():
            print_line(f"[{role}]\n{text}\n")
    else:
        print_fields(record if constants or record["kind"] != "method" else describe.brief(record))


@app.command()
def params(
    model: Annotated[
        list[str], typer.Option(help="Alias, Hub id, folder or GGUF file; may be repeated.", autocompletion=MODEL)
    ],
    plugin: Plugins = None,
    *,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show the device memory that reading and fits take.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Count trained parameters, beside the paper's numbers."""
    records = (parameter_counts.memory_records if memory else parameter_counts.parameter_records)(
        split_list(model), plugin or ()
    )
    if as_json:
        print_json(records)
    elif memory:
        print_memory(records)
    else:
        print_sizes(records)


@app.command(cls=GroupedHelp)
@options_from(View)
def table(
    view: View,
    *,
    format_: Annotated[
        OutFormat, typer.Option("--format", help="How to print.", rich_help_panel="How")
    ] = OutFormat.TERMINAL,
) -> None:
    """Print the comparison from result files."""
    from bench.report.tables.request import build_views
    from bench.results.cells import skipped_notes

    print_notes(skipped_notes(view.results, partial=view.partial))
    print_views(build_views(view, cache_folder(), announcer()), format_)


@app.command(cls=GroupedHelp)
@options_from(ReportRequest)
def report(request: ReportRequest) -> None:
    """Write the comparison as one HTML page and, with --figures, as figures."""
    from bench.report.write import write
    from bench.results.cells import skipped_notes

    print_notes(skipped_notes(request.results, partial=request.partial))
    print_written(write(request, cache_folder(), announcer()))


@app.command("import")
def import_(
    tool: Annotated[Tool, typer.Argument(help="lm-eval (samples_*.jsonl) or inspect (.eval or .json).")],
    log: Annotated[Path, typer.Argument(help="The log.")],
    task: Annotated[str | None, typer.Option(help="Task whose questions the log answers.")] = None,
    *,
    task_file: Annotated[Path | None, typer.Option(help="File of the questions that the log answers.")] = None,
    split: Annotated[str, typer.Option(help="Split of the questions.")] = "test",
    out: Annotated[Path | None, typer.Option(help="File to write. Default: LOG.answers.jsonl, here.")] = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
) -> None:
    """Make a file of answers for `bench run --answers` of another tool's log."""
    import json

    from bench import registry
    from bench.api.errors import plugin_errors
    from bench.data import logs
    from bench.data.question_files import SPLITS, task_of_file
    from bench.data.sources import open_source
    from bench.report.text import plural
    from bench.store.files import named_errors, write_atomic

    if (task is None) == (task_file is None):
        raise UserError("bench import: expected --task NAME or --task-file FILE, and one of them only.")
    path = out or Path(f"{log.stem}.answers.jsonl")
    inputs = [file for file in (log, task_file) if file is not None]
    if any(file.exists() and path.exists() and path.samefile(file) for file in inputs):
        raise UserError(f"--out {path}: it is one of the files that are read; name another one.")
    source, purpose = open_source(data_dir), next((name for name in SPLITS if name == split), None)
    cls = registry.tasks(plugin or ()).get(str(task)) if task_file is None else task_of_file(task_file, purpose)
    task_object = cls(source)
    task_split = next((name for name in task_object.card.splits if name == split), None)
    if task_split is None:
        raise UserError(f"--split: expected one of {', '.join(task_object.card.splits)}, got {split!r}.")
    where = f"{task_object.name}/{task_split}"
    with plugin_errors(f"task {task_object.name!r}, questions of {task_split}"):
        questions = list(task_object.questions(task_split))
    records = logs.lm_eval_records(log) if tool is Tool.LM_EVAL else logs.inspect_records(log)
    imported = logs.import_records(records, questions, task_object.format)
    if not imported.rows:
        found = [f"{plural(n, 'record')} {reason.rstrip(',')}" for reason, n in imported.left_out.items()]
        found += [f"{len(imported.unmatched):,} of other questions, e.g. {text!r}" for text in imported.unmatched[:1]]
        raise UserError(
            f"{log.name}: expected answers to questions of {where}, found {'; '.join(found)}; name their task."
        )
    with named_errors(f"--out: {path} can't be written", "; name another file."):
        write_atomic(path, "".join(json.dumps(row) + "\n" for row in imported.rows).encode())
    print_line(f"wrote {path}: answers to {len(imported.rows):,} of {plural(len(questions), 'question')} of {where}")
    if imported.unmatched:
        what = plural(len(imported.unmatched), "record")
        print_line(f"left out: {what} of no question, or of several, e.g. {imported.unmatched[0]!r}")
    if imported.repeated:
        print_line(f"left out: {plural(imported.repeated, 'record')} of questions that had an answer before")
    for reason, n in imported.left_out.items():
        print_line(f"left out: {plural(n, 'record')} {reason.rstrip(',')}")
    if imported.redacted:
        print_line(f"without a trace: {plural(imported.redacted, 'answer')} with reasoning that the log encrypts")
    if imported.ungraded:
        print_line("some records have no grade that is right or wrong, so all grades were left out")


@app.command()
def check(
    target: Annotated[
        str | None, typer.Argument(help="A .py file with methods or tasks, or a registered name.")
    ] = None,
    results: Annotated[Path | None, typer.Option(help="Check this folder of result files instead.")] = None,
    rerun: Annotated[
        Path | None, typer.Option(help="Also run this cell of --results again, named by its JSON file, and compare.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Where the GGUF file or folder of the --rerun cell's model is.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Where the --tokenizer of the --rerun cell is.")] = None,
    data_dir: DataDir = None,
    timeout: Annotated[float, typer.Option(help="Seconds that each rule may take, for a file.")] = 300.0,
    *,
    as_json: AsJson = False,
) -> None:
    """Check that a method or a task keeps the rules of the contract, or that results may be submitted."""
    if (target is None) == (results is None):
        raise UserError("bench check: expected a file, a name, or --results DIR, and one of them only")
    if rerun is None and (model or tokenizer):
        raise UserError("--model, --tokenizer: expected --rerun CELL as well, the cell whose model they locate")
    from bench.cli import check as checks

    if results is not None:
        passed = checks.results(results, rerun, data_dir, model=model, tokenizer=tokenizer, as_json=as_json)
    elif rerun is not None:
        raise UserError("--rerun: expected --results DIR as well, the folder that the cell is in")
    else:
        passed = checks.plugin(str(target), data_dir, timeout, as_json=as_json)
    raise typer.Exit(0 if passed else 1)


def main() -> None:
    """Run the command line.

    A user error prints a sentence on stderr and exits with code 2; signals end the command cleanly.
    """
    if sys.argv[1:2] == ["audit"]:  # threads for small products wait for each other longer than they save
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if sys.argv[1:2] == ["list"] or "_BENCH_COMPLETE" in os.environ:
        # half of its time would go into numpy's idle threads and garbage collection
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        gc.disable()
    sys.exit(exit_code(app))
