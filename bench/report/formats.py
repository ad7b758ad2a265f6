"""How a comparison table is written: rich terminal, Markdown, CSV, LaTeX, JSON; names and reasons are escaped in each.

Terminal, Markdown and LaTeX show percent with one decimal; CSV and JSON give fractions with all their digits.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from bench.report.model import Estimate, Line, Table

ARROWS = {True: " ↑", False: " ↓", None: ""}
SUPERSCRIPTS = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹˒")
MARKDOWN_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|~$^])")
HTML_MARKS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
EN_DASH = "\u2013"
BREAK = "\u200b"
"""Put between two hyphens, which LaTeX would join to a dash; `plain` has removed any other."""
LATEX_MARKS = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
        "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "|": r"\textbar{}", '"': "''", "[": "{[}", "*": "{*}", BREAK: "{}",
        "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", EN_DASH: "--", "…": r"\dots{}",
    }
)  # fmt: skip
"""Brackets and stars are guarded because they would be read as arguments of a preceding `\\\\`."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""Text that a spreadsheet would run as a formula; a leading apostrophe keeps it text."""


class Cell(NamedTuple):
    """What stands in one field of a table, before it is escaped."""

    text: str
    bold: bool = False
    notes: tuple[int, ...] = ()


def percent(fraction: float) -> str:
    """In percent with one decimal, without the sign."""
    return f"{100 * fraction:.1f}"


def rounded(fraction: float | None) -> float:
    """The number that `percent` shows."""
    return float("nan") if fraction is None else float(percent(fraction))


def header(table: Table) -> list[str]:
    """Column headings; arrows point to where a metric is better."""
    metrics = [METRICS[name].label + ARROWS[METRICS[name].higher_is_better] for name in table.columns]
    return ["method", *metrics, "n", *(["seeds"] if table.several_seeds else [])]


def cells(table: Table, line: Line) -> list[Cell]:
    """The fields of one method; none is empty."""
    done = line.status == "ok"
    reasons = Cell(line.status, notes=line.reasons)
    numbers = [_number(line.estimates[name]) if done else reasons for name in table.columns]
    seeds = str(line.runs) if len(line.seeds) == line.runs else f"{len(line.seeds)} of {line.runs}"
    return [
        Cell(line.method, notes=line.notes + (line.reasons if done else ())),
        *numbers,
        Cell(EN_DASH if line.n is None else f"{line.n:,}"),
        *([Cell(seeds)] if table.several_seeds else []),
    ]


def _number(estimate: Estimate) -> Cell:
    if estimate.mean is None:
        return Cell("undefined", notes=estimate.notes)
    spread = "" if estimate.std is None else f" ± {percent(estimate.std)}"
    return Cell(percent(estimate.mean) + spread, estimate.best, estimate.notes)


# --- terminal ---------------------------------------------------------------------------------------------------------


def terminal(tables: Sequence[Table], width: int | None) -> str:
    """As plain text, as wide as the terminal."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        print_terminal(tables, console)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def print_terminal(tables: Sequence[Table], console: Console) -> None:
    """Print on a rich console; everything goes through `Text`, which knows no markup."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    for table in tables:
        console.print(Text(table.facts[0], style="bold"))
        console.print(Text(" · ".join(table.facts[1:]), style="dim"), highlight=False)
        grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for name in header(table):
            grid.add_column(Text(name), justify="left" if name == "method" else "right", overflow="fold")
        for line in table.lines:
            grid.add_row(*(_text(cell) for cell in cells(table, line)))
        console.print(grid)
        for number, note in enumerate(table.footnotes, start=1):
            console.print(Text(f"{_superscript((number,))} {note}"), highlight=False)
        console.print()


def _text(cell: Cell) -> Text:
    from rich.text import Text

    shown = Text().append(cell.text.replace(" ± ", "±"), style="bold" if cell.bold else "")
    return shown.append(_superscript(cell.notes))


def _superscript(notes: Sequence[int]) -> str:
    return ",".join(map(str, notes)).translate(SUPERSCRIPTS)


# --- text formats -----------------------------------------------------------------------------------------------------


def markdown(tables: Sequence[Table]) -> str:
    """As GitHub's Markdown, one section per table."""
    return "\n".join(line for table in tables for line in _markdown_lines(table))


def _markdown_lines(table: Table) -> list[str]:
    names = header(table)
    lines = [f"### {_markdown_text(table.facts[0])}", "", _markdown_text(" · ".join(table.facts[1:])), ""]
    lines += [f"| {' | '.join(names)} |", "|:--" + "|--:" * (len(names) - 1) + "|"]
    lines += [f"| {' | '.join(map(_markdown_cell, cells(table, line)))} |" for line in table.lines]
    lines.append("")
    lines += [f"{number}. {_markdown_text(note)}" for number, note in enumerate(table.footnotes, start=1)]
    return [*lines, ""] if table.footnotes else lines


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_text(cell.text)
    bold = f"**{text}**" if cell.bold else text
    return bold + (f"<sup>{','.join(map(str, cell.notes))}</sup>" if cell.notes else "")


def _markdown_text(text: str) -> str:
    return MARKDOWN_MARKS.sub(r"\\\1", text).translate(HTML_MARKS)


def latex(tables: Sequence[Table]) -> str:
    """As `table` environments; the document needs the package booktabs."""
    return "\n".join(line for table in tables for line in _latex_lines(table))


def _latex_lines(table: Table) -> list[str]:
    names = header(table)
    notes = [f"\\textsuperscript{{{k}}} {_latex_text(note)}" for k, note in enumerate(table.footnotes, start=1)]
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex_text('; '.join(table.facts))}.}}",
        rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
        r"\toprule",
        " & ".join(map(_latex_text, names)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_latex_cell, cells(table, line))) + r" \\" for line in table.lines),
        r"\bottomrule",
        r"\end{tabular}",
        *([r"\par\smallskip", r"\footnotesize\raggedright", r"\\".join(notes)] if notes else []),
        r"\end{table}",
        "",
    ]


def _latex_cell(cell: Cell) -> str:
    mean, plus_minus, std = map(_latex_text, cell.text.partition(" ± "))
    text = (rf"\textbf{{{mean}}}" if cell.bold else mean) + plus_minus + std
    return text + (rf"\textsuperscript{{{','.join(map(str, cell.notes))}}}" if cell.notes else "")


def _latex_text(text: str) -> str:
    """Escaped; characters that pdflatex's standard fonts lack become question marks."""
    escaped = re.sub(r"-(?=-)", f"-{BREAK}", text).translate(LATEX_MARKS)
    return "".join(c if c.isascii() or "\u00a1" <= c <= "\u00ff" else "?" for c in escaped)


# --- data formats -----------------------------------------------------------------------------------------------------


def comma_separated(tables: Sequence[Table]) -> str:
    """As CSV: one line per method of all tables, fractions with all digits; empty where there is no number."""
    records = [_flat(table, line) for table in tables for line in table.lines]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(dict.fromkeys(k for r in records for k in r)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()


def _flat(table: Table, line: Line) -> dict[str, Any]:
    record: dict[str, Any] = {
        "model": table.model, "task": table.task, "preset": table.preset, "method": line.method,
        "variant": line.variant, "status": line.status, "n": line.n, "seeds": len(line.seeds), "runs": line.runs,
        "ece_floor": line.ece_floor,
    }  # fmt: skip
    for name in table.columns:
        estimate = line.estimates.get(name)
        record[f"{name}_mean"] = None if estimate is None else estimate.mean
        record[f"{name}_std"] = None if estimate is None else estimate.std
    used = {*line.reasons, *line.notes, *(number for estimate in line.estimates.values() for number in estimate.notes)}
    record["notes"] = "; ".join(table.footnotes[number - 1] for number in sorted(used))
    record["caption"] = "; ".join(table.facts)
    return {key: _no_formula(value) for key, value in record.items()}


def _no_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def as_json(tables: Sequence[Table]) -> str:
    """As a JSON list of tables, fractions with all digits; null where there is no number."""
    return json.dumps(list(map(_json_table, tables)), allow_nan=False, ensure_ascii=False, indent=2) + "\n"


def _json_table(table: Table) -> dict[str, Any]:
    return {
        "model": table.model,
        "task": table.task,
        "preset": table.preset,
        "facts": list(table.facts),
        "lines": [_json_line(table, line) for line in table.lines],
    }


def _json_line(table: Table, line: Line) -> dict[str, Any]:
    return {
        "method": line.method,
        "variant": line.variant,
        "status": line.status,
        "reasons": [table.footnotes[number - 1] for number in line.reasons],
        "notes": [table.footnotes[number - 1] for number in line.notes],
        "n": line.n,
        "seeds": list(line.seeds),
        "runs": line.runs,
        "ece_floor": line.ece_floor,
        "metrics": {name: _json_estimate(table, estimate) for name, estimate in line.estimates.items()},
    }


def _json_estimate(table: Table, estimate: Estimate) -> dict[str, Any]:
    notes = [table.footnotes[number - 1] for number in estimate.notes]
    return {"mean": estimate.mean, "std": estimate.std, "best": estimate.best, "notes": notes}
