"""Build the reports of methods' analyses (`bench analyze`), which compare variants of a method or compute measures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.report import measures_table, text_heatmap, variants
from bench.report.analysis import Analysis, file_stem
from bench.report.figures.dot_plot import dots_of_measures
from bench.report.figures.variants import differences_of_variants
from bench.stats.analysis_measures import AnalysisMeasures
from bench.stats.variants import Variants

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def build_analysis(result: Variants | AnalysisMeasures, results: Path) -> Analysis:
    """Return the report of an analysis: tables, a figure, and an HTML page if the analysis has coloured texts.

    Tables are written to JSON files only. The folder of results may have values that were published for the analysis.

    Raises:
        UserError: the file of published values is malformed.
    """
    stem, page = file_stem(result.model, result.task, f"{result.method}-{result.analysis}"), ""
    if isinstance(result, Variants):
        views = variants.views(result, results)
    else:
        views = measures_table.views(result, results)
        if result.measures.strips is not None:
            page = text_heatmap.page(measures_table.title(result), result.measures.strips)

    def figures() -> dict[str, Figure | None]:
        return {stem: differences_of_variants(result) if isinstance(result, Variants) else dots_of_measures(result)}

    return Analysis(stem, views, figures, ("json",), ("svg",), page)
