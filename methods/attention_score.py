"""Attention score: how much the answer's tokens attend to themselves, in one layer (docs/methods.md §2.46).

Example: in a layer of one head, two tokens whose weights on themselves are 0.5 and 0.2 score ln(0.1) / 2 = -1.15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from bench.api import AttentionRows, Batch, ConfidenceMethod, Context, FloatArray, Needs, RunFacts, UserError, method
from methods._shared.logistic import log_odds, logistic_path, probability
from methods._shared.tokens import mean_over_tokens
from methods._shared.training import check_fitted

_ROWS = frozenset({AttentionRows()})
_TINY = np.finfo(np.float32).tiny  # a weight below it is 0 in float32


@method("attention-score")
@dataclass(kw_only=True, eq=False)
class AttentionScore(ConfidenceMethod):
    """Logarithm of the attention weights of answer tokens on themselves, whose sign is learned on validation.

    Sriramanan et al., NeurIPS 2024, "LLM-Check"; there is no arXiv number. The sum of the logarithms is that of the
    determinant of the attention matrix. The paper's table gives hallucinations the larger values, its notebook and
    LM-Polygraph 0.7.0 the smaller ones, so a logistic regression of correctness on the score decides.
    """

    reference = "doi:10.52202/079017-1077"
    needs = Needs(fit=_ROWS, predict=_ROWS)
    fit_on = "validation"
    draws = False

    layer: float = 0.5
    """Layer as a fraction of those with attention. LM-Polygraph 0.7.0; the paper's best is about two thirds."""
    over: Literal["mean", "sum"] = "mean"
    """Mean over tokens of the sum over heads, or sum over tokens of the mean over heads. The paper's code: mean.
    LM-Polygraph 0.7.0: sum, which follows the answer's length."""
    penalty: float = 1.0
    """Penalty on the slope of the regression. CHOSEN: keeps it finite if the score separates the classes."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit sign, slope and offset on the labels.

        Raises:
            UserError: an argument is out of range.
        """
        del ctx
        self.map_ = logistic_path(self.name, self.score(train)[:, None], train.correct)(self.penalty)
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that each answer is right, `(n,)` float64."""
        check_fitted(self)
        return probability(log_odds(self.name, self.map_, self.score(batch)[:, None]))

    def score(self, batch: Batch) -> FloatArray:
        """Logarithm of the weights on themselves, `(n,)` float64, without a sign that says which is surer."""
        if not 0 <= self.layer < 1 or self.over not in {"mean", "sum"} or not self.penalty > 0:
            raise UserError(
                "attention-score: expected layer from 0 to below 1, over=mean or sum and a positive penalty, got"
                f" {self.layer}, {self.over!r} and {self.penalty}"
            )
        rows = batch[AttentionRows()]
        weights = rows.values["itself"]  # (sum of L, layers, heads)
        logs = np.log(np.maximum(weights[:, int(self.layer * weights.shape[1])], _TINY).astype(np.float64))
        if self.over == "mean":
            return mean_over_tokens(rows, logs.sum(axis=1))
        return mean_over_tokens(rows, logs.mean(axis=1)) * rows.lengths

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of learned parameters: slope and offset."""
        del facts
        return 2
