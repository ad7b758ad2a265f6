"""Validation of the output of `predict`: for each answer one probability, or one score without a scale."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api.errors import ContractError


def check_confidences(
    who: str, confidence: npt.ArrayLike, n: int, *, allow_nan: bool = False
) -> npt.NDArray[np.float64]:
    """Check confidences `(n,)` and return them as float64.

    Args:
        who: name of the method, for the error.
        confidence: the confidences, of any type that `as_float64` accepts.
        n: number of answers.
        allow_nan: whether NaN is allowed. Early stopping allows it, as a diverged training may recover later.

    Raises:
        ContractError: the confidences are not numbers, have another shape, are NaN, or lie outside [0, 1].
    """
    array = _check_shape(who, confidence, n)
    if np.isnan(array).any() and not allow_nan:
        raise ContractError(f"{who}: expected numbers, got NaN in {int(np.isnan(array).sum())} of {n}")
    outside = (array < 0) | (array > 1)
    if outside.any():
        raise ContractError(
            f"{who}: expected values within [0, 1], got {int(outside.sum())} outside, e.g. {array[outside][0]:.4g}; for"
            ' values that only rank answers set output = "score" (methods without fit), else map them to [0, 1]'
        )
    return array


def check_scores(who: str, score: npt.ArrayLike, ids: Sequence[str]) -> npt.NDArray[np.float64]:
    """Check scores `(n,)`, which need not lie in [0, 1], and return them as float64.

    Args:
        who: name of the method, for the error.
        score: the scores, of any type that `as_float64` accepts.
        ids: ids of the n questions, for the error.

    Raises:
        ContractError: the scores are not numbers, have another shape, or are not finite.
    """
    array = _check_shape(who, score, len(ids))
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ContractError(
            f"{who}: expected a finite score for every answer, got {array[bad[0]]} for question {ids[bad[0]]}"
            f" ({bad.size} of {len(ids)} are not finite)"
        )
    return array


def as_float64(who: str, values: Any) -> npt.NDArray[np.float64]:
    """Convert numbers to a float64 array of the same shape.

    Args:
        who: name of the method, for the error.
        values: a numpy array or torch tensor of any real type on any device, a list, a tuple, or a column of a table.

    Raises:
        ContractError: the values are not real numbers. Booleans are refused: they are decisions, not confidences.
    """
    try:
        array = np.asarray(_to_numpy(values))
    except (TypeError, ValueError, RuntimeError) as error:  # e.g. rows of different length, a sparse tensor
        raise ContractError(f"{who}: expected one number for each answer, got {_type_of(values)}: {error}") from error
    if array.dtype == np.bool_:
        raise ContractError(
            f"{who}: expected numbers, got {array.dtype}; give how sure it is and not the decision,"
            " e.g. predict_proba(x)[:, 1] instead of predict(x)"
        )
    if array.dtype.kind not in "iuf":
        raise ContractError(f"{who}: expected real numbers, got {array.dtype} ({_type_of(values)})")
    return array.astype(np.float64)


def _to_numpy(values: Any) -> Any:
    """Convert a torch tensor, or an array with a mask, to a numpy array; return other values unchanged.

    Masked values become NaN.
    """
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "iuf":
        return np.ma.filled(values.astype(np.float64), np.nan)
    torch: Any = sys.modules.get("torch")  # not imported here: a caller with a tensor has imported it
    if torch is None or not isinstance(values, torch.Tensor):
        return values
    if values.is_floating_point():
        return values.detach().cpu().double().numpy()  # numpy has no bfloat16
    return values.detach().cpu().numpy()


def _type_of(values: object) -> str:
    return f"a {type(values).__name__}"


def _check_shape(who: str, values: Any, n: int) -> npt.NDArray[np.float64]:
    array = as_float64(who, values)
    if array.shape == (n,):
        return array
    hint = ""
    if array.shape in {(n, 1), (1, n)}:
        hint = "; use .ravel()"
    elif array.ndim == 2 and len(array) == n:
        hint = "; give one column, e.g. predict_proba(x)[:, 1]"
    raise ContractError(f"{who}: expected shape ({n},), got {array.shape}{hint}")
