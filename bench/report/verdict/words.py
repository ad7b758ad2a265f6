"""Sentences of a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from bench.metrics import METRICS
from bench.report.tables.model import Table
from bench.report.verdict.judgement import Judgement


def on_leaders(table: Table, block: Judgement) -> Iterator[str]:
    """Who leads a block, and by how much."""
    label = METRICS[block.metric].label
    if block.state == "sure":
        yield f"By {label}, {block.best.key.label} is best: significantly better than every other ranked method."
    elif block.state == "tied":
        names = ", ".join(line.key.label for line in block.leaders)
        yield f"By {label}, {names} can't be distinguished."
    else:
        yield f"By {label}, nothing was tested."
