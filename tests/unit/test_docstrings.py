"""Docstrings read alone, as a tooltip shows them: they begin with a noun or a verb."""

from __future__ import annotations

import ast

from tests.house import HARNESS, PLUGINS, ROOT

UNFINISHED = ("Of", "What", "As", "How")
"""First words of a sentence that leans on the name above or beside it."""
FILES = sorted(path for top in (HARNESS, *PLUGINS) for path in (ROOT / top).rglob("*.py"))


def unfinished(source: str) -> list[str]:
    """Docstrings of modules, classes, functions and fields that begin with such a word."""
    texts = [
        node.value.value.strip()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return [text for text in texts if text.split(maxsplit=1)[:1] and text.split(maxsplit=1)[0] in UNFINISHED]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = {path.relative_to(ROOT).as_posix(): unfinished(path.read_text(encoding="utf-8")) for path in FILES}
    assert FILES
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_an_unfinished_docstring_is_found() -> None:
    assert unfinished('"""What it is."""\nx = 1\n"""Seed of samples."""\ny = "As it is"\n') == ["What it is."]
