"""The section on shift: what methods cost that learned elsewhere, one part for each model that has such a matrix.

All of it is plain HTML, and no script touches it. Example: `section(Shift(matrices))`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from bench.metrics import METRICS
from bench.report.page.elements import Element, el, html
from bench.report.text import EN_DASH, half_width, plain, seeds_text, shown, with_arrow
from bench.report.transfer.model import CONSTANT, LEVEL, METRICS_SHOWN, Matrix, MeanPrice, Price, Worst
from bench.report.transfer.stored import Unshown
from bench.report.transfer.verdict import verdict
from bench.report.transfer.views import MEAN, ON_CONSTANT, ON_WORST, SAME, SHOWN, columns_of, priced, sentences_on
from bench.results.transfer import Corpus
from bench.stats import Interval

TITLE = "Train here, test there"
_ABOUT = (
    "Each method learned on one set of answers and was tested on another. A number is in percent, with half its"
    f" {100 * LEVEL:.0f} % interval for these subjects. Below it stands the price of learning there, in"
    " points with its interval: the difference to the first column, where methods learn by default (or on what"
    " --home named), on the same questions; positive is worse."
)
_APART = 3
"""Group of the rows that are of no method."""


class Shift(NamedTuple):
    """Matrices that a page shows."""

    matrices: Sequence[Matrix | Unshown]
    """One for each model."""
    methods: Collection[str] | None = None
    """Methods that are shown; None shows all. Ranks, prices and the verdict are of all in any case."""


class _Cell(NamedTuple):
    """Texts of a cell."""

    value: str = ""
    half: str = ""
    """Half of its interval."""
    price: str = ""
    mark: str = ""
    """Word for what the price is shown to be: worse, better, or empty."""
    note: str = ""


class _Row(NamedTuple):
    """A method, or what stands below all of them."""

    name: str
    group: int
    cells: Sequence[_Cell]


def section(shift: Shift) -> str:
    """Markup of the section; empty where no model has a matrix."""
    if not shift.matrices:
        return ""
    children = [
        child
        for each in shift.matrices
        for child in (_unshown(each) if isinstance(each, Unshown) else _shown(each, shift))
    ]
    title = el("h2", {"id": "transfer-title"}, TITLE)
    about = el("p", {"class": "muted legend"}, _ABOUT)
    attributes = {"id": "transfer", "aria-labelledby": "transfer-title", "tabindex": "-1"}
    return html(el("section", attributes, title, about, *children))


def link() -> str:
    """Entry of the section in the page's navigation."""
    return html(el("a", {"href": "#transfer"}, "Shift"))


def _unshown(matrix: Unshown) -> Iterator[Element]:
    model = plain(matrix.model)
    yield el("h3", {}, model)
    yield el("p", {}, f"There is a matrix of {model}, which is not shown: {plain(matrix.reason)}.")


def _shown(matrix: Matrix, shift: Shift) -> Iterator[Element]:
    about, every = matrix.about, matrix.methods
    names = [name for name in every if shift.methods is None or name in shift.methods]
    if len(shift.matrices) > 1:
        yield el("h3", {}, plain(about.model))
    seeds, tests = seeds_text(about.seeds), ", ".join(about.tests)
    facts = " ".join((f"{plain(about.model)}. Preset {about.preset}, {seeds}; tested on {tests}.", *matrix.remarks))
    hidden = f" Shown are {len(names)} of {len(every)} methods; ranks, prices and sentences are of all."
    yield el("p", {"class": "muted legend"}, facts + hidden * (len(every) > len(names)))
    first, *others = verdict(matrix)
    yield el("p", {"class": "said"}, el("b", {}, first))
    yield el("ul", {"class": "said"}, *(el("li", {}, sentence) for sentence in others))
    yield _worst(matrix, names)
    headline, *rest = METRICS_SHOWN
    yield from _tables(matrix, headline, names)
    for metric in rest:
        folded = list(_tables(matrix, metric, names))
        if folded:
            yield el("details", {}, el("summary", {}, f"The same in {METRICS[metric].label}"), *folded)
    yield el("ul", {"class": "muted words"}, *(el("li", {}, sentence) for sentence in _legend(matrix)))


def _legend(matrix: Matrix) -> Iterator[str]:
    family = {metric: sum(p.metric == metric and p.p_holm is not None for p in matrix.prices)
              for metric in METRICS_SHOWN}  # fmt: skip
    counted = " and ".join(f"{n} of {METRICS[metric].label}" for metric, n in family.items())
    yield f"{SHOWN}: shown to differ from 0, p < 0.05 by Holm's correction for the prices of a metric ({counted})."
    yield f"{SAME}: the method is told nothing, so that its number depends on no corpus and its price is 0."
    yield from sentences_on([corpus for test in matrix.about.tests for corpus in columns_of(matrix, test)])
    yield from [ON_CONSTANT] if matrix.constants else []
    yield ON_WORST


# --- numbers and prices -----------------------------------------------------------------------------------------------


def _tables(matrix: Matrix, metric: str, names: Sequence[str]) -> Iterator[Element]:
    """All tables of a metric."""
    for make in (_numbers, _novelty):
        tables = (make(matrix, metric, test, names) for test in matrix.about.tests)
        yield from (table for table in tables if table is not None)


def _numbers(matrix: Matrix, metric: str, test: str, names: Sequence[str]) -> Element | None:
    """Numbers with their prices: rows are methods, columns what they learned on."""
    corpora, home = columns_of(matrix, test), matrix.about.home(test)
    prices = {(p.method, p.corpus): p for p in matrix.prices if (p.metric, p.test) == (metric, test)}
    rows = []
    for name in names:
        cells = [_number(matrix, name, corpus, test, metric, is_first=not i) for i, corpus in enumerate(corpora)]
        own = [_with_price(cell, prices.get((name, at))) for cell, at in zip(cells, corpora, strict=True)]
        rows.append(_Row(name, matrix.group(name), own))
    rows += _means([m for m in matrix.means if (m.metric, m.test) == (metric, test)], corpora)
    constants = {c.corpus: c for c in matrix.constants if (metric, c.test) == ("brier", test)}
    if constants:
        cells = []
        for constant in map(constants.get, corpora):
            cell = _Cell() if constant is None else _valued(metric, constant.value, constant.interval)
            if constant is not None and constant.points is not None:
                cell = cell._replace(price=priced(metric, constant.points, constant.price_interval))
            cells.append(cell)
        rows.append(_Row(CONSTANT, _APART, cells))
    against = f"; prices are against {home.label}" if home else "; no price, since nobody learned where it is usual"
    caption = f"{with_arrow(metric)} {matrix.over}, tested on {test}, by what methods learned on{against}"
    return _table(caption, corpora, rows)


def _novelty(matrix: Matrix, metric: str, test: str, names: Sequence[str]) -> Element | None:
    """Prices of a new subject, beside as few answers of all subjects."""
    own = {(p.method, p.corpus): p for p in matrix.novelty if (p.metric, p.test) == (metric, test)}
    corpora = [corpus for corpus in columns_of(matrix, test) if any(at == corpus for _, at in own)]
    rows = [
        _Row(name, 0, [_with_price(_Cell(), own.get((name, at))) for at in corpora])
        for name in names
        if any((name, at) in own for at in corpora)
    ]
    rows += _means([m for m in matrix.novelty_means if (m.metric, m.test) == (metric, test)], corpora)
    family = sum(price.metric == metric and price.p_holm is not None for price in matrix.novelty)
    caption = (
        f"The price of a new subject in {METRICS[metric].label}, tested on {test}: learned without the subject, against"
        f" as few answers of all subjects; Holm's correction is for these {family} prices"
    )
    return _table(caption, corpora, rows)


def _means(means: Sequence[MeanPrice], corpora: Sequence[Corpus]) -> list[_Row]:
    prices = {mean.corpus: priced(mean.metric, mean.points, mean.interval) for mean in means}
    return [_Row(MEAN, _APART, [_Cell(price=prices.get(at, "")) for at in corpora])] if means else []


def _valued(metric: str, value: float, interval: Interval) -> _Cell:
    return _Cell(shown(METRICS[metric], value), half_width(METRICS[metric], value, interval.low, interval.high))


def _number(matrix: Matrix, name: str, corpus: Corpus, test: str, metric: str, *, is_first: bool) -> _Cell:
    entry, reason = matrix.entry(name, corpus, test, metric), matrix.reason(name, corpus, test)
    if entry is None:
        return _Cell("missing" if reason else "undefined", note=plain(reason))
    return _valued(metric, entry.value, entry.interval) if entry.corpus or is_first else _Cell(SAME)


def _with_price(cell: _Cell, price: Price | None) -> _Cell:
    if price is None:
        return cell
    mark = ("worse" if price.points > 0 else "better") if price.is_shown else ""
    return cell._replace(price=priced(price.metric, price.points, price.interval), mark=mark)


def _table(caption: str, corpora: Sequence[Corpus], rows: Sequence[_Row]) -> Element | None:
    """A table with a column for each corpus; None without rows."""
    if not rows:
        return None
    labels = [plain(corpus.label) for corpus in corpora]
    heads = (el("th", {"scope": "col", "class": "num"}, el("bdi", {}, label)) for label in labels)
    head = el("tr", {}, el("th", {"scope": "col", "class": "name"}, "Method"), *heads)
    lines, before = [], rows[0].group
    for row in rows:
        cells = (_markup(cell, label) for cell, label in zip(row.cells, labels, strict=True))
        name = el("th", {"scope": "row", "class": "name"}, el("bdi", {}, plain(row.name)))
        lines.append(el("tr", {"class": "apart" if row.group != before else None}, name, *cells))
        before = row.group
    return _framed(plain(caption), head, lines, "matrix")


def _markup(cell: _Cell, label: str) -> Element:
    half = el("span", {"class": "beside"}, f" ± {cell.half}") if cell.half else None
    value = el("span", {"class": "value"}, cell.value, half) if cell.value else None
    price = None
    if cell.price:
        signs = el("span", {"class": "hidden"}, f", shown to be {cell.mark}") if cell.mark else None
        text = f"{cell.price}{SHOWN * bool(cell.mark)}"
        price = el("span", {"class": f"price {cell.mark}".strip()}, text, signs)
    note = el("span", {"class": "price"}, cell.note) if cell.note else None
    empty = None if value is not None or price is not None else EN_DASH
    return el("td", {"class": "num", "data-label": label}, value, price, note, empty)


# --- worst cells ------------------------------------------------------------------------------------------------------


def _worst(matrix: Matrix, names: Collection[str]) -> Element:
    """Methods by their worst cells."""
    found = {(worst.method, worst.metric): worst for worst in matrix.worst}
    columns = [("Method", "")]
    for metric in METRICS_SHOWN:
        label = METRICS[metric].label
        columns += [
            (f"Rank by {label}", "num"),
            (f"Worst {with_arrow(metric)}", "num"),
            (f"Where {label} is worst", ""),
        ]
    head = el("tr", {}, *(el("th", {"scope": "col", "class": kind or None}, text) for text, kind in columns))
    rows = []
    for name in (name for name in dict.fromkeys(worst.method for worst in matrix.worst) if name in names):
        texts = (text for metric in METRICS_SHOWN for text in _worst_texts(found.get((name, metric))))
        cells = [
            el("td", {"class": kind or None, "data-label": label}, el("bdi", {}, text))
            for text, (label, kind) in zip(texts, columns[1:], strict=True)
        ]
        rows.append(el("tr", {}, el("th", {"scope": "row", "class": "name"}, el("bdi", {}, plain(name))), *cells))
    return _framed("Methods by their worst number", head, rows, "matrix worst")


def _worst_texts(worst: Worst | None) -> list[str]:
    if worst is None:
        return [EN_DASH] * 3
    cell = _valued(worst.metric, worst.value, worst.interval)
    rank = f"{EN_DASH} ({worst.reason})" if worst.rank is None else str(worst.rank)
    return [rank, f"{cell.value} ± {cell.half}" if cell.half else cell.value, plain(worst.where)]


def _framed(caption: str, head: Element, rows: Sequence[Element], kind: str) -> Element:
    """A table that scrolls by itself where it is too wide."""
    parts = el("caption", {}, el("span", {}, caption)), el("thead", {}, head), el("tbody", {}, *rows)
    return el("div", {"class": "wide", "tabindex": "0", "role": "region", "aria-label": caption},
              el("table", {"class": kind}, *parts))  # fmt: skip
