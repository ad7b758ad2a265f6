"""A method's constants: the value in every preset, where it comes from, and which presets deviate from the paper.

The source of a constant is the line under its field, in the method's class or in one that it extends.
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
"""Name of the preset that the others are compared with."""


def constants(cls: type[ConfidenceMethod]) -> list[dict[str, Any]]:
    """One record for each argument of the method: name, value in each preset, source, and the presets that deviate."""
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
    """Field -> the docstring under it; where several stand for a field, that of the class, then that of its bases."""
    found: dict[str, str] = {}
    for base in cls.__mro__[::-1]:
        path = getattr(sys.modules.get(base.__module__), "__file__", None) or ""
        if base not in ConfidenceMethod.__mro__ and path.endswith(".py"):
            found |= field_docstrings(Path(path), base.__name__)
    return found


def field_docstrings(path: Path, name: str) -> dict[str, str]:
    """Docstrings under the fields of a class, each on one line; fields without one are left out.

    Args:
        path: the Python file that the class is in.
        name: the class's own name.
    """
    return dict(_docstrings(path.read_text(encoding="utf-8")).get(name, {}))


@lru_cache(maxsize=64)
def _docstrings(source: str) -> Mapping[str, Mapping[str, str]]:
    """Class -> what `field_docstrings` gives; kept, as parsing takes most of its time and a file is asked again."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        own = found.setdefault(node.name, {})
        for field, below in pairwise(node.body):
            match field, below:
                case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                    own[name] = " ".join(text.split())
    return found
