"""`bench run`: parses options and run file, runs the methods, prints results and what to do next."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.api import UserError
from bench.api.options import RUNS, words_of
from bench.cli import run_files, verbosity
from bench.cli.commands import AsJson
from bench.cli.options import options_from
from bench.cli.printing import announcer, console, print_json, print_line, print_notes, print_written
from bench.report.selection import View
from bench.run.config import HeadSetting, RunConfig

if TYPE_CHECKING:
    from bench.report.tables.model import Table
    from bench.results.row import ResultRow

File = Annotated[
    Path | None,
    typer.Argument(
        help="Options by their names in TOML, e.g. model = 'tiny'; those on the command line win.",
        rich_help_panel="Run file (.toml)", callback=run_files.load_defaults, is_eager=True, metavar="[FILE]",
    ),
]  # fmt: skip
DumpConfig = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write these options as a run file and stop; - prints it.",
                 rich_help_panel="Output"),
]  # fmt: skip


@options_from(RunConfig, without=("cache",), each="seed")
def run(
    configs: Sequence[RunConfig], *, file: File = None, dump_config: DumpConfig = None, as_json: AsJson = False
) -> None:
    """Run methods on a model over tasks, score and compare them."""
    del file  # its options are defaults of the others
    if dump_config is not None:
        run_files.dump(configs, dump_config)
        return
    progress = verbosity.progress()
    if configs[0].dry_run:  # loading the libraries takes seconds
        progress.say("Plan: looking at the questions, the model and what is stored; nothing is computed")
    from bench.report import style
    from bench.run.seeds import run_seeds

    if not as_json:
        style.read(configs[0].out)  # an unreadable colour file is reported before hours of work
    report = run_seeds(configs, progress)
    if as_json:
        from bench.results.files import to_json

        record = {
            "plan": report.plan,
            "rows": [json.loads(to_json(row)) for row in report.rows],
            "paths": list(map(str, report.paths)),
            "heads": list(map(str, report.heads)),
            "notes": report.notes,
        }
        print_json(record | ({"stopped": report.stopped} if len(configs) > 1 else {}))
    elif configs[0].dry_run and verbosity.is_quiet():  # progress did not print the plan
        for line in report.plan:
            print_line(line)
    if report.rows and not as_json:
        from bench.report.tables import build, formats
        from bench.report.tables.request import tables_of
        from bench.store.disk_cache import cache_folder

        view = View(configs[0].out, partial=True, deviations=True)
        tables = tables_of(view, cache_folder(), announcer(), report.rows)
        formats.print_terminal(build.table_views(tables).grids, console())
        print_written([*report.paths, *report.heads])
        print_notes(report.notes)
        if not report.any_failed:
            for line in next_steps(configs[0], report.rows, rank_heads(report.heads, tables, configs[0])):
                print_line(line)
    if report.stopped:
        raise UserError(f"{'; '.join(report.stopped)}. What the other seeds gave is stored.")
    raise typer.Exit(1 if report.any_failed else 0)


def rank_heads(heads: Sequence[Path], tables: Sequence[Table], config: RunConfig) -> list[Path]:
    """Sort heads: those of leaders of a table come first, then those of methods that beat a constant, the best first.

    All others come last, in their order.
    """
    from bench.results.files import path_of

    lines = [line for table in tables for line in table.leaders()]
    lines += [line for table in tables for line in table.lines if not line.is_worse_than_constant]
    folder = config.save_heads or Path()
    order = [path_of(row, folder).with_suffix("") for line in lines for row in line.ok_rows]
    return sorted(heads, key=lambda head: order.index(head) if head in order else len(order))


def next_steps(config: RunConfig, rows: Sequence[ResultRow], heads: Sequence[Path] = ()) -> list[str]:
    """Return lines with commands to type next: they show the run's results, or score questions with the first head.

    The commands work in the folder from which the run was started.
    """
    from bench.model.specs import public_name

    folder = [] if config.out == RUNS else ["--results", str(config.out)]
    deviating = any(row.deviations for row in rows)  # answers of a file may deviate, too
    filters = [name for name, value in (("--partial", config.limit), ("--deviations", deviating)) if value]
    filters += [] if config.preset is None else ["--preset", config.preset]
    commands = {
        "with intervals, calibration and training": ["table", *folder, *filters, "--stats"],
        "as a page": ["report", *folder, *filters],
    }
    if heads:
        setting = HeadSetting(
            public_name(config.model), trust_remote_code=config.trust_remote_code, plugins=config.plugins,
            tokenizer=config.tokenizer, served=config.served,
        )  # fmt: skip
        commands["your own questions"] = ["score", "--head", str(heads[0]), *words_of(setting), "questions.jsonl"]
    lines = {what: f"{program()} {shlex.join(words)}" for what, words in commands.items()}
    width = max(map(len, lines.values()))
    return [
        f"{'next:' if not row else '':5} {command:{width}}  {what}" for row, (what, command) in enumerate(lines.items())
    ]


def program() -> str:
    """Return the shell command that starts this program from the current folder, e.g. `bench` or `.venv/bin/bench`."""
    script = Path(sys.argv[0])
    if script.parts[-3:] == ("bench", "cli", "__main__.py"):
        return f"{_shell_name(Path(sys.executable))} -m bench.cli"
    return _shell_name(script) if script.is_file() else "bench"


def _shell_name(program: Path) -> str:
    """Return a program's name if the shell would find the same file by name (PATH), else the program's path."""
    on_path = shutil.which(program.name)
    is_on_path = on_path is not None and Path(on_path).absolute() == program.absolute()
    return program.name if is_on_path else shlex.quote(str(program))
