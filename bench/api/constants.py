"""A method's constants: the value in every preset, where it comes from, and which presets deviate from the paper.

The source of a constant is the line under its field: in the method's class or in one that it extends, where they are
dataclasses, or in a dataclass `Settings`, which stands in the method's own module or in `paper.py` beside it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.api.methods import ConfidenceMethod

SETTINGS = "Settings"
"""Name of the dataclass that may hold the constants of a method that writes its `__init__` by hand."""
PAPER = "paper"
"""Name of the preset that the others are compared with, and of the module that may hold the constants."""


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
    bases = cls.__mro__[::-1]
    found: dict[str, str] = {}
    for name, base in (*((SETTINGS, base) for base in bases), *((base.__name__, base) for base in bases)):
        for path in _files(base):
            found.update(field_docstrings(path, name))
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
        if isinstance(node, ast.ClassDef):
            found.setdefault(node.name, {}).update(_under_fields(node))
    return found


def _files(base: type) -> list[Path]:
    """The class's own file, and `paper.py` beside it; none for what every method extends."""
    name = base.__module__
    if base in ConfidenceMethod.__mro__:
        return []
    beside = [f"{name.rpartition('.')[0]}.{PAPER}"] if name.count(".") > 1 else []
    paths = [_file(module) for module in (name, *beside)]
    return [path for path in paths if path is not None and path.suffix == ".py"]


def _file(module: str) -> Path | None:
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None)
    if origin is None and loaded is None and importlib.util.find_spec(module) is not None:
        spec = importlib.util.find_spec(module)
        origin = None if spec is None else spec.origin
    return None if origin is None else Path(origin)


def _under_fields(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found[field.target.id] = " ".join(below.value.value.split())
    return found
