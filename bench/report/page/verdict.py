"""Data of the verdict at the top of the page: which method leads each benchmark, how surely, by how much, at what cost.

{"title": "Who leads, by Brier score", "explained": [sentence, sentence],
 "columns": [[heading, short heading], ...],
 "rows": [{"state": "sure" | "tied" | "not tested" | "none" | "several", "texts": [text of each column]}, ...],
 "words": [[name of a table, [sentence of the advice, ...], [further sentence, ...]], ...]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.metrics import METRICS
from bench.report.competition import ranked_by
from bench.report.tables.model import Table
from bench.report.text import EN_DASH, metric_name
from bench.report.verdict import summary_of, verdict_of
from bench.report.verdict.verdicts import FEW

_BRIER = (
    "The Brier score is the mean squared distance of a confidence from 1 where the answer is right, and from 0 where it"
    " is wrong, in percent; less is better."
)
_STATES = (
    "A method leads where no ranked method is significantly better, nor, by Brier score, a constant confidence as good."
    " Its lead is sure where it is significantly better than every other ranked method (all pairs tested together, at"
    " 95 %), else it is tied. Ranked are the methods that were tested together; the sentences name the others."
)
_AHEAD = "Ahead: how far the leader is ahead of the next method, in points, with the 95 % interval of this pair."
_AHEAD_OF_SEVERAL = (
    "Ahead: how far the leader is ahead of the next method, in points, with the model where that is least to the one"
    " where it is most; Sure? says with how many models the lead is sure. Counts are of models. Tokens are those of the"
    " cheapest leader, with the model where that is cheapest to the one where it is dearest."
)
_ORDER = "AUROC: how often, in percent, a right answer has more confidence than a wrong one."
_COST = (
    "Tokens per answer: those that the model reads + generates for this method alone, once it is fitted (k: a"
    " thousand), and labels: answers that the method was told to be right or wrong."
)
_MISSING = {
    "leads": "nobody", "sure": "nothing to compare", "by": "no second method to compare", "orders": "not tested",
    "cost": "nobody leads",
}  # fmt: skip
"""Column of the verdict's table -> words to show instead of a dash, where the column has no value."""
_ORDERS = {"none": "no method, beyond chance"}


def verdict_data(tables: Sequence[Table], names: Sequence[str]) -> dict[str, Any]:
    """Return the verdict on all tables of a page as a JSON-ready dict; the docstring of this module lists its keys.

    Args:
        tables: at least one table; all have the same headline metric.
        names: name of each table, to begin its sentences with.
    """
    full = [table.with_hidden_lines() for table in tables]
    name = ranked_by(tables[0].headline)
    metric, label = METRICS[name], metric_name(name)
    better = {True: "more is better", False: "less is better", None: "neither more nor less is better"}
    about = _BRIER if name == "brier" else f"Methods are judged by {label}: {better[metric.higher_is_better]}."
    unit = f" (points of {metric.label})" if metric.is_fraction else " (nats)"
    summary = summary_of(full)
    rows = []
    for row in summary:
        texts = {what: words if (text := getattr(row, what)) == EN_DASH else text for what, words in _MISSING.items()}
        texts["orders"] = _ORDERS.get(texts["orders"], texts["orders"])
        state = "several" if row.models > 1 else "none" if row.sure == EN_DASH else row.sure.removesuffix(FEW)
        rows.append({"state": state, "texts": [row.task, *texts.values()]})
    ahead = _AHEAD_OF_SEVERAL if any(row.models > 1 for row in summary) else _AHEAD
    columns = [
        ["Benchmark", ""], ["Leads", "Leads"], ["Sure?", "Sure?"],
        [f"Leader ahead of next by{unit}", "Leader ahead of next by"],
        ["Orders answers best (AUROC)", "Orders answers best (AUROC)"],
        ["Tokens per answer of the leader", "Tokens per answer"],
    ]  # fmt: skip
    costs = f" {_COST}"
    if full[0].is_audit:
        columns, costs = [["File", ""], *columns[1:-1]], ""
        rows = [row | {"texts": row["texts"][:-1]} for row in rows]
    verdicts = zip(names, map(verdict_of, full), strict=True)
    words = [[title, list(found.sentences), list(found.details)] for title, found in verdicts]
    return {
        "title": f"Who leads, by {label}",
        "explained": [f"{about} {_STATES}", f"{ahead}{costs} {_ORDER}"],
        "columns": columns,
        "rows": rows,
        "words": words,
    }
