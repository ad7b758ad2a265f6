"""Checks of what a method gives: one probability, or one score without a scale, for each answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench.api.errors import ContractError


def checked(who: str, confidence: npt.ArrayLike, n: int, *, allow_nan: bool = False) -> npt.NDArray[np.float64]:
    """The confidences `(n,)` as float64, if they are what the contract says.

    Args:
        who: gave them, for the error.
        confidence: what was given.
        n: answers.
        allow_nan: whether NaN is let through, in a training that may yet recover.

    Raises:
        ContractError: another shape, NaN, or values outside [0, 1].
    """
    array = _real(who, confidence)
    if array.shape != (n,):
        raise ContractError(f"{who}: expected shape ({n},), got {array.shape}")
    if np.isnan(array).any() and not allow_nan:
        raise ContractError(f"{who}: expected numbers, got NaN in {int(np.isnan(array).sum())} of {n}")
    outside = (array < 0) | (array > 1)
    if outside.any():
        raise ContractError(
            f"{who}: expected values within [0, 1], got {int(outside.sum())} outside, e.g. {array[outside][0]:.4g}"
        )
    return array


def checked_scores(who: str, score: npt.ArrayLike, ids: Sequence[str]) -> npt.NDArray[np.float64]:
    """The scores `(n,)` as float64, if they are what the contract says.

    Args:
        who: gave them, for the error.
        score: what was given.
        ids: of the n questions, for the error.

    Raises:
        ContractError: another shape, or a number that is not finite.
    """
    array = _real(who, score)
    if array.shape != (len(ids),):
        raise ContractError(f"{who}: expected shape ({len(ids)},), got {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ContractError(
            f"{who}: expected a finite score for every answer, got {array[bad[0]]} for question {ids[bad[0]]}"
            f" ({bad.size} of {len(ids)} are not finite)"
        )
    return array


def _real(who: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.asarray(values)
    if np.iscomplexobj(array):  # numpy would drop the imaginary part with a warning at most
        raise ContractError(f"{who}: expected real numbers, got {array.dtype}")
    return np.asarray(array, dtype=np.float64)
