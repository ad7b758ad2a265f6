"""A method that learns: a probe on a hidden state, fitted to the labels (right or wrong) of a train split's answers."""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bench.api import At, Batch, ConfidenceMethod, Context, FloatArray, Hidden, Needs, RunFacts, method

STATE = Hidden(1.0, At.ANSWER_END)  # which layer, as a share of the depth, and at which token


@method("my-method")
@dataclass(kw_only=True, eq=False)
class MyMethod(ConfidenceMethod):
    """Logistic regression on the final hidden state of the answer's last token."""

    needs = Needs(fit=frozenset({STATE}), predict=frozenset({STATE}))  # all that it reads: see docs/signals.md
    draws = False  # `fit` draws nothing at random; without this line two seeds must differ

    strength: float = 0.01
    """Inverse of the penalty (C). CHOSEN: few answers, many inputs."""  # where each value is from

    def fit(self, train: Batch, ctx: Context) -> MyMethod:
        """Fit the probe; names of learned attributes end in an underscore."""
        # a fit that draws at random gets its numbers from `ctx.rng`, or from `random_state=ctx.seed % 2**32`
        self.probe_ = make_pipeline(StandardScaler(), LogisticRegression(C=self.strength, max_iter=1_000))
        self.probe_.fit(train[STATE], train.correct)
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that the answer is right, shape (n,); it may depend on no other answer of the batch."""
        return self.probe_.predict_proba(batch[STATE])[:, 1]

    def n_parameters(self, facts: RunFacts) -> int:
        """One weight for each dimension of the state, and a bias."""
        return facts.model.hidden_size + 1
