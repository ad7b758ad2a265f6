"""The verdict of a matrix in words, made from its tests and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.metrics import METRICS
from bench.report.text import interval_text, precise, several, shown
from bench.report.transfer.model import LEVEL, METRICS_SHOWN, Matrix, MeanPrice, Price
from bench.report.verdict.phrases import named
from bench.results.transfer import AT_RANDOM, SUBJECT, Corpus
from bench.stats import Interval

_NAMED = 7
"""Names that a sentence gives one by one; of more, one fewer is, and the others are counted."""


def verdict(matrix: Matrix) -> tuple[str, ...]:
    """Facts, a line each: who leads by its worst cell, what moving costs, and who falls behind what is told nothing."""
    moved = [mean for mean in matrix.means if not mean.corpus.leaves_out]
    parted = [m for m in matrix.means if m.corpus.leaves_out == SUBJECT and m.corpus.task == m.home.task]
    return (
        *(_on_leaders(matrix, metric) for metric in METRICS_SHOWN),
        *_on_means(matrix, moved, "Learning on another corpus"),
        *_on_means(matrix, parted, "Learning without the subject"),
        *_on_means(matrix, matrix.novelty_means, "Learning without the subject, against as few answers,"),
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
    by = f"by worst-cell {METRICS[metric].label}"
    ranked = [each for each in matrix.worst if each.metric == metric and each.rank is not None]
    if not ranked:
        return f"Nobody leads {by}: no method has a rank."
    first, *tied = [each for each in ranked if each.rank == 1]
    told = f"{shown(METRICS[metric], first.value)}{between(metric, first.interval)}, {place(first.corpus, first.test)}"
    if len(ranked) == 1:
        return f"Nobody leads {by}: {first.method} ({told}) is the only method with a rank."
    if tied:
        others = named([each.method for each in tied], most=_NAMED)
        return f"Tied {by}: {first.method} ({told}) can't be distinguished from {others}."
    return f"Leading {by}: {first.method} ({told})."


def _on_means(matrix: Matrix, means: Sequence[MeanPrice], what: str) -> Iterator[str]:
    """In how many cases the methods that learn lose Brier on average; all prices stand in the tables."""
    own = [mean for mean in means if mean.metric == "brier"]
    if not own:
        return
    most = max(own, key=lambda mean: mean.points)
    ends = [mean.interval.ends for mean in own if mean.interval.ends is not None]
    yield (
        f"{what} is shown to worsen Brier in {sum(low > 0 for low, _ in ends)} of {several(len(own), 'case')}, to"
        f" improve it in {sum(high < 0 for _, high in ends)}; highest price: {_points(most)},"
        f" {place(most.corpus, most.test)} (mean of {most.n} of {len(matrix.about.learners)} methods that learn)."
    )


def _points(price: Price | MeanPrice) -> str:
    return f"{precise(METRICS[price.metric], price.points)} points{between(price.metric, price.interval)}"


def _on_prices(matrix: Matrix) -> Iterator[str]:
    """Prices of single methods, corrected for all."""
    own = [price for price in matrix.prices if price.metric == "brier" and price.corpus.leaves_out != AT_RANDOM]
    tested = [price for price in own if price.p_holm is not None]
    decided = [price for price in tested if price.is_shown]
    costs = [price for price in decided if price.points > 0]
    if own:
        most = max(costs, key=lambda price: price.points, default=None)
        dearest = "" if most is None else f"; dearest: {most.method}, {_points(most)}, {place(most.corpus, most.test)}"
        yield (
            f"Prices of single methods in Brier: of {len(tested)} tested {len(costs)} are shown to be costs,"
            f" {len(decided) - len(costs)} gains{dearest}."
        )


def _on_untrained(matrix: Matrix) -> Iterator[str]:
    """Methods that learned elsewhere against all that are told nothing."""
    tests = matrix.against_untrained
    if not tests:
        yield "No method that learned elsewhere can be compared with one that is told nothing."
        return
    decided = [each for each in tests if each.p_holm is not None and each.p_holm < 1 - LEVEL]
    worse = list(dict.fromkeys(each.method for each in decided if each.points > 0))
    cells, wins = (Counter(each.method for each in some) for some in (tests, [e for e in decided if e.points < 0]))
    gaps = {each.method for each in matrix.missing}
    better = [name for name, n in cells.items() if name not in gaps and wins[name] == n]
    yield (
        f"In Brier, learned elsewhere, worse than every method that is told nothing ({_names(tests[0].untold)}) in some"
        f" cell: {_names(worse)}; better than all of these in every cell: {_names(better)}."
    )


def _names(names: Sequence[str]) -> str:
    return named(names, most=_NAMED) if names else "none"


def _on_gaps(matrix: Matrix) -> Iterator[str]:
    if matrix.missing:
        names = list(dict.fromkeys(each.method for each in matrix.missing))
        yield f"Cells without numbers: {len(matrix.missing)} ({named(names, most=_NAMED)})."
