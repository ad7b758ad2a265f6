"""Build HTML elements and their markup; texts are escaped. Example: `html(el("p", "a < b"))` is `<p>a &lt; b</p>`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from xml.etree import ElementTree

Element = ElementTree.Element


def el(tag: str, *parts: Mapping[str, str | None] | Element | str | None) -> Element:
    """Return an HTML element.

    Args:
        tag: name of the element.
        parts: attributes and content, in order. A mapping holds attributes, of which those with the value None are left
            out. Elements and texts become content; None adds nothing.
    """
    element = Element(tag)
    for part in parts:
        if isinstance(part, Mapping):
            element.attrib.update({name: value for name, value in part.items() if value is not None})
        elif isinstance(part, str) and len(element):
            element[-1].tail = (element[-1].tail or "") + part
        elif isinstance(part, str):
            element.text = (element.text or "") + part
        elif part is not None:
            element.append(part)
    return element


def table(
    attributes: Mapping[str, str | None], caption: Element, headings: Iterable[Element], *bodies: Element
) -> Element:
    """Return a table element with a caption, one row of headings, and `tbody` elements with the other rows."""
    return el("table", attributes, caption, el("thead", el("tr", *headings)), *bodies)


def html(*elements: Element | None) -> str:
    """Return the markup of elements, joined; each None among the elements adds nothing."""
    return "".join(ElementTree.tostring(e, encoding="unicode", method="html") for e in elements if e is not None)


def hash_of(text: str) -> str:
    """Return the SHA-256 of a style sheet or script, as a Content-Security-Policy writes it: `sha256-` and base64."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
