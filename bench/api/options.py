"""Options of a command as fields of a dataclass: their annotations, and conversion from and to the command line.

The Python function that does the same as the command, e.g. `bench.run()`, takes the fields as keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
    for option in options_of(type(options)):
        value, flag = getattr(options, option.name), option.flag
        if option.name not in without and value != option.default:
            values = (option.by.join(value),) if option.by else value if option.several else (value,)
            words += [flag] if value is True else [word for item in values for word in (flag, str(item))]
    return words


# --- options as keyword arguments -------------------------------------------------------------------------------------


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
    specs = {option.name: option for option in options_of(cls)}
    names = {name: name for name in specs} | {option.keyword: name for name, option in specs.items()}
    values: dict[str, Any] = {}
    for keyword, value in keywords.items():
        name = names.get(keyword)
        if name is None:
            hint = did_you_mean(keyword, names)
            raise UserError(f"{caller} has no option {keyword!r}.{hint} Options: {', '.join(specs)}")
        if name in values:
            raise UserError(f"{caller}: {keyword} was given twice, also as {name}; leave out one of them")
        values[name] = specs[name].value(value, f"{caller}, {keyword}")
    missing = [name for name, option in specs.items() if option.is_required and values.get(name) in {None, "", ()}]
    if missing:
        raise UserError(f"{caller}: expected {missing[0]}, got none; give {missing[0]}=...")
    return cls(**values)


def options_of(cls: Any) -> Iterator[OptionField]:
    """Yield the fields of a dataclass as options, in order, each below the last heading."""
    hints, heading = get_type_hints(cls, include_extras=True), None
    for field in fields(cls):
        option = OptionField(field, hints[field.name])
        option.heading = heading = option.heading or heading
        yield option


class OptionField:
    """A field of a dataclass of options: its type, and its option on the command line."""

    def __init__(self, field: Field[Any], hint: Any) -> None:
        annotated, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        kinds = get_args(annotated) if get_origin(annotated) in {Union, UnionType} else (annotated,)
        kind = next(kind for kind in kinds if kind is not NoneType)
        self.name, self.default = field.name, field.default
        self.several = get_origin(kind) is tuple
        self.kind = get_args(kind)[0] if self.several else kind
        """Type of the field, without None; for a tuple, the type of its elements."""
        self.may_be_none = NoneType in kinds
        self.heading = next((mark.text for mark in marks if isinstance(mark, Heading)), None)
        self.by = next((mark.by for mark in marks if isinstance(mark, Separated)), None)
        self.or_number = any(isinstance(mark, OrNumber) for mark in marks)
        self.is_required = field.default is MISSING and field.default_factory is MISSING
        flag = next((mark.name for mark in marks if isinstance(mark, OptionName)), None)
        singular = field.name.removesuffix("s") if self.several else field.name
        self.flag = flag or "--" + singular.replace("_", "-")
        """Name of the option on the command line, e.g. `--data-dir` for `data_dir`, `--task` for a tuple `tasks`."""
        self.keyword = self.flag.removeprefix("--").replace("-", "_")

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
        values = [value]
        if value is None or (isinstance(value, Iterable) and not isinstance(value, str | PathLike)):
            values = list(value or ())
        if self.by is not None:
            values = [piece.strip() for part in values for piece in str(_single(str, part, where)).split(self.by)]
        return tuple(_single(self.kind, part, where) for part in values if part != "")


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
