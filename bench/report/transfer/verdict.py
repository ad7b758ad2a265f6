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
    told = []
    for metric in METRICS_SHOWN:
        by = f"by worst-cell {METRICS[metric].label}"
        ranked = [each for each in matrix.worst if each.metric == metric and each.rank is not None]
        if not ranked:
            told.append(f"Nobody leads {by}: no method has a rank.")
            continue
        first, *tied = (each for each in ranked if each.rank == 1)
        value = f"{shown(METRICS[metric], first.value)}{between(metric, first.interval)}"
        best = f"{by}: {first.method} ({value}, {place(first.corpus, first.test)})"
        if len(ranked) == 1:
            told.append(f"Nobody leads {best} is the only method with a rank.")
        elif tied:
            told.append(f"Tied {best} can't be distinguished from {named([w.method for w in tied], most=_NAMED)}.")
        else:
            told.append(f"Leading {best}.")
    moved = [mean for mean in matrix.means if not mean.corpus.leaves_out]
    told += _on_means(matrix, moved, "Learning on another corpus")
    parted = [m for m in matrix.means if m.corpus.leaves_out == SUBJECT and m.corpus.task == m.home.task]
    told += _on_means(matrix, parted, "Learning without the subject")
    told += _on_means(matrix, matrix.novelty_means, "Learning without the subject, against as few answers,")
    own = [price for price in matrix.prices if price.metric == "brier" and price.corpus.leaves_out != AT_RANDOM]
    if own:
        decided = [price for price in own if price.is_shown]
        costs = [price for price in decided if price.points > 0]
        most = max(costs, key=lambda price: price.points, default=None)
        dearest = "" if most is None else f"; dearest: {most.method}, {_points(most)}, {place(most.corpus, most.test)}"
        told.append(
            f"Prices of single methods in Brier: of {sum(price.p_holm is not None for price in own)} tested"
            f" {len(costs)} are shown to be costs, {len(decided) - len(costs)} gains{dearest}."
        )
    missing = list(dict.fromkeys(each.method for each in matrix.missing))
    tests = matrix.against_untrained
    if tests:
        sure = [each for each in tests if each.p_holm is not None and each.p_holm < 1 - LEVEL]
        worse = list(dict.fromkeys(each.method for each in sure if each.points > 0))
        cells, wins = (Counter(each.method for each in some) for some in (tests, [e for e in sure if e.points < 0]))
        better = [name for name, n in cells.items() if name not in missing and wins[name] == n]
        untold, behind, ahead = (
            named(names, most=_NAMED) if names else "none" for names in (tests[0].untold, worse, better)
        )
        told.append(
            f"In Brier, learned elsewhere, worse than every method that is told nothing ({untold}) in some cell:"
            f" {behind}; better than all of these in every cell: {ahead}."
        )
    else:
        told.append("No method that learned elsewhere can be compared with one that is told nothing.")
    if missing:
        told.append(f"Cells without numbers: {len(matrix.missing)} ({named(missing, most=_NAMED)}).")
    return tuple(told)


def place(corpus: Corpus | None, test: str) -> str:
    """Words for a cell."""
    return f"tested on {test}" if corpus is None else f"learned on {corpus.label}; tested on {test}"


def between(metric: str, interval: Interval) -> str:
    """An interval in brackets, or nothing."""
    return "" if interval.ends is None else f" [{interval_text(METRICS[metric], *interval.ends)}]"


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
