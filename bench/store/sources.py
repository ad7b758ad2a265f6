"""Digests of source code. Cache keys contain them, so that results are not reused after their code has changed."""

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
from importlib.machinery import PathFinder
from pathlib import Path

from bench.store.disk_cache import digest_file

_HOME = Path(__file__).resolve().parents[2]
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))


def source_digest(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of Python files; a folder stands for all Python files below it.

    Raises:
        OSError: a file can't be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(path.parent)}\0{digest_file(file)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def plugin_digest(plugin: type) -> str | None:
    """Return the digest of a method's or task's source; None for a class without a file, e.g. one of a notebook.

    For a plugin in a single file, the digest covers this file and the user's files that it imports. For a plugin in a
    package it covers the whole package. For a built-in method it covers the method's file or folder, and the modules
    that built-in methods share.
    """
    plugin = vars(plugin).get("__wrapped__", plugin)
    try:
        path = Path(inspect.getfile(plugin)).resolve()
    except (TypeError, OSError):  # its module has no file
        return None
    if not path.is_file():
        return None
    return module_digest(plugin.__module__, path)


def module_digest(module: str, path: Path) -> str:
    """Return the digest of a module's source, in the scope of `plugin_digest`.

    Args:
        module: full name of the module.
        path: its file.
    """
    depth = module.count(".") + (path.name == "__init__.py")
    if not depth:
        return source_digest(imported_files(path))
    package = path.parents[depth - 1]
    if package != _HOME / "methods":
        return source_digest([package])
    name = module.split(".")[1]
    method_path = package / name if (package / name).is_dir() else package / f"{name}.py"
    return source_digest([method_path, *sorted(package.glob("_[!_]*"))])


def imported_files(path: Path) -> list[Path]:
    """Return a file and the user's files that it imports, directly, through other files, or inside functions.

    Modules of Python, of installed packages and of this project are left out. An imported package counts with all its
    Python files. Nothing is imported. Imports by a computed name are missed.
    """
    excluded = (*_INSTALLED, *(_HOME / name for name in ("bench", "methods", "tasks")))
    files, unread = {path.resolve()}, [path.resolve()]
    while unread:
        importer, names = unread.pop(), frozenset[tuple[int, str]]()
        with suppress(OSError):
            names = _imports(importer.read_bytes())
        for level, name in names:
            spec, folders = None, [str(importer.parent.joinpath(*[".."] * (level - 1)))] if level else None
            with suppress(ImportError, ValueError, AttributeError):
                for part in name.split("."):
                    spec = importlib.util.find_spec(part) if folders is None else PathFinder.find_spec(part, folders)
                    if spec is None or spec.origin is not None:
                        break
                    folders = [*(spec.submodule_search_locations or ())]  # a folder without `__init__.py`
            if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
                continue
            file = Path(spec.origin).resolve()
            if not any(other in file.parents for other in excluded):
                new = {*(file.parent.rglob("*.py") if file.name == "__init__.py" else [file])} - files
                files |= new
                unread += new
    return sorted(files)


@lru_cache(maxsize=256)
def _imports(source: bytes) -> frozenset[tuple[int, str]]:
    """Return the level (number of leading dots) and name of all imports, such as `a.b.c` for `from a.b import c`.

    Those of Python are left out. They are cached, since every call of a plugin needs them.
    """
    try:
        tree = ast.parse(source)
    except (ValueError, SyntaxError, RecursionError):
        return frozenset()  # it can't be imported, either
    names = {(0, alias.name) for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {(node.level, f"{node.module or ''}.{alias.name}".lstrip(".")) for alias in node.names}
    return frozenset(each for each in names if each[0] or each[1].partition(".")[0] not in sys.stdlib_module_names)
