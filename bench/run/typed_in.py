"""Source of a method that was typed into a notebook or a console, and of whatever it names there.

What such a method learned is kept under a digest of this, so that a cell that was edited and run again is never served
what its older version learned.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import secrets
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from symtable import SymbolTable, symtable
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from bench.api import UserError
from bench.run.imports import source_files

_PLAIN = (bool, int, float, complex, str, bytes, np.generic, Path)
_MADE = ("__", "_abc_")
"""Beginnings of names that Python gives a class."""
_SLOTS = (MemberDescriptorType, GetSetDescriptorType)
_BY_DATACLASS = "<string>"
"""File of functions that a dataclass made."""


def is_typed_in(plugin: type | FunctionType) -> bool:
    """Whether a class or a function is of no file."""
    module = sys.modules.get(plugin.__module__)
    if getattr(module, "__spec__", None) is not None:
        return False
    file = getattr(module, "__file__", None)  # that of a script
    return file is None or not Path(file).is_file()


def digest_of(plugin: type) -> str:
    """Digest of a class that was typed in: of its source, that of its bases, and of what these name.

    What they name is followed: functions and classes that were typed in too, values, and files that are neither
    installed nor ours. A value that has no lasting description, e.g. a random generator, makes a digest that never
    comes again, so that nothing is kept for it.

    Raises:
        UserError: Python kept no source of it.
    """
    found = _Found()
    found.of(plugin)
    found.of_kinds()
    return hashlib.sha256("\n".join(found.parts).encode()).hexdigest()


class _Found:
    """Descriptions of a class and of what it names, each once."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._seen: set[int] = set()
        self._kinds: dict[str, type] = {}
        """Name -> class of a value that was described, of which the functions may be called."""

    def of(self, value: Any) -> None:
        """Add a value, and what it names."""
        value = inspect.unwrap(value) if callable(value) else value
        if id(value) in self._seen:
            return
        if isinstance(value, type | FunctionType):
            self._seen.add(id(value))
            self._of_code(value)
        elif isinstance(value, BuiltinFunctionType):
            self.parts.append(f"{value.__module__}.{value.__qualname__}")
        elif isinstance(value, ModuleType):
            self.parts.append(f"module {value.__name__}")
            self._of_file(getattr(value, "__file__", None))
        else:
            self.parts.append(self._described(value))

    def of_kinds(self) -> None:
        """Add the classes of the values that were described, in an order that does not depend on sets."""
        while self._kinds:
            self.of(self._kinds.pop(min(self._kinds)))

    def _of_code(self, value: type | FunctionType) -> None:
        name = f"{value.__module__}.{value.__qualname__}"
        if not is_typed_in(value):
            self.parts.append(name)
            self._of_file(getattr(sys.modules[value.__module__], "__file__", None))
            return
        source = source_of(value)
        self.parts.append(f"{name}\n{source}")
        for base in getattr(value, "__mro__", ())[1:]:
            self.of(base)
        if isinstance(value, type):
            self._of_attributes(value)
        else:
            self._of_defaults(value)
        for key, named in sorted(_named(value, source).items()):
            self.parts.append(key)
            self.of(named)

    def _of_attributes(self, cls: type) -> None:
        """Add what a class has now: its source doesn't tell what names stood for when it ran, or what was set since."""
        own = set(_functions(cls))
        for name, value in sorted((cls.__members__ if issubclass(cls, Enum) else vars(cls)).items()):
            inner = _inner(value)
            if isinstance(inner, FunctionType) and inner in own:
                self._of_defaults(inner)
            elif not name.startswith(_MADE) and not isinstance(value, _SLOTS):
                self.parts.append(name)
                self.of(inner)

    def _of_defaults(self, function: FunctionType) -> None:
        """Add the values of parameters that a call leaves out: they are those of when the function was defined."""
        if function.__code__.co_filename == _BY_DATACLASS:
            return
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.of(value)

    def _of_file(self, file: str | None) -> None:
        """Add a file of somebody's own, with those that it imports; an installed one has a version."""
        if file is None or not file.endswith(".py") or _is_installed(Path(file)):
            return
        for path in sorted(source_files(Path(file))):
            self.parts.append(hashlib.sha256(path.read_bytes()).hexdigest())

    def _described(self, value: Any) -> str:
        """A value as text that is the same in another process; one that never comes again where there is none."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if _has_code(type(value)):
            self._kinds[kind] = type(value)
        if isinstance(value, Enum):
            return f"{kind} {value.name} {self._described(value.value)}"
        if value is None or isinstance(value, _PLAIN):
            return f"{kind} {value!r}"
        parts = self._parts(value)
        return f"{kind} {secrets.token_hex(16) if parts is None else ', '.join(parts)}"

    def _parts(self, value: Any) -> list[str] | None:
        """Descriptions of what a value is made of; None where that is not known."""
        if type(value) is np.ndarray:  # others may hold more, masks for example
            return None if value.dtype.hasobject else [str(value.dtype), str(value.shape), _digest(value)]
        if isinstance(value, list | tuple | set | frozenset):
            found = list(map(self._described, value))
            return found if isinstance(value, list | tuple) else sorted(found)
        if isinstance(value, Mapping):
            return sorted(f"{self._described(key)}: {self._described(each)}" for key, each in value.items())
        if is_dataclass(value) and not isinstance(value, type):
            return [f"{field.name}={self._described(getattr(value, field.name, None))}" for field in fields(value)]
        return None


def source_of(value: type | FunctionType) -> str:
    """Source of a class or a function that was typed in.

    Raises:
        UserError: Python kept none.
    """
    found = _function_source(value) if isinstance(value, FunctionType) else _class_source(value)
    if found is None:
        raise UserError(
            f"the source of {value.__qualname__} can't be read, so it can't be known when it changes: Python keeps none"
            " of what exec, python -c or a plain console ran, nor of a class without a function; put it into a notebook"
            " cell with its functions, or into a file"
        )
    return found


def _function_source(function: FunctionType) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError, SyntaxError):
        return None


def _class_source(cls: type) -> str | None:
    """The lines of a class in the cell of one of its functions: `inspect.getsource` knows no cells."""
    for function in _functions(cls):
        code = function.__code__
        text = "".join(linecache.getlines(code.co_filename, function.__globals__))
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or node.name != cls.__name__:
                continue
            if node.lineno <= code.co_firstlineno <= (node.end_lineno or 0):
                first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
    return None


def _functions(cls: type) -> Iterator[FunctionType]:
    """Functions that a class itself has."""
    for inner in map(_inner, vars(cls).values()):
        if isinstance(inner, FunctionType) and inner.__qualname__.startswith(f"{cls.__qualname__}."):
            yield inner


def _inner(value: Any) -> Any:
    """The function in a property, a static method and the like; whatever else as it is."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, property | cached_property):
        value = value.fget if isinstance(value, property) else value.func
    return inspect.unwrap(value) if callable(value) else value


def _has_code(kind: type) -> bool:
    """Whether functions of a value's class are of somebody who may change them."""
    if is_typed_in(kind):
        return any(function.__code__.co_filename != _BY_DATACLASS for function in _functions(kind))
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and not _is_installed(Path(file))


def _named(value: type | FunctionType, source: str) -> dict[str, Any]:
    """Name -> value of what the source names and its surroundings have, builtins left out."""
    functions = [value] if isinstance(value, FunctionType) else list(_functions(value))
    known: dict[str, Any] = {}
    for function in functions:
        known |= function.__globals__
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is empty as yet
                known[name] = cell.cell_contents
    names = _free(symtable(source, "cell", "exec"))
    return {name: known[name] for name in names if name in known and known[name] is not value}


def _free(table: SymbolTable) -> set[str]:
    """Names that a piece of source takes from around it."""
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return own.union(*map(_free, table.get_children()))


def _digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _is_installed(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or _is_of_python_or_ours(path.resolve())


def _is_of_python_or_ours(path: Path) -> bool:
    home = Path(__file__).resolve().parents[2]
    others = (Path(inspect.getfile(ast)).resolve().parent, *(home / name for name in ("bench", "methods", "tasks")))
    return any(other in path.parents for other in others)
