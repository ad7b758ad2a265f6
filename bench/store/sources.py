"""Digests of source code, by which what one version of a program computed is never taken for what another would."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from bench.store.folders import digest_file

_HOME = Path(__file__).resolve().parents[2]
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))


def source_digest(paths: Iterable[Path]) -> str:
    """SHA-256 of Python files, by name and content; a folder stands for all Python files below it.

    Raises:
        OSError: a file can't be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(path.parent)}\0{digest_file(file)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def plugin_digest(plugin: type) -> str | None:
    """Digest of the source of a method or task as it is now; None of a class without a file, e.g. of a notebook.

    The scope is its file with the files of its author that it imports; in a package the whole package; of a built-in
    method its own file or folder, and what the built-in methods share.
    """
    plugin = vars(plugin).get("__wrapped__", plugin)
    try:
        path = Path(inspect.getfile(plugin)).resolve()
    except (TypeError, OSError):  # a class of no module with a file
        return None
    if not path.is_file():
        return None
    depth = plugin.__module__.count(".") + (path.name == "__init__.py")
    if not depth:
        return source_digest(with_imports(path))
    package = path.parents[depth - 1]
    if package != _HOME / "methods":
        return source_digest([package])
    name = plugin.__module__.split(".")[1]
    own = package / name if (package / name).is_dir() else package / f"{name}.py"
    return source_digest([own, *sorted(package.glob("_[!_]*"))])


def with_imports(path: Path) -> list[Path]:
    """A file and whatever it imports, at its top or inside a function, but for Python's modules, installed ones, ours.

    Of a package that it imports these are all Python files. Modules that are found by a computed name are missed.
    """
    others = (*_INSTALLED, *(_HOME / ours for ours in ("bench", "methods", "tasks")))
    files, left = {path.resolve()}, [path.resolve()]
    while left:
        names: frozenset[str] = frozenset()
        with suppress(OSError):
            names = _top_level_imports(left.pop().read_bytes())
        for name in names:
            spec = None
            with suppress(ImportError, ValueError, AttributeError):
                spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
                continue
            file = Path(spec.origin).resolve()
            if not any(other in file.parents for other in others):
                new = {*(file.parent.rglob("*.py") if file.name == "__init__.py" else [file])} - files
                files |= new
                left += new
    return sorted(files)


@lru_cache(maxsize=256)
def _top_level_imports(source: bytes) -> frozenset[str]:
    """Top-level names that a source imports; cached, as files are digested before each call of a plugin."""
    try:
        tree = ast.parse(source)
    except (ValueError, SyntaxError, RecursionError):
        return frozenset()  # then it can't be imported, either
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return frozenset(name.partition(".")[0] for name in names) - sys.stdlib_module_names
