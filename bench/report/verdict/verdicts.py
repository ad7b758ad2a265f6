"""Verdict on one table: its judgements, put into words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.report.tables.model import Line, Table
from bench.report.verdict import words
from bench.report.verdict.judgement import Judgement, State, judged


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
    """Ranked lines than which no ranked line is significantly better, the best mean first."""
    places: tuple[int, ...]
    """Numbers of the leaders among the lines of the table."""
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
    order = judged(table, "auroc")[0]
    places = tuple(table.lines.index(line) for line in main.leaders)
    sentences = tuple(_sentences(table, blocks, order))
    return Verdict(metric, main.state, main.leaders, places, sentences, _brief(main, order))


def _sentences(table: Table, blocks: Sequence[Judgement], order: Judgement) -> Iterator[str]:
    for block in blocks:
        yield from words.on_leaders(table, block)


def _brief(main: Judgement, order: Judgement) -> Brief:
    names = ", ".join(line.key.label for line in main.leaders)
    return Brief(names, main.state, "", "", "")
