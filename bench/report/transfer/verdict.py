"""Sentences that state the results of a transfer matrix, derived from its significance tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.metrics import METRICS
from bench.report.text import interval_text, plural, precise, value_text
from bench.report.transfer.model import LEVEL, METRICS_SHOWN, Matrix, MeanPrice, Price
from bench.report.verdict.phrases import name_first_few
from bench.results.transfer import AT_RANDOM, SUBJECT, Corpus
from bench.stats import Interval

_NAMED = 7
"""Maximum number of names in a sentence. In a longer list, a count of the others takes the place of the last name."""


def verdict(matrix: Matrix) -> tuple[str, ...]:
    """Return the sentences of the verdict on a transfer matrix.

    They name the method whose worst cell is best. They say what training on another corpus than the reference costs,
    and which methods are then worse or better than all methods without labels.
    """
    facts = []
    for metric in METRICS_SHOWN:
        by = f"by worst-cell {METRICS[metric].label}"
        ranked = [t for t in matrix.worst if t.metric == metric and t.rank is not None]
        if not ranked:
            facts.append(f"Nobody leads {by}: no method has a rank.")
            continue
        first, *tied = (t for t in ranked if t.rank == 1)
        value = f"{value_text(METRICS[metric], first.value)}{format_interval(metric, first.interval)}"
        best = f"{by}: {first.method} ({value}, {describe_cell(first.corpus, first.test)})"
        if len(ranked) == 1:
            facts.append(f"Nobody leads {best} is the only method with a rank.")
        elif tied:
            facts.append(
                f"Tied {best} can't be distinguished from {name_first_few([w.method for w in tied], most=_NAMED)}."
            )
        else:
            facts.append(f"Leading {best}.")
    other_corpus = [mean for mean in matrix.means if not mean.corpus.leaves_out]
    facts += _on_means(matrix, other_corpus, "Learning on another corpus")
    without_subject = [m for m in matrix.means if m.corpus.leaves_out == SUBJECT and m.corpus.task == m.home.task]
    facts += _on_means(matrix, without_subject, "Learning without the subject")
    facts += _on_means(matrix, matrix.novelty_means, "Learning without the subject, against as few answers,")
    prices = [price for price in matrix.prices if price.metric == "brier" and price.corpus.leaves_out != AT_RANDOM]
    if prices:
        decided = [price for price in prices if price.is_shown]
        costs = [price for price in decided if price.points > 0]
        top = max(costs, key=lambda price: price.points, default=None)
        most = f"; dearest: {top.method}, {_format_points(top)}, {describe_cell(top.corpus, top.test)}" if top else ""
        facts.append(
            f"Prices of single methods in Brier: of {sum(price.p_holm is not None for price in prices)} tested"
            f" {len(costs)} are shown to be costs, {len(decided) - len(costs)} gains{most}."
        )
    missing = list(dict.fromkeys(t.method for t in matrix.missing))
    tests = matrix.against_untrained
    if tests:
        decisive = [t for t in tests if t.p_holm is not None and t.p_holm < 1 - LEVEL]
        worse = list(dict.fromkeys(t.method for t in decisive if t.points > 0))
        cells, wins = (Counter(t.method for t in group) for group in (tests, [t for t in decisive if t.points < 0]))
        better = [name for name, n in cells.items() if name not in missing and wins[name] == n]
        groups = (tests[0].untold, worse, better)
        untold, behind, ahead = (name_first_few(names or ["none"], most=_NAMED) for names in groups)
        facts.append(
            f"In Brier, learned elsewhere, worse than every method that is told nothing ({untold}) in some cell:"
            f" {behind}; better than all of these in every cell: {ahead}."
        )
    else:
        facts.append("No method that learned elsewhere can be compared with one that is told nothing.")
    if missing:
        facts.append(f"Cells without numbers: {len(matrix.missing)} ({name_first_few(missing, most=_NAMED)}).")
    return tuple(facts)


def describe_cell(corpus: Corpus | None, test: str) -> str:
    """Return a cell in words: the corpus that was learned from, if any, and the task that was tested on."""
    return f"tested on {test}" if corpus is None else f"learned on {corpus.label}; tested on {test}"


def format_interval(metric: str, interval: Interval) -> str:
    """Format an interval in brackets, with a leading space; empty if there is no interval."""
    return "" if interval.ends is None else f" [{interval_text(METRICS[metric], *interval.ends)}]"


def _on_means(matrix: Matrix, means: Sequence[MeanPrice], what: str) -> Iterator[str]:
    """Yield a sentence that counts the cases in which the mean price in Brier is a significant cost or gain.

    A price is how much worse methods are than with the reference corpus. Yields nothing without prices.

    Args:
        matrix: the transfer matrix.
        means: mean prices of one kind.
        what: subject of the sentence, e.g. "Learning on another corpus".
    """
    scored = [mean for mean in means if mean.metric == "brier"]
    if not scored:
        return
    most = max(scored, key=lambda mean: mean.points)
    shown = [mean.points > 0 for mean in scored if mean.p_holm is not None and mean.p_holm < 1 - LEVEL]
    yield (
        f"{what} is shown to worsen Brier in {sum(shown)} of {plural(len(scored), 'case')}, to"
        f" improve it in {len(shown) - sum(shown)}; highest price: {_format_points(most)},"
        f" {describe_cell(most.corpus, most.test)} (mean of {most.n} of {len(matrix.about.learners)} methods that"
        " learn)."
    )


def _format_points(price: Price | MeanPrice) -> str:
    return f"{precise(METRICS[price.metric], price.points)} points{format_interval(price.metric, price.interval)}"
