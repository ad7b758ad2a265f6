"""Tabulate a method's constants: their values in every preset, their sources, and presets that deviate from the paper.

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
"""Preset with whose constants those of the other presets are compared."""


def constants(cls: type[ConfidenceMethod]) -> list[dict[str, Any]]:
    """Return a record for each argument of the method: name, value by preset, source, and deviating presets."""
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
    """Return field -> the docstring under it, from the class or else from the nearest base class."""
    docstring_of_field: dict[str, str] = {}
    for base in cls.__mro__[::-1]:
        path = getattr(sys.modules.get(base.__module__), "__file__", None) or ""
        if base not in ConfidenceMethod.__mro__ and path.endswith(".py"):
            docstring_of_field |= field_docstrings(Path(path), base.__name__)
    return docstring_of_field


def field_docstrings(path: Path, name: str) -> dict[str, str]:
    """Return the docstrings under the fields of a class, each on one line; fields without one are omitted.

    Args:
        path: Python file that defines the class.
        name: name of the class.
    """
    return dict(_docstrings(path.read_text(encoding="utf-8")).get(name, {}))


@lru_cache(maxsize=64)
def _docstrings(source: str) -> Mapping[str, Mapping[str, str]]:
    """Return class name -> its `field_docstrings`; cached, as parsing is slow and files are requested repeatedly."""
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
