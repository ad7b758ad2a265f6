"""Means over what is known: seeds that lack a number, or subjects in which it is undefined, are passed over."""

from __future__ import annotations

from collections.abc import Iterable


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are known; None where none is.

    >>> mean_of([1.0, None, 3.0]), mean_of([None])
    (2.0, None)
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
