"""The multiverse of a table: every defensible choice that costs no forward pass, and which claims survive them."""

from collections.abc import Collection

from bench.report.analysis import Analysis, stem_of
from bench.report.multiverse.compute import computed
from bench.report.multiverse.figure import claims_drawn, places_drawn
from bench.report.multiverse.model import Multiverse, PairOutcome, RankDistribution, Universe
from bench.report.multiverse.verdict import verdict
from bench.report.multiverse.views import views


def shown(found: Multiverse, methods: Collection[str] = ()) -> Analysis:
    """The multiverse, with a figure of places and one of claims.

    Args:
        found: the multiverse.
        methods: claims about these alone are printed, all are written; by default all.
    """
    stem = stem_of(found.model, "multiverse", found.task)
    return Analysis(
        stem,
        views(found),
        lambda: {f"{stem}--places": places_drawn(found), f"{stem}--claims": claims_drawn(found)},
        printed=views(found, methods),
    )


__all__ = [
    "Multiverse",
    "PairOutcome",
    "RankDistribution",
    "Universe",
    "claims_drawn",
    "computed",
    "places_drawn",
    "shown",
    "verdict",
]
