"""The verdict of a matrix in words, made from its tests and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.metrics import METRICS
from bench.report.text import interval_text, precise, shown
from bench.report.transfer.model import LEVEL, METRICS_SHOWN, Matrix, MeanPrice
from bench.report.verdict.phrases import named
from bench.results.transfer import AT_RANDOM, Corpus
from bench.stats import Interval

_NAMED = 7
"""Names that a sentence gives one by one; of more, one fewer is, and the others are counted."""


def verdict(matrix: Matrix) -> tuple[str, ...]:
    """Sentences: who leads by its worst cell, what moving costs, and who falls behind what is told nothing."""
    moves = [mean for mean in matrix.means if mean.corpus.leaves_out != AT_RANDOM]
    return (
        *(_on_leaders(matrix, metric) for metric in METRICS_SHOWN),
        *_on_means(matrix, moves, "Learning elsewhere"),
        *_on_means(matrix, matrix.novelty_means, "A subject that no answer was learned of, against as few answers"),
        *_on_prices(matrix),
        *_on_untrained(matrix),
        *_on_gaps(matrix),
    )


def place(corpus: Corpus | None, test: str) -> str:
    """Words for a cell."""
    return f"tested on {test}" if corpus is None else f"learned on {corpus.label}; tested on {test}"


def between(metric: str, interval: Interval) -> str:
    """An interval in brackets, or nothing."""
    return "" if interval.ends is None else f" [{interval_text(METRICS[metric], *interval.ends)}]"


def _on_leaders(matrix: Matrix, metric: str) -> str:
    """Methods than whose worst cell none is significantly better."""
    by = f"by its worst {METRICS[metric].label}"
    ranked = [each for each in matrix.worst if each.metric == metric and each.rank is not None]
    if not ranked:
        return f"Nobody leads {by}: no method has a rank."
    first, *tied = [each for each in ranked if each.rank == 1]
    told = f"{shown(METRICS[metric], first.value)}{between(metric, first.interval)}, {place(first.corpus, first.test)}"
    if len(ranked) == 1:
        return f"Nobody leads {by}: {first.method} ({told}) is the only method with a rank."
    others = f"; tied with {named([each.method for each in tied], most=_NAMED)}" if tied else ""
    return f"{'Best of those tied' if tied else 'Best'} {by}: {first.method} ({told}){others}."


def _on_means(matrix: Matrix, means: Sequence[MeanPrice], what: str) -> Iterator[str]:
    """The largest mean price in Brier, over the methods that learn; the others stand in the tables of prices."""
    own = [mean for mean in means if mean.metric == "brier"]
    if not own:
        return
    decided = [mean for mean in own if mean.interval.ends is not None and mean.interval.ends[0] > 0]
    most = max(decided or own, key=lambda mean: mean.points)
    size = f"{precise(METRICS['brier'], most.points)} points of Brier{between('brier', most.interval)}"
    verb = f"costs at most {size}" if decided else f"is not shown to cost anything ({size} at most)"
    yield (
        f"{what} {verb}, {place(most.corpus, most.test)}: the mean of {most.n} of {len(matrix.about.learners)} methods"
        " that learn."
    )


def _on_prices(matrix: Matrix) -> Iterator[str]:
    own = [price for price in matrix.prices if price.metric == "brier" and price.corpus.leaves_out != AT_RANDOM]
    costs = [price for price in own if price.is_shown and price.points > 0]
    counted = f"{len(costs)} of {sum(price.p_holm is not None for price in own)} prices of single methods are shown"
    if costs:
        most = max(costs, key=lambda price: price.points)
        size = f"{precise(METRICS['brier'], most.points)} points{between('brier', most.interval)}"
        counted += f", the dearest that of {most.method}: {size}, {place(most.corpus, most.test)}"
    yield f"{counted}."


def _on_untrained(matrix: Matrix) -> Iterator[str]:
    tests = matrix.against_untrained
    if not tests:
        yield "No method that learned elsewhere can be compared with one that is told nothing."
        return
    decided = [each for each in tests if each.p_holm is not None and each.p_holm < 1 - LEVEL]
    worse = list(dict.fromkeys(each.method for each in decided if each.points > 0))
    cells, wins = (Counter(each.method for each in some) for some in (tests, [e for e in decided if e.points < 0]))
    gaps = {each.method for each in matrix.missing}
    better = [name for name, n in cells.items() if name not in gaps and wins[name] == n]
    untold = named(tests[0].untold, most=_NAMED)
    yield (
        f"Learned elsewhere, against every method that is told nothing ({untold}): worse in a cell"
        f" {named(worse, most=_NAMED) if worse else 'none'}; better in every cell"
        f" {named(better, most=_NAMED) if better else 'none'}."
    )


def _on_gaps(matrix: Matrix) -> Iterator[str]:
    if matrix.missing:
        names = list(dict.fromkeys(each.method for each in matrix.missing))
        yield f"Cells without numbers: {len(matrix.missing)} ({named(names, most=_NAMED)}); their methods have no rank."
