"""Holm's correction of p values for a family of tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray

T = TypeVar("T")


def holm(p: npt.ArrayLike) -> FloatArray:
    """P values corrected for all of them (Holm, 1979): below alpha with a chance of at most alpha that any is wrong.

    Args:
        p: shape (m,), each within [0, 1].

    Returns:
        Shape (m,), never below `p`.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = values[order] * np.arange(values.size, 0, -1)
    found = np.empty(values.size)
    found[order] = np.minimum(1.0, np.maximum.accumulate(stepped))
    return found


def with_holm(tests: Iterable[T], field: str = "p_holm") -> list[T]:
    """Dataclasses with a p value, or None, in field `p`; the corrected one goes to another field."""
    each: list[Any] = list(tests)
    corrected = iter(holm([one.p for one in each if one.p is not None]).tolist())
    return [one if one.p is None else replace(one, **{field: next(corrected)}) for one in each]
