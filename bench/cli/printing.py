"""Printed output of the commands: records as tables or JSON, lines, notes."""

from __future__ import annotations

import json
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

_MANY = 100
"""Ratio from which on decimals are not printed."""
_MEASURED = 10_000
"""Columns within which a table's natural width is measured."""
_WIDE = 24
"""Columns of a terminal from which on a column of a listing is folded between words."""
_SENTENCE = 40
"""Columns that the last column of a listing needs: it holds sentences."""


console = terminal


class OutFormat(StrEnum):
    """Format in which tables are printed."""

    TERMINAL = "terminal"
    MD = "md"
    CSV = "csv"
    JSON = "json"


def announcer() -> Callable[[str], None]:
    """Function that names long work on stderr before it starts; silent with --quiet and where stderr is no terminal."""
    if is_quiet() or not sys.stderr.isatty():
        return lambda _: None
    return lambda text: console(stderr=True).print(Text(f"{text} ..."))


def print_notes(notes: Iterable[str]) -> None:
    """Print notes for the user on stderr, but not with --quiet."""
    for note in () if is_quiet() else notes:
        console(stderr=True).print(Text(f"note: {note}"), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; what JSON doesn't know is printed as text, and a number that isn't finite as null."""
    finite = json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
    sys.stdout.write(visible_json(json_text(finite)))


def print_line(text: str) -> None:
    """Print one line, however long."""
    console().print(Text(text), soft_wrap=True)


def print_records(records: Sequence[Mapping[str, Any]]) -> None:
    """Print records as a table with a column for each key."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    grid = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for record in records:
        grid.add_row(*(Text(visible(str(record.get(column, "")))) for column in columns))
    console().print(grid)


def print_listing(records: Sequence[Mapping[str, Any]]) -> None:
    """Print records that begin with a name and end with a sentence; a pipe gets a line for each, with tabs."""
    if console().is_terminal:
        _print_things(records)
        return
    for line in _filled(records):
        sys.stdout.write("\t".join(line.values()) + "\n")


def print_fields(record: Mapping[str, Any]) -> None:
    """Print one record as lines `name  value`, its constants as a table below."""
    grid = RichTable(box=None, pad_edge=False, show_header=False)
    for key, value in record.items():
        lines = [f"{name}: {item}" for name, item in value.items()] if isinstance(value, Mapping) else value
        text = "\n".join(map(str, lines)) if isinstance(lines, list | tuple) else str(lines)
        if key != "constants":
            grid.add_row(Text(key, style="bold"), Text(visible(text)))
    below = record.get("constants")
    console().print(grid)
    if below:
        print_line("")
        _print_things(below)


def print_sizes(records: Sequence[Mapping[str, Any]]) -> None:
    """Print numbers of parameters, and below them why they differ from the paper's."""
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
                times: "" if ratio is None else f"{ratio:,.0f}" if ratio >= _MANY else f"{ratio:.3g}",
                "in the paper": "" if printed is None else f"{printed:,}{mark}",
            }
        )
    print_records(lines)
    for number, reason in enumerate(reasons, start=1):
        console().print(Text(f"{number}) {reason}"))


def print_memory(records: Sequence[Mapping[str, Any]]) -> None:
    """Print memory in GB, and below it what the columns mean."""
    in_gb = [{k: f"{v:.1f}" if isinstance(v, float) else v or "" for k, v in record.items()} for record in records]
    print_records(in_gb)
    print_line(
        "GB of 1e9 bytes, computed from shapes for bfloat16 without loading anything. Blocks: keys and values, or saved"
        " activations. Rest: passing tensors, the head's float32 copy, logits. Checkpointed: the total with gradient"
        " checkpointing. Allow 1.5 GB more for the device's own."
    )


def print_analyses(analyses: Sequence[Analysis], out: Path | None, format_: OutFormat) -> None:
    """Write analyses, unless there is no folder for them, and print their tables and files."""
    from bench.report.analysis import printed, write
    from bench.report.tables import formats

    written = [] if out is None else write(analyses, out)
    views = printed(analyses)
    if format_ is OutFormat.TERMINAL:
        formats.print_terminal(views.grids, console())
    else:
        sys.stdout.write(formats.render(views, format_.value))
    print_written(written, format_)


def print_written(paths: Sequence[Path], format_: OutFormat = OutFormat.TERMINAL) -> None:
    """Print the files that were written, as notes where data are printed."""
    told = [f"wrote {path}" for path in paths]
    if format_ is not OutFormat.TERMINAL:
        print_notes(told)
        return
    for line in told:
        print_line(line)


def _print_things(records: Sequence[Mapping[str, Any]]) -> None:
    """Print records that begin with a name and end with a sentence; no word is cut.

    A terminal with no room for a table gets a paragraph for each. There is at least one.
    """
    out, lines = console(), _filled(records)
    columns, widths = list(lines[0]), []
    for key in columns[:-1]:  # as wide as its longest word, and `_WIDE` where it has text for it
        texts = [key, *(line[key] for line in lines)]
        longest_word = max(cell_len(word) for text in texts for word in (text.split() or [""]))
        widths.append(max(longest_word, min(_WIDE, max(map(cell_len, texts)))))
    if sum(widths) + len(widths) + _SENTENCE <= out.width:
        grid = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        for key, width in zip(columns, [*widths, None], strict=True):
            grid.add_column(key, width=width)
        for line in lines:
            grid.add_row(*map(Text, line.values()))
        out.print(grid)
        return
    indented = textwrap.TextWrapper(
        out.width, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for record in records:
        facts = []
        for key, value in record.items():  # a name, a sentence and nothing need no key
            text = visible(str(value))
            facts.append(text if key in {"name", "what"} or not text else f"{key}: {text}")
        out.print(Text(facts[0], style="bold"), soft_wrap=True)
        for text in (*facts[1:][-1:], "\u00a0· ".join(filter(None, facts[1:-1]))):
            if text:
                out.print(Text(indented.fill(text)), soft_wrap=True)


def _filled(records: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The records with the same keys, each value in one line."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    return [{key: " ".join(visible(str(record.get(key, ""))).split()) for key in keys} for record in records]
