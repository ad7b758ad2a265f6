"""Render grids as terminal text, Markdown, LaTeX, CSV and JSON; text is escaped for each format.

Numbers are rounded for readers; CSV and JSON have fractions with all digits.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.progress import visible, visible_json
from bench.report.tables.grid import MOST_SPREADS
from bench.report.text import EN_DASH, MINUS
from bench.store.files import json_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from bench.report.tables.grid import Column, Grid, TableViews

_SUPERSCRIPTS = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹˒")
_MARKDOWN_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|~$^])")
_HTML_MARKS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_BREAK = "\u200b"
"""Zero-width space put between two hyphens, which LaTeX would join to a dash."""
_LATEX_MARKS = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
        "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "|": r"\textbar{}", '"': "''", "[": "{[}", "*": "{*}", _BREAK: "{}",
        "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", EN_DASH: "--", "…": r"\dots{}", MINUS: "$-$",
        "†": r"$^{\dagger}$", "▸": r"$\triangleright$", "≥": r"$\geq$", "√": r"$\surd$",
    }
)  # fmt: skip
"""LaTeX code of special characters. Without braces, LaTeX would take brackets and stars that begin a row as options."""
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a text that a spreadsheet would run as a formula; an apostrophe is put before such a text."""
_LATEX_HEAD = r"% Needs \usepackage{booktabs,graphicx} and \usepackage[table]{xcolor}."
_MAX_WIDTH = 10_000
"""Upper limit, in characters, of the width that is measured to see whether a table fits a terminal."""


def render(views: TableViews, kind: str, *, width: int | None = None) -> str:
    """Render the tables of a command as text.

    Args:
        views: from `bench.report.tables.build.table_views` or `bench.report.tables.comparison.build`.
        kind: output format: `terminal`, `md`, `csv`, `tex` or `json`.
        width: width of the terminal, in columns; by default the width of the real terminal.

    Raises:
        UserError: unknown format.
    """
    writers: Mapping[str, Callable[[], str]] = {
        "terminal": lambda: visible(terminal(views.grids, width)),
        "md": lambda: visible(markdown(views.grids)),
        "csv": lambda: visible(csv_text(views.records())),
        "tex": lambda: visible(latex(views.grids)),
        "json": lambda: visible_json(json_text(views.data())),
    }
    if kind not in writers:
        raise UserError(f"unknown table format {kind!r}; expected one of {', '.join(writers)}")
    return writers[kind]()


# --- terminal ---------------------------------------------------------------------------------------------------------


def terminal(grids: Sequence[Grid], width: int | None) -> str:
    """Render grids (tables of cells) as plain text, `width` columns wide; None takes the real terminal's width."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(), width=width, color_system=None, force_terminal=False, force_jupyter=False,
        legacy_windows=False,
    )  # fmt: skip
    with console.capture() as capture:
        print_terminal(grids, console)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def print_terminal(grids: Sequence[Grid], console: Console) -> None:
    """Print grids (tables of cells) on a rich console, as `Text` without markup; the merged legend comes last.

    If the console is too narrow, droppable columns are left out one by one and listed. If the table is still too wide,
    columns are split into panels below one another.
    """
    from rich.text import Text

    shown: set[Column] = set()
    for whole in grids:
        panels = _panels(whole, console)
        seen = {i for panel in panels for i in panel}
        grid = whole.showing(seen)
        dropped = [column.label for i, column in enumerate(grid.columns) if i not in seen]
        shown.update(grid.columns[i] for i in seen)
        console.print(Text(grid.facts[0], style="bold"))
        for lead, rest in grid.verdicts:
            console.print(Text(lead, style="bold").append(f"\n{rest}" * bool(rest), style="not bold"), highlight=False)
        if grid.facts[1:]:
            console.print(Text(" ".join(grid.facts[1:]), style="dim"), highlight=False)
        console.print()
        for panel in panels if grid.rows else ():
            # with a gap between columns where there is room
            table = _rich_table(grid, panel, gap=1)
            console.print(table if _fits(table, console) else _rich_table(grid, panel, gap=0))
            console.print()
        notes = [f"{str(k).translate(_SUPERSCRIPTS)} {note}" for k, note in enumerate(grid.footnotes, start=1)]
        for text in (*notes, *grid.remarks):
            console.print(Text(text), highlight=False)
        if dropped:
            console.print(Text(f"no room for: {', '.join(dropped)}", style="dim"), highlight=False)
        if notes or grid.remarks or dropped:
            console.print()
    if any(grid.hides_spreads for grid in grids):
        console.print(
            Text(
                f"Intervals and standard deviations: choose up to {MOST_SPREADS} methods with --method, or --format md,"
                " csv or json",
                style="dim",
            ),
            highlight=False,
        )
    unseen = {column for grid in grids for column in grid.columns} - shown
    legend = next((grid.brief for grid in grids if grid.brief), "") or " ".join(merge_legends(grids, unseen))
    console.print(Text(legend, style="dim"), highlight=False)


def merge_legends(grids: Sequence[Grid], dropped: Collection[Column] = ()) -> list[str]:
    """Merge the legends of grids: each sentence occurs once, and the order within each grid is kept.

    Args:
        grids: grids with legends.
        dropped: columns that no grid shows; the sentences that explain them are left out.
    """
    unexplained = {column.sentence for column in dropped}
    merged: list[str] = []
    for grid in grids:
        position = 0
        for sentence in (sentence for sentence in grid.legend if sentence not in unexplained):
            if sentence not in merged:
                merged.insert(position, sentence)
            position = merged.index(sentence) + 1
    return merged


def _panels(grid: Grid, console: Console) -> list[list[int]]:
    """Split the columns of a grid into panels that fit the console; a panel is a list of column indices.

    Each panel begins with the columns that name a row.
    """

    def fits(numbers: Sequence[int]) -> bool:
        return _fits(_rich_table(grid, numbers, gap=0), console)

    remaining = list(range(len(grid.columns)))
    for number in sorted(remaining, key=lambda i: -grid.columns[i].droppable):
        if grid.columns[number].droppable and not fits(remaining):
            remaining.remove(number)
    if grid.is_folded or fits(remaining):
        return [remaining]
    remaining = [i for i, column in enumerate(grid.columns) if column.is_metric or not column.droppable]
    names = 1 + sum(1 for _ in takewhile(lambda column: column.is_left, grid.columns[1:]))
    name_columns = list(range(names))
    panels = [[*name_columns]]
    for _, span in groupby(remaining[names:], key=lambda i: grid.columns[i].span):
        numbers = list(span)
        fits_whole = fits([*name_columns, *numbers]) and bool(grid.columns[numbers[0]].span)
        for piece in [numbers] if fits_whole else [[number] for number in numbers]:
            if len(panels[-1]) > names and not fits([*panels[-1], *piece]):
                panels.append([*name_columns])
            panels[-1] += piece
    return panels


def _fits(table: RichTable, console: Console) -> bool:
    return table.__rich_measure__(console, console.options.update(max_width=_MAX_WIDTH)).maximum <= console.width


def _rich_table(grid: Grid, numbers: Sequence[int], *, gap: int) -> RichTable:
    """Build the rich table of the columns with the indices `numbers`; `gap` spaces are between columns."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)
    signs = [[cell.mark + grid.numbers(cell).translate(_SUPERSCRIPTS) for cell in row.cells] for row in grid.rows]
    spans = {""}
    for i in numbers:
        column = grid.columns[i]
        label = column.label
        if any(grid.columns[k].span for k in numbers):
            label = f"{'' if column.span in spans else column.span}\n{label}"
            spans.add(column.span)
        table.add_column(Text(label), justify="left" if column.is_left else "right", overflow="fold")
    for number, row in enumerate(grid.rows):
        if row.begins_block and number:
            table.add_section()
        if row.is_spread and grid.hides_spreads:
            continue
        if row.is_subrow and all(row.cells[i].text in {"", EN_DASH} for i in numbers[1:]):
            continue
        cells = []
        for i in numbers:  # pad signs on the right, so that the digits of a column are aligned
            tail = 0 if grid.columns[i].is_left else max(len(row_signs[i]) for row_signs in signs)
            text = row.cells[i].text.replace(" ±", "±").replace(" / ", "/")
            shown = Text("  " * (row.is_subrow and i == 0)).append(text, style="bold" if row.cells[i].bold else "")
            cells.append(shown.append(signs[number][i].ljust(tail)))
        table.add_row(*cells, style="dim" if row.is_subrow else None)
    return table


# --- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(grids: Sequence[Grid]) -> str:
    """Render grids (tables of cells) as GitHub Markdown, with a section per grid and one legend."""
    lines: list[str] = []
    for grid in grids:
        lines += [f"### {markdown_text(grid.facts[0])}", ""]
        for lead, rest in grid.verdicts:
            lines += [f"**{markdown_text(lead)}** {markdown_text(rest)}".rstrip(), ""]
        if grid.facts[1:]:
            lines += [markdown_text(" ".join(grid.facts[1:])), ""]
        rows = []
        for row in grid.rows:
            texts = []
            for cell in row.cells:
                bold, notes = "**" * cell.bold, f"<sup>{grid.numbers(cell)}</sup>" if cell.notes else ""
                texts.append(bold + markdown_text(cell.text) + bold + markdown_text(cell.mark) + notes)
            rows.append(["&emsp;" * row.is_subrow + texts[0], *texts[1:]])
        if rows:
            labels = [markdown_text(column.heading) for column in grid.columns]
            align = "".join("l" if column.is_left else "r" for column in grid.columns)
            lines += [*markdown_table(labels, rows, align), ""]
        lines += [f"{number}. {markdown_text(note)}" for number, note in enumerate(grid.footnotes, start=1)]
        lines += [""] * bool(grid.footnotes)
        lines += [line for remark in grid.remarks for line in (markdown_text(remark), "")]
    return "\n".join([*lines, markdown_text(" ".join(merge_legends(grids))), ""])


def markdown_table(labels: Sequence[str], rows: Iterable[Sequence[str]], align: str = "l") -> list[str]:
    """Return the lines of a Markdown table.

    Args:
        labels: headings of the columns.
        rows: texts of the cells, row by row.
        align: l (left) or r (right) for each column; the last letter holds for all further columns.

    >>> markdown_table(["method", "Brier", "AUROC"], [["ccps", "14.2", "81.0"]], "lr")
    ['| method | Brier | AUROC |', '|:--|--:|--:|', '| ccps | 14.2 | 81.0 |']
    """
    rule = "|".join(":--" if side == "l" else "--:" for side in align.ljust(len(labels), align[-1]))
    return [f"| {' | '.join(labels)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def markdown_text(text: str) -> str:
    """Escape text for Markdown."""
    return _MARKDOWN_MARKS.sub(r"\\\1", text).translate(_HTML_MARKS)


# --- LaTeX ------------------------------------------------------------------------------------------------------------


def latex(grids: Sequence[Grid]) -> str:
    """Render grids as LaTeX `table` environments, shrunk to the line width; a comment names the packages to load.

    Rows of leading methods are shaded. The column with the numbers of labels is included only if statistics are shown.
    """
    # labels without signs that have a meaning in LaTeX
    labels = ["tab:" + "-".join(re.findall(r"[A-Za-z0-9.]+", grid.label)) for grid in grids]
    twice = {label for label in labels if labels.count(label) > 1}
    named = [f"{label}-{number}" if label in twice else label for number, label in enumerate(labels, start=1)]
    lines = (line for grid, label in zip(grids, named, strict=True) for line in _latex_lines(grid, label))
    return "\n".join((_LATEX_HEAD, *lines))


def _latex_lines(grid: Grid, label: str) -> list[str]:
    shown_columns = [i for i, column in enumerate(grid.columns) if column.is_in_latex]
    sentences = {column.sentence for column in grid.columns if not column.is_in_latex}
    grid = replace(
        grid, columns=tuple(grid.columns[i] for i in shown_columns),
        rows=tuple(row._replace(cells=[row.cells[i] for i in shown_columns]) for row in grid.rows),
        legend=tuple(sentence for sentence in grid.legend if sentence not in sentences),
    )  # fmt: skip
    notes = [rf"\textbf{{{_latex_text(lead)}}} {_latex_text(rest)}".rstrip() for lead, rest in grid.verdicts]
    notes += [f"\\textsuperscript{{{k}}} {_latex_text(note)}" for k, note in enumerate(grid.footnotes, start=1)]
    notes += [_latex_text(remark) for remark in grid.remarks]
    notes.append(_latex_text(" ".join(grid.legend)))
    rows: list[str] = []
    has_subrows = any(row.is_subrow for row in grid.rows)
    for row in grid.rows:
        if rows and row.begins_block:
            rows.append(r"\midrule")
        elif rows and has_subrows and not row.is_subrow:
            rows.append(r"\addlinespace[2pt]")
        texts = []
        for cell in row.cells:
            mean, space, rest = map(_latex_text, cell.text.partition(" "))
            text = (rf"\textbf{{{mean}}}" if cell.bold else mean) + space + rest + _latex_text(cell.mark)
            text += rf"\textsuperscript{{{grid.numbers(cell)}}}" if cell.notes else ""
            texts.append(text)
        start = r"\quad " if row.is_subrow else r"\rowcolor{black!8}" * row.is_shaded
        rows.append(start + " & ".join(texts) + r" \\")
    # headings over several columns, with a rule under each
    heads, rules, start_at = [], "", 1
    for span, columns in groupby(grid.columns, key=lambda column: column.span):
        size = len(list(columns))
        heads.append(rf"\multicolumn{{{size}}}{{c}}{{{_latex_text(span)}}}" if span else " & " * (size - 1))
        rules += rf"\cmidrule(lr){{{start_at}-{start_at + size - 1}}}" if span else ""
        start_at += size
    tabular = [
        rf"\sbox0{{\begin{{tabular}}{{{''.join('l' if column.is_left else 'r' for column in grid.columns)}}}",
        r"\toprule",
        *([" & ".join(heads) + r" \\", rules] if rules else []),
        " & ".join(_latex_text(column.label) for column in grid.columns) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
    ]
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex_text(' '.join((f'{grid.facts[0]}.', *grid.facts[1:])))}}}\label{{{label}}}",
        r"\par\smallskip",
        *(tabular if grid.rows else []),
        r"\par\smallskip",
        r"\footnotesize\raggedright",
        r"\\".join(notes),
        r"\end{table}",
        "",
    ]


def _latex_text(text: str) -> str:
    """Escape text for LaTeX; characters that pdflatex's standard fonts lack become question marks."""
    escaped = re.sub(r"-(?=-)", f"-{_BREAK}", text).translate(_LATEX_MARKS)
    return "".join(c if c.isascii() or "\u00a1" <= c <= "\u00ff" else "?" for c in escaped)


# --- CSV --------------------------------------------------------------------------------------------------------------


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Render records as CSV; columns are the fields of all records, and missing values are empty."""
    stream = io.StringIO()
    names = list(dict.fromkeys(key for record in records for key in record))
    writer = csv.DictWriter(stream, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    for record in records:
        formulas = {k: f"'{v}" for k, v in record.items() if isinstance(v, str) and v.startswith(_FORMULA_PREFIXES)}
        writer.writerow({**record, **formulas})
    return stream.getvalue()
