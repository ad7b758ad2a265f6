"""Files that a plugin's file is made of: itself, and the modules of its author that it imports anywhere."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_OURS = Path(__file__).resolve().parents[2]
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))


def source_files(path: Path) -> set[Path]:
    """A file and, whatever it imports, at its top or inside a function, the files of modules that are nobody else's.

    Of a package that it imports these are all Python files. Modules that are found by a computed name are missed.
    """
    found, left = {path.resolve()}, [path.resolve()]
    while left:
        new = set(_imported(left.pop())) - found
        found |= new
        left += new
    return found


def source_of_files(path: Path) -> str:
    """Digest of a file and of those that it imports, as they are now."""
    digest = hashlib.sha256()
    for file in sorted(source_files(path)):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _imported(path: Path) -> Iterator[Path]:
    for name in _names(path):
        file = _file_of(name)
        if file is not None:
            yield from file.parent.rglob("*.py") if file.name == "__init__.py" else [file]


def _names(path: Path) -> frozenset[str]:
    """First words of the modules that a file imports by their full names."""
    try:
        return _names_in(path.read_bytes())
    except OSError:
        return frozenset()


@lru_cache(maxsize=256)
def _names_in(source: bytes) -> frozenset[str]:
    """The same of a file's content; files are looked at before each call of a plugin, and rarely change."""
    try:
        tree = ast.parse(source)
    except (ValueError, SyntaxError, RecursionError):
        return frozenset()  # then it can't be imported, either
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return frozenset(name.partition(".")[0] for name in names) - sys.stdlib_module_names


def _file_of(name: str) -> Path | None:
    """File of a module that is neither installed nor ours."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin).resolve()
    others = (*_INSTALLED, _OURS / "bench", _OURS / "methods", _OURS / "tasks")
    return None if any(other in file.parents for other in others) else file
