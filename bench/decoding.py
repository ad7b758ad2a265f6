"""JSON values -> frozen records, checked field by field, at the speed of reading hundreds of files."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any


class MisfitError(ValueError):
    """A value that is not of its type; the way to it is put together on the way out, as most values fit."""

    def __init__(self, problem: Callable[[str], str]) -> None:
        """Take what says the whole sentence, given the value's place."""
        super().__init__()
        self.problem = problem
        self.where = ""

    def below(self, name: str) -> MisfitError:
        """The same, seen from one level further up."""
        self.where = f"{name}.{self.where}".rstrip(".")
        return self

    def __str__(self) -> str:
        return self.problem(self.where)


Decode = Callable[[Any], Any]


@functools.cache
def decoder(hint: Any) -> Decode:
    """A function from what `json` gives to the type that `hint` names; made once for each type.

    It knows dataclasses, mappings, tuples, literals, optional values, `Any` and plain types, and raises a `MisfitError`
    (a ValueError that names the field) for whatever is not exactly of its type.
    """
    if hint is Any:
        return lambda value: value
    if dataclasses.is_dataclass(hint):
        return _record_decoder(hint)
    make = _DECODERS.get(typing.get_origin(hint))
    return _plain_decoder(hint) if make is None else make(hint)


def _plain_types(hint: Any) -> set[type]:
    """The exact types of a value that fits; empty where that is more than a question of its type."""
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        parts = [_plain_types(part) for part in typing.get_args(hint)]
        return set().union(*parts) if all(parts) else set()
    if hint is float:
        return {int, float}
    return {hint} if hint in {int, str, bool, type(None)} else set()


def _plain_decoder(hint: Any) -> Decode:
    fitting = _plain_types(hint) or {hint}  # exactly: a bool is an int to isinstance

    def decode(value: Any) -> Any:
        if type(value) not in fitting:
            raise _unexpected(hint.__name__, value)
        return value

    return decode


def _record_decoder(hint: Any) -> Decode:
    hints = typing.get_type_hints(hint)
    decoders = {name: decoder(part) for name, part in hints.items()}

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _unexpected("an object", value)
        for problem, names in (("missing", hints.keys() - value.keys()), ("unknown", value.keys() - hints.keys())):
            if names:
                listed = ", ".join(map(repr, sorted(names)))
                raise MisfitError(lambda where: f"{problem} {where or 'key'} {listed}")  # noqa: B023 - the loop ends here
        return hint(**_decode_items(value, decoders.__getitem__))

    return decode


def _decode_items(value: Mapping[str, Any], decoder_of: Callable[[str], Decode]) -> dict[str, Any]:
    out = {}
    for key, item in value.items():
        try:
            out[key] = decoder_of(key)(item)
        except MisfitError as misfit:
            raise misfit.below(key)  # noqa: B904 - the same exception goes on
    return out


def _optional_decoder(hint: Any) -> Decode:
    (some,) = (part for part in typing.get_args(hint) if part is not type(None))
    decode = decoder(some)
    return lambda value: None if value is None else decode(value)


def _mapping_decoder(hint: Any) -> Decode:
    part = typing.get_args(hint)[1]
    item, plain = decoder(part), _plain_types(part)

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _unexpected("an object", value)
        if plain and plain.issuperset(map(type, value.values())):  # most of a file is numbers, and they fit
            return dict(value)
        return _decode_items(value, lambda _key: item)

    return decode


def _tuple_decoder(hint: Any) -> Decode:
    hints = typing.get_args(hint)

    def decode(value: Any) -> Any:
        if not isinstance(value, list):
            raise _unexpected("a list", value)
        parts = (hints[0],) * len(value) if Ellipsis in hints else hints
        if len(parts) != len(value):
            raise _unexpected(f"{len(parts)} values", value)
        return tuple(decoder(part)(item) for part, item in zip(parts, value, strict=True))

    return decode


def _literal_decoder(hint: Any) -> Decode:
    allowed = typing.get_args(hint)

    def decode(value: Any) -> Any:
        if value not in allowed:
            raise _unexpected(" or ".join(allowed), value)
        return value

    return decode


_DECODERS: Mapping[Any, Callable[[Any], Decode]] = types.MappingProxyType(
    {
        types.UnionType: _optional_decoder,
        typing.Union: _optional_decoder,
        Mapping: _mapping_decoder,
        tuple: _tuple_decoder,
        typing.Literal: _literal_decoder,
    }
)


def _unexpected(expected: str, value: Any) -> MisfitError:
    return MisfitError(lambda where: f"{where}: expected {expected}, got {str(value)[:60]!r}")
