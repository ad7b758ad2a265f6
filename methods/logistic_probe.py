"""Logistic probe: a penalised logistic regression on one hidden state says whether the answer is right.

Alain and Bengio, 2016, "Understanding intermediate layers using linear classifier probes", arXiv:1610.01644;
docs/methods.md §2.41.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from bench.api import At, Batch, Context, FloatArray, Hidden, Needs, RunFacts, method
from methods._shared.logistic import Arrays, Penalised, Regression, log_odds, probability, state_at
from methods._shared.training import check_labels

_DEFAULT = frozenset({Hidden(0.5, At.ANSWER_END)})


@method("logistic-probe")
@dataclass(kw_only=True, eq=False)
class LogisticProbe(Penalised):
    """A penalised logistic regression on a hidden state of any layer; needs labels."""

    reference: ClassVar[str] = "arXiv:1610.01644"
    needs: ClassVar[Needs] = Needs(fit=_DEFAULT, predict=_DEFAULT)

    depth: float = 0.5
    """Layer as a fraction of the model's blocks. CHOSEN: the middle (docs/methods.md §2.41)."""
    position: Literal["prompt_end", "answer_end", "query_end"] = "answer_end"
    """Token whose state is read. CHOSEN: SAPLMA's (docs/methods.md §2.41)."""

    def reads(self) -> Needs:
        """The state that the arguments ask for."""
        signals = frozenset({state_at(self.name, self.depth, self.position)})
        return Needs(fit=signals, predict=signals)

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the regression on the labels.

        Raises:
            UntrainableError: all labels are equal.
            UserError: states that are not finite.
        """
        check_labels(self.name, train.correct)
        states = train[state_at(self.name, self.depth, self.position)]  # (n, d)
        return self.choose(ctx, Regression(self.name, states, train.correct))

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Sigmoid of the regression."""
        return probability(log_odds(self.name, arrays, batch[state_at(self.name, self.depth, self.position)]))

    def n_parameters(self, facts: RunFacts) -> int:
        """Weights and a bias, d + 1."""
        return facts.model.hidden_size + 1
