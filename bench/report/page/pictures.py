"""Convert matplotlib figures of `bench.report.figures` to inline SVG for the page.

Text in figures stays text, and colours become variables of the page's light and dark theme. Styles become SVG
attributes, since the page's Content-Security-Policy forbids style attributes. Example: `pictures(tables,
records_of)[0].forests` is the markup of the first table's forest plots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from bench.report.competition import ranked_by
from bench.report.figures import cost_quality, differences_to_best, reliability, win_matrix
from bench.report.figures.drawing import figure_bytes, text_height
from bench.report.figures.figure_data import RecordsOf, leaders_first
from bench.report.figures.forest import SECOND, differences_by_metric
from bench.report.figures.reliability import diagram_note
from bench.report.figures.wins import has_matrix
from bench.report.page.elements import Element, el, html
from bench.report.style import BAND, BAND_COLOUR, FAINT, INK, LOSS, MUTED, TIE, WIN
from bench.report.tables.model import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_DIAGRAMS = 100
"""Maximum number of reliability diagrams on a page. Each table may have an equal share of them, but at least four."""
MANY = 8
"""If a page has more tables than this number, it draws one metric of each table instead of two."""
_COLOURS = {
    INK: "--ink", MUTED: "--soft", FAINT: "--rule", BAND: "--hover", BAND_COLOUR: "--band", "#ffffff": "--card",
    "white": "--card", WIN: "--win", TIE: "--hover", LOSS: "--loss",
}  # fmt: skip
"""Colour in figures -> CSS variable of the page. The colours of methods are not replaced, as they are visible on both
the light and the dark theme."""
_NUMBER = re.compile(r"-?\d+\.\d+")
_INHERITED = {"fill", "stroke", "stroke-width", "font-size", "text-anchor", "stroke-dasharray"}
"""SVG attributes that a group passes on to its children, so that equal ones of the children can be replaced by one."""
_LINK = "{http://www.w3.org/1999/xlink}href"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


class Pictures(NamedTuple):
    """SVG markup of the figures of one table; a figure without data is an empty string."""

    forests: str = ""
    wins: str = ""
    costs: str = ""
    reliability: str = ""


def pictures(tables: Sequence[Table], records_of: RecordsOf) -> list[Pictures]:
    """Return the SVG figures of each table, in the order of the tables.

    Args:
        tables: tables of the page.
        records_of: returns the answers and confidences, question by question, of a result.
    """
    max_diagrams, n_metrics = max(4, MOST_DIAGRAMS // max(len(tables), 1)), 1 if len(tables) > MANY else 2
    table_figures = []
    for k, table in enumerate(tables):
        done = [line.key for line in table.lines if line.ok_rows]
        if not done:
            table_figures.append(Pictures())
            continue
        shown = table.with_lines(done)
        metrics = list(dict.fromkeys((ranked_by(table.headline), SECOND)))[:n_metrics]
        tested = [[differences.metric] for differences in differences_by_metric(shown, metrics)]
        forests = [differences_to_best([shown], metrics=metric) for metric in tested]
        wins = [win_matrix([shown], metrics=metric) for metric in tested] if has_matrix(shown) else []
        costs = ("tokens", "generated") if any(line.tokens for line in shown.lines) or not shown.is_audit else ()
        cost = [cost_quality([shown], metrics=metrics, costs=costs)] if costs else []
        leading = [line.key for line in shown.leaders()]
        lines = leaders_first(shown.lines, leading)
        diagrams = [
            el("figure", {"data-method": line.key.label, "class": "leads" if line.key in leading else None},
               inline_svg(reliability([shown.with_lines([line.key])], records_of), f"t{k}r{i}"))
            for i, line in enumerate(lines[:max_diagrams])
        ]  # fmt: skip
        note = diagram_note(seeds=any(len(line.ok_rows) > 1 for line in lines))
        if lines[max_diagrams:]:
            names = ", ".join(line.key.label for line in lines[max_diagrams:])
            note += f" A page of this size has no room for {names}: bench report --figures DIR draws all."
        markup = html(el("p", {"class": "legend muted"}, note), el("div", {"class": "diagrams"}, *diagrams))
        table_figures.append(
            Pictures(_combine(forests, f"t{k}f"), _combine(wins, f"t{k}w"), _combine(cost, f"t{k}c"), markup)
        )
    return table_figures


def _combine(figures: Sequence[Figure], name: str) -> str:
    """Return the markup of figures side by side, above the note of the first figure; empty without figures."""
    if not figures:
        return ""
    svgs = (inline_svg(figure, f"{name}{k}") for k, figure in enumerate(figures))
    note = figures[0].get_supxlabel().replace("\n", " ")
    caption = el("figcaption", {"class": "legend muted"}, note)
    return html(el("figure", el("div", {"class": "charts"}, *svgs), caption))


# --- SVG --------------------------------------------------------------------------------------------------------------


def inline_svg(figure: Figure, name: str) -> Element:
    """Return a matplotlib figure as an SVG element, without its title and the note below it.

    The page shows title and note as HTML text.

    Args:
        figure: figure of `bench.report.figures`.
        name: prefix of all ids inside the SVG element; each figure of the page needs another one.
    """
    title, note = figure.get_suptitle(), figure.get_supxlabel()
    headings = filter(None, (axes.get_title() or axes.get_title(loc="left") for axes in figure.axes))
    label = f"{title}: {', '.join(headings)}".replace("\n", ", ")
    for text in figure.texts:
        text.set(visible=False, in_layout=False)
    figure.set_figheight(figure.get_figheight() - text_height(note, title))
    root = ElementTree.fromstring(figure_bytes(figure, "svg", transparent=True))  # noqa: S314 - written by matplotlib here
    ids: dict[str, str] = {}
    for element in root.iter():
        for id_ in (element.get(_LINK, "#")[1:], *_REFERENCE.findall(element.get("clip-path", ""))):
            ids.setdefault(id_, f"{name}-{len(ids)}")
    attributes = {"class": "chart", "viewBox": root.get("viewBox", ""), "role": "img", "aria-label": label}
    return el("svg", attributes, *(child for element in root for child in _simplify(element, ids)))


def _simplify(element: Element, ids: Mapping[str, str]) -> Iterator[Element]:
    """Yield a smaller equivalent of an SVG element: attributes instead of styles, and rounded numbers.

    Groups and definitions that draw nothing are dropped.
    """
    tag = element.tag.rpartition("}")[2]
    if tag in {"metadata", "style"}:
        return
    children = [child for part in element for child in _simplify(part, ids)]
    attributes = dict(_attributes(element, ids))
    if tag == "g":
        shared = set.intersection(*(set(child.items()) for child in children)) if children else set()
        for key, value in sorted(shared):
            if key in _INHERITED and key not in attributes:
                attributes[key] = value
                for child in children:
                    del child.attrib[key]
    if tag in {"g", "defs"} and (not children or (tag == "g" and not attributes)):
        yield from children
    else:
        yield el(tag, attributes, (element.text or "").strip() or None, *children)


def _attributes(element: Element, ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in element.items():
        if key == "style":
            for declaration in value.split(";"):
                name, _, style_value = (part.strip() for part in declaration.partition(":"))
                if name and name not in {"font-family", "stroke-linejoin", "stroke-linecap"}:
                    yield name, f"var({_COLOURS[style_value]})" if style_value in _COLOURS else style_value
        elif key == _LINK:
            yield "href", f"#{ids[value[1:]]}"
        elif key == "clip-path":
            yield key, _REFERENCE.sub(lambda match: f"url(#{ids[match[1]]})", value)
        elif key == "id":
            if value in ids:
                yield key, ids[value]
        elif not (key == "transform" and value.startswith("rotate(-0 ")):
            rounded = _NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value)
            yield key, re.sub(r" ?([MLCQz]) ?", r"\1", " ".join(rounded.split())) if key == "d" else rounded
