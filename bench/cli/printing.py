"""Printing of what commands return: tables, JSON, lines, notes, analyses."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table as RichTable
from rich.text import Text

from bench.cli.verbosity import is_quiet
from bench.progress import terminal, visible, visible_json
from bench.store.files import json_text

if TYPE_CHECKING:
    from bench.report.analysis import Analysis
    from bench.report.tables.grid import TableViews

_WHOLE_FROM = 100
"""Ratio of two parameter counts from which on it is printed without decimals."""
_MOST_PATHS = 8
"""Most written files that are named one by one."""
_MIN_TEXT_WIDTH = 24
"""Width in characters up to which a column of a listing is not wrapped."""
_MIN_SENTENCE_WIDTH = 40
"""Smallest width in characters of a listing's last column, which has sentences."""


console = terminal


class OutFormat(StrEnum):
    """Format in which a command prints its table."""

    TERMINAL = "terminal"
    MD = "md"
    CSV = "csv"
    TEX = "tex"
    JSON = "json"


def announcer() -> Callable[[str], None]:
    """Return a function that prints a notice on stderr before long work.

    With --quiet, or if stderr is no terminal, it prints nothing.
    """
    if is_quiet() or not sys.stderr.isatty():
        return lambda _: None
    return lambda text: console(stderr=True).print(Text(f"{text} ..."))


def print_notes(notes: Iterable[str]) -> None:
    """Print sentences for the user on stderr, unless --quiet is set."""
    for note in () if is_quiet() else notes:
        console(stderr=True).print(Text(f"note: {note}"), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; values of types that JSON lacks become text, NaN and infinity become null."""
    finite = json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
    sys.stdout.write(visible_json(json_text(finite)))


def print_line(text: str) -> None:
    """Print one line without wrapping it."""
    console().print(Text(text), soft_wrap=True)


def print_records(records: Sequence[Mapping[str, Any]]) -> None:
    """Print dicts as a table with one row for each dict and one column for each key."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    grid = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for record in records:
        grid.add_row(*(Text(visible(str(record.get(column, "")))) for column in columns))
    console().print(grid)


def print_listing(records: Sequence[Mapping[str, Any]]) -> None:
    """Print dicts whose first value is a name and whose last value is a sentence; in a pipe, as tab-separated lines."""
    if console().is_terminal:
        _print_named_records(records)
        return
    for line in _to_single_lines(records):
        sys.stdout.write("\t".join(line.values()) + "\n")


def print_fields(record: Mapping[str, Any]) -> None:
    """Print a dict as lines `name  value`, without empty fields; its field `constants` follows below as a table."""
    grid = RichTable(box=None, pad_edge=False, show_header=False)
    for key, value in record.items():
        lines = [f"{name}: {item}" for name, item in value.items()] if isinstance(value, Mapping) else value
        text = "\n".join(map(str, lines)) if isinstance(lines, list | tuple) else str(lines)
        if key != "constants" and text not in {"", "None"}:
            grid.add_row(Text(key, style="bold"), Text(visible(text)))
    below = record.get("constants")
    console().print(grid)
    if below:
        print_line("")
        _print_named_records(below)


def print_sizes(records: Sequence[Mapping[str, Any]]) -> None:
    """Print numbers of trained parameters, and below them why they differ from the paper's."""
    reasons = list(dict.fromkeys(record["why they differ"] for record in records if record["why they differ"]))
    lines = []
    for record in records:
        (times,) = (name for name in record if name.startswith("times "))  # the baseline
        ratio, printed, why = record[times], record["in the paper"], record["why they differ"]
        mark = f" {reasons.index(why) + 1})" if why else ""
        lines.append(
            {
                "model": record["model"],
                "method": record["method"],
                "parameters": f"{record['parameters']:,}",
                times: "" if ratio is None else f"{ratio:,.0f}" if ratio >= _WHOLE_FROM else f"{ratio:.3g}",
                "in the paper": "" if printed is None else f"{printed:,}{mark}",
            }
        )
    print_records(lines)
    for number, reason in enumerate(reasons, start=1):
        console().print(Text(f"{number}) {reason}"))


def print_memory(records: Sequence[Mapping[str, Any]]) -> None:
    """Print device memory in GB, and below it what the columns mean."""
    in_gb = [{k: f"{v:.1f}" if isinstance(v, float) else v or "" for k, v in record.items()} for record in records]
    print_records(in_gb)
    print_line(
        "GB of 1e9 bytes, computed from shapes for bfloat16 without loading anything. Blocks: keys and values, or saved"
        " activations. Rest: passing tensors, the head's float32 copy, logits. Checkpointed: the total with gradient"
        " checkpointing. Allow 1.5 GB more for the device's own."
    )


def print_analyses(analyses: Sequence[Analysis], out: Path | None, format_: OutFormat) -> None:
    """Print the tables of analyses; if `out` is given, also write their files there and print the files' names."""
    from bench.report.analysis import join_tables, write

    written = [] if out is None else write(analyses, out)
    print_views(join_tables(analyses), format_)
    print_written(written, format_)


def print_views(views: TableViews, format_: OutFormat) -> None:
    """Print tables in a format."""
    from bench.report.tables import formats

    if format_ is OutFormat.TERMINAL:
        formats.print_terminal(views.grids, console())
    else:
        sys.stdout.write(formats.render(views, format_.value))


def print_written(paths: Sequence[Path], format_: OutFormat = OutFormat.TERMINAL) -> None:
    """Print the paths of written files, of many their folder alone; as notes on stderr if stdout has data."""
    lines = [f"wrote {path}" for path in paths]
    if len(paths) > _MOST_PATHS:
        lines = [f"wrote {len(paths)} files below {os.path.commonpath(paths)}"]
    if format_ is not OutFormat.TERMINAL:
        print_notes(lines)
        return
    for line in lines:
        print_line(line)


def _print_named_records(records: Sequence[Mapping[str, Any]]) -> None:
    """Print dicts, at least one, whose first value is a name and whose last value is a sentence; no word is cut.

    In a terminal too narrow for a table each dict becomes a paragraph.
    """
    out, lines = console(), _to_single_lines(records)
    columns, widths = list(lines[0]), []
    for key in columns[:-1]:  # as wide as its longest word; up to `_MIN_TEXT_WIDTH` for more text
        texts = [key, *(line[key] for line in lines)]
        longest_word = max(cell_len(word) for text in texts for word in (text.split() or [""]))
        widths.append(max(longest_word, min(_MIN_TEXT_WIDTH, max(map(cell_len, texts)))))
    if sum(widths) + len(widths) + _MIN_SENTENCE_WIDTH <= out.width:
        grid = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        for key, width in zip(columns, [*widths, None], strict=True):
            grid.add_column(key, width=width)
        for line in lines:
            grid.add_row(*map(Text, line.values()))
        out.print(grid)
        return
    wrapper = textwrap.TextWrapper(
        out.width, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for record in records:
        parts = []
        for key, value in record.items():  # names, sentences and empty values are printed without their key
            text = visible(str(value))
            parts.append(text if key in {"name", "what"} or not text else f"{key}: {text}")
        out.print(Text(parts[0], style="bold"), soft_wrap=True)
        for text in (*parts[1:][-1:], "\u00a0· ".join(filter(None, parts[1:-1]))):
            if text:
                out.print(Text(wrapper.fill(text)), soft_wrap=True)


def _to_single_lines(records: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return dicts with the same keys, and all values as texts without line breaks."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    return [{key: " ".join(visible(str(record.get(key, ""))).split()) for key in keys} for record in records]
