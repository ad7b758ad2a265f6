"""Paired differences between the methods of a table: as JSON-ready texts, and as an HTML table against the best method.

    {"columns": [index in the questions' "confidence", ...], the k methods that were tested against another one
     "best": {recalibration: index in `columns`},            the best method by the headline metric
     "metrics": {metric: [[difference, interval, p, verdict] | null, ...]}}

A metric has a list element for each pair of indices i < j in `columns`: (0, 1), (0, 2), ..., (1, 2), ... The difference
is that of the method at i minus the method at j. The verdict, a key of `VERDICTS`, is about the method at i. P values
are corrected for all pairs.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from bench.metrics import METRICS
from bench.report.competition import ranked_by
from bench.report.grouping import Key
from bench.report.page.elements import el, html
from bench.report.page.elements import table as table_of
from bench.report.standings.compute import Pair
from bench.report.tables.model import Table
from bench.report.text import EN_DASH, interval_text, p_text, plain, precise_difference
from bench.stats import TESTED

_ALPHA = 0.05
"""Significance level: a difference is significant if its corrected p value is below this number."""
VERDICTS = {"+": "better", "-": "worse", "=": "can't be distinguished", "x": "no verdict", "": "no test"}
_NOTHING = "No two methods were tested against each other here."
_ALONE = "shares its answers and labels with no other method here"


def pair_data(table: Table) -> dict[str, Any] | None:
    """Return the tested differences between all pairs of shown methods as JSON-ready data; None if nothing was tested.

    Args:
        table: a table with significance tests. P values are corrected for all its pairs, also those of hidden methods.
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
    """Return the tested differences by (first method, second method, metric).

    The first method is the one that comes first in `table.ordered_lines`.
    """
    position, by_ends = {line.key: i for i, line in enumerate(table.ordered_lines)}, {}
    for pair in table.standings.pairs if table.standings else ():
        if pair.first in position and pair.second in position:
            ordered = pair if position[pair.first] < position[pair.second] else pair.reversed()
            by_ends[ordered.first, ordered.second, ordered.metric] = ordered
    return by_ends


def tested_columns(table: Table) -> list[int]:
    """Return the indices into `table.ordered_lines` of methods that were tested against another shown method."""
    tested = {key for *ends, _ in _pairs_by_ends(table) for key in ends}
    return [k for k, line in enumerate(table.ordered_lines) if line.key in tested]


def best_columns(table: Table) -> dict[str, int]:
    """Map each recalibration to the best tested method that has it, by the headline metric.

    The method is given as an index into `table.ordered_lines`. It is the leading method with the best mean. If no
    leading method was tested against a shown method, it is the next method by rank, then by mean.
    """
    position, best = {table.ordered_lines[k].key: k for k in tested_columns(table)}, {}
    for block in table.competitions():
        lines = (*block.leaders, *block.ranked, *block.lines)
        positions = [position[line.key] for line in lines if line.key in position]
        if positions:
            best[block.recalibration] = positions[0]
    return best


def _pair_texts(pair: Pair) -> list[str]:
    """Return four texts: difference, interval, corrected p value, and a key of `VERDICTS` for the first method."""
    metric, ends, p, winner = METRICS[pair.metric], pair.fixed.ends, pair.p_corrected, pair.winner(_ALPHA)
    verdict = "=" if winner is None else "+" if winner == pair.first else "-"
    if p is None:
        verdict = "" if pair.p is None else "x"
    return [
        precise_difference(metric, pair.difference),
        interval_text(metric, *ends) if ends else EN_DASH,
        p_text(p) or EN_DASH,
        verdict,
    ]


def differences_table(table: Table, where: str) -> str:
    """Render an HTML table of differences: each tested method minus the best one, by the headline metric.

    If there are no tests in the headline metric, the differences are those in the first metric that has tests. If the
    table has several recalibrations, the best method is that of the first one. Rows are sorted by the difference, the
    best method first.

    Args:
        table: table of results; without significance tests, a sentence says that nothing was compared.
        where: name of the table, for the caption.
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
    scope, number, names = {"scope": "col"}, {"class": "num"}, ("Difference", "95 % interval", "p corrected")
    headings = [
        el("th", scope, "Method"), *(el("th", scope, number, name) for name in names),
        el("th", scope, f"Beside {label}"),
    ]  # fmt: skip
    body = []
    for pair in rows:
        *texts, verdict = _pair_texts(pair)
        cells = (*(el("td", number, text) for text in texts), el("td", VERDICTS[verdict]))
        body.append(el("tr", el("th", {"scope": "row"}, labels[pair.first]), *cells))
    markup = table_of({"class": "cards"}, el("caption", el("span", caption)), headings, el("tbody", *body))
    left_out, tested = table.standings.left_out if table.standings else {}, tested_columns(table)
    others = (line.key for k, line in enumerate(table.ordered_lines) if line.ok_rows and k not in tested)
    not_compared = "; ".join(f"{labels[key]} ({plain(left_out.get(key, _ALONE))})" for key in others)
    note = el("p", {"class": "muted legend"}, f"Not compared: {not_compared}.") if not_compared else None
    return html(el("div", {"class": "wide"}, markup), note)
