"""Analyses of methods as text and files: of variants (`bench.report.variants`) or measures (`bench.report.measures`).

Both modules have the same functions: title, blocks of rows, verdict and legend for people, records and data for
programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import measures, variants
from bench.report.analysis_files import write_whole_files
from bench.report.tables import formats
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.results import files
from bench.stats.measured import Measured
from bench.stats.variants import Variants

Analysed = Variants | Measured
"""Numbers of an analysis."""
Published = Sequence[Mapping[Any, float]]
"""Published numbers of each analysis."""


def views_of(found: Sequence[Analysed]) -> Any:
    """Module that shows what an analysis gave."""
    return measures if found and isinstance(found[0], Measured) else variants


def views(found: Sequence[Analysed], published: Published) -> TableViews:
    """Tables with verdicts and legends, for every format."""
    pairs = list(zip(found, published, strict=True))
    return TableViews(
        [grid for each, paper in pairs for grid in _grids(each, paper)],
        lambda: [record for each, paper in pairs for record in views_of(found).records(each, paper)],
        lambda: [views_of(found).data(each, paper) for each, paper in pairs],
    )


def _grids(each: Analysed, paper: Mapping[Any, float]) -> Iterator[Grid]:
    shown = views_of([each])
    blocks = shown.blocks(each, paper) or [[{}]]
    for i, rows in enumerate(blocks):
        names = 2 if "metric" in rows[0] else 1
        yield Grid(
            (shown.title(each),) if i == 0 else ("Steps",),
            tuple(Column(label, is_left=k < names, is_metric=k >= names) for k, label in enumerate(rows[0])),
            tuple(GridRow([Cell(text) for text in row.values()]) for row in rows),
            tuple(shown.legend(each, paper)) if i == len(blocks) - 1 else (),
            verdict=(shown.verdict(each),) if i == 0 else (),
        )


def write(found: Sequence[Analysed], published: Published, out: Path, kinds: Sequence[str]) -> list[Path]:
    """Write analyses: the numbers as JSON, the figure, and coloured texts as a page, where there are such.

    Files are named `<model folder>--<task>--<method>-<analysis>.*`.

    Raises:
        UserError: the folder can't be written.
    """
    from bench.report import strips
    from bench.report.figures.measures import dots_of_measures
    from bench.report.figures.variants import differences_of_variants
    from bench.report.figures.write import safe_name

    paths: list[Path] = []
    for each, paper in zip(found, published, strict=True):
        parts = (files.model_folder(each.model), safe_name(each.task), f"{each.method}-{each.analysis}")
        stem = files.SEPARATOR.join(parts)
        texts = {f"{stem}.json": formats.render(views([each], [paper]), "json")}
        if isinstance(each, Measured) and each.measures.strips is not None:
            texts[f"{stem}.html"] = strips.page(measures.title(each), each.measures.strips)
        figure = dots_of_measures(each) if isinstance(each, Measured) else differences_of_variants(each)
        paths += write_whole_files(out, texts, [(f"{stem}.{kind}", figure) for kind in kinds if figure is not None])
    return paths
