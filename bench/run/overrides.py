"""Overrides of `--set`: `METHOD.FIELD=VALUE` as the owner, the field, and a value of the field's type."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from bench.api import UserError
from bench.api.errors import did_you_mean
from bench.api.protocol import Protocol, changed, preset_named


def parse_overrides(overrides: Sequence[str], methods: Sequence[str]) -> dict[str, dict[str, str]]:
    """Owner -> field -> text.

    Args:
        overrides: as they were given.
        methods: names of the chosen methods; with a single one its name may be left out.

    Raises:
        UserError: no such form, or the owner was not chosen.
    """
    parsed: dict[str, dict[str, str]] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        owner, dot, key = name.rpartition(".")
        if not equals or not key:
            raise UserError(f"--set {text}: expected METHOD.FIELD=VALUE.")
        if not dot:
            if len(methods) != 1:
                raise UserError(f"--set {text}: with several methods, say which one: --set METHOD.{key}={value}.")
            owner = methods[0]
        if owner not in (*methods, "protocol"):
            raise UserError(f"--set {text}: {owner!r} is no chosen method ({', '.join(methods)}, or protocol).")
        parsed.setdefault(owner, {})[key] = value
    return parsed


def protocol_with(preset: str, overrides: Mapping[str, str]) -> tuple[Protocol, dict[str, object]]:
    """A preset's protocol with other values, and these as JSON has them.

    Raises:
        UserError: there is no such preset or field, or a value is not one that it can have.
    """
    defaults = {key: value for key, value in vars(preset_named(preset)).items() if key != "preset"}
    changes = {key: typed("protocol", key, text, defaults) for key, text in overrides.items()}
    plain = {key: value.value if isinstance(value, enum.Enum) else value for key, value in changes.items()}
    return changed(preset, plain), plain


def typed(owner: str, key: str, text: str, defaults: Mapping[str, Any]) -> Any:
    """The text as the type of the field's default.

    Raises:
        UserError: there is no such field, or the text is no value of its type.
    """
    if key not in defaults:
        hint = did_you_mean(key, defaults)
        raise UserError(f"{owner} has no field {key!r}: expected one of {', '.join(defaults) or 'none'}.{hint}")
    default = defaults[key]
    expected = f"a value of type {type(default).__name__}"
    try:
        value: Any
        if isinstance(default, bool):
            expected = "true or false"
            value = {"true": True, "false": False}[text.lower()]
        elif default is None:  # a field without a value so far, which doesn't tell the type
            value = _number_or_text(text)
        elif isinstance(default, enum.Enum | int | float | str):
            if isinstance(default, enum.Enum):
                expected = "one of " + ", ".join(str(member.value) for member in type(default))
            value = type(default)(text)
        else:
            raise ValueError(text)
    except (ValueError, KeyError) as error:
        raise UserError(f"--set {owner}.{key}={text}: expected {expected}, got {text!r:.60}.") from error
    bound = _bound_missed(value, default, counted=owner != "protocol")
    if bound:
        raise UserError(f"--set {owner}.{key}={text}: expected {bound}, got {text:.60}.")
    return value


def _bound_missed(value: object, default: object, *, counted: bool) -> str:
    """Bound of a number that a value misses, in words; empty where it is kept.

    A number keeps the side of 0 that its default is on; a method's count (steps, rows of a batch) that is not 0 does
    not become 0. What else a number must keep, its method says when it is made.

    Args:
        value: of the field.
        default: its value so far.
        counted: whether whole numbers that are positive stay so.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if not -(2**63) <= value < 2**63:  # NaN too
        return "a number" if value != value else "a number of at most 64 bits"  # noqa: PLR0124
    if not isinstance(default, int | float) or default < 0 or value > 0:
        return ""
    if counted and isinstance(default, int) and default > 0:
        return "at least 1"
    return "at least 0" if value < 0 else ""


def _number_or_text(text: str) -> float | str | None:
    """Value of a field without one so far: its default doesn't tell the type."""
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text
