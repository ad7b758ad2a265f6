"""Analyses of methods as text and files: of variants (`bench.report.variants`) or measures (`bench.report.measures`).

Both modules have the same functions: title, blocks of rows, verdict and legend for people, records and data for
programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.progress import visible, visible_json
from bench.report import measures, variants
from bench.report.analysis_files import write_whole_files
from bench.report.tables import formats
from bench.report.tables.formats import markdown_text
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


def markdown(found: Sequence[Analysed], published: Published) -> str:
    """Tables with verdicts and legends."""
    views, parts = views_of(found), []
    for each, paper in zip(found, published, strict=True):
        lines = [f"**{markdown_text(views.title(each))}**"]
        for rows in views.blocks(each, paper):
            lines += ["", _line(rows[0]), "|---" * len(rows[0]) + "|", *(_line(row.values()) for row in rows)]
        told = (views.verdict(each), " ".join(views.legend(each, paper)))
        parts.append("\n".join([*lines, *("\n" + markdown_text(text) for text in told if text)]))
    return visible("\n\n".join(parts)) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


def as_json(found: Sequence[Analysed], published: Published) -> str:
    """All analyses as one list."""
    data = [views_of(found).data(each, paper) for each, paper in zip(found, published, strict=True)]
    return visible_json(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def comma_separated(found: Sequence[Analysed], published: Published) -> str:
    """A line for each record of all analyses."""
    told = zip(found, published, strict=True)
    return visible(formats.comma_separated([r for each, paper in told for r in views_of(found).records(each, paper)]))


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
        texts = {f"{stem}.json": as_json([each], [paper])}
        if isinstance(each, Measured) and each.measures.strips is not None:
            texts[f"{stem}.html"] = strips.page(measures.title(each), each.measures.strips)
        figure = dots_of_measures(each) if isinstance(each, Measured) else differences_of_variants(each)
        paths += write_whole_files(out, texts, [(f"{stem}.{kind}", figure) for kind in kinds if figure is not None])
    return paths
