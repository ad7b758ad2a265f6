"""`make pictures`: the pictures of the README, from the committed results, by the code that users call.

`docs/pictures/table.svg` is what `bench table` prints, `docs/pictures/reliability.svg` a figure of `bench report`.
"""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich import _export_format
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from bench.report.selection import ReportRequest, View
from bench.report.tables import formats
from bench.report.tables.request import build_views
from bench.report.write import write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PICTURES = ROOT / "docs" / "pictures"
TASK = "atlas-oe"
METHODS = ("sequence-probability", "litcab", "ccps")
"""Methods in the figure; the table has all."""
COLUMNS = 92
WHITE = TerminalTheme((255, 255, 255), (31, 35, 40), [(31, 35, 40)] * 8, [(31, 35, 40)] * 8)
FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", flags=re.DOTALL)
"""Rules that load a font from the network; any fixed-width font does."""


def table(into: Path) -> None:
    """What `bench table --tasks atlas-oe` prints, without the sentences below it, as SVG."""
    views = build_views(View(RESULTS, tasks=(TASK,)), None)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False, force_terminal=True)
    formats.print_terminal([replace(grid, legend=()) for grid in views.grids], console)
    form = FONTS.sub("", _export_format.CONSOLE_SVG_FORMAT).replace("Fira Code", "monospace")
    title = f"bench table --tasks {TASK}"
    into.write_text(console.export_svg(title=title, theme=WHITE, code_format=form, unique_id="table"), encoding="utf-8")


def reliability(into: Path) -> None:
    """The reliability diagrams of some methods."""
    with TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        out = Path(folder) / "page.html"
        write(ReportRequest(RESULTS, methods=METHODS, tasks=(TASK,), out=out, figures=figures), None)
        (figure,) = figures.glob(f"*--{TASK}--reliability.svg")
        shutil.copyfile(figure, into)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    table(PICTURES / "table.svg")
    reliability(PICTURES / "reliability.svg")
