"""Render the page's data as plain HTML: tables, sentences, and elements that hold the figures.

The page's script then only sorts, filters and folds these elements. Example: `render_parts(payload,
pictures)["verdict"]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.report.competition import ranked_by
from bench.report.page.elements import Element, el, html, table
from bench.report.page.pictures import Pictures
from bench.report.tables.legend import LEADS
from bench.report.text import ARROWS, EN_DASH, count, mean_of

_FIGURE_SPACE = "\u2007"
_FEW = 4
"""If a page has at most this number of tables, the section with their verdicts in sentences is open at first."""
_NOTHING = "There is nothing to note."
Data = Mapping[str, Any]


def render_parts(payload: Data, pictures: Sequence[Pictures]) -> dict[str, str]:
    """Return the markup of each section of the page, by its name in the template `page.html`, e.g. `table`.

    Args:
        payload: data from `payload.payload`, with the key "differences".
        pictures: figures of each table; empty for a page without figures.
    """
    table_view = _StaticTable(payload)
    compared, diagrams = [], []
    for k, (block, numbers) in enumerate(zip(payload["blocks"], payload["differences"], strict=True)):
        figures = pictures[k] if pictures else Pictures()
        folded_numbers = f"<details><summary>The differences as numbers</summary>{numbers}</details>"
        parts = (
            ("Differences to the best method", figures.forests + folded_numbers if figures.forests else numbers),
            ("Wins, ties and losses", figures.wins),
            ("Quality against cost", figures.costs),
        )
        sections = "".join(f"{html(el('h4', title))}{part}" for title, part in parts if part)
        opening = f'<div data-block="{k}">{html(el("h3", el("bdi", block_name(block))))}'
        compared.append(f"{opening}{sections}</div>")
        if figures.reliability:
            diagrams.append(f"{opening}{figures.reliability}</div>")
    return {
        "verdict": html(*_verdict(payload)),
        "table": html(table_view.table()) if payload["blocks"] else "",
        "legend": html(el("ul", {"id": "legend", "class": "muted words"}, *table_view.legend())),
        "compare": "".join(compared),
        "reliability": "".join(diagrams),
        "overview": html(*_overview(payload)),
        **_text_parts(payload),
    }


def swatch_style(payload: Data) -> str:
    """Return CSS rules with the colour of each method; the page's Content-Security-Policy forbids inline styles."""
    return "\n".join(f".m{i} {{ --c: {method['colour']}; }}" for i, method in enumerate(payload["methods"]))


def block_name(block: Data) -> str:
    """Return the heading of a table on the page: model, task and, if it is not empty, the table's label."""
    return " · ".join(filter(None, (block["model"], block["task"], block["label"])))


def _verdict(payload: Data) -> Iterator[Element]:
    """Yield the elements of the page's verdict on which methods lead.

    They are a heading, a table with a row for each benchmark, explanations, and the verdict on each table in sentences.
    """
    verdict = payload["verdict"]
    if verdict is None:
        return
    yield el("h2", {"id": "verdict-title"}, verdict["title"])
    columns, rows = verdict["columns"], []
    for row in verdict["rows"]:
        cells = (
            el("td" if i else "th", {"scope": None if i else "row", "data-label": short or None}, el("bdi", text))
            for i, ((_, short), text) in enumerate(zip(columns, row["texts"], strict=True))
        )
        rows.append(el("tr", {"data-state": row["state"]}, *cells))
    caption = el("caption", {"class": "hidden"}, f"{verdict['title']}: one row for each benchmark.")
    headings = (el("th", {"scope": "col"}, label) for label, _ in columns)
    yield table({"id": "verdicts", "class": "verdicts"}, caption, headings, el("tbody", *rows))
    yield from (el("p", {"class": "explained"}, sentence) for sentence in verdict["explained"])
    paragraphs = (
        el("p", el("b", f"{title}: {first}"), " " + " ".join(others),
           el("span", {"class": "muted"}, " " + " ".join(details)))
        for title, (first, *others), details in verdict["words"]
    )  # fmt: skip
    unfolded = {"id": "sentences", "open": "" if len(verdict["words"]) <= _FEW else None}
    yield el("details", unfolded, el("summary", "The verdicts in sentences"), *paragraphs)


# --- table ------------------------------------------------------------------------------------------------------------


class _StaticTable:
    """The page's main table, with a column for every metric.

    Columns other than the headline metric and the first set of metrics are hidden; the script can show them.
    """

    def __init__(self, payload: Data) -> None:
        self.payload = payload
        self.names = [metric["name"] for metric in payload["metrics"]]
        self.lines = [line for block in payload["blocks"] for line in block["lines"]]
        first = self.names.index(payload["headline"])
        chosen = payload["sets"][0]["metrics"]
        self.shown = chosen if first in chosen else [first, *chosen]
        self.columns = [*self.shown, *(m for m in range(len(self.names)) if m not in self.shown)]
        self.is_ranked = any(line.get("rank") for line in self.lines)
        halves = [line["half"] for line in self.lines if "half" in line]
        self.widths = {m: max((len(half[m] or "") for half in halves), default=0) for m in self.columns}
        self.has_halves = any("ci" in line for line in self.lines)

    def table(self) -> Element:
        """Return the table element, with all methods of all models and tasks."""
        payload, several = self.payload, len(self.payload["parts"]) > 1
        names = {"name": "Method", **({"num rank": "Rank"} if self.is_ranked else {})}
        headings = [
            el("th", {"scope": "col", "class": kind, "data-key": label.lower()}, label) for kind, label in names.items()
        ]
        for m in self.columns:
            metric = payload["metrics"][m]
            attributes = {
                "scope": "col", "class": "num metric", "data-key": metric["name"], "data-m": str(m),
                "data-first": _sort_direction(metric), "title": metric["about"],
                "hidden": None if m in self.shown else "",
            }  # fmt: skip
            note = el("small", metric["note"]) if metric["note"] else None
            headings.append(el("th", attributes, metric_heading(metric), note))
        for cost in payload["costs"]:
            key = cost["key"]
            attributes = {"scope": "col", "class": f"num cost {key}", "data-key": key, "title": cost["title"]}
            headings.append(el("th", attributes, cost["label"]))
        span, bodies = {"scope": "rowgroup", "colspan": str(len(headings))}, []
        for k, block in enumerate(payload["blocks"]):
            facts = el("span", {"class": "facts"}, " ".join(block["facts"]))
            title = el("div", el("bdi", {"class": "where"}, block_name(block)), " ", facts)
            rows, part = [el("tr", {"class": "group"}, el("th", span, title))], None
            for i, line in enumerate(block["lines"]):
                line_part = payload["methods"][line["method"]]["part"]
                if several and line_part != part:
                    part, title = line_part, el("th", span, payload["parts"][line_part])
                    rows.append(el("tr", {"class": "part", "data-part": str(part)}, title))
                leads = i in block["headlines"][payload["headline"]]["leads"]
                rows.append(el("tr", {"class": "leads" if leads else None, "data-line": str(i)},
                               *self._cells(line, leads=leads)))  # fmt: skip
            bodies.append(el("tbody", {"data-block": str(k)}, *rows))
        caption = el("caption", {"class": "hidden"}, payload["words"]["caption"])
        return table({"class": "cards"}, caption, headings, *bodies)

    def legend(self) -> Iterator[Element]:
        """Yield the sentences that explain numbers and signs; sentences about metrics in hidden columns are hidden."""
        words, present_signs = self.payload["words"], {sign for line in self.lines for m in self.columns
                                               for sign, _ in self._signs(line, m)}  # fmt: skip
        metric_of_sign = {words["calibrated"]: "ece", words["worse"]: "brier"}
        sentences = [
            (words["mean"], ""), (words["dash"], ""), (words["half"] if self.has_halves else "", ""),
            (words["acc"], "acc"), (words["floor"], "ece"),
            *((sentence, metric_of_sign.get(sign, "")) for sign, sentence in words["signs"] if sign in present_signs),
            (words["calibration"], "rmsce"), (words["groups"], ""), (words["tests"] if self.is_ranked else "", ""),
        ]  # fmt: skip
        shown = {self.names[m] for m in self.shown}
        for sentence, metric in sentences:
            if sentence:
                hidden = "" if metric and metric not in shown else None
                yield el("li", {"data-metric": metric or None, "hidden": hidden}, sentence)
        for name, sentence in self.payload["headlines"].items() if self.is_ranked else ():
            yield el("li", {"data-by": name, "hidden": None if name == self.payload["headline"] else ""}, sentence)
        if words["labels"]:
            yield el("li", words["labels"])

    def _cells(self, line: Data, *, leads: bool) -> Iterator[Element]:
        """Yield the table cells of one method: name, rank, metrics and costs."""
        ok = line["status"] == "ok"
        tag = None if ok or line["status"] == "missing" else el("small", {"class": "tag"}, line["status"])
        marks = _footnote_links([*line["notes"], *(line["reasons"] if ok else [])])
        yield _method_header(line["method"], self.payload["methods"][line["method"]]["name"], tag, *marks)
        if self.is_ranked:
            rank = line.get("rank", {}).get(ranked_by(self.payload["headline"]))
            text = f"{LEADS * leads}{rank}" if rank else EN_DASH
            yield el("td", {"class": "num rank", "data-label": "Rank", "data-v": _sort_value(rank)}, text)
        yield from (self._number(line, m) for m in self.columns)
        sums = {"seeds": len(line["seeds"]), "labels": sum(line.get("labels", ()))}
        for cost in self.payload["costs"]:
            key = cost["key"]
            value = _sort_value(sums.get(key, line.get(key))) if ok else None
            attributes = {"class": f"num cost {key}", "data-label": cost["label"], "data-v": value}
            yield el("td", attributes, line.get("costs", {}).get(key, EN_DASH))

    def _number(self, line: Data, m: int) -> Element:
        metric = self.payload["metrics"][m]
        attributes = {
            "class": "num metric", "data-label": metric_heading(metric), "data-m": str(m),
            "hidden": None if m in self.shown else "",
        }  # fmt: skip
        if line["status"] != "ok" or line["text"][m] is None:
            notes = line["remarks"][m] if line["status"] == "ok" else line["reasons"]
            return el("td", attributes, EN_DASH, *_footnote_links(notes))
        text, signs, floor, half_width = line["text"][m], self._signs(line, m), None, None
        if self.widths[m]:
            half = line["half"][m] if "half" in line else None
            room = f"± {(half or '').rjust(self.widths[m], _FIGURE_SPACE)}"
            half_width = el("span", {"class": "beside" if half else "beside void"}, room)
        if metric["name"] == "ece":
            least = line["text"][self.names.index("ece_floor")] or EN_DASH
            floor = el("span", {"class": "floor"}, el("span", {"class": "hidden"}, " floor "), f" / {least}")
        signed = el("span", {"class": "signs", "aria-hidden": "true"}, "".join(sign for sign, _ in signs))
        spoken = (el("span", {"class": "hidden"}, f", {spoken}") for _, spoken in signs)
        value = el("span", {"class": "best"}, text) if line["best"][m] == "beyond chance" else text
        return el("td", {**attributes, "data-v": _sort_value(line["mean"][m])}, value, floor, signed, *spoken,
                  *_footnote_links(line["remarks"][m]), half_width)  # fmt: skip

    def _signs(self, line: Data, m: int) -> list[tuple[str, str]]:
        """Return the signs behind a method's value of metric `m`, each with its wording for screen readers."""
        if line["status"] != "ok":
            return []
        words, name, best = self.payload["words"], self.names[m], line["best"][m]
        tested = {"ece": "calibrated", "brier": "worse"}.get(name, "")
        tested_signs = [(words[tested], words["spoken"][tested])] if line.get(tested) else []
        best_signs = [(words["best"][best], f"best, {best}")] if best else []
        return tested_signs + best_signs if name == "ece" else best_signs + tested_signs


def _sort_value(value: float | None) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, int) else str(value)


def _sort_direction(metric: Data) -> str:
    """Return the direction, "1" or "-1", in which the first click on a heading sorts: the best method comes first."""
    return "-1" if metric["better"] > 0 else "1"


def _arrow(metric: Data) -> str:
    return ARROWS[{1: True, -1: False, 0: None}[metric["better"]]]


def metric_heading(metric: Data) -> str:
    """Return the heading of a metric's column, with an arrow towards better values.

    The heading of ECE also names the ECE floor.
    """
    return f"{metric['label']}{'/floor' if metric['name'] == 'ece' else ''}{_arrow(metric)}"


def _method_header(method: int, name: str, *others: Element | None) -> Element:
    """Return the first cell of a method's row, with the method's name behind a swatch of its colour."""
    swatch = el("span", {"class": f"swatch m{method}", "aria-hidden": "true"})
    named = el("span", {"class": "method"}, swatch, el("bdi", name), *others)
    return el("th", {"scope": "row", "class": "name"}, named)


def _footnote_links(numbers: Sequence[int]) -> list[Element]:
    return [
        el("sup", el("a", {"href": f"#fn-{number}", "aria-label": f"footnote {number}"}, str(number)))
        for number in sorted(set(numbers))
    ]


def _overview(payload: Data) -> Iterator[Element]:
    """Yield a table for each metric: rows are methods, columns benchmarks.

    The metrics are the headline metric and the first set of columns. Each model has a part of the table, sorted by the
    mean over benchmarks. Methods without a value on some benchmark come last, as their means can't be compared. A page
    with only one model and task has no such table.
    """
    blocks, metrics = payload["blocks"], payload["metrics"]
    headline = [metric["name"] for metric in metrics].index(payload["headline"])
    names = [block["task"] + (f" ({block['label']})" if block["label"] else "") for block in blocks]
    columns = list(dict.fromkeys(names))
    for m in dict.fromkeys((headline, *payload["sets"][0]["metrics"])) if len(blocks) > 1 else ():
        metric, bodies = metrics[m], []
        headings = [el("th", {"scope": "col", "class": "name"}, "Method")]
        headings += [
            el("th", {"scope": "col", "class": "num", "data-first": _sort_direction(metric)}, name) for name in columns
        ]
        for model in dict.fromkeys(block["model"] for block in blocks):
            lines_by_method: dict[tuple[int, str], dict[str, Data]] = {}
            for name, block in zip(names, blocks, strict=True):
                for line in block["lines"] if block["model"] == model else ():
                    lines_by_method.setdefault((line["method"], line["variant"]), {})[name] = line
            rows = []
            for (method, variant), lines in lines_by_method.items():
                cells, means = [], []
                for name in columns:
                    line = lines.get(name, {"status": "missing"})
                    text = line["text"][m] if line["status"] == "ok" else None
                    attributes = {"class": "num", "data-label": name}
                    if text is None:
                        cells.append(el("td", attributes, EN_DASH))
                        continue
                    means.append(line["mean"][m])
                    best = line["best"][m]
                    text += payload["words"]["best"][best] if best else ""
                    shown = el("span", {"class": "best"}, text) if best == "beyond chance" else text
                    cells.append(el("td", {**attributes, "data-v": str(means[-1])}, shown))
                sort_key = -len(means), -metric["better"] * (mean_of(means) or 0.0), method, variant
                label = payload["methods"][method]["name"] + (f" ({variant})" if variant else "")
                rows.append((sort_key, el("tr", _method_header(method, label), *cells)))
            rows.sort(key=lambda row: row[0])
            title = el("th", {"scope": "rowgroup", "colspan": str(len(columns) + 1)}, el("bdi", model))
            bodies.append(el("tbody", el("tr", {"class": "group"}, title), *(row for _, row in rows)))
        caption = el("caption", f"{metric_heading(metric)} of all methods, models and benchmarks, the best mean first")
        attributes = {"class": "cards", "data-m": str(m), "hidden": None if m == headline else ""}
        yield table(attributes, caption, headings, *bodies)


def _text_parts(payload: Data) -> dict[str, str]:
    """Return the markup of four sections: facts about the page, footnotes, metrics, and provenance of results."""
    blocks, (results, ok, dirty) = payload["blocks"], (payload["count"][name] for name in ("results", "ok", "dirty"))
    labels = {block["label"] for block in blocks}
    counts = [
        (len(payload["methods"]), "method"), (len({block["model"] for block in blocks}), "model"),
        (len({block["task"] for block in blocks}), "benchmark"), (results, "result"),
    ]  # fmt: skip
    facts = [f"preset {payload['preset']}"] * bool(payload["preset"])
    facts += [*(f"{count(n)} {noun}{'s' * (n != 1)}" for n, noun in counts)]
    facts += filter(None, labels) if len(labels) == 1 else ()
    notes = (
        el("li", {"id": f"fn-{number}", "dir": "auto", "tabindex": "-1"}, text)
        for number, text in enumerate(payload["footnotes"], start=1)
    )
    footnotes = el("ol", {"id": "footnotes", "class": "notes"}, *notes)
    metrics = (
        el("div", el("dt", metric["label"] + _arrow(metric)),
           el("dd", f"{metric['about']} ", el("span", {"class": "muted"}, metric["source"])))
        for metric in payload["metrics"]
    )  # fmt: skip
    dirty_text = f"{count(dirty) if dirty else 'None'} of them {'was' if dirty == 1 else 'were'} made by code with"
    text = f"{count(ok)} of {count(results)} results are ok. {dirty_text} uncommitted changes."
    terms = []
    for name, values in payload["provenance"]:
        values_with_counts = (
            el("dd", el("bdi", value), el("small", {"class": "muted"}, f" {count(n)} of {count(results)}")
               if n < results else None)
            for value, n in values
        )  # fmt: skip
        terms.append(el("div", el("dt", el("bdi", name)), *values_with_counts))
    return {
        "facts": html(el("p", {"id": "facts", "class": "muted"}, " · ".join(facts))),
        "footnotes": html(footnotes if payload["footnotes"] else el("p", {"class": "muted"}, _NOTHING)),
        "metrics": html(el("dl", {"id": "metric-list", "class": "terms"}, *metrics)),
        "provenance": html(
            el("p", {"class": "muted", "id": "provenance-facts"}, text),
            el("dl", {"id": "provenance-list", "class": "terms"}, *terms),
        ),
    }
