"""Tables of a transfer matrix: metrics, prices and worst cells, for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bench.metrics import METRICS
from bench.report.tables.grid import Cell, Column, Grid, GridRow, TableViews, with_breaks
from bench.report.text import EN_DASH, plain, seeds_text, signed, with_arrow, with_half
from bench.report.transfer.model import CONSTANT, LEVEL, METRICS_SHOWN, Baseline, Matrix, MatrixEntry, Price, WorstCell
from bench.report.transfer.verdict import format_interval, verdict
from bench.results.transfer import AT_RANDOM, SUBJECT, Corpus
from bench.stats import Interval

SHOWN = "*"
SAME = "same"
MEAN_LABEL = "mean of those that learn"


def views(matrix: Matrix) -> TableViews:
    """Return a transfer matrix (methods by training corpus and test task) as grids, CSV records and JSON data."""
    cells = [(metric, test) for metric in METRICS_SHOWN for test in matrix.about.tests]
    grids = [_worst(matrix), *(_numbers(matrix, *cell) for cell in cells)]
    for is_novelty, prices in ((False, matrix.prices), (True, matrix.novelty)):
        priced_cells = {(price.metric, price.test) for price in prices}
        grids += [_prices(matrix, *cell, is_novelty=is_novelty) for cell in cells if cell in priced_cells]
    parts = (
        "about", "cells", "entries", "prices", "means", "novelty", "novelty_means", "constants", "worst",
        "against_untrained", "missing",
    )  # fmt: skip
    texts = {"verdict": list(verdict(matrix)), "remarks": list(matrix.remarks), "average": matrix.average}
    return TableViews(
        grids,
        lambda: list(_records(matrix)),
        lambda: {**texts, **{name: _to_json(getattr(matrix, name)) for name in parts}},
    )


def ordered_corpora(matrix: Matrix, test: str) -> list[Corpus]:
    """Return the training corpora of a test task in column order; the home corpus, its reference, comes first."""
    home = matrix.about.home(test)
    cells = {(e.corpus, e.test) for e in matrix.entries} | {(e.corpus, e.test) for e in matrix.missing}
    corpora = {corpus for corpus, tested in cells if tested == test and corpus is not None}
    home_task = home.task if home else test
    return sorted(
        corpora, key=lambda c: (c != home, bool(c.leaves_out), c.task != home_task, c.task, c.leaves_out != SUBJECT)
    )


def _numbers(matrix: Matrix, metric: str, test: str) -> Grid:
    """Build the table of a metric on one test task: rows are methods, columns training corpora."""
    corpora = ordered_corpora(matrix, test)
    rows = []
    for name, begins_block in with_breaks(matrix.methods, matrix.group):
        cells = [Cell(plain(name))]
        for column, corpus in enumerate(corpora):
            entry, reason = matrix.entry(name, corpus, test, metric), matrix.reason(name, corpus, test)
            if entry is not None:
                cells.append(Cell(SAME if entry.corpus is None and column else format_value(metric, entry)))
            else:
                cells.append(Cell("missing", notes=(plain(f"{name}: {reason}"),)) if reason else Cell("undefined"))
        rows.append(GridRow(cells, begins_block=begins_block))
    constants = {c.corpus: c for c in matrix.constants if (metric, c.test) == ("brier", test)}
    if constants:
        cells = [Cell(format_value(metric, constants[c]) if c in constants else EN_DASH) for c in corpora]
        rows.append(GridRow([Cell(CONSTANT), *cells], begins_block=True))
    facts = (f"{matrix.about.model}, tested on {test}: {with_arrow(metric)} by what methods learned on",)
    legend = (
        f"Percent, {matrix.over}, ± half the {LEVEL:.0%} interval for these subjects.".replace("%", " %"),
        *(text for kind, text in LEFT_OUT_LEGEND.items() if any(corpus.leaves_out == kind for corpus in corpora)),
        f"{SAME}: it is told nothing, so that its number does not depend on the corpus.",
        *([CONSTANT_LEGEND] if constants else []),
    )
    return Grid(facts, _columns(corpora), tuple(rows), legend)


CONSTANT_LEGEND = (
    f"{CONSTANT[0].upper()}{CONSTANT[1:]}: a constant confidence, that share in what was learned from; its price is"
    " what the changed share costs, whatever a method knows of single answers, and is not tested."
)


WORST_LEGEND = (
    "Rank: 1 plus the methods whose worst cell is significantly better, all tested together. The worst of several cells"
    " is worse by chance than in truth, for which test and interval allow."
)
LEFT_OUT_LEGEND = {
    SUBJECT: "Without the subject: each question's confidence is from a fit that saw no question of its subject.",
    AT_RANDOM: (
        "Without as many at random: from a fit that lacks as many answers, drawn from all subjects; it shows the price"
        " of fewer answers, and stands in no rank."
    ),
}
"""Value of `Corpus.leaves_out` -> sentence that explains such corpora below a table."""


def format_price(metric: str, points: float, interval: Interval) -> str:
    """Format the price of a training corpus in a metric, with its sign and its interval.

    The price is how much worse a method is than with the reference corpus.
    """
    return f"{signed(METRICS[metric], points)}{format_interval(metric, interval)}"


def format_value(metric: str, entry: MatrixEntry | WorstCell | Baseline) -> str:
    """Format the value of a metric in a cell, with half the width of its interval."""
    return with_half(metric, entry.value, entry.interval.ends)


def _prices(matrix: Matrix, metric: str, test: str, *, is_novelty: bool) -> Grid:
    """Build the table of prices in a metric on one test task: rows are methods, columns training corpora.

    A price is how much worse the method is than with the reference corpus. A row below has the mean over methods. With
    `is_novelty` prices are those of a new subject, otherwise of another corpus than the home corpus.
    """
    home, label, place = matrix.about.home(test), METRICS[metric].label, (metric, test)
    prices, means, kind = matrix.prices, matrix.means, "of"
    what = f"learning elsewhere than on {home.label if home else EN_DASH}"
    if is_novelty:
        prices, means, kind, what = matrix.novelty, matrix.novelty_means, "of a new subject in", "a new subject"
    by_cell = {(p.method, p.corpus): p for p in prices if (p.metric, p.test) == place}
    priced_on = {corpus for _, corpus in by_cell}
    corpora = [c for c in ordered_corpora(matrix, test) if (c in priced_on if is_novelty else c != home)]
    rows = []
    for name in matrix.methods:
        row_prices = [by_cell.get((name, corpus)) for corpus in corpora]
        if any(row_prices):
            cells = [
                Cell(EN_DASH)
                if p is None
                else Cell(
                    format_price(metric, p.points, p.interval), mark=SHOWN * p.is_shown,
                    notes=tuple(filter(None, [p.interval.reason])),
                )
                for p in row_prices
            ]  # fmt: skip
            rows.append(GridRow([Cell(plain(name)), *cells]))
    mean = {m.corpus: format_price(m.metric, m.points, m.interval) for m in means if (m.metric, m.test) == place}
    if mean:
        rows.append(GridRow([Cell(MEAN_LABEL), *(Cell(mean.get(c, EN_DASH)) for c in corpora)], begins_block=True))
    n = sum(p.metric == metric and p.p_holm is not None for p in prices)
    facts = [f"{matrix.about.model}, tested on {test}: the price of {what}, {label}, points"]
    legend = [
        "Prices are paired, on the same test questions; positive is worse.",
        f"{SHOWN}: different from 0, p < 0.05 by Holm's correction for the {n} prices {kind} {label}.",
    ]
    constants = {c.corpus: c for c in matrix.constants if (metric, c.test) == ("brier", test) and c.points is not None}
    if is_novelty:
        facts.append("Learned without the subject, against learned without as many answers drawn from all subjects.")
    elif constants:
        texts = {corpus: format_price(metric, c.points or 0, c.price_interval) for corpus, c in constants.items()}
        rows.append(GridRow([Cell(CONSTANT), *(Cell(texts.get(corpus, EN_DASH)) for corpus in corpora)]))
        legend.append(CONSTANT_LEGEND)
    return Grid(tuple(facts), _columns(corpora), tuple(rows), tuple(legend))


def _columns(corpora: Sequence[Corpus]) -> tuple[Column, ...]:
    return (Column("method", is_left=True), *(Column(plain(corpus.label), is_metric=True) for corpus in corpora))


def _worst(matrix: Matrix) -> Grid:
    """Build the table of each method's worst cell, with the verdict."""
    about = matrix.about
    columns = [Column("method", is_left=True)]
    for metric in METRICS_SHOWN:
        columns += [
            Column("rank", with_arrow(metric), is_metric=True), Column("worst", with_arrow(metric), is_metric=True),
            Column("where", with_arrow(metric), is_left=True, is_metric=True),
        ]  # fmt: skip
    by_method = {(w.method, w.metric): w for w in matrix.worst}
    rows = []
    for name in dict.fromkeys(w.method for w in matrix.worst):
        cells = [Cell(plain(name))]
        for metric in METRICS_SHOWN:
            worst = by_method.get((name, metric))
            if worst is None:
                cells += [Cell(EN_DASH), Cell(EN_DASH), Cell(EN_DASH)]
                continue
            rank = Cell(str(worst.rank or EN_DASH), notes=(worst.reason,) if worst.reason else ())
            where = worst.test if worst.corpus is None else f"{worst.corpus.label} → {worst.test}"
            cells += [rank, Cell(format_value(metric, worst)), Cell(plain(where))]
        rows.append(GridRow(cells))
    learned, tested = "; ".join(corpus.label for corpus in about.corpora), ", ".join(about.tests)
    basis = (
        f"Preset {about.preset}, {seeds_text(about.seeds)}; learned on {learned}; tested on {tested};"
        f" {about.forward_tokens:,} tokens were read for it. {' '.join(matrix.remarks)}"
    )
    legend = f"{WORST_LEGEND} Where: what was learned on → what was tested, or what was tested alone."
    facts = (f"{about.model}: methods by their worst cell", basis)
    return Grid(facts, tuple(columns), tuple(rows), (legend,), verdict=verdict(matrix), is_folded=True)


# --- data -------------------------------------------------------------------------------------------------------------


def _records(matrix: Matrix) -> Iterator[dict[str, Any]]:
    prices = {(p.method, p.corpus, p.test, p.metric): p for p in matrix.prices}
    for entry in matrix.entries:
        price = prices.get((entry.method, entry.corpus, entry.test, entry.metric)) if entry.corpus else None
        yield {
            **_place(entry.method, entry.corpus, entry.test), "metric": entry.metric, "value": entry.value,
            "low": entry.interval.low, "high": entry.interval.high, **_of_price(price), "reason": entry.interval.reason,
        }  # fmt: skip
    for constant in matrix.constants:
        yield {
            **_place(CONSTANT, constant.corpus, constant.test), "metric": "brier", "value": constant.value,
            "low": constant.interval.low, "high": constant.interval.high, "price": constant.points,
            "price_low": constant.price_interval.low, "price_high": constant.price_interval.high,
            "reason": constant.interval.reason,
        }  # fmt: skip
    for price in matrix.novelty:
        place = _place(price.method, price.corpus, price.test)
        yield {**place, "metric": price.metric, **_of_price(price), "reason": price.interval.reason}
    yield from ({**_place(gap.method, gap.corpus, gap.test), "reason": gap.reason} for gap in matrix.missing)


def _place(method: str, corpus: Corpus | None, test: str) -> dict[str, str]:
    learned, without = (corpus.task, corpus.leaves_out) if corpus else ("", "")
    return {"method": method, "learned_on": learned, "without": without, "tested_on": test}


def _of_price(price: Price | None) -> dict[str, Any]:
    names = ("against", "price", "price_low", "price_high", "p", "p_holm")
    if price is None:
        return dict.fromkeys(names)
    values = (price.home.label, price.points, price.interval.low, price.interval.high, price.p, price.p_holm)
    return dict(zip(names, values, strict=True))


def _to_json(value: Any) -> Any:
    """Convert a dataclass, or a tuple of dataclasses, to JSON values.

    An interval becomes an object with its two ends, and the reason if there is no interval.
    """
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    record = asdict(value)
    for field, key in (("interval", "ends"), ("price_interval", "price_ends")):
        if field in record:
            interval = record.pop(field)
            record[key] = {name: interval[name] for name in ("low", "high", "reason")}
    return record
