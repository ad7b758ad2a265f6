"""Trace probe: penalised logistic regression on the states at the ends of a trace's lines (docs/methods.md §2.47)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from bench.api import At, Batch, Context, FloatArray, Hidden, Needs, RunFacts, UntrainableError, method
from methods._shared.logistic import Arrays, PenalisedMethod, log_odds, logistic_path, probability

_STATE = frozenset({Hidden(1.0, At.STEP_END)})


@method("trace-probe")
@dataclass(kw_only=True, eq=False)
class TraceProbe(PenalisedMethod):
    """Mean over a trace's lines of a linear probe's log odds that the answer will be right; needs labels.

    After Zhang et al., 2025, "Reasoning Models Know When They're Right", whose chunks are labelled by their own
    intermediate answers; here every line has the label of the final answer, and the whole trace is judged.
    """

    reference = "arXiv:2504.05419"
    needs = Needs(fit=_STATE, predict=_STATE)

    depth: float = 1.0
    """Layer as a fraction of the model's blocks. CHOSEN: the last, as in the paper (docs/methods.md §2.47)."""

    def reads(self) -> Needs:
        """Signals to read: states at the ends of lines, of the layer at `depth`."""
        state = frozenset({Hidden(self.depth, At.STEP_END)})
        return Needs(fit=state, predict=state)

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the regression, each line with the label of its answer.

        Raises:
            UntrainableError: only right or only wrong answers have traces with lines, or none has.
            UserError: hidden states are not finite.
        """
        states = train[Hidden(self.depth, At.STEP_END)]
        labels = np.repeat(train.correct, states.lengths)
        if labels.all() or not labels.any():
            raise UntrainableError(
                f"{self.name}: expected lines of traces before right and before wrong training answers, got"
                f" {labels.sum()} and {(~labels).sum()}"
            )
        path, rate = logistic_path(self.name, states.values, labels), np.asarray(train.correct.mean())
        return self.select_penalty(ctx, lambda penalty: {**path(penalty), "rate": rate})

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Probability that each answer is right, `(n,)`; without a trace the share of right training answers."""
        states = batch[Hidden(self.depth, At.STEP_END)]
        odds = log_odds(self.name, arrays, states.values)
        sums = np.bincount(np.repeat(np.arange(len(batch)), states.lengths), weights=odds, minlength=len(batch))
        means = probability(np.asarray(sums / np.maximum(1, states.lengths)))
        return np.where(states.lengths > 0, means, arrays["rate"])

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of learned parameters, d + 2 for hidden size d: weights, a bias, and the share of right answers."""
        return facts.model.hidden_size + 2
