"""DeepConf: how spread the likeliest tokens were while the model reasoned (Fu et al., 2025; docs/methods.md §2.31).

Example: a trace whose tokens have the confidences 9, 3, 6, 2, 8, 7 has the mean 5.83; with windows of three tokens its
lowest group is 3, 6, 2 with the mean 3.67, and its tail 2, 8, 7.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, Of, TokenScores, method

TOKENS = TokenScores(Of.TRACE, mean_of=20)
"""A token's confidence is minus the mean log-probability of the 20 likeliest; the more spread, the smaller it is."""


class _DeepConf(ConfidenceMethod):
    reference = "arXiv:2508.15260"
    needs = Needs(predict=frozenset({TOKENS}))
    output = "score"

    @abstractmethod
    def statistic(self, confidence: FloatArray) -> float:
        """Score of a trace, from the confidences of its tokens, at least one."""

    def predict(self, batch: Batch) -> FloatArray:
        """Score of each trace in nats, `(n,)` float64; 0, less than any, for an answer without a trace."""
        tokens = batch[TOKENS]
        traces = np.split(-tokens.values["top_mean"].astype(np.float64), tokens.offsets[1:-1])
        return np.asarray([self.statistic(trace) if len(trace) else 0.0 for trace in traces])


@dataclass(kw_only=True, eq=False)
class _Windowed(_DeepConf):
    share: float = 0.1
    """Tokens of a window, as a share of the trace's. CHOSEN: a tenth, as the paper's 2,048 of 15,000 to 26,000."""
    least: int = 16
    """Fewest tokens of a window, for short traces; a shorter trace is one window. CHOSEN: two short lines."""
    most: int = 2048
    """Most tokens of a window: the paper's."""

    def window(self, n: int) -> int:
        """Number of tokens of a window in a trace of n tokens."""
        return min(n, max(self.least, min(self.most, round(self.share * n))))


@method("deepconf-mean")
class DeepConfMean(_DeepConf):
    """Mean confidence of the trace's tokens; learns nothing."""

    def statistic(self, confidence: FloatArray) -> float:
        """Mean over all tokens."""
        return float(confidence.mean())


@method("deepconf-tail")
class DeepConfTail(_Windowed):
    """Mean confidence of the trace's last tokens; learns nothing."""

    def statistic(self, confidence: FloatArray) -> float:
        """Mean over the last window."""
        return float(confidence[-self.window(len(confidence)) :].mean())


@method("deepconf-lowest")
class DeepConfLowest(_Windowed):
    """Mean confidence of the trace's least confident group of neighbouring tokens; learns nothing."""

    def statistic(self, confidence: FloatArray) -> float:
        """Smallest mean over a window."""
        width = self.window(len(confidence))
        sums = np.cumsum(np.concatenate([[0.0], confidence]))
        return float((sums[width:] - sums[:-width]).min() / width)
