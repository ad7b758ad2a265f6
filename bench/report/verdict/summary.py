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
from bench.report.verdict.asides import ORDER, cheapest_first, in_brief
from bench.report.verdict.judgement import Judgement, judged
from bench.report.verdict.phrases import joined, name
from bench.report.verdict.verdicts import verdict_of

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
    """Methods that lead, with how many models, the most first: `ccps with 4 of 4 models (sure 3), pik 1 (tied)`."""
    sure: str
    """Models with a sure winner, and who that is, e.g. `with 3 of 4 models: ccps`."""
    by: str
    """Smallest and largest lead of the best mean over the second, over the models."""
    orders: str
    """Methods that order answers best, as `leads`."""
    cost: str
    """Smallest and largest cost of the methods that lead, over the models."""


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
    tuned = f"tuned, {budget_of(row)} configurations" if budget_of(row) else ""
    return table.task, table.preset, limit, source, f"protocol {row.protocol[:8]}", tuned


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
    tested = [block for block in blocks if block.state in {"sure", "tied"}]
    return SummaryRow(
        task=title,
        models=len({table.model for table in tables}),
        leads=_leading(blocks),
        sure=_sure(blocks) if tested else "not tested",
        by=_range_of_leads(tested, judged_by(metric)),
        orders=_leading([judged(table, ORDER)[0] for table in tables]),
        cost=_costs(blocks),
    )


def _counts(blocks: Sequence[Judgement]) -> list[tuple[str, int, int]]:
    """Methods that lead, with the number of models, and of those with which they are sure; the most first."""
    tested = [block for block in blocks if block.state in {"sure", "tied"}]
    leads = Counter(name(line) for block in tested for line in block.leaders)
    sure = Counter(name(block.best) for block in tested if block.state == "sure")
    return sorted(((method, n, sure[method]) for method, n in leads.items()), key=lambda found: (-found[1], -found[2]))


def _leading(blocks: Sequence[Judgement]) -> str:
    """Words for who leads with how many models, and how many of these are sure."""
    found = _counts(blocks)
    if not found:
        return EN_DASH
    texts = [
        f"{method} {n if i else f'with {n} of {len(blocks)} models'} ({f'sure {sure}' if sure else 'tied'})"
        for i, (method, n, sure) in enumerate(found)
    ]
    if len(texts) > _NAMED:
        texts = [*texts[: _NAMED - 1], f"{len(texts) - _NAMED + 1} others"]
    return ", ".join(texts)


def _sure(blocks: Sequence[Judgement]) -> str:
    """Words for who is a sure winner with how many models."""
    found = Counter(name(block.best) for block in blocks if block.state == "sure").most_common()
    number = f"with {sum(n for _, n in found) or 'none'} of {len(blocks)} models"
    winners = [method if len(found) == 1 else f"{method} {n}" for method, n in found]
    return f"{number}: {', '.join(winners)}" if winners else number


def _range_of_leads(blocks: Sequence[Judgement], metric: str) -> str:
    pairs = [block.lead(*block.ranked[:SEVERAL]) for block in blocks]
    sizes = sorted({pair.difference for pair in pairs if pair})
    ends = dict.fromkeys(f"{'+' * (size > 0)}{precise(METRICS[metric], size)}" for size in (sizes[:1] + sizes[-1:]))
    return _across(list(ends)) or EN_DASH


def _across(ends: Sequence[str]) -> str:
    """One value, or the smallest and the largest.

    >>> _across(["+0.1", "+1.6"]), _across(["+0.1"])
    ('from +0.1 to +1.6, by model', '+0.1')
    """
    return f"from {' to '.join(ends)}, by model" if len(ends) > 1 else "".join(ends)


def _costs(blocks: Sequence[Judgement]) -> str:
    """Costs of the methods that lead, with a model where they do."""
    names = [method for method, *_ in _counts(blocks)]
    by_cost: dict[str, list[str]] = {}
    for method in names[:_NAMED]:
        by_cost.setdefault(_range_of_costs(blocks, method), []).append(method)
    texts = [f"{joined(methods)}: {cost}{' each' * (len(methods) > 1)}" for cost, methods in by_cost.items()]
    return "; ".join([*texts, *["others not listed"] * (len(names) > _NAMED)]) or EN_DASH


def _range_of_costs(blocks: Sequence[Judgement], method: str) -> str:
    """Costs of a method where it leads: of the model with the fewest token positions, and of that with the most."""
    lines = cheapest_first([line for block in blocks for line in block.leaders if name(line) == method])
    return _across(list(dict.fromkeys(in_brief(line) for line in lines[:1] + lines[-1:])))
