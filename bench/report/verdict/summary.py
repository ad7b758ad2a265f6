"""Summarise many tables: which methods lead on each benchmark, over the models that were tested on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench.metrics import METRICS
from bench.report.competition import Competition, ranked_by
from bench.report.grouping import common_corpus, tuning_budget
from bench.report.tables.model import Table
from bench.report.text import EN_DASH, precise_difference
from bench.report.verdict.phrases import cost_phrase, sort_by_cost
from bench.report.verdict.verdicts import FEW, ORDER, ShortVerdict, verdict_of

_NAMED = 3
"""Maximum number of methods that a cell names. In a longer list, a count of the others replaces the last name."""


@dataclass(frozen=True, kw_only=True)
class SummaryRow(ShortVerdict):
    """Summary of one benchmark over the models tested on it, in short texts.

    With several models, leaders come with the number of models on which they lead: `ccps 4 of 4 (sure 3), pik 1
    (tied)`. `sure` counts the models on which one method is significantly better than all others. `by` and `cost` are
    the smallest and the largest over the models.
    """

    task: str
    """Name of the benchmark; if the benchmark has several rows, also what distinguishes this row, e.g. the preset."""
    models: int
    """Number of models on the benchmark whose answers say something of methods."""


def summary_of(tables: Sequence[Table]) -> list[SummaryRow]:
    """Return the summary of tables by their headline metric: a row for each benchmark.

    Args:
        tables: at least one table from `bench.report.tables.build.build`.
    """
    metric = tables[0].headline
    by_task: dict[tuple[str, ...], list[Table]] = defaultdict(list)
    for table in tables:  # key: task, and in words whatever else tells tables of one model apart
        row = table.rows[0]
        limit = "" if row.limit is None else f"--limit {row.limit}"
        source = "" if row.answers_source == "generate" else f"answers from {row.answers_source}"
        source = source.replace("answers from generate ", "")
        tuned = f"tuned, {tuning_budget(row)} configurations" if tuning_budget(row) else ""
        corpus = f"learned on {common_corpus(table.rows)}" if common_corpus(table.rows) else ""
        by_task[table.task, table.preset, limit, source, f"protocol {row.protocol[:8]}", tuned, corpus].append(table)
    rows, several = list[SummaryRow](), len({table.model for table in tables}) > 1
    for (task, *facts), everything in by_task.items():
        # a model that is right or wrong throughout says nothing of methods, nor does one that guesses or whose judge
        # errs, unless there is no other
        judged = [t for t in everything if not t.warnings["unjudgeable"]]
        group = [t for t in judged if not (t.warnings["at_chance"] or t.warnings["unfit_judge"])] or judged
        numbers = len(judged) - len(group), len(everything) - len(judged)
        out = zip(numbers, ("at chance or badly judged", "all right or all wrong"), strict=True)
        left_out = [f"{n} {why} left out" for n, why in out if n]
        same_task = [rest for other, *rest in by_task if other == task]
        differing = [text for text, *rest in zip(facts, *same_task, strict=True) if text and len(set(rest)) > 1]
        named = [*([group[0].model] if several and len(group) == 1 else []), *differing, *left_out]
        title = f"{task} ({', '.join(named)})" if named else task
        if not group:
            none = dict.fromkeys(("sure", "by", "orders", "cost"), EN_DASH)
            rows.append(SummaryRow(task=title, models=0, leads="no answers to judge by", **none))
            continue
        if len(group) == 1:
            rows.append(SummaryRow(task=title, models=1, **vars(verdict_of(group[0], metric).brief)))
            continue
        blocks = [table.competitions(metric)[0] for table in group]
        decided, few = [block for block in blocks if block.leaders], sum(bool(t.warnings["too_few"]) for t in group)
        leads = sorted({lead.difference for block in decided if (lead := block.comparison_to(*block.top))})
        sure = f"{sum(block.state == 'sure' for block in blocks)} of {len(blocks)}" if decided else "not tested"
        cheapest = [sort_by_cost(block.leaders)[0] for block in decided]
        ordered = [block for table in group if not (block := table.competitions(ORDER)[0]).orders_none]
        summary = SummaryRow(
            task=title,
            models=len({table.model for table in group}),
            leads=_leader_counts(blocks, len(group)),
            sure=sure + f", {few}{FEW.removeprefix(',')}" * bool(decided and few),
            by=_first_to_last([precise_difference(METRICS[ranked_by(metric)], lead) for lead in leads]),
            orders=_leader_counts(ordered, len(group)) if ordered else "none",
            cost=_first_to_last(list(map(cost_phrase, sort_by_cost(cheapest)))),
        )
        rows.append(summary)
    return rows


def _leader_counts(blocks: Sequence[Competition], models: int) -> str:
    """Return in words which methods lead, on how many of the models, and on how many of these significantly."""
    decided = [block for block in blocks if block.leaders]
    sure = Counter(block.leaders[0].key.label for block in decided if block.state == "sure")
    counts = Counter(line.key.label for block in decided for line in block.leaders)
    texts = [
        f"{method} {n}{f' of {models}' if not i else ''} ({f'sure {sure[method]}' if sure[method] else 'tied'})"
        for i, (method, n) in enumerate(sorted(counts.items(), key=lambda each: (-each[1], -sure[each[0]])))
    ]
    if len(texts) > _NAMED:
        texts = [*texts[: _NAMED - 1], f"{len(texts) - _NAMED + 1} others"]
    return ", ".join(texts) or EN_DASH


def _first_to_last(texts: Sequence[str]) -> str:
    """Join the first and the last of sorted texts to a range.

    >>> _first_to_last(["+0.1", "+0.4", "+1.6"]), _first_to_last(["+0.1"])
    ('+0.1 to +1.6', '+0.1')
    """
    return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]])) or EN_DASH
