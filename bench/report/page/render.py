"""Render the page's data as one self-contained HTML file with markup, style and script.

The file's Content-Security-Policy allows only this style and this script, by their hashes. Requests and other scripts
are blocked. With Trusted Types, the script can't turn text into markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from bench.api import UserError
from bench.progress import visible
from bench.report.page.elements import hash_of
from bench.report.page.pictures import Pictures
from bench.report.page.static_table import render_parts, swatch_style
from bench.store.files import named_errors, write_atomic

_STYLES = ("page.css", "figures.css", "transfer.css")
"""Names of the style sheets, in the order in which they are joined."""
_SCRIPTS = (
    "dom.js", "address.js", "theme.js", "leaderboard.js", "sections.js", "questions.js", "details.js", "compare.js",
    "main.js",
)  # fmt: skip
"""Names of the scripts, in the order in which they are joined to one JavaScript module."""
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""Characters that could end the script element with the data, or that UTF-8 can't encode; JSON escapes them."""
_SLOT = re.compile(r"\{\{([a-z]+)\}\}")
_LINK = '<a href="#transfer">Shift</a>'
"""Link in the page's navigation to the section on distribution shift."""
_FIRST = b"<!doctype html"
"""First bytes of every page, in lower case, by which an existing file is recognised as a page."""


def write(path: Path, payload: Mapping[str, Any], pictures: Sequence[Pictures] = ()) -> Path:
    """Write the page to a file and return its path; if writing fails, no partial file is left.

    Args:
        path: path of the HTML file; missing folders are created.
        payload: data from `payload.payload`.
        pictures: figures from `pictures.pictures`, of the same tables.

    Raises:
        UserError: the file can't be written, or an existing file that is no such page would be replaced.
    """
    page = html(payload, pictures)
    with named_errors(f"the page can't be written to {str(path)!r}", "; name a file with --out"):
        if path.exists() and not path.read_bytes()[: len(_FIRST)].lower() == _FIRST:
            raise UserError(f"--out {str(path)!r}: what is there is no page and would be lost; name another file")
        write_atomic(path, page.encode())
    return path


def html(payload: Mapping[str, Any], pictures: Sequence[Pictures] = ()) -> str:
    """Return the content of the HTML file.

    Args:
        payload: data from `payload.payload`.
        pictures: figures from `pictures.pictures`; empty for a page without figures.
    """
    shown: dict[str, Any] = _visible(payload)
    shift = shown["transfer"]
    parts = render_parts(shown, pictures)
    del shown["transfer"], shown["differences"]  # markup, which the page has already
    style = "\n".join([*map(_asset, _STYLES), swatch_style(shown)])
    script = "\n".join(map(_asset, _SCRIPTS))
    policy = (
        "default-src 'none'",
        f"script-src '{hash_of(script)}'",
        f"style-src '{hash_of(style)}'",
        "img-src data:",  # the empty icon, without which a browser would ask the server for one
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    parts |= {"policy": "; ".join(policy), "style": style, "script": script, "data": embedded(shown)}
    parts |= {"transfer": shift, "shift": _LINK if shift else ""}
    return _SLOT.sub(lambda slot: parts[slot[1]], _asset("page.html"))


def embedded(payload: Mapping[str, Any]) -> str:
    r"""Return data as JSON that can stand in a script element.

    >>> print(embedded({"a": "</script>"}))
    {"a":"\u003c/script\u003e"}
    """
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _visible(value: Any) -> Any:
    """Return JSON-ready data in which `visible` has escaped every text.

    Questions and answers may contain any character.
    """
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {_visible(key): _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, list | tuple) else value


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
