"""Golden texts: `UPDATE_GOLDEN=1 pytest FILE` writes them anew; read the diff."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare a text with `tests/golden/NAME`, whole."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_text(encoding="utf-8")


def as_cases(cases: Mapping[str, Iterable[str]]) -> str:
    """One text of named cases, each with its lines below its name."""
    return "\n".join("\n".join([f"# {name}", *lines, ""]) for name, lines in cases.items())
