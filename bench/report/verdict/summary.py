"""Summary of many tables: who leads on each benchmark, over the models that were tested on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench.metrics import METRICS
from bench.report.tables.best import judged_by
from bench.report.tables.model import Table
from bench.report.text import EN_DASH, precise
from bench.report.verdict.asides import ORDER, by_cost, in_brief
from bench.report.verdict.judgement import SEVERAL, Judgement, judged
from bench.report.verdict.phrases import name
from bench.report.verdict.verdicts import verdict_of


@dataclass(frozen=True)
class SummaryRow:
    """One benchmark over the models that were tested on it; where it is one, as its `Brief`."""

    task: str
    """Benchmark, with what distinguishes its runs where it has several rows."""
    models: int
    """Number of models."""
    leads: str
    """Method that leads with the most models, e.g. `ccps with 4 of 4 models, surely with 3`."""
    sure: str
    """Models with a sure winner, e.g. `3 of 4`."""
    by: str
    """Smallest and largest lead of the best mean over the next."""
    orders: str
    """Method that orders answers best with the most models."""
    cost: str
    """Smallest and largest cost of the method that leads most."""


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
        by_task[_kind(table)].append(table)
    return Summary(metric, tuple(_row(_title(kind, list(by_task)), of, metric) for kind, of in by_task.items()))


def _kind(table: Table) -> tuple[str, ...]:
    """Task and what else distinguishes tables of one model, as words."""
    row = table.rows[0]
    limit = "" if row.limit is None else f"first {row.limit}"
    source = "" if row.answers_source == "generate" else f"answers from {row.answers_source}"
    return table.task, table.preset, limit, source, f"protocol {row.protocol[:8]}"


def _title(kind: tuple[str, ...], kinds: Sequence[tuple[str, ...]]) -> str:
    """The task, with whatever differs between its rows."""
    alike = [other for other in kinds if other[0] == kind[0]]
    own = [text for i, text in enumerate(kind) if i and text and len({other[i] for other in alike}) > 1]
    return f"{kind[0]} ({', '.join(own)})" if own else kind[0]


def _row(title: str, tables: Sequence[Table], metric: str) -> SummaryRow:
    if len(tables) == 1:
        brief = verdict_of(tables[0], metric).brief
        return SummaryRow(title, 1, brief.leads, brief.sure, brief.by, brief.orders, brief.cost)
    blocks = [judged(table, metric)[0] for table in tables]
    winner, leads = _most(blocks)
    tested = [block for block in blocks if block.state in {"sure", "tied"}]
    sure = sum(block.state == "sure" for block in tested)
    return SummaryRow(
        task=title,
        models=len({table.model for table in tables}),
        leads=leads,
        sure=f"{sure} of {len(tables)}" if tested else "not tested",
        by=_range_of_leads(tested, judged_by(metric)),
        orders=_most([judged(table, ORDER)[0] for table in tables])[1],
        cost=_range_of_costs(blocks, winner),
    )


def _most(blocks: Sequence[Judgement]) -> tuple[str, str]:
    """Method that leads with the most models, of several the one that is sure with more; and the words for it."""
    tested = [block for block in blocks if block.state in {"sure", "tied"}]
    leads = Counter(name(line) for block in tested for line in block.leaders)
    sure = Counter(name(block.best) for block in tested if block.state == "sure")
    if not leads:
        return "", EN_DASH
    score = {method: (n, sure[method]) for method, n in leads.items()}
    best = max(score.values())
    methods = [method for method, found in score.items() if found == best]
    names = ", ".join(methods[:SEVERAL]) + (f" and {len(methods) - SEVERAL} others" if len(methods) > SEVERAL else "")
    surely = f", surely with {best[1]}" if best[1] else ""
    return methods[0], f"{names} with {best[0]} of {len(blocks)} models{surely}"


def _range_of_leads(blocks: Sequence[Judgement], metric: str) -> str:
    pairs = [block.lead(*block.ranked[:SEVERAL]) for block in blocks]
    sizes = sorted({pair.difference for pair in pairs if pair})
    ends = dict.fromkeys(f"{'+' * (size > 0)}{precise(METRICS[metric], size)}" for size in (sizes[:1] + sizes[-1:]))
    return " to ".join(ends) or EN_DASH


def _range_of_costs(blocks: Sequence[Judgement], method: str) -> str:
    """Costs of a method where it leads: of the model with the fewest token positions, and of that with the most."""
    lines = by_cost([line for block in blocks for line in block.leaders if name(line) == method])
    costs = dict.fromkeys(in_brief(line) for line in lines[:1] + lines[-1:])
    return f"{method}: {' to '.join(costs)}" if costs else EN_DASH
