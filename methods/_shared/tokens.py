"""Means over the tokens of each answer, from which several methods take their scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.api import Batch, FloatArray, Ragged, TokenScores


def mean_over_tokens(tokens: Ragged, values: npt.NDArray[np.float32]) -> FloatArray:
    """Mean over the tokens of each answer, `(n,)` float64.

    Args:
        tokens: the tokens of each answer, at least one.
        values: `(sum of t_i,)`, one per token.
    """
    rows = np.repeat(np.arange(len(tokens)), tokens.lengths)
    sums = np.bincount(rows, weights=values, minlength=len(tokens))  # in float64
    return np.asarray(sums / tokens.lengths)


def mean_of(batch: Batch, field: str) -> FloatArray:
    """Mean of a field of `TokenScores()` over the tokens of each answer, `(n,)` float64."""
    scores = batch[TokenScores()]
    return mean_over_tokens(scores, scores.values[field])
