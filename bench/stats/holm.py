"""Holm's correction of p values for several tests, which controls their family-wise error rate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray

T = TypeVar("T")


def holm(p: npt.ArrayLike) -> FloatArray:
    """Correct the p values of m tests that belong together (Holm, 1979).

    If nulls with a corrected p value of at most alpha are rejected, the chance of any false rejection is at most alpha.

    Args:
        p: shape (m,), each within [0, 1].

    Returns:
        Corrected p values, shape (m,), each at least as large as the uncorrected one.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = values[order] * np.arange(values.size, 0, -1)
    corrected = np.empty(values.size)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(stepped))
    return corrected


def with_holm(tests: Iterable[T], field: str = "p_holm") -> list[T]:
    """Return copies of dataclass instances whose field `field` has the p value `p` corrected by Holm's method.

    All instances in `tests` are corrected together, except those whose `p` is None: they are returned unchanged.
    """
    rows: list[Any] = list(tests)
    corrected = iter(holm([row.p for row in rows if row.p is not None]).tolist())
    return [row if row.p is None else replace(row, **{field: next(corrected)}) for row in rows]
