"""The verdict of a matrix in words, made from its tests and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.metrics import METRICS
from bench.report.text import interval_text, percent, precise, shown, signed
from bench.report.transfer.model import LEVEL, Matrix, MeanPrice, Price
from bench.report.verdict.phrases import named
from bench.results.transfer import AT_RANDOM, Corpus
from bench.stats import Interval

_NAMED = 7
"""Names that a sentence gives one by one; of more, one fewer is, and the others are counted."""


def verdict(matrix: Matrix) -> tuple[str, ...]:
    """Sentences: who leads by its worst cell, what moving costs, and who falls behind what is told nothing."""
    parts = (_leaders, _moves, _novelty, _dearest, _against_untrained, _gaps)
    return tuple(sentence for part in parts for sentence in part(matrix))


def place(corpus: Corpus | None, test: str) -> str:
    """Words for a cell."""
    return f"tested on {test}" if corpus is None else f"learned on {corpus.label}; tested on {test}"


def between(metric: str, interval: Interval) -> str:
    """An interval in brackets, or nothing."""
    return "" if interval.ends is None else f" [{interval_text(METRICS[metric], *interval.ends)}]"


def _leaders(matrix: Matrix) -> Iterator[str]:
    for metric in ("brier", "auroc"):
        label = METRICS[metric].label
        first = [each for each in matrix.worst if each.metric == metric and each.rank == 1]
        if not first:
            yield f"No method can be ranked by its worst {label}."
            continue
        best = first[0]
        told = f"{shown(METRICS[metric], best.value)}{between(metric, best.interval)}, {place(best.corpus, best.test)}"
        if sum(each.metric == metric and each.rank is not None for each in matrix.worst) == 1:
            yield f"By its worst {label}, {best.method} alone has a rank, beside no other method: {told}."
        elif len(first) == 1:
            yield f"By its worst {label}, {best.method} leads: {told}."
        else:
            others = named([each.method for each in first[1:]], most=_NAMED)
            yield (
                f"By their worst {label}, no single method leads: the best one is that of {best.method} ({told}),"
                f" and no method is shown to be better than {others} either."
            )


def _moves(matrix: Matrix) -> Iterator[str]:
    """Sentences on the mean price of each move to another corpus, and to the own one without the tested subject.

    Moves that change both stand in the table of prices alone: with three corpora they are half of all.
    """
    for mean in matrix.means:
        is_other = mean.corpus.task != mean.home.task
        if mean.metric != "brier" or mean.corpus.leaves_out == AT_RANDOM or (is_other and mean.corpus.leaves_out):
            continue
        where = f"from {mean.home.label} to {mean.corpus.label}, tested on {mean.test}"
        what = _in_both(mean, matrix.means, len(matrix.about.learners))
        told = f"{_counted(mean, matrix.prices, matrix.about.learners)}{_of_share(matrix, mean)}"
        if _is_decided(mean):
            yield f"Moving {where}, {'costs' if mean.points > 0 else 'gains'} {what}; {told}."
        else:
            yield f"Moving {where}: no cost in Brier is shown, {what}; {told}."


def _in_both(mean: MeanPrice, means: Sequence[MeanPrice], learners: int) -> str:
    """Points of Brier and of AUROC: both are gains where a gain of Brier is decided, and else costs."""
    key = (mean.corpus, mean.home, mean.test)
    beside = next((m for m in means if m.metric == "auroc" and (m.corpus, m.home, m.test) == key), None)
    is_gain = _is_gain(mean)
    also = "" if beside is None else f" and {_points(beside, turned=is_gain)} of AUROC"
    those = f"the {mean.n}" if mean.n == learners else f"{mean.n} of the {learners}"
    methods = "the only method that learns" if learners == 1 else f"the mean of {those} methods that learn"
    return f"{_points(mean, turned=is_gain)} of Brier{also}, {methods}"


def _counted(mean: MeanPrice, prices: Sequence[Price], learners: Sequence[str]) -> str:
    """Numbers of methods that learn which are shown to be worse, and better."""
    own = [p for p in prices if (p.metric, p.corpus, p.test) == ("brier", mean.corpus, mean.test)]
    own = [price for price in own if price.method in learners]
    worse, better = sum(p.is_shown and p.points > 0 for p in own), sum(p.is_shown and p.points < 0 for p in own)
    return f"in Brier {worse} are shown to be worse, {better} better"


def _of_share(matrix: Matrix, mean: MeanPrice) -> str:
    """Effect of the changed share of right answers alone, where another corpus was learned on."""
    home, there = (matrix.about.share(corpus) for corpus in (mean.home, mean.corpus))
    constant = next((c for c in matrix.constants if (c.corpus, c.test) == (mean.corpus, mean.test)), None)
    if home is None or there is None or mean.corpus.leaves_out or constant is None or constant.points is None:
        return ""
    points = f"{signed(METRICS['brier'], constant.points)} points{between('brier', constant.price_interval)}"
    ends = constant.price_interval.ends
    if ends is not None and ends[0] <= 0 <= ends[1]:
        return f"; a constant confidence moves by {points}, so it is not the share of right answers"
    return (
        f"; {percent(home)} % of the answers of {mean.home.task} are right and {percent(there)} % of those of"
        f" {mean.corpus.task}, which by itself moves the Brier score of a constant confidence by {points}"
    )


def _novelty(matrix: Matrix) -> Iterator[str]:
    """Sentences on what a new subject costs beyond fewer answers."""
    for mean in (each for each in matrix.novelty_means if each.metric == "brier"):
        at_home = matrix.about.home(mean.test) == Corpus(mean.corpus.task)  # else it would be the price of both moves
        own = (m for m in matrix.means if (m.metric, m.corpus, m.test) == ("brier", mean.home, mean.test))
        fewer, also = next(own, None) if at_home else None, ""
        if fewer is not None:
            verb, points = "gain" if _is_gain(fewer) else "cost", _points(fewer, turned=_is_gain(fewer))
            none = f" No cost of fewer answers is shown ({points})."
            also = f" Fewer answers {verb} {points}." if _is_decided(fewer) else none
        what = _in_both(mean, matrix.novelty_means, len(matrix.about.learners))
        counted = _counted(mean, matrix.novelty, matrix.about.learners)
        of = f"A new subject, tested on {mean.test} and learned on {mean.corpus.task}"
        if _is_decided(mean):
            verb = "costs" if mean.points > 0 else "gains"
            yield f"{of}, {verb} {what}, against as few answers of all subjects; {counted}.{also}"
        else:
            yield f"{of}: no cost in Brier is shown against as few answers of all subjects, {what}; {counted}.{also}"


def _is_decided(mean: MeanPrice) -> bool:
    ends = mean.interval.ends
    return ends is not None and (ends[0] > 0 or ends[1] < 0)


def _is_gain(mean: MeanPrice) -> bool:
    return mean.points < 0 and _is_decided(mean)


def _points(mean: MeanPrice, *, turned: bool) -> str:
    """Points with their interval; turned, a price below 0 is a gain above it."""
    value, interval = (-mean.points, mean.interval.reversed()) if turned else (mean.points, mean.interval)
    return f"{precise(METRICS[mean.metric], value)} points{between(mean.metric, interval)}"


def _dearest(matrix: Matrix) -> Iterator[str]:
    own = [price for price in matrix.prices if price.metric == "brier" and price.corpus.leaves_out != AT_RANDOM]
    shown_prices = [price for price in own if price.is_shown]
    tested = sum(price.p_holm is not None for price in own)
    if not shown_prices:
        yield f"No single price is shown: none of {tested} tested ones is significant in Brier, corrected by Holm."
        return
    most = max(shown_prices, key=lambda price: price.points)
    if most.points < 0:
        yield f"No single cost in Brier is shown: {len(shown_prices)} of {tested} tested prices are, all of them gains."
        return
    yield (
        f"The dearest move is that of {most.method}: {precise(METRICS['brier'], most.points)} points of"
        f" Brier{between('brier', most.interval)}, {place(most.corpus, most.test)}."
    )


def _against_untrained(matrix: Matrix) -> Iterator[str]:
    tests = matrix.against_untrained
    if not tests:
        yield "No method that learned elsewhere can be compared with one that is told nothing."
        return
    decided = [each for each in tests if each.p_holm is not None and each.p_holm < 1 - LEVEL]
    worse = list(dict.fromkeys(each.method for each in decided if each.points > 0))
    cells = Counter(each.method for each in tests)
    wins = Counter(each.method for each in decided if each.points < 0)
    gaps = {each.method for each in matrix.missing}
    better = [name for name, n in cells.items() if name not in gaps and wins[name] == n]
    which = f"every method that is told nothing ({named(tests[0].untold, most=_NAMED)})"
    if worse:
        counted = f"{len(worse)} of {len(cells)}"
        yield f"Trained elsewhere, {_are(worse)} worse than {which}, in at least one cell ({counted})."
    else:
        yield f"Trained elsewhere, no method is shown to be worse than {which}."
    if better:
        yield f"In every cell elsewhere, {_are(better)} better than all of these."


def _are(names: Sequence[str]) -> str:
    """Names as the subject of a sentence, with its verb."""
    return f"{named(names, most=_NAMED)} {'is' if len(names) == 1 else 'are'}"


def _gaps(matrix: Matrix) -> Iterator[str]:
    if any(matrix.group(name) > 1 for name in matrix.methods):
        yield "Methods that are told nothing have one number for each test; their price is 0 by construction."
    if matrix.missing:
        names = list(dict.fromkeys(each.method for each in matrix.missing))
        yield f"Cells without numbers: {len(matrix.missing)} ({named(names, most=_NAMED)}); their methods have no rank."
