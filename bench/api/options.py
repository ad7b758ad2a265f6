"""Options of a command as fields of a dataclass: their annotations, and conversion from and to the command line.

The Python function that does the same as the command, e.g. `bench.run()`, takes the fields as keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from bench.api.errors import UserError, did_you_mean

T = TypeVar("T")
RUNS = Path("runs")
"""Folder of results where none is named."""


@dataclass(frozen=True)
class Heading:
    """Annotation of the first option of a group; `text` is the group's heading in the command's help."""

    text: str


@dataclass(frozen=True)
class OptionName:
    """Annotation of an option whose name on the command line differs from the name of its field."""

    name: str


@dataclass(frozen=True)
class Separated:
    """Annotation of an option that takes several values in one text, joined by the separator `by`."""

    by: str = ","


@dataclass(frozen=True)
class OrNumber:
    """Annotation of a text option whose value may also be a whole number, in Python and in run files."""


Names = Annotated[tuple[str, ...], Separated()]


def words_of(options: object, without: Collection[str] = ()) -> list[str]:
    """Return command-line arguments that would build this object; options with their default value are left out.

    Args:
        options: an object of a dataclass of options.
        without: names of fields to leave out.
    """
    words: list[str] = []
    for field, hint in _fields_with_hints(type(options)):
        value, spec = getattr(options, field.name), _Field(field, hint)
        if field.name not in without and value != field.default:
            values = (spec.by.join(value),) if spec.by else value if spec.several else (value,)
            words += [spec.option] if value is True else [word for item in values for word in (spec.option, str(item))]
    return words


# --- options as keyword arguments -------------------------------------------------------------------------------------


def option_of(name: str, marks: Sequence[object], *, several: bool) -> str:
    """Return the option on the command line for a field, e.g. `--data-dir` for `data_dir`.

    Args:
        name: name of the field.
        marks: annotations of the field; if one is an `OptionName`, it gives the option's name.
        several: whether the field takes several values; then a final "s" of its name is dropped.
    """
    flag = next((mark.name for mark in marks if isinstance(mark, OptionName)), None)
    return flag or "--" + (name.removesuffix("s") if several else name).replace("_", "-")


def from_keywords(cls: Callable[..., T], keywords: Mapping[str, object], caller: str) -> T:
    """Build an object of a dataclass of options from keyword arguments.

    Conversion is lenient: a single value may stand for a sequence, a text for a path. A text is split at commas where
    the command line would split it. A keyword may also be the name of the command-line option: `method` for `methods`.

    Args:
        cls: the dataclass.
        keywords: name -> value.
        caller: the called function, for messages, e.g. `run()`.

    Raises:
        UserError: a name is unknown, repeated or missing, or a value has the wrong type.
    """
    specs = {field.name: _Field(field, hint) for field, hint in _fields_with_hints(cls)}
    names = {name: name for name in specs} | {field.keyword: name for name, field in specs.items()}
    values: dict[str, Any] = {}
    for keyword, value in keywords.items():
        name = names.get(keyword)
        if name is None:
            hint = did_you_mean(keyword, names)
            raise UserError(f"{caller} has no option {keyword!r}.{hint} Options: {', '.join(specs)}")
        if name in values:
            raise UserError(f"{caller}: {keyword} was given twice, also as {name}; leave out one of them")
        values[name] = specs[name].value(value, f"{caller}, {keyword}")
    missing = [name for name, field in specs.items() if field.is_required and values.get(name) in {None, "", ()}]
    if missing:
        raise UserError(f"{caller}: expected {missing[0]}, got none; give {missing[0]}=...")
    return cls(**values)


def _fields_with_hints(cls: Any) -> Iterator[tuple[Field[Any], Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return ((field, hints[field.name]) for field in fields(cls))


class _Field:
    """A field of a dataclass of options, with its type and the name of its command-line option."""

    def __init__(self, field: Field[Any], hint: Any) -> None:
        annotated, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        kinds = get_args(annotated) if get_origin(annotated) in {Union, UnionType} else (annotated,)
        self.kind = next(kind for kind in kinds if kind is not NoneType)
        self.several = get_origin(self.kind) is tuple
        self.may_be_none = NoneType in kinds
        self.by = next((mark.by for mark in marks if isinstance(mark, Separated)), None)
        self.or_number = any(isinstance(mark, OrNumber) for mark in marks)
        self.is_required = field.default is MISSING and field.default_factory is MISSING
        self.option = option_of(field.name, marks, several=self.several)
        self.keyword = self.option.removeprefix("--").replace("-", "_")

    def value(self, value: object, where: str) -> Any:
        """Convert a value to the type of this field.

        Raises:
            UserError: the value has the wrong type.
        """
        if value is None and self.may_be_none:
            return None
        if self.or_number and type(value) is int:
            value = str(value)
        if not self.several:
            return _single(self.kind, value, where)
        if isinstance(value, Mapping | bytes):
            raise UserError(f"{where}: expected one or several values, got {value!r}")
        kind, values = get_args(self.kind)[0], [value]
        if value is None or (isinstance(value, Iterable) and not isinstance(value, str | PathLike)):
            values = list(value or ())
        if self.by is not None:
            values = [piece.strip() for part in values for piece in str(_single(str, part, where)).split(self.by)]
        return tuple(_single(kind, part, where) for part in values if part != "")


_WORDS: Mapping[type, str] = {
    int: "a whole number", float: "a number", bool: "True or False", str: "a text", Path: "a path",
}  # fmt: skip


def _single(kind: Any, value: object, where: str) -> object:
    """Convert one value to the type `kind`."""
    if isinstance(value, PathLike) and kind in {str, Path}:
        value = fspath(value)
    if isinstance(value, str) and kind is Path:
        return Path(value).expanduser()
    if issubclass(kind, StrEnum):
        choices = [each.value for each in kind]
        if value not in choices:
            raise UserError(f"{where}: expected one of {', '.join(choices)}, got {value!r}")
        return kind(str(value))
    numbers: Mapping[type, type] = {int: Integral, float: Real}
    if not isinstance(value, numbers.get(kind, kind)) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{where}: expected {_WORDS[kind]}, got {value!r}")
    return kind(value)
