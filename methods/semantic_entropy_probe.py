"""Semantic entropy probe: a hidden state foretells whether sampled answers would differ in meaning.

Kossen et al., 2024, "Semantic Entropy Probes: Robust and Cheap Hallucination Detection in LLMs", arXiv:2406.15927;
docs/methods.md §2.43.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from bench.api import At, Batch, Context, FloatArray, Hidden, Needs, Related, RunFacts, UntrainableError, method
from methods._shared.logistic import Arrays, Penalised, Regression, log_odds, mapped, state_at, through_map
from methods._shared.meaning import semantic_entropy
from methods._shared.training import check_labels

_DEFAULT = Hidden(0.5, At.ANSWER_END)


@method("semantic-entropy-probe")
@dataclass(kw_only=True, eq=False)
class SemanticEntropyProbe(Penalised):
    """A logistic probe for low semantic entropy, mapped to confidences; needs labels and samples."""

    reference: ClassVar[str] = "arXiv:2406.15927"
    needs: ClassVar[Needs] = Needs(fit=frozenset({_DEFAULT, Related()}), predict=frozenset({_DEFAULT}))

    depth: float = 0.5
    """Layer as a fraction of the model's blocks. CHOSEN: the middle (docs/methods.md §2.43)."""
    position: Literal["prompt_end", "answer_end", "query_end"] = "answer_end"
    """Token whose state is read. CHOSEN: the answer's last one (docs/methods.md §2.43)."""

    def reads(self) -> Needs:
        """The state that the arguments ask for, and in fit how samples are related."""
        state = state_at(self.name, self.depth, self.position)
        return Needs(fit=frozenset({state, Related()}), predict=frozenset({state}))

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Fit the probe on the entropies of the training answers' samples, and the map on the labels."""
        check_labels(self.name, train.correct)
        states, entropy = train[state_at(self.name, self.depth, self.position)], semantic_entropy(train[Related()])
        low = entropy <= threshold(self.name, entropy)
        learned = mapped(
            self.name,
            low,
            train.correct,
            lambda rows: Regression(self.name, states[rows], low[rows]),
            lambda arrays: log_odds(self.name, arrays, states),
        )
        return self.choose(ctx, learned)

    def confidence(self, arrays: Arrays, batch: Batch) -> FloatArray:
        """Probability by the map."""
        states = batch[state_at(self.name, self.depth, self.position)]  # (n, d)
        return through_map(self.name, arrays, log_odds(self.name, arrays, states))

    def n_parameters(self, facts: RunFacts) -> int:
        """Weights and a bias, d + 1, and the two numbers of the map."""
        return facts.model.hidden_size + 3


def threshold(who: str, entropy: FloatArray) -> float:
    """Largest of the low entropies `(n,)`: low and high ones vary least around their two means.

    Raises:
        UntrainableError: all are equal.
    """
    values = np.unique(entropy.round(9))
    if len(values) == 1:
        raise UntrainableError(
            f"{who}: expected questions of different semantic entropy, all have {values[0]:.3g} nats"
        )
    spread = [
        sum(part.var() * len(part) for part in (entropy[entropy <= v], entropy[entropy > v])) for v in values[:-1]
    ]
    return float(values[int(np.argmin(spread))])
