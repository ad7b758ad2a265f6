"""Build the reports of methods' analyses (`bench analyze`), which compare variants of a method or compute measures.

`bench.report.variants` and `bench.report.measures_table` have functions of the same names. `read_published`, `title`,
`blocks` (tables as text), `verdict` and `legend` are for people; `records` and `data` are for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.report import measures_table, text_heatmap, variants
from bench.report.analysis import Analysis, file_stem
from bench.report.figures.dot_plot import dots_of_measures
from bench.report.figures.variants import differences_of_variants
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews
from bench.stats.analysis_measures import AnalysisMeasures
from bench.stats.variants import Variants

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _module(result: Variants | AnalysisMeasures) -> Any:
    return measures_table if isinstance(result, AnalysisMeasures) else variants


def read_published(result: Variants | AnalysisMeasures, results: Path) -> Mapping[Any, float]:
    """Read the values that were published for an analysis; empty if there is no file of such values.

    Raises:
        UserError: the file is malformed.
    """
    published: Mapping[Any, float] = _module(result).read_published(result, results)
    return published


def build_analysis(
    result: Variants | AnalysisMeasures, published: Mapping[Any, float], figure_formats: tuple[str, ...] = ("svg",)
) -> Analysis:
    """Return the report of an analysis: tables, a figure, and an HTML page if the analysis has coloured texts.

    Tables are written to JSON files only.
    """
    module, grids = _module(result), []
    blocks = module.blocks(result, published) or [[{}]]
    for i, rows in enumerate(blocks):
        n_names = 2 if "metric" in rows[0] else 1
        columns = (Column(label, is_left=k < n_names, is_metric=k >= n_names) for k, label in enumerate(rows[0]))
        grids.append(
            Grid(
                ("Steps",) if i else (module.title(result),),
                tuple(columns),
                tuple(GridRow([Cell(text) for text in row.values()]) for row in rows),
                tuple(module.legend(result, published)) if i == len(blocks) - 1 else (),
                verdict=() if i else (module.verdict(result),),
            )
        )
    base = {
        "model": result.model, "task": result.task, "method": result.method, "analysis": result.analysis,
        "preset": result.preset,
    }  # fmt: skip
    views = TableViews(
        grids,
        lambda: [base | record for record in module.records(result, published)],
        lambda: [module.data(result, published)],
    )
    stem, page = file_stem(result.model, result.task, f"{result.method}-{result.analysis}"), ""
    if isinstance(result, AnalysisMeasures) and result.measures.strips is not None:
        page = text_heatmap.page(measures_table.title(result), result.measures.strips)

    def figures() -> dict[str, Figure | None]:
        return {
            stem: dots_of_measures(result) if isinstance(result, AnalysisMeasures) else differences_of_variants(result)
        }

    return Analysis(stem, views, figures, ("json",), figure_formats, page)
