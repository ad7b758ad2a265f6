"""RAUQ: token probabilities, passed on from token to token by an attention head (docs/methods.md §2.28).

Example: tokens of probability 0.9 and 0.5, and an attention weight of 0.4 between them: the confidences of the tokens
are 0.9 and 0.2 * 0.5 + 0.8 * 0.4 * 0.9 = 0.388, and the score is the mean of their logarithms, -0.53.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.api import (
    AttentionRows,
    Batch,
    ConfidenceMethod,
    FloatArray,
    Format,
    Needs,
    RunFacts,
    TokenScores,
    Unembedding,
    UserError,
    method,
)

_TINY = float(np.finfo(np.float32).tiny)  # an attention weight below it is 0 in float32


@method("rauq")
@dataclass(kw_only=True, eq=False)
class RAUQ(ConfidenceMethod):
    """Mean log-confidence of the answer's tokens in the least sure middle layer; learns nothing.

    Vazhentsev et al., 2025, "Uncertainty-Aware Attention Heads". The confidence of a token mixes its own probability
    with the confidence of the token before it, weighted by one attention head of the layer. The value is that of
    LM-Polygraph 0.7.0 but for its constant 1 and for the end-of-sequence token, which is not counted here.
    """

    reference = "arXiv:2505.20045"
    needs = Needs(predict=frozenset({AttentionRows(), TokenScores()}))
    output = "score"

    alpha: float = 0.2
    """Weight of a token's own probability. arXiv:2505.20045 for questions and answers, and LM-Polygraph 0.7.0 for base
    models; it has 0.5 for instruction-tuned ones."""
    by: Literal["probability", "entropy"] = "probability"
    """What a token counts by itself: its probability, or log |V| less the entropy. arXiv:2505.20045 v1: probability;
    its later version and LM-Polygraph 0.7.0 have the entropy too, with an `alpha` of 0.8 or 0.9."""
    entry: Literal["itself", "before"] = "itself"
    """Attention weight between a token and the one before it. Code of LM-Polygraph 0.7.0, with which the published
    numbers were made: the weight of the token before on `itself`, as it predicts the token. Text of arXiv:2505.20045:
    the weight of the token on the one `before`."""

    def reads(self) -> Needs:
        """The signals of `needs`, and the output head for the vocabulary's size if tokens count by their entropy."""
        size = {Unembedding()} if self.by == "entropy" else set()
        return Needs(predict=type(self).needs.predict | size)

    def skip(self, facts: RunFacts) -> str | None:
        """Letters are refused: of one token the score is its log-probability."""
        return (
            None
            if facts.format is Format.OPEN
            else ("an answer of one token has no token before it: its score is the log-probability, as perplexity's")
        )

    def predict(self, batch: Batch) -> FloatArray:
        """Mean log-confidence in nats, `(n,)` float64: at most 0, unless tokens count by their entropy."""
        if not 0 <= self.alpha <= 1:
            raise UserError(f"rauq.alpha: expected a number from 0 to 1, got {self.alpha}")
        if self.by not in {"probability", "entropy"} or self.entry not in {"itself", "before"}:
            raise UserError(
                f"rauq: expected by=probability or entropy and entry=itself or before, got {self.by!r} and"
                f" {self.entry!r}"
            )
        scores, attention = batch[TokenScores()], batch[AttentionRows()]
        own = scores.values["log_probability"].astype(np.float64)
        if self.by == "entropy":
            certain = math.log(len(batch[Unembedding()].weight)) - scores.values["entropy"].astype(np.float64)
            own = np.log(np.maximum(certain, _TINY))
        layers = attention.values["itself"].shape[1]
        middle = slice(layers // 3, math.ceil(2 * layers / 3) + 1)
        found = []
        for start, stop in zip(attention.offsets[:-1], attention.offsets[1:], strict=True):
            weights = attention.values[start:stop][self.entry][:, middle]  # (L, layers, heads)
            weights = weights[:-1] if self.entry == "itself" else weights[1:]  # between tokens i - 1 and i
            found.append(token_confidences(own[start:stop], weights, self.alpha).mean(axis=0).min())
        return np.asarray(found)


def token_confidences(own: FloatArray, weights: FloatArray, alpha: float) -> FloatArray:
    """Return the logarithm of each token's confidence in each layer, `(L, layers)`, float64.

    Args:
        own: `(L,)` logarithms of what the tokens count by themselves.
        weights: `(L - 1, layers, heads)` attention weight of each head between a token and the next one; in each layer
            the head with the largest mean is taken.
        alpha: weight of `own`.
    """
    with np.errstate(divide="ignore"):  # log 0 is -inf, a share of nothing
        log_alpha, log_rest = np.log([alpha, 1 - alpha])
    confidences = [np.full(weights.shape[1], own[0])]
    if len(weights):
        head = weights.astype(np.float64).mean(axis=0).argmax(axis=-1)
        chosen = np.log(np.maximum(np.take_along_axis(weights, head[None, :, None], axis=2)[:, :, 0], _TINY))
        for value, weight in zip(own[1:], chosen.astype(np.float64), strict=True):
            confidences.append(np.logaddexp(log_alpha + value, log_rest + weight + confidences[-1]))
    return np.asarray(confidences)
