"""Logistic probe: penalised logistic regression of correctness on one hidden state.

Alain and Bengio, 2016, "Understanding intermediate layers using linear classifier probes", arXiv:1610.01644;
docs/methods.md §2.41.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from bench.api import At, Batch, Context, FloatArray, Hidden, Needs, RunFacts, method
from methods._shared.logistic import Arrays, HiddenStateMethod, logistic_path, probability, regression

_STATE = frozenset({Hidden(1.0, At.ANSWER_END)})


def logistic_confidence(arrays: Arrays, states: FloatArray) -> FloatArray:
    """Probability that each answer is right, `(n,)`, from states `(n, d)`."""
    return probability(regression(arrays, states))


@method("logistic-probe")
@dataclass(kw_only=True, eq=False)
class LogisticProbe(HiddenStateMethod):
    """A penalised logistic regression on a hidden state of any layer; needs labels."""

    reference = "arXiv:1610.01644"
    needs = Needs(fit=_STATE, predict=_STATE)
    formula = (logistic_confidence,)

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the regression on the labels.

        Raises:
            UserError: hidden states are not finite.
        """
        return self.select_penalty(ctx, logistic_path(self.name, train[self.state], train.correct))

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of learned parameters, d + 1 for hidden size d: one weight per dimension, and a bias."""
        return facts.model.hidden_size + 1
