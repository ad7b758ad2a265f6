"""Request of `bench table`, and its answer from a folder of results.

Example: `shown(View(Path("results"), against=True), cache)` is the comparison beside the paper's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import registry
from bench.api import UserError
from bench.report import recomputed, style
from bench.report.standings.cache import StandingsReader
from bench.report.tables import build, comparison, published
from bench.report.tables.grid import TableViews
from bench.report.tables.model import Table
from bench.results.row import ResultRow


@dataclass(frozen=True)
class View:
    """Results to show, and how."""

    results: Path
    """Folder of results."""
    preset: str | None = None
    """This one only."""
    partial: bool = False
    """Also runs with `--limit`."""
    deviations: bool = False
    """Also runs with overridden constants."""
    against: bool = False
    """The published numbers beside ours."""
    compare: tuple[str, ...] | None = None
    """Paired differences between these methods, instead of a table of methods."""
    stats: bool = False
    """Intervals and further metrics."""
    layout: str = "methods"
    """`methods` or `models`."""


def shown(view: View, cache: Path | None, say: Callable[[str], None] = lambda _: None) -> TableViews:
    """Contents that the view asks for.

    Args:
        view: the request.
        cache: folder where intervals and tests are kept; None keeps none.
        say: told before long computations.

    Raises:
        UserError: options that exclude each other, nothing to show, or a result that is not as it must be.
    """
    _refuse_both(view)
    found = tables_of(view, cache, say)
    if view.compare is not None:
        return comparison.build(found, view.compare)
    if view.against:
        found = build.against(found, published.read(view.results))
    return build.views(found, stats=view.stats, layout=view.layout)


def tables_of(
    view: View,
    cache: Path | None,
    say: Callable[[str], None] = lambda _: None,
    rows: Sequence[ResultRow] | None = None,
) -> list[Table]:
    """The tables of the results that the view chooses, with intervals, tests and ranks.

    Args:
        view: the request.
        cache: folder where intervals and tests are kept; None keeps none.
        say: told before long computations.
        rows: of the view's folder, of a run that has just written them; None reads them all.

    Raises:
        UserError: nothing to show, or a result that is not as it must be.
    """
    if rows is None:
        rows = recomputed.rows_of(view.results, cache, partial=view.partial, say=say)
    found = build.build(
        rows, preset=view.preset, deviations=view.deviations, partial=True,
        standings_of=StandingsReader(view.results, cache, say), styles=style.read(view.results),
    )  # fmt: skip
    return build.marked(found, registry.built_in()[0].names())


def _refuse_both(view: View) -> None:
    other = {"--against": view.against, "--stats": view.stats, "--layout models": view.layout == "models"}
    named = [name for name, is_on in other.items() if is_on]
    if view.compare is not None and named:
        raise UserError(f"--compare makes a table of its own; leave out {' and '.join(named)}")
    if view.stats and view.layout == "models":
        raise UserError("--layout models has no room for --stats; leave out one of them")
