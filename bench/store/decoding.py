"""JSON values -> frozen records by msgspec, with what it lets pass refused, and the field named.

By itself msgspec passes over unknown keys, fills in missing ones that have a default, and names no key of a mapping.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

Record = TypeVar("Record")


class MisfitError(ValueError):
    """A value that is not of its type; names the field, what was expected and what came."""


def parsed(text: str) -> Any:
    """The value of a JSON text, and NaN and infinity where they stand in it: `decoded` says in which field.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deep.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def decoded(value: Any, record: type[Record]) -> Record:
    """A record from a JSON value, with exactly its keys and exactly its types; an int may stand for a float.

    Args:
        value: of `parsed`.
        record: a dataclass of plain types, optional values, literals, mappings, `Any`, other dataclasses, tuples of one
            type and any length, and any of these with an `msgspec.Meta` that limits and describes it.

    Raises:
        MisfitError: a value is not of its type, not finite, too much or missing.
    """
    if not _fits(value, record):
        raise MisfitError(_misfit(value, record, ""))
    return msgspec.convert(value, record)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value comes back from its type as it was: then no key was passed over, and no default filled in."""
    try:
        back = msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, hint)))
    except (msgspec.MsgspecError, UnicodeError):  # the latter of half a surrogate pair
        return False
    return bool(back == value)  # NaN and infinity come back as null


def _misfit(value: Any, hint: Any, where: str) -> str:
    """The sentence about a value that does not fit: that of its first part that does not, if it is one of its parts."""
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    parts = _parts(value, hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        for problem, names in (("missing", parts.keys() - value.keys()), ("unknown", value.keys() - parts.keys())):
            if names:
                return f"{problem} {where or 'key'} {', '.join(map(repr, sorted(names)))}"
    for key, part in parts.items():
        if not _fits(value[key], part):
            return _misfit(value[key], part, f"{where}.{key}".lstrip("."))
    words = {
        Mapping: "an object",
        tuple: "a list",
        typing.Literal: " or ".join(map(str, typing.get_args(hint))),
        float: "a finite number",
        Any: "a JSON value",
    }
    if dataclasses.is_dataclass(hint):
        expected = "an object"
    elif typing.get_origin(hint) is Annotated:
        expected = str(hint.__metadata__[0].description)
    else:
        expected = words.get(typing.get_origin(hint) or hint) or str(hint.__name__)
    return f"{where or 'value'}: expected {expected}, got {str(value)[:60]!r}"


def _parts(value: Any, hint: Any) -> Mapping[Any, Any]:
    """Keys or positions of a value, with their types; empty for a value without parts."""
    if dataclasses.is_dataclass(hint):
        return typing.get_type_hints(hint, include_extras=True) if isinstance(value, dict) else {}
    arguments = typing.get_args(hint)
    if isinstance(value, dict) and (hint is Any or typing.get_origin(hint) is Mapping):
        return dict.fromkeys(value, arguments[1] if arguments else Any)
    if isinstance(value, list) and (hint is Any or typing.get_origin(hint) is tuple):
        return dict.fromkeys(range(len(value)), arguments[0] if arguments else Any)
    return {}
