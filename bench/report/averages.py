"""Mean over seeds or subjects that skips missing values (None)."""

from __future__ import annotations

from collections.abc import Iterable


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if all are.

    >>> mean_of([1.0, None, 3.0]), mean_of([None])
    (2.0, None)
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
