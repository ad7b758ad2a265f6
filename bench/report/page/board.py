"""The parts of the page that are plain HTML, for readers without JavaScript: verdict, table, footnotes, words.

All are made of the payload from which the script draws the same table. Example: `board(payload)["verdict"]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.report.competition import judged_by
from bench.report.page.elements import Element, el, html
from bench.report.tables.legend import LEADS
from bench.report.text import ARROWS, EN_DASH, count

_FIGURE_SPACE = "\u2007"
_FEW = 4
"""Blocks whose verdicts stand unfolded."""
_NOTHING = "There is nothing to note."
Data = Mapping[str, Any]


def board(payload: Data) -> dict[str, str]:
    """Markup of each part: facts, verdict, table, legend, footnotes, metrics, provenance."""
    view = _View(payload)
    return {
        "facts": html(el("p", {"id": "facts", "class": "muted"}, _facts(payload))),
        "verdict": html(*_verdict(payload)),
        "table": html(view.table()) if payload["blocks"] else "",
        "legend": html(
            el("ul", {"id": "legend", "class": "muted words"}, *(el("li", {}, text) for text in view.legend()))
        ),
        "footnotes": html(_footnotes(payload["footnotes"])),
        "metrics": html(_metrics(payload["metrics"])),
        "provenance": html(*_provenance(payload)),
    }


def colours(payload: Data) -> str:
    """Style of the methods' swatches, whose colours an element of a page without inline styles can't have itself."""
    return "\n".join(f".m{i} {{ --c: {method['colour']}; }}" for i, method in enumerate(payload["methods"]))


# --- verdict ----------------------------------------------------------------------------------------------------------


def _verdict(payload: Data) -> Iterator[Element]:
    verdict = payload["verdict"]
    if verdict is None:
        return
    yield el("h2", {"id": "verdict-title"}, verdict["title"])
    columns = verdict["columns"]
    head = el("thead", {}, el("tr", {}, *(el("th", {"scope": "col"}, label) for label, _ in columns)))
    rows = (_verdict_row(columns, row) for row in verdict["rows"])
    caption = el("caption", {"class": "hidden"}, f"{verdict['title']}: one row for each benchmark.")
    yield el("table", {"id": "verdicts", "class": "verdicts"}, caption, head, el("tbody", {}, *rows))
    yield from (el("p", {"class": "explained"}, sentence) for sentence in verdict["explained"])
    yield el(
        "details", {"id": "sentences", "open": "" if len(verdict["words"]) <= _FEW else None},
        el("summary", {}, "The verdicts in sentences"), *map(_in_words, verdict["words"]),
    )  # fmt: skip


def _verdict_row(columns: Sequence[Sequence[str]], row: Data) -> Element:
    cells = [
        el("td" if i else "th", {"scope": None if i else "row", "data-label": short or None}, el("bdi", {}, text))
        for i, ((_, short), text) in enumerate(zip(columns, row["texts"], strict=True))
    ]
    return el("tr", {"data-state": row["state"]}, *cells)


def _in_words(words: Sequence[Any]) -> Element:
    title, (first, *others) = words
    return el("p", {}, el("b", {}, f"{title}: {first}"), " " + " ".join(others))


# --- table ------------------------------------------------------------------------------------------------------------


class _View:
    """The table in its default view: the first set of columns, with what the metric of the headline ranks."""

    def __init__(self, payload: Data) -> None:
        self.payload = payload
        self.names = [metric["name"] for metric in payload["metrics"]]
        self.lines = [line for block in payload["blocks"] for line in block["lines"]]
        self.headline = payload["headline"]
        shown = payload["sets"][0]["metrics"]
        first = self.names.index(self.headline)
        self.metrics = shown if first in shown else [first, *shown]
        self.is_ranked = any(self._rank(line) for line in self.lines)
        self.has_halves = any("ci" in line for line in self.lines)
        self.widths = {m: max((len(self._half(line, m) or "") for line in self.lines), default=0) for m in self.metrics}

    def table(self) -> Element:
        """All of it."""
        headings = [self._heading("Method", "name"), *([self._heading("Rank", "num rank")] if self.is_ranked else [])]
        headings += [self._metric_heading(m) for m in self.metrics]
        headings += [self._heading(cost["label"], f"num cost {cost['key']}") for cost in self.payload["costs"]]
        bodies = (self._body(block, len(headings)) for block in self.payload["blocks"])
        caption = el("caption", {"class": "hidden"}, self.payload["words"]["caption"])
        return el("table", {}, caption, el("thead", {}, el("tr", {}, *headings)), *bodies)

    def legend(self) -> list[str]:
        """Meaning of the numbers and signs that stand there."""
        words, found = self.payload["words"], {sign for line in self.lines for m in self.metrics
                                               for sign, _ in self._signs(line, m)}  # fmt: skip
        shown = {self.names[m] for m in self.metrics}
        sentences = [
            words["mean"],
            words["dash"],
            words["half"] if self.has_halves else None,
            words["acc"] if "acc" in shown else None,
            words["floor"] if "ece" in shown else None,
            *(sentence for sign, sentence in words["signs"] if sign in found),
            words["calibration"] if "rmsce" in shown else None,
            words["groups"],
            *([words["tests"], self.payload["headlines"][self.headline]] if self.is_ranked else []),
            words["labels"],
        ]
        return list(filter(None, sentences))

    def _heading(self, label: str, kind: str) -> Element:
        return el("th", {"scope": "col", "class": kind}, el("span", {"class": "label"}, label))

    def _metric_heading(self, m: int) -> Element:
        metric = self.payload["metrics"][m]
        note = el("small", {}, metric["note"]) if metric["note"] else None
        label = el("span", {"class": "label"}, label_of(metric))
        return el("th", {"scope": "col", "class": "num metric"}, label, note)

    def _body(self, block: Data, width: int) -> Element:
        rows, part, leads = [], None, set(block["headlines"][self.headline]["leads"])
        several = len(self.payload["parts"]) > 1
        for i, line in enumerate(block["lines"]):
            method = self.payload["methods"][line["method"]]
            if several and method["part"] != part:
                part = method["part"]
                title = el("th", {"scope": "rowgroup", "colspan": str(width)}, self.payload["parts"][part])
                rows.append(el("tr", {"class": "part"}, title))
            rows.append(self._row(line, leads=i in leads))
        title = el("th", {"scope": "rowgroup", "colspan": str(width)}, *_title(block))
        return el("tbody", {}, el("tr", {"class": "group"}, title), *rows)

    def _row(self, line: Data, *, leads: bool) -> Element:
        cells = [el("th", {"scope": "row", "class": "name"}, self._method(line))]
        if self.is_ranked:
            rank = self._rank(line)
            text = f"{LEADS * leads}{rank}" if rank else EN_DASH
            cells.append(el("td", {"class": "num rank", "data-label": "Rank"}, text))
        cells += [self._number(line, m) for m in self.metrics]
        for cost in self.payload["costs"]:
            text = line.get("costs", {}).get(cost["key"], EN_DASH)
            cells.append(el("td", {"class": f"num cost {cost['key']}", "data-label": cost["label"]}, text))
        return el("tr", {"class": "leads" if leads else None}, *cells)

    def _method(self, line: Data) -> Element:
        ok = line["status"] == "ok"
        tag = None if ok or line["status"] == "missing" else el("small", {"class": "tag"}, line["status"])
        swatch = el("span", {"class": f"swatch m{line['method']}", "aria-hidden": "true"})
        name = el("bdi", {}, self.payload["methods"][line["method"]]["name"])
        return el(
            "span", {"class": "method"}, swatch, name, tag, *_marks([*line["notes"], *(line["reasons"] if ok else [])])
        )

    def _number(self, line: Data, m: int) -> Element:
        metric = self.payload["metrics"][m]
        attributes = {"class": "num metric", "data-label": label_of(metric)}
        if line["status"] != "ok" or line["text"][m] is None:
            notes = line["remarks"][m] if line["status"] == "ok" else line["reasons"]
            return el("td", attributes, el("span", {"class": "absent"}, EN_DASH, *_marks(notes)))
        half, signs = self._half(line, m), self._signs(line, m)
        beside = None
        if self.widths[m]:
            text = f"± {(half or '').rjust(self.widths[m], _FIGURE_SPACE)}"
            beside = el("span", {"class": "beside" if half else "beside void"}, text)
        floor = None
        if metric["name"] == "ece":
            text = line["text"][self.names.index("ece_floor")]
            floor = el("span", {"class": "floor"}, el("span", {"class": "hidden"}, " floor "), f" / {text or EN_DASH}")
        best = line["best"][m] == "beyond chance"
        value = el(
            "span", {"class": "value best" if best else "value"}, el("span", {"class": "mean"}, line["text"][m]),
            beside, floor, el("span", {"class": "signs", "aria-hidden": "true"}, "".join(sign for sign, _ in signs)),
            *(el("span", {"class": "hidden"}, f", {said}") for _, said in signs),
        )  # fmt: skip
        return el("td", attributes, el("span", {"class": "cell"}, value, *_marks(line["remarks"][m])))

    def _rank(self, line: Data) -> int | None:
        ranks: Mapping[str, int] = line.get("rank", {})
        return ranks.get(judged_by(self.headline))

    @staticmethod
    def _half(line: Data, m: int) -> str | None:
        return line["half"][m] if "half" in line else None

    def _signs(self, line: Data, m: int) -> list[tuple[str, str]]:
        """Signs after a number, and what a screen reader says of each."""
        if line["status"] != "ok":
            return []
        words, name, best = self.payload["words"], self.names[m], line["best"][m]
        calibrated = [(words["calibrated"], words["spoken"]["calibrated"])]
        return [
            *(calibrated if name == "ece" and line.get("calibrated") else []),
            *([(words["best"][best], f"best, {best}")] if best else []),
            *([(words["worse"], words["spoken"]["worse"])] if name == "brier" and line.get("worse") else []),
        ]


def label_of(metric: Data) -> str:
    """Heading of a metric, which says that a floor stands with ECE, and where it is better."""
    arrow = ARROWS[{1: True, -1: False, 0: None}[metric["better"]]]
    return f"{metric['label']}{'/floor' if metric['name'] == 'ece' else ''}{arrow}"


def _title(block: Data) -> list[Element]:
    where = " · ".join(filter(None, (block["model"], block["task"], block["label"])))
    facts = el("span", {"class": "facts"}, " ".join(block["facts"]))
    return [el("div", {}, el("bdi", {"class": "where"}, where), " ", facts)]


def _marks(numbers: Sequence[int]) -> list[Element]:
    return [
        el("sup", {}, el("a", {"href": f"#fn-{number}", "aria-label": f"footnote {number}"}, str(number)))
        for number in sorted(set(numbers))
    ]


# --- words ------------------------------------------------------------------------------------------------------------


def _facts(payload: Data) -> str:
    blocks = payload["blocks"]
    labels = {block["label"] for block in blocks}
    counts = [
        (len(payload["methods"]), "method"), (len({block["model"] for block in blocks}), "model"),
        (len({block["task"] for block in blocks}), "benchmark"), (payload["count"]["results"], "result"),
    ]  # fmt: skip
    facts = [f"preset {payload['preset']}", *(f"{count(n)} {noun}{'s' * (n != 1)}" for n, noun in counts)]
    return " · ".join([*facts, *(filter(None, labels) if len(labels) == 1 else [])])


def _footnotes(texts: Sequence[str]) -> Element:
    if not texts:
        return el("p", {"class": "muted"}, _NOTHING)
    items = (
        el("li", {"id": f"fn-{number}", "dir": "auto", "tabindex": "-1"}, text)
        for number, text in enumerate(texts, start=1)
    )
    return el("ol", {"id": "footnotes", "class": "notes"}, *items)


def _metrics(metrics: Sequence[Data]) -> Element:
    arrows = {1: ARROWS[True], -1: ARROWS[False], 0: ""}
    terms = (
        el("div", {}, el("dt", {}, metric["label"] + arrows[metric["better"]]),
           el("dd", {}, f"{metric['about']} ", el("span", {"class": "muted"}, metric["source"])))
        for metric in metrics
    )  # fmt: skip
    return el("dl", {"id": "metric-list", "class": "terms"}, *terms)


def _provenance(payload: Data) -> Iterator[Element]:
    results, ok, dirty = (payload["count"][name] for name in ("results", "ok", "dirty"))
    made = f"{count(dirty) if dirty else 'None'} of them {'was' if dirty == 1 else 'were'} made by code with"
    text = f"{count(ok)} of {count(results)} results are ok. {made} uncommitted changes."
    yield el("p", {"class": "muted", "id": "provenance-facts"}, text)
    terms = (el("div", {}, el("dt", {}, el("bdi", {}, name)), *_values(values, results))
             for name, values in payload["provenance"])  # fmt: skip
    yield el("dl", {"id": "provenance-list", "class": "terms"}, *terms)


def _values(values: Sequence[Sequence[Any]], results: int) -> Iterator[Element]:
    for value, there in values:
        some = el("small", {"class": "muted"}, f" {count(there)} of {count(results)}") if there < results else None
        yield el("dd", {}, el("bdi", {}, value), some)
