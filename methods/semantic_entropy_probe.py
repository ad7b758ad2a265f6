"""Semantic entropy probe: a hidden state predicts whether sampled answers differ in meaning.

Kossen et al., 2024, arXiv:2406.15927; docs/methods.md §2.43.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from bench.api import At, Batch, Context, FloatArray, Hidden, Needs, Related, RunFacts, UntrainableError, method
from methods._shared.logistic import Arrays, HiddenStateMethod, apply_map, calibrated, logistic_path, regression
from methods._shared.meaning import semantic_entropy

_STATE = frozenset({Hidden(1.0, At.ANSWER_END)})
_RELATED = Related(question=True)


def low_entropy_confidence(arrays: Arrays, states: FloatArray) -> FloatArray:
    """Probability that each answer is right, `(n,)`, after calibration, from states `(n, d)`."""
    return apply_map(arrays, regression(arrays, states))


@method("semantic-entropy-probe")
@dataclass(kw_only=True, eq=False)
class SemanticEntropyProbe(HiddenStateMethod):
    """A logistic probe for low semantic entropy, mapped to a probability; needs labels, and samples in fit."""

    reference = "arXiv:2406.15927"
    needs = Needs(fit=_STATE | {_RELATED}, predict=_STATE)
    formula = (low_entropy_confidence,)

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the probe to the semantic entropy of training questions, and the map from scores to probabilities."""
        entropy = semantic_entropy(train[_RELATED]).round(9)
        states, low = train[self.state], entropy <= entropy_threshold(self.name, entropy)
        return self.select_penalty(ctx, calibrated(
            self.name, low, train.correct, lambda rows: logistic_path(self.name, states[rows], low[rows]),
            lambda arrays: regression(arrays, states),
        ))  # fmt: skip

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of learned parameters, d + 3 for hidden size d: weights, bias, and two of the calibration map."""
        return facts.model.hidden_size + 3


def entropy_threshold(who: str, entropy: FloatArray) -> float:
    """Return the threshold that splits entropies `(n,)` into low and high ones.

    It minimises the variance of the entropies within the two groups.

    Raises:
        UntrainableError: all entropies are equal.
    """
    cuts = np.unique(entropy)[:-1]
    if not len(cuts):
        raise UntrainableError(f"{who}: expected questions of different semantic entropy, all have {entropy[0]:.3g}")
    sides = [(entropy[entropy <= value], entropy[entropy > value]) for value in cuts]
    return float(cuts[np.argmin([low.var() * len(low) + high.var() * len(high) for low, high in sides])])
