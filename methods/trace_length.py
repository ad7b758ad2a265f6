"""Trace length: minus the number of tokens of the reasoning before the answer (docs/methods.md §2.30).

Example: a trace of 120 tokens has the score -120.
"""

from __future__ import annotations

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, Of, TokenIds, method


@method("trace-length")
class TraceLength(ConfidenceMethod):
    """Minus the number of tokens of the trace: a model that reasons long is less sure; learns nothing.

    "Trace Length is a Simple Uncertainty Signal in Reasoning Models", 2025. A trace that its budget cut counts as long
    as the budget.
    """

    reference = "arXiv:2510.10409"
    needs = Needs(predict=frozenset({TokenIds(Of.TRACE)}))
    output = "score"

    def predict(self, batch: Batch) -> FloatArray:
        """Minus the number of tokens, `(n,)` float64; 0 for an answer without a trace."""
        return -np.asarray(batch[TokenIds(Of.TRACE)].lengths, dtype=np.float64)
