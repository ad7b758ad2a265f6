"""Strict decoding of JSON into dataclasses: unknown or missing keys are errors, whose message names the field.

msgspec alone is not strict: it ignores unknown keys, fills in defaults for missing keys, and its messages name no key
of a mapping.
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


class RecordError(ValueError):
    """A JSON value does not fit the type of its field; the message names the field, the expected type and the value."""


def parse_json(text: str) -> Any:
    """Parse a JSON text. NaN and infinity are let through: `decode_record` refuses them and names the field.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: the text is nested too deeply.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def decode_record(value: Any, record: type[Record]) -> Record:
    """Convert a JSON value to a dataclass. Keys and types must match exactly, but an int may stand for a float.

    Args:
        value: result of `parse_json`.
        record: the dataclass. Its fields may have plain types, optional values, literals, mappings, `Any`, other
            dataclasses, tuples of one element type and any length, and any of these with an `msgspec.Meta` that
            constrains and describes the value.

    Raises:
        RecordError: a value has another type, is not finite, or a key is unknown or missing.
    """
    if not _round_trips(value, record):
        raise RecordError(_describe_misfit(value, record, ""))
    return msgspec.convert(value, record)


def _round_trips(value: Any, hint: Any) -> bool:
    """Return whether converting a value to a type and back gives an equal value.

    The result differs from the value if a key is ignored or a default is filled in.
    """
    try:
        back = msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, hint)))
    except (msgspec.MsgspecError, UnicodeError):  # UnicodeError: half a surrogate pair
        return False
    return bool(back == value)  # NaN and infinity are encoded as null, so they differ


def _describe_misfit(value: Any, hint: Any, where: str) -> str:
    """Return the error message for the innermost part of a value that does not fit its type.

    `where` says where the value is in the document, e.g. `model.name`.
    """
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    parts = _typed_parts(value, hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        for problem, names in (("missing", parts.keys() - value.keys()), ("unknown", value.keys() - parts.keys())):
            if names:
                return f"{problem} {where or 'key'} {', '.join(map(repr, sorted(names)))}"
    for key, part in parts.items():
        if not _round_trips(value[key], part):
            return _describe_misfit(value[key], part, f"{where}.{key}".lstrip("."))
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


def _typed_parts(value: Any, hint: Any) -> Mapping[Any, Any]:
    """Return the type that `hint` gives each part of a JSON object or list, by key or index; empty for other values."""
    if dataclasses.is_dataclass(hint):
        return typing.get_type_hints(hint, include_extras=True) if isinstance(value, dict) else {}
    arguments = typing.get_args(hint)
    if isinstance(value, dict) and (hint is Any or typing.get_origin(hint) is Mapping):
        return dict.fromkeys(value, arguments[1] if arguments else Any)
    if isinstance(value, list) and (hint is Any or typing.get_origin(hint) is tuple):
        return dict.fromkeys(range(len(value)), arguments[0] if arguments else Any)
    return {}
