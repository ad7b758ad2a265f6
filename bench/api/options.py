"""Options of a command that are the fields of a dataclass: marks of fields, and options as words and as keywords."""

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


@dataclass(frozen=True)
class Heading:
    """Heading in the help of the command, above this option and those after it."""

    text: str


@dataclass(frozen=True)
class Flag:
    """Name of an option that doesn't follow from the name of its field."""

    name: str


@dataclass(frozen=True)
class Separated:
    """Mark of an option that takes several values at once."""

    by: str = ","


Names = Annotated[tuple[str, ...], Separated()]


def words_of(given: object, without: Collection[str] = ()) -> list[str]:
    """Options that make an object of a dataclass of options, as they are typed: those that have not their default.

    Args:
        given: the object.
        without: fields that are left out.
    """
    words: list[str] = []
    for field, hint in _hinted(type(given)):
        value, own = getattr(given, field.name), _Field(field, hint)
        if field.name not in without and value != field.default:
            values = (own.by.join(value),) if own.by else value if own.several else (value,)
            words += [own.option] if value is True else [word for each in values for word in (own.option, str(each))]
    return words


# --- options as keyword arguments -------------------------------------------------------------------------------------


def option_of(name: str, marks: Sequence[object], *, several: bool) -> str:
    """Name of a field's option on the command line."""
    flag = next((mark.name for mark in marks if isinstance(mark, Flag)), None)
    return flag or "--" + (name.removesuffix("s") if several else name).replace("_", "-")


def from_keywords(cls: Callable[..., T], given: Mapping[str, object], caller: str) -> T:
    """An object of a dataclass of options, from keyword arguments as people write them.

    One value may stand where several are possible, texts are taken apart at commas where the command line does that,
    and a path may be a text. Besides its own name a field has that of its option: `method`, `sort`.

    Args:
        cls: the dataclass.
        given: name -> value.
        caller: what was called, for messages, e.g. `run()`.

    Raises:
        UserError: an unknown name, one that comes twice or is missing, or a value of another kind.
    """
    known = {field.name: _Field(field, hint) for field, hint in _hinted(cls)}
    names = {name: name for name in known} | {field.keyword: name for name, field in known.items()}
    made: dict[str, Any] = {}
    for keyword, value in given.items():
        name = names.get(keyword)
        if name is None:
            hint = did_you_mean(keyword, names)
            raise UserError(f"{caller} has no option {keyword!r}.{hint} Options: {', '.join(known)}")
        if name in made:
            raise UserError(f"{caller}: {keyword} was given twice, also as {name}; leave out one of them")
        made[name] = known[name].value(value, f"{caller}, {keyword}")
    missing = [name for name, field in known.items() if field.is_required and made.get(name) in {None, "", ()}]
    if missing:
        raise UserError(f"{caller}: expected {missing[0]}, got none; give {missing[0]}=...")
    return cls(**made)


def _hinted(cls: Any) -> Iterator[tuple[Field[Any], Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return ((field, hints[field.name]) for field in fields(cls))


class _Field:
    """A field with its type, as values are read for it."""

    def __init__(self, field: Field[Any], hint: Any) -> None:
        plain, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        kinds = get_args(plain) if get_origin(plain) in {Union, UnionType} else (plain,)
        self.kind = next(kind for kind in kinds if kind is not NoneType)
        self.several = get_origin(self.kind) is tuple
        self.may_be_none = NoneType in kinds
        self.by = next((mark.by for mark in marks if isinstance(mark, Separated)), None)
        self.is_required = field.default is MISSING and field.default_factory is MISSING
        self.option = option_of(field.name, marks, several=self.several)
        self.keyword = self.option.removeprefix("--").replace("-", "_")

    def value(self, given: object, where: str) -> Any:
        """A value as the field has it.

        Raises:
            UserError: it is of another kind.
        """
        if given is None and self.may_be_none:
            return None
        if not self.several:
            return _single(self.kind, given, where)
        if isinstance(given, Mapping | bytes):
            raise UserError(f"{where}: expected one or several values, got {given!r}")
        one, parts = get_args(self.kind)[0], [given]
        if given is None or (isinstance(given, Iterable) and not isinstance(given, str | PathLike)):
            parts = list(given or ())
        if self.by is not None:
            parts = [piece.strip() for part in parts for piece in str(_single(str, part, where)).split(self.by)]
        return tuple(_single(one, part, where) for part in parts if part != "")


_WORDS: Mapping[type, str] = {
    int: "a whole number", float: "a number", bool: "True or False", str: "a text", Path: "a path",
}  # fmt: skip


def _single(kind: Any, given: object, where: str) -> object:
    """One value of a kind."""
    if isinstance(given, PathLike) and kind in {str, Path}:
        given = fspath(given)
    if isinstance(given, str) and kind is Path:
        return Path(given).expanduser()
    if issubclass(kind, StrEnum):
        known = [each.value for each in kind]
        if given not in known:
            raise UserError(f"{where}: expected one of {', '.join(known)}, got {given!r}")
        return kind(str(given))
    numbers: Mapping[type, type] = {int: Integral, float: Real}
    if not isinstance(given, numbers.get(kind, kind)) or (isinstance(given, bool) and kind is not bool):
        raise UserError(f"{where}: expected {_WORDS[kind]}, got {given!r}")
    return kind(given)
