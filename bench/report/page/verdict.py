"""The answer with which the page opens: for each benchmark who leads, how surely, by how much and at what cost.

{"title": "Who leads, by Brier score", "explained": [sentence, sentence],
 "columns": [[heading, short heading], ...],
 "rows": [{"state": "sure" | "tied" | "not tested" | "none" | "several", "texts": [text of each column]}, ...],
 "words": [[name of a table, [sentence, ...]], ...]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bench.metrics import METRICS
from bench.report.competition import judged_by
from bench.report.tables.caption import apart
from bench.report.tables.model import Line, Table
from bench.report.text import ARROWS, EN_DASH, metric_name
from bench.report.verdict import SummaryRow, Verdict, asides, summary_of, verdict_of
from bench.report.verdict.judgement import judged
from bench.report.verdict.phrases import name, named

_FEW = 2
"""Tables that have a row each, even of one benchmark."""
_LEADERS = 5
"""Leaders that a row names; of more, one fewer is, and the others are counted."""
_COSTS = 3
"""Costs that a row names."""
_BRIER = (
    "The Brier score is the mean squared distance of a confidence from 1 where the answer is right, and from 0 where it"
    " is wrong, in percent; less is better."
)
_STATES = (
    "A method leads where no ranked method is significantly better. Its lead is sure where it is significantly better"
    " than every other ranked method (all pairs tested together, at 95 %), else it is tied. Ranked are the methods that"
    " were tested together; the sentences name the others."
)
_AHEAD = "Ahead: how far the best mean is ahead of the second, in points, with the 95 % interval of this pair."
_AHEAD_OF_SEVERAL = (
    "Ahead: how far the best mean is ahead of the second, in points, with the model where that is least to the one"
    " where it is most; Sure? says with how many it is significant. Counts are of models; costs are for one model."
)
_ORDER = "AUROC: how often, in percent, a right answer has more confidence than a wrong one."
_COST = (
    "Cost: tokens that the model reads and generates for this method alone on this benchmark, training included (k: a"
    " thousand, M: a million), and labels: answers that the method was told to be right or wrong."
)
_NOTHING: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"not tested": ("nobody: not tested", "not tested"), "none": ("nobody", "nothing to compare")}
)
"""Words for who leads and how surely where nobody does."""
_ORDERS: Mapping[str, str] = MappingProxyType(
    {EN_DASH: "not tested", "none": "no method, beyond chance", "undefined": "undefined"}
)


def of(tables: Sequence[Table], names: Sequence[str]) -> dict[str, Any]:
    """The verdict on all tables of a page.

    Args:
        tables: at least one, whose headline is the same.
        names: of the tables, for the sentences.
    """
    whole = [table.whole() for table in tables]
    metric = judged_by(tables[0].headline)
    found = [verdict_of(table) for table in whole]
    if len(whole) <= _FEW or len({table.task for table in whole}) == len(whole):
        rows = [_row(title, table, verdict) for title, table, verdict in zip(_titles(whole), whole, found, strict=True)]
    else:
        rows = list(map(_of_summary, summary_of(whole).rows))
    is_several = any(row["state"] == "several" for row in rows)
    return {
        "title": f"Who leads, by {metric_name(metric)}",
        "explained": [
            " ".join([_explained(metric), _STATES]),
            " ".join([_AHEAD_OF_SEVERAL if is_several else _AHEAD, _COST, _ORDER]),
        ],
        "columns": [
            ["Benchmark", ""], ["Leads", "Leads"], ["Sure?", "Sure?"],
            [f"Best ahead of second by{_unit(metric)}", "Best ahead of second by"],
            ["Orders answers best (AUROC)", "Orders answers best (AUROC)"], ["Cost of the leader", "Cost"],
        ],
        "rows": rows,
        "words": [[title, list(verdict.sentences)] for title, verdict in zip(names, found, strict=True)],
    }  # fmt: skip


def _explained(metric: str) -> str:
    """The sentence on the metric that judges."""
    if metric == "brier":
        return _BRIER
    better = {True: "more is better", False: "less is better", None: "neither more nor less is better"}
    return f"Methods are judged by {metric_name(metric)}: {better[METRICS[metric].higher_is_better]}."


def _unit(metric: str) -> str:
    return f" (points of {METRICS[metric].label}{ARROWS[None]})" if METRICS[metric].is_fraction else " (nats)"


def _titles(tables: Sequence[Table]) -> list[str]:
    """The benchmark of each table, with its model and what else tells it from the others where these differ."""
    models, asides_ = [table.model for table in tables], apart([table.rows[0] for table in tables])
    more = [words for words in (models, asides_) if len(set(words)) > 1]
    apart_by = (", ".join(filter(None, words)) for words in zip(*more, strict=True)) if more else ("" for _ in tables)
    return [f"{table.task} ({words})" if words else table.task for table, words in zip(tables, apart_by, strict=True)]


# --- a benchmark with one model ---------------------------------------------------------------------------------------


def _row(title: str, table: Table, verdict: Verdict) -> dict[str, Any]:
    leads, sure = _NOTHING.get(verdict.state) or (_few(verdict.leaders), _sure(table, verdict))
    brief = verdict.brief
    costs = "; ".join(_costs(verdict.leaders)) or "nobody leads"
    by = "no second method to compare" if brief.by == EN_DASH else brief.by
    return {"state": verdict.state, "texts": [title, leads, sure, by, _ORDERS.get(brief.orders, brief.orders), costs]}


def _few(lines: Sequence[Line]) -> str:
    return named(list(map(name, lines)), most=_LEADERS)


def _sure(table: Table, verdict: Verdict) -> str:
    """Words for how sure it is who leads."""
    if verdict.state == "sure":
        return "sure"
    if len(verdict.leaders) > 1:
        return f"tied: these {len(verdict.leaders)} can't be distinguished"
    return f"tied with {named([name(line) for line in judged(table)[0].rivals])}"


def _costs(leaders: Sequence[Line]) -> Iterator[str]:
    """Costs of the leaders, the cheapest first."""
    found: dict[str, list[Line]] = {}
    for line in asides.cheapest_first(leaders):
        found.setdefault(asides.in_brief(line), []).append(line)
    told, others = list(found.items())[:_COSTS], list(found)[_COSTS:]
    for cost, lines in told:
        yield cost if len(leaders) == 1 else f"{_few(lines)}: {cost}{' each' * (len(lines) > 1)}"
    if others:
        yield "others cost more" + ", or nobody knows what" * any(asides.UNKNOWN in cost for cost in others)


# --- a benchmark with several models ----------------------------------------------------------------------------------


def _of_summary(row: SummaryRow) -> dict[str, Any]:
    several = row.models > 1
    sure = f"sure {row.sure}" if row.sure.startswith("with ") else row.sure
    leads = "nobody" if row.leads == EN_DASH else row.leads
    by = "no second method to compare" if row.by == EN_DASH else row.by
    cost = "nobody leads" if row.cost == EN_DASH else row.cost
    state = "several" if several else row.sure if row.sure in {"sure", "tied", "not tested"} else "none"
    orders = _ORDERS.get(row.orders, row.orders)
    return {"state": state, "texts": [row.task, leads, sure, by, orders, cost]}
