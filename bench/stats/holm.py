"""Holm's correction of p values, which controls the family-wise error of a family of tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bench.api import FloatArray

T = TypeVar("T")


def holm(p: npt.ArrayLike) -> FloatArray:
    """Correct the p values of one family of tests (Holm, 1979).

    If nulls with a corrected p value of at most alpha are rejected, the chance of any false rejection is at most alpha.

    Args:
        p: shape (m,), each within [0, 1].

    Returns:
        Corrected p values, shape (m,), none below its uncorrected one.

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
    """Return copies of the dataclass instances `tests`, a family, with `p` corrected by Holm's method in `field`.

    An instance whose `p` is None is returned as it is, and does not count in the family.
    """
    rows: list[Any] = list(tests)
    corrected = iter(holm([row.p for row in rows if row.p is not None]).tolist())
    return [row if row.p is None else replace(row, **{field: next(corrected)}) for row in rows]
