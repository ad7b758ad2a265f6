"""Files of an analysis: its tables as Markdown, CSV and JSON, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench.api import UserError
from bench.report.figures.sheet import save
from bench.report.tables.formats import render
from bench.report.tables.grid import TableViews
from bench.results.files import SEPARATOR, ensure_writable
from bench.store.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = ("md", "csv", "json")
FIGURES = ("svg", "png")


def write_files(  # noqa: PLR0913 - what is written, and in which formats
    out: Path,
    stem: str,
    views: TableViews,
    figures: Mapping[str, Figure],
    *,
    tables: Sequence[str] = TABLES,
    kinds: Sequence[str] = FIGURES,
    pages: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Write `<stem>.<format>`, and each figure as `<stem>--<name>.<format>`; returns the files.

    Args:
        out: their folder; it is made.
        stem: beginning of their names.
        views: the tables.
        figures: by name; the name "" adds nothing to the stem.
        tables: formats of the tables.
        kinds: formats of the figures.
        pages: other texts by format.

    Raises:
        UserError: the folder can't be written.
    """
    ensure_writable(out)
    texts = {**{kind: render(views, kind) for kind in tables}, **pages}
    paths = [out / f"{stem}.{kind}" for kind in texts]
    try:
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(path, text.encode())
        drawn = [
            save(figure, out / f"{SEPARATOR.join(filter(None, (stem, name)))}.{kind}")
            for name, figure in figures.items()
            for kind in kinds
        ]
    except OSError as error:
        raise UserError(f"--out {out}: it can't be written ({error.strerror or error}); name another") from error
    return [*paths, *drawn]
