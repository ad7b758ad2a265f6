"""`bench reproduce`: repeats the comparison of a paper, or prints the planned runs with their costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.api import UserError
from bench.cli import verbosity
from bench.cli.printing import print_json, print_line, print_records

if TYPE_CHECKING:
    from bench.run.paper_runs import PaperRuns

PASS_OPTIONS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Click settings with which the command accepts unknown options; they are passed on to `bench run`."""
_FIXED_OPTIONS = (
    "--method", "--methods", "--task", "--tasks", "--preset", "--seed", "--model", "--tokenizer", "--limit",
)  # fmt: skip
"""Options of `bench run` that the user can't set here, because the paper fixes their values."""


def reproduce(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Method of the paper, e.g. ccps; further options go to each bench run.")],
    models: Annotated[str | None, typer.Option(help="These models of the paper only, separated by commas.")] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print all runs with their cost, and the commands of those that are left.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: print JSON.")] = False,
) -> None:
    """Repeat the comparison of a paper: all its methods, models and tasks."""
    if as_json and not dry_run:
        raise UserError("--json: expected --dry-run as well; the results of runs are files")
    plan = plan_reproduction(name, models, ctx)
    if dry_run:
        grid = plan.grid
        records: Sequence[Mapping[str, Any]] = [run.record() for run in plan.runs]
        commands = [run.command(ctx.args) for run in plan.runs if not run.done]
        if as_json:
            header = {"reference": grid.reference, "accelerator": grid.accelerator}
            print_json({**header, "runs": records, "commands": commands})
            return
        print_line(f"{grid.reference}: {len(plan.methods)} methods, {len(grid.tasks)} tasks, preset {grid.preset}")
        rows = []
        for record in records:
            tokens, hours = record["tokens"], record["hours"]
            rows.append(
                {
                    "model": record["model"],
                    "seed": str(record["seed"]),
                    "cells there": f"{record['there']} of {record['cells']}",
                    "M tokens": "not known" if tokens is None else f"{tokens / 1e6:,.0f}",
                    "hours": "not known" if hours is None else f"{hours:,.1f}",
                    "graded": f"{record['graded']:,}",
                    "compared ≤": f"{record['compared_at_most']:,}",
                    "judge reads ≤": f"{record['judge_tokens_at_most'] / 1e6:,.1f} M",
                }
            )
        print_records(rows)
        hours = [record["hours"] for record in records if isinstance(record["hours"], float)]
        print_line(
            f"Hours are those of one {grid.accelerator}: {sum(hours):,.1f} in all. Costs are those of whole runs from\n"
            "nothing; what the cache holds is not read again. Graded are answers of tests and training corpora;"
            " samples\nare compared with the answer where their texts differ."
        )
        print_line("Nothing is left to run." if not commands else "Left, which bench reproduce runs one after another:")
        for command in commands:
            print_line(f"  {command}")
        return
    todo, options = [run for run in plan.runs if not run.done], _options(ctx)
    has_device = options.get("device") is not None or options.get("engine") not in {None, "local"}
    if todo and not has_device:
        import torch

        if not torch.cuda.is_available():
            hours = [estimate.hours for run in todo if (estimate := run.of.grid.computed.get(run.model)) is not None]
            start = f"These {len(todo)} runs take {sum(hours):,.0f} hours on one {plan.grid.accelerator}; this"
            raise UserError(
                f"{start if hours else 'This'} machine has no accelerator. Print the plan with --dry-run; --device cpu"
                " runs it here all the same."
            )
    codes = []
    for i, run in enumerate(todo, start=1):  # each in a child process, which frees all memory at its end
        print_line(f"[{i} of {len(todo)}] {run.command(ctx.args)}")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.cli", *run.arguments(ctx.args), *verbosity.flags()]
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if code not in {0, 1}:
            print_line(f"stopped at {i} of {len(todo)}; bench reproduce goes on there when it is called again")
            raise typer.Exit(code if code > 0 else 128 - code)
        codes.append(code)
    print_line(f"{len(todo)} runs ended, {len(plan.runs) - len(todo)} were there before; bench table --against paper")
    raise typer.Exit(max(codes, default=0))


def plan_reproduction(name: str, models: str | None, ctx: typer.Context) -> PaperRuns:
    """Plan the runs that repeat a paper's comparison: all its methods, models and tasks.

    Raises:
        UserError: no comparison has this name, a model is not in the paper, or an option is unknown to `bench run` or
            fixed by the paper.
    """
    from bench import registry
    from bench.data.splits import TrainLimit
    from bench.run.paper_runs import PaperRuns, read_grid

    options = _options(ctx)
    plugins = [Path(path) for path in options.get("plugins") or ()]
    methods_by_name = registry.methods(plugins)
    grid = read_grid(name, methods_by_name)
    requested = tuple(models.split(",")) if models else grid.models
    if unknown := [model for model in requested if model not in grid.models]:
        raise UserError(f"--models: {', '.join(unknown)} is not in this paper; it has {', '.join(grid.models)}")
    tasks = registry.tasks(plugins)
    task_names = dict.fromkeys([*grid.tasks, *(tasks.get(task).train_on for task in grid.tasks)])
    cards: Mapping[str, Any] = {task: tasks.get(task) for task in task_names if task}
    methods = {
        method: methods_by_name.get(method)() for method in registry.expand_groups(grid.methods, methods_by_name)
    }
    limit = options["train_limit"]
    return PaperRuns(
        grid=grid, methods=methods, tasks=cards, models=requested, judge=options["judge"] or grid.judge,
        judge_model=options["judge_model"] or grid.judge_model, out=Path(options["out"]),
        train_limit=None if limit is None else str(TrainLimit.parse(limit)),
    )  # fmt: skip


def _options(ctx: typer.Context) -> Mapping[str, Any]:
    """Return the values of the options that are passed on to `bench run`; all are validated before the first run.

    The judge is None if neither the command line nor a run file names one.
    """
    root: Any = ctx.find_root().command
    run = root.commands["run"]
    _refuse_fixed(word.partition("=")[0] for word in ctx.args)
    with run.make_context("run", ["--method", "all", "--model", "tiny", *ctx.args], parent=ctx.find_root()) as inner:
        in_file = inner.default_map or {}
        _refuse_fixed(option.opts[0] for option in run.params if option.name in in_file)
        source: Any = inner.get_parameter_source("judge")  # by its name, since typer may bring a click of its own
        given = source.name != "DEFAULT"
        return {**inner.params, "judge": inner.params["judge"] if given else None}


def _refuse_fixed(options: Iterable[str]) -> None:
    for option in options:
        if option in _FIXED_OPTIONS:
            raise UserError(f"{option}: the paper says it; bench run takes it for a comparison of your own")
