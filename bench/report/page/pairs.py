"""Paired comparisons of a block of the page, and their table for readers without the script.

    {"columns": [column of questions' confidences, ...],     the k lines that were tested with another one
     "best": {recalibration: place in `columns`},            the best by the headline metric
     "costs": {"tokens": [...], "generated": [...]},         of these lines; null where it is not known
     "metrics": {metric: {"values": [difference, low, high, ...], "p": [...], "winner": "10=-..."}},
     "fronts": {metric: {"competing": [place, ...], cost: {recalibration or "all": [place, ...]}}},
     "hidden": 0,                                            lines that the page doesn't show
     "untested": [[column, why], ...]}                       lines that are ok and in no pair

Pairs go over places i < j: (0, 1), (0, 2), ..., (1, 2), ... A difference is the line at i minus the one at j, in
millionths, with the ends of its 95 % interval; null where there is none. `p` is corrected for all pairs, in
thousandths. `winner` has a character for each pair: 0 where the line at i is better, 1 where the one at j is, `=` where
neither is, `-` without a test. A front holds the lines than which no other one is better and cheaper, those that the
page doesn't show included; only `competing` ones can be on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from bench.metrics import METRICS, Metric
from bench.report.averages import mean_of
from bench.report.competition import judged_by
from bench.report.front import competing, front
from bench.report.grouping import Key
from bench.report.page.elements import Element, el, html
from bench.report.standings.compute import ROUNDING, Pair
from bench.report.tables.model import Line, Table
from bench.report.text import EN_DASH, interval_text, plain, precise, probability
from bench.report.verdict.judgement import Judgement, judged
from bench.stats import TESTED


class Between(NamedTuple):
    """Two lines of a block in one metric: the first minus the second, in millionths."""

    difference: int | None
    low: int | None
    """Lower end of its 95 % interval."""
    high: int | None
    p: int | None
    """Corrected p value, in thousandths."""
    winner: str
    """0 for the first, 1 for the second, `=` for neither, `-` without a test."""


COSTS = ("tokens", "generated")
"""Costs that quality is drawn against: attributes of `Line`."""
MILLION = 1_000_000
"""Differences and ends of intervals are integers in these parts of 1."""
_ABOUT = (
    "Differences to the best method, on the same questions. The 95 % interval is for other questions of these subjects;"
    " p is corrected for all pairs, and a method is better or worse where it is below 0.05. All pairs and metrics: "
)
_NOTHING = "No two methods were tested against each other here."
_NUMBERS = 3
"""Cells after the method that are numbers."""
_ALONE = "shares its answers and labels with no other method here"


def of(table: Table) -> dict[str, Any] | None:
    """All pairs of the lines that the table shows; None where nothing was tested.

    Args:
        table: of the block; its lines that are not shown are in no pair, but p values are corrected for them too.
    """
    found = _by_ends(table)
    columns = columns_of(table)
    if not columns:
        return None
    keys = [table.placed[k].key for k in columns]
    tested = set(keys)
    return {
        "columns": columns,
        "best": {kind: columns.index(k) for kind, k in best_of(table).items()},
        "costs": {cost: [_rounded(mean_of(getattr(table.placed[k], cost))) for k in columns] for cost in COSTS},
        "metrics": {
            name: _metric(name, [found.get((*ends, name)) for ends in combinations(keys, 2)])
            for name in TESTED
            if any(metric == name for _, _, metric in found)
        },
        "fronts": {
            name: _fronts(table, name, keys) for name in TESTED if any(metric == name for _, _, metric in found)
        },
        "hidden": len(table.others),
        "untested": [
            [k, _why(table, line)] for k, line in enumerate(table.placed) if line.done and line.key not in tested
        ],
    }


def _by_ends(table: Table) -> dict[tuple[Key, Key, str], Pair]:
    """Pairs by first, second and metric, the line that is placed first as the first."""
    place = {line.key: i for i, line in enumerate(table.placed)}
    pairs = [
        pair
        for pair in (table.standings.pairs if table.standings else ())
        if pair.first in place and pair.second in place
    ]
    turned = (pair if place[pair.first] < place[pair.second] else pair.reversed() for pair in pairs)
    return {(pair.first, pair.second, pair.metric): pair for pair in turned}


def columns_of(table: Table) -> list[int]:
    """Places in `table.placed` of the lines that were tested with another one that is shown."""
    found = _by_ends(table)
    tested = {key for key, _, _ in found} | {key for _, key, _ in found}
    return [k for k, line in enumerate(table.placed) if line.key in tested]


def best_of(table: Table) -> dict[str, int]:
    """Recalibration -> place in `table.placed` of its best line that was tested, by the headline metric."""
    place = {table.placed[k].key: k for k in columns_of(table)}
    found = {block.recalibration: _best_of(block, place) for block in judged(table, table.headline)}
    return {kind: place[key] for kind, key in found.items() if key is not None}


def _best_of(block: Judgement, keys: Collection[Key]) -> Key | None:
    """The leader with the best mean; where none is tested, the best mean."""
    lines = (*block.leaders, *block.ranked, *block.known, *block.unknown)
    return next((line.key for line in lines if line.key in keys), None)


def _why(table: Table, line: Line) -> str:
    left_out = table.standings.left_out if table.standings else {}
    return plain(left_out.get(line.key, _ALONE))


def _metric(name: str, pairs: Sequence[Pair | None]) -> dict[str, Any]:
    metric, alpha = METRICS[name], 0.05
    values: list[int | None] = []
    for pair in pairs:
        ends = (pair.difference, pair.fixed.low, pair.fixed.high) if pair else (None, None, None)
        values += [None if value is None else millionths(metric, value) for value in ends]
    p = [None if pair is None or pair.p_corrected is None else _thousandths(pair.p_corrected) for pair in pairs]
    return {"values": values, "p": p, "winner": "".join(_winner(pair, alpha) for pair in pairs)}


def _winner(pair: Pair | None, alpha: float) -> str:
    if pair is None or pair.p_corrected is None:
        return "-"
    winner = pair.winner(alpha)
    return "=" if winner is None else "01"[winner == pair.second]


def _fronts(table: Table, metric: str, keys: Sequence[Key]) -> dict[str, Any]:
    """Places of the lines on each front, and of those that can be on one; none where the metric has no ranks."""
    if all(line.rank(metric) is None for line in (*table.lines, *table.others)):
        return {"competing": [], **{cost: {} for cost in COSTS}}
    every = {line.key.recalibration for line in (*table.lines, *table.others)}
    kinds = {**{kind: {kind} for kind in sorted({key.recalibration for key in keys})}, "all": every}
    place = {key: i for i, key in enumerate(keys)}
    on = {
        cost: {
            name: [place[key] for key in front(table, metric, cost, kind) if key in place]
            for name, kind in kinds.items()
        }
        for cost in COSTS
    }
    return {"competing": [place[line.key] for line in competing(table, metric) if line.key in place], **on}


def _rounded(cost: float | None) -> int | None:
    return None if cost is None else round(cost)


def _thousandths(p: float) -> int:
    return round(1000 * float(f"{p:.3f}"))  # rounded as `probability` does


def millionths(metric: Metric, value: float) -> int:
    """A difference as an integer in millionths that tables show as they show the difference itself.

    It is within one millionth of the difference, and 0 only where that is 0.

    >>> from bench.metrics import METRICS
    >>> [millionths(METRICS["brier"], value) for value in (0.0812, -2e-8, 0.0014999999)]
    [81200, -1, 1499]
    """
    near = round(value * MILLION)
    if abs(value) <= ROUNDING:
        return 0
    sign = 1 if value > 0 else -1
    fitting = [whole for whole in (near, near - sign, near + sign) if whole * sign > 0]
    text = precise(metric, value)
    return next((whole for whole in fitting if precise(metric, whole / MILLION) == text), fitting[0])


# --- without the script -----------------------------------------------------------------------------------------------


def static(payload: Mapping[str, Any]) -> str:
    """Markup of a table for each block: differences to its best line by the headline metric.

    Args:
        payload: of the page, whose texts are escaped here.
    """
    names = [method["name"] for method in payload.get("methods", ())]
    blocks = [block for block in payload.get("blocks", ()) if block.get("pairs")]
    about = (_ABOUT, el("code", {}, "bench table --compare A,B"), ".") if blocks else (_NOTHING,)
    tables = (_static_block(block, names, payload["headline"]) for block in blocks)
    title = el("h2", {"id": "compare-title"}, "Comparison")
    return html(title, el("p", {"class": "muted legend"}, *about), *tables)


def _static_block(block: Mapping[str, Any], names: Sequence[str], headline: str) -> Element:
    pairs = block["pairs"]
    name = judged_by(headline)
    name = name if name in pairs["metrics"] else next(iter(pairs["metrics"]))
    metric, reference = METRICS[name], next(iter(pairs["best"].values()), 0)
    lines = {line["column"]: line for line in block["lines"] if line["column"] is not None}
    shown = [lines[column] for column in pairs["columns"]]
    label = [names[line["method"]] + (f" ({line['variant']})" if line["variant"] else "") for line in shown]
    sign = -1 if metric.higher_is_better else 1
    rows = [(place, between(pairs, name, place, reference)) for place in range(len(shown)) if place != reference]
    rows.sort(key=lambda row: (row[1].difference is None, sign * (row[1].difference or 0)))
    where = " · ".join(filter(None, (block["model"], block["task"], block["label"])))
    unit = "percentage points" if metric.is_fraction else "nats"
    caption = (
        f"{where}: {metric.label} of each method minus that of {label[reference]}, in {unit};"
        f" {'more' if metric.higher_is_better else 'less'} is better"
    )
    head = _row("th", ("Method", "Difference", "95 % interval", "p corrected", f"Beside {label[reference]}"))
    body = (_row("td", (label[place], *_told(metric, told))) for place, told in rows)
    parts = el("caption", {}, el("span", {}, caption)), el("thead", {}, head), el("tbody", {}, *body)
    return el("div", {"class": "wide"}, el("table", {}, *parts))


def _row(tag: str, texts: Iterable[str]) -> Element:
    """A table row; its first cell is the heading of the others."""
    first, *others = texts
    scope = "col" if tag == "th" else None
    cells = (el(tag, {"scope": scope, "class": "num" if i < _NUMBERS else None}, text) for i, text in enumerate(others))
    return el("tr", {}, el("th", {"scope": scope or "row"}, first), *cells)


def _told(metric: Metric, told: Between) -> tuple[str, ...]:
    difference, low, high, p, winner = told
    verdicts = {"0": "better", "1": "worse", "=": "can't be distinguished", "-": "no test"}
    ends = EN_DASH if low is None or high is None else interval_text(metric, low / MILLION, high / MILLION)
    size = EN_DASH if difference is None else "+" * (difference > 0) + precise(metric, difference / MILLION)
    return size, ends, EN_DASH if p is None else probability(p / 1000), verdicts[winner]


def between(pairs: Mapping[str, Any], metric: str, first: int, second: int) -> Between:
    """Difference, ends of its interval, corrected p value and winner of two places, the first minus the second.

    Args:
        pairs: from `of`, not None.
        metric: one of those in it.
        first: place in its columns.
        second: another one.
    """
    size = len(pairs["columns"])
    i, j = sorted((first, second))
    number = i * size - i * (i + 1) // 2 + j - i - 1
    of_metric = pairs["metrics"][metric]
    difference, low, high = of_metric["values"][3 * number : 3 * number + 3]
    p, winner = of_metric["p"][number], of_metric["winner"][number]
    if first < second:
        return Between(difference, low, high, p, winner)
    back, bottom, top = (None if value is None else -value for value in (difference, high, low))
    return Between(back, bottom, top, p, {"0": "1", "1": "0"}.get(winner, winner))
