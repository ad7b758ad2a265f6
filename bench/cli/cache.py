"""`bench cache`: shows the disk usage of the store, and frees space."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from bench.api import UserError
from bench.api.errors import did_you_mean, match_name
from bench.cli import verbosity
from bench.cli.commands import AsJson, Commands, with_verbosity
from bench.cli.options import MODEL
from bench.cli.printing import print_json, print_line, print_records
from bench.store.disk_cache import cache_folder
from bench.store.usage import ADAPTERS, ENTRIES, FITS, READINGS, UsageRow, format_size, list_usage

_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
"""Letter of a unit of time, e.g. `d` -> seconds."""
_UNKNOWN = "not known"


def show(ctx: typer.Context, *, as_json: AsJson = False) -> None:
    """Show what is kept between runs: where it is, how large, by kind, model and task."""
    if ctx.invoked_subcommand is not None:
        return
    root = cache_folder()
    records = _records(list_usage(root))
    total = sum(record["bytes"] for record in records)
    if as_json:
        print_json({"folder": str(root), "bytes": total, "parts": records})
        return
    print_line(f"{root}: {format_size(total)}")
    if records:
        print_records([_format_record(record) for record in records])


app = Commands(callback=with_verbosity(show), invoke_without_command=True)


@app.command()
def prune(
    *,
    model: Annotated[
        str | None, typer.Option(help="Only entries of this model, as bench cache names it.", autocompletion=MODEL)
    ] = None,
    older_than: Annotated[str | None, typer.Option(help="Only what is older than this, e.g. 12h, 30d, 8w.")] = None,
    fits: Annotated[bool, typer.Option("--fits", help="Only fitted methods and adapters.")] = False,
    signals: Annotated[
        bool, typer.Option("--signals", help="Only what was read of a model: signals, and the answers beside them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be freed and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Free space: answers, signals, fits, adapters and converted GGUF files; a run computes again what it needs.

    Answers of servers go, too: a run asks for them, and pays for them, again. Estimates of --max-time go, so that a run
    may leave out other methods. What a running process reads or writes is kept, and so are judges' verdicts, logs and
    results.
    """
    from bench.store import pruning

    root = cache_folder()
    rows = list_usage(root)
    models = sorted({row.model for row in rows if row.model})
    model = None if model is None else match_name(model, models)
    if model is not None and model not in models:
        names = ", ".join(models) or "no model whose name was noted"
        raise UserError(f"--model {model}: nothing is kept of it, only of {names}.{did_you_mean(model, models)}")
    age = None
    if older_than is not None:
        age_match = re.fullmatch(r"(\d{1,6})([hdw])", older_than.strip())
        if age_match is None:
            raise UserError(
                f"--older-than {older_than}: expected a number of hours, days or weeks, e.g. 12h, 30d or 8w"
            )
        age = int(age_match[1]) * _SECONDS[age_match[2]]
    kinds = ((FITS, ADAPTERS) * fits + (READINGS,) * signals) or ENTRIES
    choice = pruning.select_entries(root, rows, kinds, model, age)
    if choice.held:
        print_line(f"{_count_text(choice.held)} in use by running processes, kept")
    if not choice.gone:
        print_line("nothing to remove")
        return
    if not verbosity.is_quiet():
        print_records([_format_record(record) for record in _records(choice.gone)])
        print_line(f"{_count_text(choice.gone)}, {format_size(sum(row.bytes for row in choice.gone))}")
    if dry_run:
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("nobody can be asked here, and nothing was removed; add --yes to remove it, or --dry-run")
        if not typer.confirm("Remove it?", err=True):
            raise typer.Exit(1)
    removed = pruning.prune(root, choice.gone)
    note = f"; {_count_text(removed.held)} kept, which processes have begun to use" if removed.held else ""
    print_line(f"removed {_count_text(removed.gone)}, {format_size(sum(row.bytes for row in removed.gone))}{note}")


def _count_text(rows: Sequence[UsageRow]) -> str:
    return f"{len(rows):,} {'entry' if len(rows) == 1 else 'entries'}"


def _records(rows: Iterable[UsageRow]) -> list[dict[str, Any]]:
    """Sum up entries and bytes of the store by kind, model and task.

    An entry of a pass over a model has answers and signals; their bytes are counted separately.
    """
    counts: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        parts = (
            {"answers": row.answers, "signals": row.bytes - row.answers}
            if row.kind == READINGS
            else {row.kind: row.bytes}
        )
        stored = row.kind in ENTRIES
        for kind, n in parts.items():
            count = counts[kind, (row.model or _UNKNOWN) if stored else "", (row.corpus or _UNKNOWN) if stored else ""]
            count[0] += stored
            count[1] += n
    return [
        {"kind": kind, "model": model, "task": task, "entries": entries, "bytes": n}
        for (kind, model, task), (entries, n) in sorted(counts.items())
    ]


def _format_record(record: dict[str, Any]) -> dict[str, str]:
    return {
        **{name: record[name] for name in ("kind", "model", "task")},
        "entries": f"{record['entries']:,}" if record["entries"] else "",
        "size": format_size(record["bytes"]),
    }
