"""The parts of the page that are tables and words, as plain HTML: the script sorts, filters and folds what stands here.

All are made of the payload. Example: `board(payload)["verdict"]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.report.averages import mean_of
from bench.report.competition import judged_by
from bench.report.page.elements import Element, el, html
from bench.report.page.pictures import Pictures
from bench.report.tables.legend import LEADS
from bench.report.text import ARROWS, EN_DASH, count

_FIGURE_SPACE = "\u2007"
_FEW = 4
"""Blocks whose verdicts stand unfolded."""
_NOTHING = "There is nothing to note."
Data = Mapping[str, Any]


def board(payload: Data, pictures: Sequence[Pictures]) -> dict[str, str]:
    """Markup of each part: facts, verdict, table, legend, comparison, overview, footnotes, metrics, provenance.

    Args:
        payload: with the markup of "differences".
        pictures: of each block; none where there are no figures.
    """
    view = _View(payload)
    return {
        "facts": html(el("p", {"id": "facts", "class": "muted"}, _facts(payload))),
        "verdict": html(*_verdict(payload)),
        "table": html(view.table()) if payload["blocks"] else "",
        "legend": html(el("ul", {"id": "legend", "class": "muted words"}, *view.legend())),
        "compare": "".join(_compared(payload, pictures)),
        "reliability": "".join(_reliability(payload, pictures)),
        "overview": html(*_overview(payload)),
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
    """The table with every metric; the first set of columns is shown, with what the metric of the headline ranks."""

    def __init__(self, payload: Data) -> None:
        self.payload = payload
        self.names = [metric["name"] for metric in payload["metrics"]]
        self.lines = [line for block in payload["blocks"] for line in block["lines"]]
        first = self.names.index(payload["headline"])
        chosen = payload["sets"][0]["metrics"]
        self.shown = chosen if first in chosen else [first, *chosen]
        self.columns = [*self.shown, *(m for m in range(len(self.names)) if m not in self.shown)]
        self.is_ranked = any(line.get("rank") for line in self.lines)
        self.has_halves = any("ci" in line for line in self.lines)
        self.widths = {m: max((len(self._half(line, m) or "") for line in self.lines), default=0) for m in self.columns}

    def table(self) -> Element:
        """All of it."""
        names = {"name": "Method", **({"num rank": "Rank"} if self.is_ranked else {})}
        headings = [
            el("th", {"scope": "col", "class": kind, "data-key": label.lower()}, label) for kind, label in names.items()
        ]
        headings += map(self._metric_heading, self.columns)
        headings += [
            el(
                "th",
                {"scope": "col", "class": f"num cost {cost['key']}", "data-key": cost["key"], "title": cost["title"]},
                cost["label"],
            )
            for cost in self.payload["costs"]
        ]
        bodies = (self._body(k, block, len(headings)) for k, block in enumerate(self.payload["blocks"]))
        caption = el("caption", {"class": "hidden"}, self.payload["words"]["caption"])
        return el("table", {"class": "cards"}, caption, el("thead", {}, el("tr", {}, *headings)), *bodies)

    def legend(self) -> Iterator[Element]:
        """Meaning of the numbers and signs; sentences on metrics that are not shown are hidden."""
        words, found = self.payload["words"], {sign for line in self.lines for m in self.columns
                                               for sign, _ in self._signs(line, m)}  # fmt: skip
        own = {words["calibrated"]: "ece", words["worse"]: "brier"}
        sentences = [
            (words["mean"], ""), (words["dash"], ""), (words["half"] if self.has_halves else "", ""),
            (words["acc"], "acc"), (words["floor"], "ece"),
            *((sentence, own.get(sign, "")) for sign, sentence in words["signs"] if sign in found),
            (words["calibration"], "rmsce"), (words["groups"], ""), (words["tests"] if self.is_ranked else "", ""),
        ]  # fmt: skip
        shown = {self.names[m] for m in self.shown}
        for sentence, metric in sentences:
            if sentence:
                hidden = "" if metric and metric not in shown else None
                yield el("li", {"data-metric": metric or None, "hidden": hidden}, sentence)
        for name, sentence in self.payload["headlines"].items() if self.is_ranked else ():
            yield el("li", {"data-by": name, "hidden": None if name == self.payload["headline"] else ""}, sentence)
        yield el("li", {}, words["labels"])

    def _metric_heading(self, m: int) -> Element:
        metric = self.payload["metrics"][m]
        note = el("small", {}, metric["note"]) if metric["note"] else None
        attributes = {
            "scope": "col", "class": "num metric", "data-key": metric["name"], "data-m": str(m),
            "data-first": _first(metric),
            "title": metric["about"], "hidden": None if m in self.shown else "",
        }  # fmt: skip
        return el("th", attributes, label_of(metric), note)

    def _body(self, k: int, block: Data, width: int) -> Element:
        rows, part, leads = [], None, set(block["headlines"][self.payload["headline"]]["leads"])
        several = len(self.payload["parts"]) > 1
        for i, line in enumerate(block["lines"]):
            method = self.payload["methods"][line["method"]]
            if several and method["part"] != part:
                part = method["part"]
                title = el("th", {"scope": "rowgroup", "colspan": str(width)}, self.payload["parts"][part])
                rows.append(el("tr", {"class": "part", "data-part": str(part)}, title))
            rows.append(self._row(i, line, leads=i in leads))
        title = el("th", {"scope": "rowgroup", "colspan": str(width)}, *_title(block))
        return el("tbody", {"data-block": str(k)}, el("tr", {"class": "group"}, title), *rows)

    def _row(self, i: int, line: Data, *, leads: bool) -> Element:
        cells = [el("th", {"scope": "row", "class": "name"}, self._method(line))]
        if self.is_ranked:
            rank = line.get("rank", {}).get(judged_by(self.payload["headline"]))
            text = f"{LEADS * leads}{rank}" if rank else EN_DASH
            cells.append(el("td", {"class": "num rank", "data-label": "Rank", "data-v": _value(rank)}, text))
        cells += [self._number(line, m) for m in self.columns]
        for cost in self.payload["costs"]:
            key, text = cost["key"], line.get("costs", {}).get(cost["key"], EN_DASH)
            value = _cost(line, key) if line["status"] == "ok" else None
            attributes = {"class": f"num cost {key}", "data-label": cost["label"], "data-v": _value(value)}
            cells.append(el("td", attributes, text))
        return el("tr", {"class": "leads" if leads else None, "data-line": str(i)}, *cells)

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
        attributes = {
            "class": "num metric",
            "data-label": label_of(metric),
            "data-m": str(m),
            "hidden": None if m in self.shown else "",
        }
        if line["status"] != "ok" or line["text"][m] is None:
            notes = line["remarks"][m] if line["status"] == "ok" else line["reasons"]
            return el("td", attributes, EN_DASH, *_marks(notes))
        half, signs = self._half(line, m), self._signs(line, m)
        floor = beside = None
        if self.widths[m]:
            text = f"± {(half or '').rjust(self.widths[m], _FIGURE_SPACE)}"
            beside = el("span", {"class": "beside" if half else "beside void"}, text)
        if metric["name"] == "ece":
            text = line["text"][self.names.index("ece_floor")]
            floor = el("span", {"class": "floor"}, el("span", {"class": "hidden"}, " floor "), f" / {text or EN_DASH}")
        signed = el("span", {"class": "signs", "aria-hidden": "true"}, "".join(sign for sign, _ in signs))
        said = (el("span", {"class": "hidden"}, f", {said}") for _, said in signs)
        best = "best" if line["best"][m] == "beyond chance" else None
        value = el("span", {"class": best}, line["text"][m]) if best else line["text"][m]
        return el("td", {**attributes, "data-v": _value(line["mean"][m])}, value, floor, signed, *said,
                  *_marks(line["remarks"][m]), beside)  # fmt: skip

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


def _cost(line: Data, key: str) -> float | None:
    """What a column of costs is sorted by."""
    found: float | None = {"seeds": len(line["seeds"]), "labels": sum(line["labels"])}.get(key, line.get(key))
    return found


def _value(value: float | None) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, int) else str(value)


def _first(metric: Data) -> str:
    """The way in which a first press of the heading sorts: the best first."""
    return "-1" if metric["better"] > 0 else "1"


def label_of(metric: Data) -> str:
    """Heading of a metric, which says that a floor stands with ECE, and where it is better."""
    arrow = ARROWS[{1: True, -1: False, 0: None}[metric["better"]]]
    return f"{metric['label']}{'/floor' if metric['name'] == 'ece' else ''}{arrow}"


def _title(block: Data) -> list[Element]:
    facts = el("span", {"class": "facts"}, " ".join(block["facts"]))
    return [el("div", {}, el("bdi", {"class": "where"}, _where(block)), " ", facts)]


def _marks(numbers: Sequence[int]) -> list[Element]:
    return [
        el("sup", {}, el("a", {"href": f"#fn-{number}", "aria-label": f"footnote {number}"}, str(number)))
        for number in sorted(set(numbers))
    ]


# --- comparison -------------------------------------------------------------------------------------------------------


def _compared(payload: Data, pictures: Sequence[Pictures]) -> Iterator[str]:
    """A part for each block: differences to the best, wins, costs."""
    for k, (block, differences) in enumerate(zip(payload["blocks"], payload["differences"], strict=True)):
        drawn = pictures[k] if pictures else Pictures("", "", "", "")
        numbers = f"<details><summary>The differences as numbers</summary>{differences}</details>"
        parts = (
            ("Differences to the best method", drawn.forests + (numbers if drawn.forests else differences)),
            ("Wins, ties and losses", drawn.wins),
            ("Quality against cost", drawn.costs),
        )
        inside = "".join(f"{html(el('h4', {}, title))}{part}" for title, part in parts if part)
        yield f'<div data-block="{k}">{html(_heading(block))}{inside}</div>'


def _reliability(payload: Data, pictures: Sequence[Pictures]) -> Iterator[str]:
    for k, (block, drawn) in enumerate(zip(payload["blocks"], pictures, strict=False)):
        if drawn.reliability:
            yield f'<div data-block="{k}">{html(_heading(block))}{drawn.reliability}</div>'


def _heading(block: Data) -> Element:
    return el("h3", {}, el("bdi", {}, _where(block)))


def _where(block: Data) -> str:
    return " · ".join(filter(None, (block["model"], block["task"], block["label"])))


# --- overview ---------------------------------------------------------------------------------------------------------


def _overview(payload: Data) -> Iterator[Element]:
    """A table for each metric of the first set: methods by benchmarks, a part for each model."""
    if len(payload["blocks"]) > 1:
        headline = next(m for m, metric in enumerate(payload["metrics"]) if metric["name"] == payload["headline"])
        for m in dict.fromkeys((headline, *payload["sets"][0]["metrics"])):
            yield _over_all(payload, m, hidden=m != headline)


def _over_all(payload: Data, m: int, *, hidden: bool) -> Element:
    columns = list(dict.fromkeys(map(_column, payload["blocks"])))
    metric = payload["metrics"][m]
    head = [el("th", {"scope": "col", "class": "name"}, "Method")]
    head += [el("th", {"scope": "col", "class": "num", "data-first": _first(metric)}, column) for column in columns]
    bodies = (_of_model(payload, model, m, columns)
              for model in dict.fromkeys(block["model"] for block in payload["blocks"]))  # fmt: skip
    caption = el("caption", {}, f"{label_of(metric)} of all methods, models and benchmarks, the best mean first")
    return el("table", {"class": "cards", "data-m": str(m), "hidden": "" if hidden else None}, caption,
              el("thead", {}, el("tr", {}, *head)), *bodies)  # fmt: skip


def _column(block: Data) -> str:
    return f"{block['task']} ({block['label']})" if block["label"] else str(block["task"])


def _of_model(payload: Data, model: str, m: int, columns: Sequence[str]) -> Element:
    """A row for each method; one without some number can't be compared by its mean, and comes last."""
    found: dict[tuple[int, str], dict[str, Data]] = {}
    for block in payload["blocks"]:
        for line in block["lines"] if block["model"] == model else ():
            found.setdefault((line["method"], line["variant"]), {})[_column(block)] = line
    better = payload["metrics"][m]["better"]

    def place(lines: Mapping[str, Data]) -> tuple[int, float]:
        known = [line["mean"][m] for line in lines.values() if line["status"] == "ok" and line["mean"][m] is not None]
        return -len(known), -better * (mean_of(known) or 0.0)

    rows = []
    for (method, variant), lines in sorted(found.items(), key=lambda entry: (*place(entry[1]), entry[0])):
        swatch = el("span", {"class": f"swatch m{method}", "aria-hidden": "true"})
        name = payload["methods"][method]["name"] + (f" ({variant})" if variant else "")
        cells = [_over(payload, lines.get(column), m, column) for column in columns]
        named = el("span", {"class": "method"}, swatch, el("bdi", {}, name))
        rows.append(el("tr", {}, el("th", {"scope": "row", "class": "name"}, named), *cells))
    title = el("th", {"scope": "rowgroup", "colspan": str(len(columns) + 1)}, el("bdi", {}, model))
    return el("tbody", {}, el("tr", {"class": "group"}, title), *rows)


def _over(payload: Data, line: Data | None, m: int, label: str) -> Element:
    attributes = {"class": "num", "data-label": label}
    if line is None or line["status"] != "ok" or line["text"][m] is None:
        return el("td", attributes, EN_DASH)
    attributes["data-v"] = str(line["mean"][m])
    best = line["best"][m]
    text = line["text"][m] + (payload["words"]["best"][best] if best else "")
    return el("td", attributes, el("span", {"class": "best"}, text) if best == "beyond chance" else text)


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
