"""Elements of HTML as values; text goes in as text. Example: `html(el("p", "a < b"))` is `<p>a &lt; b</p>`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from xml.etree import ElementTree

Element = ElementTree.Element


def el(tag: str, *parts: Mapping[str, str | None] | Element | str | None) -> Element:
    """An element.

    Args:
        tag: its name.
        parts: attributes, of which None is left out; elements and texts in their order; None is nothing.
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
    """A table with one row of headings."""
    return el("table", attributes, caption, el("thead", el("tr", *headings)), *bodies)


def html(*elements: Element | None) -> str:
    """Elements as markup; None is nothing."""
    return "".join(ElementTree.tostring(e, encoding="unicode", method="html") for e in elements if e is not None)


def hash_of(text: str) -> str:
    """SHA-256 of a style or script as a Content-Security-Policy has it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
