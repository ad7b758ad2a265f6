"""Elements of HTML as values; text goes in as text. Example: `html(el("p", {}, "a < b"))` is `<p>a &lt; b</p>`."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

Element = ElementTree.Element


def el(tag: str, attributes: Mapping[str, str | None] | None = None, *children: Element | str | None) -> Element:
    """An element.

    Args:
        tag: its name.
        attributes: None leaves one out.
        children: elements and texts; None is nothing.
    """
    element = Element(tag, {name: value for name, value in (attributes or {}).items() if value is not None})
    last: Element | None = None
    for child in children:
        if isinstance(child, str):
            if last is None:
                element.text = (element.text or "") + child
            else:
                last.tail = (last.tail or "") + child
        elif child is not None:
            element.append(child)
            last = child
    return element


def html(*elements: Element) -> str:
    """Elements as markup."""
    return "".join(ElementTree.tostring(element, encoding="unicode", method="html") for element in elements)
