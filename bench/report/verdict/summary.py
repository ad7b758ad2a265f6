"""Summary of many tables: who leads on each benchmark, over the models that were tested on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench.metrics import METRICS
from bench.report.competition import SEVERAL, judged_by
from bench.report.grouping import budget_of
from bench.report.tables.model import Table
from bench.report.text import EN_DASH, precise
from bench.report.verdict.costs import cheapest_first, in_brief
from bench.report.verdict.judgement import Judgement, judged
from bench.report.verdict.phrases import name
from bench.report.verdict.verdicts import FEW, ORDER, verdict_of

_NAMED = 3
"""Methods that a cell names; of more, one fewer is, and the others are counted."""


@dataclass(frozen=True)
class SummaryRow:
    """One benchmark over the models that were tested on it; where it is one, as its `Brief`."""

    task: str
    """Benchmark, with what distinguishes its runs where it has several rows."""
    models: int
    """Number of models."""
    leads: str
    """Methods that lead, with how many models, the most first: `ccps 4 of 4 (sure 3), pik 1 (tied)`."""
    sure: str
    """Number of models with a sure winner, e.g. `3 of 4, 1 on few questions`."""
    by: str
    """Smallest and largest lead of the best mean over the second, over the models."""
    orders: str
    """Methods that order answers best, as `leads`."""
    cost: str
    """Cost of the cheapest leader with the model where that is least, and where it is most."""


@dataclass(frozen=True)
class Summary:
    """Summary of some tables by one metric."""

    metric: str
    """The metric that was asked for."""
    rows: tuple[SummaryRow, ...]


def summary_of(tables: Sequence[Table], metric: str | None = None) -> Summary:
    """Summary of tables, one row for each benchmark.

    Args:
        tables: from `bench.report.tables.build.build`, at least one.
        metric: in `bench.metrics.METRICS`; that of the tables by default.
    """
    metric = metric or tables[0].headline
    by_task: dict[tuple[str, ...], list[Table]] = defaultdict(list)
    for table in tables:
        by_task[_settings(table)].append(table)
    titles = [_title(settings, list(by_task)) for settings in by_task]
    return Summary(metric, tuple(_row(title, of, metric) for title, of in zip(titles, by_task.values(), strict=True)))


def _settings(table: Table) -> tuple[str, ...]:
    """Task and what else distinguishes tables of one model, as words."""
    row = table.rows[0]
    limit = "" if row.limit is None else f"first {row.limit}"
    source = "" if row.answers_source == "generate" else f"answers from {row.answers_source}"
    tuned = f"tuned, {budget_of(row)} configurations" if budget_of(row) else ""
    return table.task, table.preset, limit, source, f"protocol {row.protocol[:8]}", tuned


def _title(settings: tuple[str, ...], every: Sequence[tuple[str, ...]]) -> str:
    """The task, with whatever differs between its rows."""
    same_task = [other for other in every if other[0] == settings[0]]
    differing = [text for text, *others in zip(settings[1:], *(other[1:] for other in same_task), strict=True)
                 if text and len(set(others)) > 1]  # fmt: skip
    return f"{settings[0]} ({', '.join(differing)})" if differing else settings[0]


def _row(title: str, tables: Sequence[Table], metric: str) -> SummaryRow:
    if len(tables) == 1:
        brief = verdict_of(tables[0], metric).brief
        return SummaryRow(title, 1, brief.leads, brief.sure, brief.by, brief.orders, brief.cost)
    blocks = [judged(table, metric)[0] for table in tables]
    decided = [block for block in blocks if block.is_decided]
    leads = sorted({lead.difference for block in decided if (lead := block.lead(*block.ranked[:SEVERAL]))})
    shown, few = METRICS[judged_by(metric)], sum(bool(table.too_few) for table in tables)
    sure = f"{sum(block.state == 'sure' for block in blocks)} of {len(blocks)}" if decided else "not tested"
    costs = cheapest_first([block.cheapest[0] for block in decided])
    return SummaryRow(
        task=title,
        models=len({table.model for table in tables}),
        leads=_leading(blocks),
        sure=sure + f", {few}{FEW.removeprefix(',')}" * bool(decided and few),
        by=_ends([f"{'+' * (lead > 0)}{precise(shown, lead)}" for lead in leads]),
        orders=_leading([judged(table, ORDER)[0] for table in tables]),
        cost=_ends(list(map(in_brief, costs))),
    )


def _leading(blocks: Sequence[Judgement]) -> str:
    """Words for who leads with how many models, and how many of these are sure."""
    decided = [block for block in blocks if block.is_decided]
    sure = Counter(name(block.leaders[0]) for block in decided if block.state == "sure")
    counts = Counter(name(line) for block in decided for line in block.leaders)
    texts = [
        f"{method} {n}{f' of {len(blocks)}' if not i else ''} ({f'sure {sure[method]}' if sure[method] else 'tied'})"
        for i, (method, n) in enumerate(sorted(counts.items(), key=lambda each: (-each[1], -sure[each[0]])))
    ]
    if len(texts) > _NAMED:
        texts = [*texts[: _NAMED - 1], f"{len(texts) - _NAMED + 1} others"]
    return ", ".join(texts) or EN_DASH


def _ends(texts: Sequence[str]) -> str:
    """The first and the last of some texts, the smallest and the largest.

    >>> _ends(["+0.1", "+0.4", "+1.6"]), _ends(["+0.1"])
    ('+0.1 to +1.6', '+0.1')
    """
    return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]])) or EN_DASH
