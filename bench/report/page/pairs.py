"""Paired differences of a block of the page as JSON-ready texts, and the table of differences to the best.

    {"columns": [index in the questions' "confidence", ...], the k lines that were tested against another one
     "best": {recalibration: index in `columns`},            the best line by the headline metric
     "metrics": {metric: [[difference, interval, p, verdict] | null, ...]}}

The pairs of a metric are those of indices i < j in `columns`: (0, 1), (0, 2), ..., (1, 2), ... A difference is the line
at i minus the line at j, the verdict, one of `VERDICTS`, is on the line at i, and p is corrected for all pairs.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from bench.metrics import METRICS
from bench.report.competition import ranked_by
from bench.report.grouping import Key
from bench.report.page.elements import el, html
from bench.report.page.elements import table as table_of
from bench.report.standings.compute import ROUNDING, Pair
from bench.report.tables.model import Table
from bench.report.text import EN_DASH, interval_text, p_text, plain, precise
from bench.report.verdict.judgement import judge_table
from bench.stats import TESTED

_ALPHA = 0.05
"""P value below which a difference is significant."""
VERDICTS = {"+": "better", "-": "worse", "=": "can't be distinguished", "": "no test"}
_NOTHING = "No two methods were tested against each other here."
_NUMBERS = 3
"""Number of cells after the method's cell that hold numbers."""
_ALONE = "shares its answers and labels with no other method here"


def pair_data(table: Table) -> dict[str, Any] | None:
    """Return all pairs of shown lines as JSON-ready data; None without tests.

    Args:
        table: table of the block; p values are also corrected for its hidden lines.
    """
    by_ends, columns = _pairs_by_ends(table), tested_columns(table)
    if not columns:
        return None
    key_pairs = list(combinations((table.ordered_lines[k].key for k in columns), 2))
    metrics = {metric for _, _, metric in by_ends}
    return {
        "columns": columns,
        "best": {kind: columns.index(k) for kind, k in best_columns(table).items()},
        "metrics": {
            name: [_pair_texts(pair) if (pair := by_ends.get((*keys, name))) else None for keys in key_pairs]
            for name in TESTED
            if name in metrics
        },
    }


def _pairs_by_ends(table: Table) -> dict[tuple[Key, Key, str], Pair]:
    """Return pairs by (first, second, metric), where `first` stands before `second` in `table.placed`."""
    position, by_ends = {line.key: i for i, line in enumerate(table.ordered_lines)}, {}
    for pair in table.standings.pairs if table.standings else ():
        if pair.first in position and pair.second in position:
            ordered = pair if position[pair.first] < position[pair.second] else pair.reversed()
            by_ends[ordered.first, ordered.second, ordered.metric] = ordered
    return by_ends


def tested_columns(table: Table) -> list[int]:
    """Return the indices into `table.placed` of lines that were tested against a shown line."""
    tested = {key for *ends, _ in _pairs_by_ends(table) for key in ends}
    return [k for k, line in enumerate(table.ordered_lines) if line.key in tested]


def best_columns(table: Table) -> dict[str, int]:
    """Map each recalibration to the index into `table.placed` of its best tested line by the headline metric.

    That is the leader with the best mean, or without leaders the line with the best mean.
    """
    position, best = {table.ordered_lines[k].key: k for k in tested_columns(table)}, {}
    for block in judge_table(table, table.headline):
        lines = (*block.leaders, *block.ranked, *block.known, *block.unknown)
        positions = [position[line.key] for line in lines if line.key in position]
        if positions:
            best[block.recalibration] = positions[0]
    return best


def _pair_texts(pair: Pair) -> list[str]:
    """Return difference, interval, corrected p value and verdict on the first line, a key of `VERDICTS`, as texts."""
    metric, low, high, p = METRICS[pair.metric], pair.fixed.low, pair.fixed.high, pair.p_corrected
    winner = None if p is None else pair.winner(_ALPHA)
    verdict = "=" if winner is None else "+" if winner == pair.first else "-"
    return [
        "+" * (pair.difference > ROUNDING) + precise(metric, pair.difference),
        EN_DASH if low is None or high is None else interval_text(metric, low, high),
        EN_DASH if p is None else p_text(p),
        "" if p is None else verdict,
    ]


def differences_table(table: Table, where: str) -> str:
    """Render the HTML table of each tested line minus the best one by the headline metric, the best first.

    Args:
        table: with or without standings.
        where: name of the table.
    """
    by_ends, best = _pairs_by_ends(table), next(iter(best_columns(table).values()), None)
    if best is None:
        return html(el("p", {"class": "muted"}, _NOTHING))
    reference = table.ordered_lines[best]
    metrics = {metric for _, _, metric in by_ends}
    name = next(name for name in (ranked_by(table.headline), *TESTED) if name in metrics)
    pairs = [pair for (*ends, metric), pair in by_ends.items() if metric == name and reference.key in ends]
    metric, labels = METRICS[name], {line.key: plain(line.key.label) for line in table.ordered_lines}
    rows = [pair if pair.second == reference.key else pair.reversed() for pair in pairs]
    rows.sort(key=lambda pair: pair.difference * (-1 if metric.higher_is_better else 1))
    label, unit = labels[reference.key], "percentage points" if metric.is_fraction else "nats"
    better = "more" if metric.higher_is_better else "less"
    caption = f"{where}: {metric.label} of each method minus that of {label}, in {unit}; {better} is better"
    scope = {"scope": "col"}
    names = ("Difference", "95 % interval", "p corrected", f"Beside {label}")
    headings = [el("th", scope, "Method"), *(el("th", scope, _cell_class(i), name) for i, name in enumerate(names))]
    body = []
    for pair in rows:
        *texts, verdict = _pair_texts(pair)
        cells = (el("td", _cell_class(i), text) for i, text in enumerate((*texts, VERDICTS[verdict])))
        body.append(el("tr", el("th", {"scope": "row"}, labels[pair.first]), *cells))
    markup = table_of({"class": "cards"}, el("caption", el("span", caption)), headings, el("tbody", *body))
    left_out, tested = table.standings.left_out if table.standings else {}, tested_columns(table)
    others = (line.key for k, line in enumerate(table.ordered_lines) if line.ok_rows and k not in tested)
    not_compared = "; ".join(f"{labels[key]} ({plain(left_out.get(key, _ALONE))})" for key in others)
    note = el("p", {"class": "muted legend"}, f"Not compared: {not_compared}.") if not_compared else None
    return html(el("div", {"class": "wide"}, markup), note)


def _cell_class(cell: int) -> dict[str, str]:
    """Return the class of a cell by its index among the cells after the method's cell: numbers, then words."""
    return {"class": "num"} if cell < _NUMBERS else {}
