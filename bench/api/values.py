"""Checks of plain values that a plugin writes into a signal, since types are only hints there."""

from __future__ import annotations

import math


def is_count(value: object, least: int) -> bool:
    """Whether it is a whole number, and at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def is_text(value: object) -> bool:
    """Whether it is text that can be written: half of a pair of surrogates can't."""
    return type(value) is str and not any("\ud800" <= char <= "\udfff" for char in value)
