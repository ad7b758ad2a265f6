"""Analyses of methods: of variants (`bench.report.variants`) or measures (`bench.report.measures`).

Both modules have the same functions: the published numbers, title, blocks of rows, verdict and legend for people,
records and data for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.report import measures, strips, variants
from bench.report.analysis import Analysis, stem_of
from bench.report.figures.measures import dots_of_measures
from bench.report.figures.variants import differences_of_variants
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.stats.measured import Measured
from bench.stats.variants import Variants

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _module(found: Variants | Measured) -> Any:
    return measures if isinstance(found, Measured) else variants


def read_published(found: Variants | Measured, results: Path) -> Mapping[Any, float]:
    """The published numbers of an analysis; empty where there are none.

    Raises:
        UserError: their file is not as it must be.
    """
    published: Mapping[Any, float] = _module(found).read_published(found, results)
    return published


def shown(
    found: Variants | Measured, published: Mapping[Any, float], figure_formats: tuple[str, ...] = ("svg",)
) -> Analysis:
    """An analysis with its figure, and coloured texts as a page where there are such; tables are written as JSON."""
    module, grids = _module(found), []
    blocks = module.blocks(found, published) or [[{}]]
    for i, rows in enumerate(blocks):
        names = 2 if "metric" in rows[0] else 1
        columns = (Column(label, is_left=k < names, is_metric=k >= names) for k, label in enumerate(rows[0]))
        grids.append(
            Grid(
                ("Steps",) if i else (module.title(found),),
                tuple(columns),
                tuple(GridRow([Cell(text) for text in row.values()]) for row in rows),
                tuple(module.legend(found, published)) if i == len(blocks) - 1 else (),
                verdict=() if i else (module.verdict(found),),
            )
        )
    base = {
        "model": found.model, "task": found.task, "method": found.method, "analysis": found.analysis,
        "preset": found.preset,
    }  # fmt: skip
    views = TableViews(
        grids,
        lambda: [base | record for record in module.records(found, published)],
        lambda: [module.data(found, published)],
    )
    stem, page = stem_of(found.model, found.task, f"{found.method}-{found.analysis}"), ""
    if isinstance(found, Measured) and found.measures.strips is not None:
        page = strips.page(measures.title(found), found.measures.strips)

    def figures() -> dict[str, Figure | None]:
        return {stem: dots_of_measures(found) if isinstance(found, Measured) else differences_of_variants(found)}

    return Analysis(stem, views, figures, ("json",), figure_formats, page)
