"""The section on shift: what methods cost that learned elsewhere, one part for each model that has such a matrix.

[{"model", "reason",                                        why there are no numbers; empty where there are
  "facts", "verdict": [sentence, ...], "legend": [sentence, ...], "hidden": sentence,
  "worst": {"caption", "columns": [[heading, kind], ...], "rows": [[text, ...], ...]},
  "tables": [{"metric", "caption", "columns": [heading, ...],
              "rows": [{"name", "group", "cells": [{"value", "half", "price", "mark", "note"}, ...]}, ...]}, ...]}, ...]

All of it is plain HTML, and no script touches it. Example: `section(of(Shift(matrices)))`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench.metrics import METRICS
from bench.report.page.elements import Element, el, html
from bench.report.text import EN_DASH, half_width, plain, shown, with_arrow
from bench.report.transfer.model import CONSTANT, LEVEL, METRICS_SHOWN, Matrix, MeanPrice, Price, Worst
from bench.report.transfer.stored import Unshown
from bench.report.transfer.tables import MEAN, ON_CONSTANT, SAME, SHOWN, columns_of, priced, sentences_on
from bench.report.transfer.verdict import verdict
from bench.results.transfer import Corpus

TITLE = "Train here, test there"
_ABOUT = (
    "Each method learned on one set of answers and was tested on another. A number is a mean over subjects, in percent,"
    f" with half its {100 * LEVEL:.0f} % interval for these subjects. Below it stands the price of learning there, in"
    " points with its interval: the difference to the first column, where methods learn by default, on the same"
    " questions; positive is worse."
)
Data = Mapping[str, Any]


class Shift(NamedTuple):
    """Matrices that a page shows."""

    matrices: Sequence[Matrix | Unshown]
    """One for each model."""
    methods: Collection[str] | None = None
    """Methods that are shown; None shows all. Ranks, prices and the verdict are of all in any case."""


def of(shift: Shift) -> list[dict[str, Any]]:
    """Everything that the section shows."""
    return [
        {"model": plain(each.model), "reason": plain(each.reason)}
        if isinstance(each, Unshown)
        else _part(each, shift.methods)
        for each in shift.matrices
    ]


def _part(matrix: Matrix, methods: Collection[str] | None) -> dict[str, Any]:
    about = matrix.about
    names = [name for name in matrix.methods if methods is None or name in methods]
    every = len(matrix.methods)
    hidden = every > len(names)
    family = {metric: sum(p.metric == metric and p.p_holm is not None for p in matrix.prices)
              for metric in METRICS_SHOWN}  # fmt: skip
    seeds = f"seed{'s' * (len(about.seeds) > 1)} {', '.join(map(str, about.seeds))}"
    tables = [_numbers(matrix, metric, test, names) for metric in METRICS_SHOWN for test in about.tests]
    tables += [_novelty(matrix, metric, test, names) for metric in METRICS_SHOWN for test in about.tests
               if any((p.metric, p.test) == (metric, test) for p in matrix.novelty)]  # fmt: skip
    corpora = [corpus for test in about.tests for corpus in columns_of(matrix, test)]
    counted = " and ".join(f"{n} of {METRICS[metric].label}" for metric, n in family.items())
    return {
        "model": plain(about.model),
        "reason": "",
        "facts": f"Preset {about.preset}, {seeds}; tested on {', '.join(about.tests)}",
        "verdict": list(verdict(matrix)),
        "hidden": f"Shown are {len(names)} of {every} methods; ranks, prices and sentences are of all." * hidden,
        "legend": [
            f"{SHOWN}: shown to differ from 0, p < 0.05 by Holm's correction for the prices of a metric ({counted}).",
            f"{SAME}: the method is told nothing, so that its number depends on no corpus and its price is 0.",
            *sentences_on(corpora),
            *([ON_CONSTANT] if matrix.constants else []),
            "Rank: 1 plus the methods whose worst number is significantly better, all pairs tested together.",
        ],
        "worst": _worst(matrix, names),
        "tables": [table for table in tables if table["rows"]],
    }


def _numbers(matrix: Matrix, metric: str, test: str, names: Sequence[str]) -> dict[str, Any]:
    """Numbers with their prices: rows are methods, columns what they learned on."""
    corpora, home = columns_of(matrix, test), matrix.about.home(test)
    prices = {(p.method, p.corpus): p for p in matrix.prices if (p.metric, p.test) == (metric, test)}
    rows = []
    for name in names:
        cells = [_number(matrix, name, corpus, test, metric, i) for i, corpus in enumerate(corpora)]
        told = [{**cell, **_price(prices.get((name, at)))} for cell, at in zip(cells, corpora, strict=True)]
        rows.append({"name": plain(name), "group": matrix.group(name), "cells": told})
    means = {m.corpus: m for m in matrix.means if (m.metric, m.test) == (metric, test)}
    if means:
        rows.append({"name": MEAN, "group": 3, "cells": [_mean(means.get(at)) for at in corpora]})
    constants = {c.corpus: c for c in matrix.constants if (metric, c.test) == ("brier", test)}
    if constants:
        cells = []
        for at in corpora:
            constant = constants.get(at)
            cell = _cell() if constant is None else _valued(metric, constant.value, *constant.ends[:2])
            if constant is not None and constant.points is not None:
                cell["price"] = priced(metric, constant.points, constant.price_ends)
            cells.append(cell)
        rows.append({"name": CONSTANT, "group": 3, "cells": cells})
    against = f"; prices are against {home.label}" if home else "; no price, since nobody learned where it is usual"
    caption = f"{with_arrow(metric)} tested on {test}, by what methods learned on{against}"
    return {"metric": metric, "caption": plain(caption), "columns": _heads(corpora), "rows": rows}


def _novelty(matrix: Matrix, metric: str, test: str, names: Sequence[str]) -> dict[str, Any]:
    """Prices of a new subject, beside as few answers of all subjects."""
    own = {(p.method, p.corpus): p for p in matrix.novelty if (p.metric, p.test) == (metric, test)}
    corpora = [corpus for corpus in columns_of(matrix, test) if any(at == corpus for _, at in own)]
    rows = [
        {"name": plain(name), "group": 0, "cells": [{**_cell(), **_price(own.get((name, at)))} for at in corpora]}
        for name in names
        if any((name, at) in own for at in corpora)
    ]
    means = {m.corpus: m for m in matrix.novelty_means if (m.metric, m.test) == (metric, test)}
    if means:
        rows.append({"name": MEAN, "group": 3, "cells": [_mean(means.get(at)) for at in corpora]})
    family = sum(price.metric == metric and price.p_holm is not None for price in matrix.novelty)
    caption = (
        f"The price of a new subject in {METRICS[metric].label}, tested on {test}: learned without the subject, against"
        f" as few answers of all subjects; Holm's correction is for these {family} prices"
    )
    return {"metric": metric, "caption": plain(caption), "columns": _heads(corpora), "rows": rows}


def _heads(corpora: Sequence[Corpus]) -> list[str]:
    return [plain(corpus.label) for corpus in corpora]


def _cell(value: str = "") -> dict[str, str]:
    return {"value": value, "half": "", "price": "", "mark": "", "note": ""}


def _valued(metric: str, value: float, low: float | None, high: float | None) -> dict[str, str]:
    return {**_cell(shown(METRICS[metric], value)), "half": half_width(METRICS[metric], value, low, high)}


def _number(matrix: Matrix, name: str, corpus: Corpus, test: str, metric: str, column: int) -> dict[str, str]:
    entry, reason = matrix.entry(name, corpus, test, metric), matrix.reason(name, corpus, test)
    if entry is not None:
        is_same = entry.corpus is None and column
        return _cell(SAME) if is_same else _valued(metric, entry.value, *entry.ends[:2])
    return {**_cell("missing" if reason else "undefined"), "note": plain(reason)}


def _price(price: Price | None) -> dict[str, str]:
    if price is None:
        return {}
    mark = ("worse" if price.points > 0 else "better") if price.is_shown else ""
    return {"price": priced(price.metric, price.points, price.ends), "mark": mark}


def _mean(mean: MeanPrice | None) -> dict[str, str]:
    return _cell() if mean is None else {**_cell(), "price": priced(mean.metric, mean.points, mean.ends)}


def _worst(matrix: Matrix, names: Collection[str]) -> dict[str, Any]:
    """Methods by their worst cells."""
    found = {(w.method, w.metric): w for w in matrix.worst}
    columns = [["Method", ""]]
    for metric in METRICS_SHOWN:
        label = METRICS[metric].label
        columns += [[f"Rank by {label}", "num"], [f"Worst {with_arrow(metric)}", "num"]]
        columns += [[f"Where {label} is worst", ""]]
    rows = []
    for name in dict.fromkeys(w.method for w in matrix.worst):
        if name in names:
            texts = (text for metric in METRICS_SHOWN for text in _worst_texts(found.get((name, metric))))
            rows.append([plain(name), *texts])
    return {"caption": "Methods by their worst number", "columns": columns, "rows": rows}


def _worst_texts(worst: Worst | None) -> list[str]:
    if worst is None:
        return [EN_DASH] * 3
    cell = _valued(worst.metric, worst.value, *worst.ends[:2])
    half = f" ± {cell['half']}" if cell["half"] else ""
    rank = f"{EN_DASH} ({worst.reason})" if worst.rank is None else str(worst.rank)
    return [rank, f"{cell['value']}{half}", plain(worst.where)]


# --- markup -----------------------------------------------------------------------------------------------------------


def section(parts: Sequence[Data]) -> str:
    """Markup of the section; empty where no model has a matrix."""
    if not parts:
        return ""
    children = [child for part in parts for child in _markup(part, several=len(parts) > 1)]
    title = el("h2", {"id": "transfer-title"}, TITLE)
    about = el("p", {"class": "muted legend"}, _ABOUT)
    return html(
        el(
            "section",
            {"id": "transfer", "aria-labelledby": "transfer-title", "tabindex": "-1"},
            title,
            about,
            *children,
        )
    )


def link(parts: Sequence[Data]) -> str:
    """Entry of the section in the page's navigation; empty where there is no such section."""
    return html(el("a", {"href": "#transfer"}, "Shift")) if parts else ""


def _markup(part: Data, *, several: bool) -> Iterator[Element]:
    if part["reason"]:
        yield el("h3", {}, part["model"])
        yield el("p", {}, f"There is a matrix of {part['model']}, which is not shown: {part['reason']}.")
        return
    if several:
        yield el("h3", {}, part["model"])
    yield el("p", {"class": "muted legend"}, f"{part['model']}. {part['facts']}. {part['hidden']}".strip())
    first, *others = part["verdict"]
    yield el("p", {"class": "said"}, el("b", {}, first))
    yield el("ul", {"class": "said"}, *(el("li", {}, sentence) for sentence in others))
    yield _worst_table(part["worst"])
    folded = [table for table in part["tables"] if table["metric"] != METRICS_SHOWN[0]]
    yield from (_table(table) for table in part["tables"] if table["metric"] == METRICS_SHOWN[0])
    if folded:
        label = METRICS[folded[0]["metric"]].label
        yield el("details", {}, el("summary", {}, f"The same in {label}"), *map(_table, folded))
    yield el("ul", {"class": "muted words"}, *(el("li", {}, sentence) for sentence in part["legend"]))


def _worst_table(worst: Data) -> Element:
    head = el("tr", {}, *(el("th", {"scope": "col", "class": kind or None}, text) for text, kind in worst["columns"]))
    rows = []
    for name, *texts in worst["rows"]:
        cells = [
            el("td", {"class": kind or None, "data-label": label}, el("bdi", {}, text))
            for text, (label, kind) in zip(texts, worst["columns"][1:], strict=True)
        ]
        rows.append(el("tr", {}, el("th", {"scope": "row", "class": "name"}, el("bdi", {}, name)), *cells))
    return _framed(worst["caption"], head, rows, "matrix worst")


def _table(table: Data) -> Element:
    heads = (el("th", {"scope": "col", "class": "num"}, el("bdi", {}, text)) for text in table["columns"])
    head = el("tr", {}, el("th", {"scope": "col", "class": "name"}, "Method"), *heads)
    rows, before = [], None
    for row in table["rows"]:
        cells = (_told(cell, label) for cell, label in zip(row["cells"], table["columns"], strict=True))
        name = el("th", {"scope": "row", "class": "name"}, el("bdi", {}, row["name"]))
        rows.append(el("tr", {"class": "apart" if before not in {None, row["group"]} else None}, name, *cells))
        before = row["group"]
    return _framed(table["caption"], head, rows, "matrix")


def _told(cell: Data, label: str) -> Element:
    half = el("span", {"class": "beside"}, f" ± {cell['half']}") if cell["half"] else None
    value = el("span", {"class": "value"}, cell["value"], half) if cell["value"] else None
    price = None
    if cell["price"]:
        signs = el("span", {"class": "hidden"}, f", shown to be {cell['mark']}") if cell["mark"] else None
        text = f"{cell['price']}{SHOWN * bool(cell['mark'])}"
        price = el("span", {"class": f"price {cell['mark']}".strip()}, text, signs)
    note = el("span", {"class": "price"}, cell["note"]) if cell["note"] else None
    empty = None if value is not None or price is not None else EN_DASH
    return el("td", {"class": "num", "data-label": label}, value, price, note, empty)


def _framed(caption: str, head: Element, rows: Sequence[Element], kind: str) -> Element:
    """A table that scrolls by itself where it is too wide."""
    parts = el("caption", {}, el("span", {}, caption)), el("thead", {}, head), el("tbody", {}, *rows)
    return el("div", {"class": "wide", "tabindex": "0", "role": "region", "aria-label": caption},
              el("table", {"class": kind}, *parts))  # fmt: skip
