"""Lookback Lens: logistic regression on how much each head attends to the prompt rather than to the answer.

Chuang et al., 2024, "Lookback Lens: Detecting and Mitigating Contextual Hallucinations in Large Language Models Using
Only Attention Maps", arXiv:2407.07071; docs/methods.md §2.45.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from bench.api import AttentionRows, Batch, Context, FloatArray, Needs, Of, RunFacts, TokenIds, UserError, method
from methods._shared.logistic import Arrays, PenalisedMethod, log_odds, logistic_path, probability

_READ = frozenset({AttentionRows(), TokenIds(Of.PROMPT)})


@method("lookback-lens")
@dataclass(kw_only=True, eq=False)
class LookbackLens(PenalisedMethod):
    """A penalised logistic regression on the lookback ratio of each attention head, over the answer; needs labels."""

    reference = "arXiv:2407.07071"
    needs = Needs(fit=_READ, predict=_READ)

    row: Literal["holding", "predicting"] = "holding"
    """Tokens whose attention is taken: the answer's, or those that predict them, as in the authors' code. CHOSEN: the
    answer's, which always have a token of the answer to attend to, themselves."""

    def reads(self) -> Needs:
        """The attention of the chosen tokens, and the prompts' tokens, for their number.

        Raises:
            UserError: `row` is unknown.
        """
        if self.row not in {"holding", "predicting"}:
            raise UserError(f"lookback-lens.row: expected holding or predicting, got {self.row!r}")
        read = frozenset({AttentionRows(self.row), TokenIds(Of.PROMPT)})
        return Needs(fit=read, predict=read)

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the regression on the labels."""
        return self.select_penalty(ctx, logistic_path(self.name, self.features(train), train.correct))

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Probability that each answer is right, `(n,)`, by the fitted regression."""
        return probability(log_odds(self.name, arrays, self.features(batch)))

    def features(self, batch: Batch) -> FloatArray:
        """Mean lookback ratio of each head over the answer's tokens, `(n, layers * heads)` float64.

        The ratio is a / (a + b), with the mean weight a on tokens of the prompt and b on those of the answer so far.
        """
        rows, prompts = batch[AttentionRows(self.row)], batch[TokenIds(Of.PROMPT)]
        itself, on_context, on_new = (rows.values[name].astype(np.float64) for name in ("itself", "prompt", "answer"))
        context = np.repeat(prompts.lengths, rows.lengths)[:, None, None]
        new = (np.arange(len(itself)) - np.repeat(rows.offsets[:-1], rows.lengths))[:, None, None] + 1
        if self.row == "predicting":  # the prompt's last token predicts the first one, and counts as new there
            first = new == 1
            on_context, on_new = np.where(first, on_context - itself, on_context), np.where(first, itself, on_new)
            context, new = context - first, np.maximum(new - 1, 1)
        on_context, on_new = np.maximum(on_context, 0) / np.maximum(context, 1), on_new / new
        ratios = on_context / np.maximum(on_context + on_new, np.finfo(np.float64).tiny)
        means = np.add.reduceat(ratios, rows.offsets[:-1], axis=0) / rows.lengths[:, None, None]
        return np.asarray(means.reshape(len(rows), math.prod(means.shape[1:])))

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of learned parameters: one weight for each attention head, and a bias."""
        return facts.model.n_heads + 1
