"""Verdict on one table: its judgements, put into words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.metrics import METRICS
from bench.report.competition import CALIBRATION, SEVERAL
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, precise
from bench.report.verdict import asides, words
from bench.report.verdict.judgement import Judgement, State, judged
from bench.report.verdict.phrases import name

_NAMED = 3
"""Methods that a short text names; of more, one fewer is, and the others are counted."""


@dataclass(frozen=True)
class Brief:
    """Short texts for a row of a summary."""

    leads: str
    """Names of the leaders, e.g. `ccps, pik (tied)`."""
    sure: str
    """`sure`, `tied`, `not tested`, or a dash."""
    by: str
    """Lead over the next method with its interval, e.g. `+3.9 [3.0, 4.8] over lts`."""
    orders: str
    """Methods that order answers best."""
    cost: str
    """Cost of the cheapest leader."""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a table by one metric."""

    metric: str
    """The metric that was asked for."""
    state: State
    """State of the first block: `sure` where one method is significantly better than every other ranked one, `tied`
    where none is, `not tested` where there are numbers without tests, `none` where there are no numbers."""
    leaders: tuple[Line, ...]
    """Ranked lines than which no ranked line is significantly better, the best mean first; none where nothing was
    tested."""
    places: tuple[int, ...]
    """Numbers of the leaders among the lines of the table, of those that are shown."""
    sentences: tuple[str, ...]
    """The words, in order."""
    brief: Brief


def verdict_of(table: Table, metric: str | None = None) -> Verdict:
    """Verdict on a table.

    Args:
        table: with standings; without them nothing was tested, and the verdict says so.
        metric: in `bench.metrics.METRICS`; that of the table by default.
    """
    metric = metric or table.headline
    blocks = judged(table, metric)
    main = blocks[0]
    order = judged(table, asides.ORDER)[0]
    keys = [line.key for line in table.lines]
    leaders = main.leaders if main.is_decided else ()
    places = tuple(keys.index(line.key) for line in leaders if line.key in keys)
    sentences = tuple(_sentences(table, blocks, order))
    return Verdict(metric, main.state, leaders, places, sentences, _brief(main, order))


def _sentences(table: Table, blocks: Sequence[Judgement], order: Judgement) -> Iterator[str]:
    main, *recalibrated = blocks
    yield from words.on_leaders(main)
    if main.metric == asides.ORDER:
        yield from asides.on_calibration(judged(table, CALIBRATION)[0])
    else:
        yield from asides.on_order(order, main)
    if main.is_decided or len(main.known) == 1:
        yield from asides.on_cost(main)
    yield from words.on_undecided(main)
    yield from asides.on_left_out(main)
    for block in recalibrated:
        yield from words.on_leaders(block)
        yield from asides.on_left_out(block)


def _brief(main: Judgement, order: Judgement) -> Brief:
    cost = ""
    if main.leaders and (main.is_decided or len(main.known) == 1):
        line = asides.cheapest(main.leaders)
        cost = f"{name(line)}: " * (len(main.leaders) > 1) + asides.in_brief(line)
    return Brief(
        leads=_names(main),
        sure=EN_DASH if main.state == "none" else main.state,
        by=_lead(main) or EN_DASH,
        orders=_orders(order),
        cost=cost or EN_DASH,
    )


def _names(block: Judgement) -> str:
    """Names of the leaders, e.g. `ccps, pik (tied)`."""
    names = [name(line) for line in block.leaders]
    if block.state not in {"sure", "tied"}:
        return EN_DASH
    if len(names) > _NAMED:
        names = [", ".join(names[: _NAMED - 1]) + f" and {len(names) - _NAMED + 1} others"]
    return ", ".join(names) + " (tied)" * (block.state == "tied")


def _lead(block: Judgement) -> str:
    """Lead of the best mean over the next, with its interval."""
    if len(block.ranked) < SEVERAL:
        return ""
    first, second = block.ranked[:SEVERAL]
    pair = block.lead(first, second)
    if pair is None:
        return ""
    metric = METRICS[pair.metric]
    size = precise(metric, pair.difference)
    size = f"+{size}" if pair.difference > 0 else size
    low, high = pair.fixed.low, pair.fixed.high
    ends = "" if low is None or high is None else f" [{precise(metric, low)}, {precise(metric, high)}]"
    return f"{size}{ends} over {name(second)}"


def _orders(block: Judgement) -> str:
    if not block.known:
        return "undefined" if any(line.done for line in block.unknown) else EN_DASH
    if block.ranked and not any(line.orders_answers for line in block.ranked):
        return "none"
    if block.state == "tied" and not block.others:
        return f"all {len(block.ranked)} tied"
    return _names(block)
