"""P(True): probability of "yes" after the self-check query, whether the answer is correct.

Kadavath et al., 2022, "Language Models (Mostly) Know What They Know", arXiv:2207.05221; docs/methods.md §2.0 and §2.1.
The protocol fixes the query's wording and its place in the conversation.
"""

from __future__ import annotations

import numpy as np

from bench.api import Batch, ConfidenceMethod, FloatArray, Needs, QueryLogits, method


@method("ptrue")
class PTrue(ConfidenceMethod):
    """P(True): softmax over the logits of no and yes after the self-check query; learns nothing."""

    reference = "arXiv:2207.05221"
    needs = Needs(predict=frozenset({QueryLogits()}))

    def predict(self, batch: Batch) -> FloatArray:
        """Probability of yes after the self-check query, `(n,)` float64."""
        logits = batch[QueryLogits()].astype(np.float64)  # (n, 2): no, yes
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights[:, 1] / weights.sum(axis=1))
