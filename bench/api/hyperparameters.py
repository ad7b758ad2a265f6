"""Table of a method's constants: values in every preset, sources, and which presets deviate from the paper.

The source of a constant is the docstring under its field, in the method's class or in a base class.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.api.methods import ConfidenceMethod

PAPER = "paper"
"""Name of the preset with which the values of all other presets are compared."""


def constants(cls: type[ConfidenceMethod]) -> list[dict[str, Any]]:
    """Return one record for each constant of a method: name, value by preset, source, and deviating presets.

    A preset deviates if its value differs from that of `PAPER`.
    """
    presets = cls.presets or {"defaults": {}}
    values = {preset: cls(**arguments).params() for preset, arguments in presets.items()}
    source_of = sources(cls)
    records = []
    for name in dict.fromkeys(key for params in values.values() for key in params):
        by_preset = {preset: params[name] for preset, params in values.items() if name in params}
        deviating = ", ".join(preset for preset, value in by_preset.items() if value != by_preset.get(PAPER, value))
        records.append({"name": name, **by_preset, "deviates": deviating, "source": source_of.get(name, "")})
    return records


def sources(cls: type[ConfidenceMethod]) -> dict[str, str]:
    """Return field name -> docstring under the field; fields of the class replace those of its base classes."""
    docstring_of_field: dict[str, str] = {}
    for base in cls.__mro__[::-1]:
        path = getattr(sys.modules.get(base.__module__), "__file__", None) or ""
        if base not in ConfidenceMethod.__mro__ and path.endswith(".py"):
            docstring_of_field |= field_docstrings(Path(path), base.__name__)
    return docstring_of_field


def field_docstrings(path: Path, name: str) -> dict[str, str]:
    """Return field name -> docstring under the field, on one line; fields without docstring are omitted.

    Args:
        path: Python file that defines the class.
        name: name of the class.
    """
    return dict(_docstrings(path.read_text(encoding="utf-8")).get(name, {}))


@lru_cache(maxsize=64)
def _docstrings(source: str) -> Mapping[str, Mapping[str, str]]:
    """Return class name -> field name -> docstring, for all classes of a source text.

    The result is cached, as parsing is slow and the same file is requested repeatedly.
    """
    by_class: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        fields = by_class.setdefault(node.name, {})
        for statement, following in pairwise(node.body):
            match statement, following:
                case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                    fields[name] = " ".join(text.split())
    return by_class
