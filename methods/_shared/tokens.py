"""Means over the tokens of answers, of which several methods are one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.api import Batch, FloatArray, Ragged, TokenScores


def token_means(tokens: Ragged, values: npt.NDArray[np.float32]) -> FloatArray:
    """Mean of the values of each row, `(n,)` float64.

    Args:
        tokens: whose rows they are; each has a token at least.
        values: `(sum of t_i,)`, one for each token.
    """
    rows = np.repeat(np.arange(len(tokens)), tokens.lengths)
    sums = np.bincount(rows, weights=values, minlength=len(tokens))  # in float64
    return np.asarray(sums / tokens.lengths)


def mean_of(batch: Batch, field: str) -> FloatArray:
    """Mean of a field of `TokenScores()` over each answer's tokens, `(n,)` float64."""
    scores = batch[TokenScores()]
    return token_means(scores, scores.values[field])
