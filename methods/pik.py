"""P(IK): a linear probe on the prompt's last hidden state says whether the model will answer correctly.

Kadavath et al., 2022, "Language Models (Mostly) Know What They Know", arXiv:2207.05221; docs/methods.md §2.3. The label
is whether the one greedy answer was right, where Kadavath et al. took the share of right ones among many samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from bench.api import At, Batch, ConfidenceMethod, Context, FloatArray, Hidden, Needs, Preset, RunFacts, Search, method
from methods._shared.probe import ProbeSettings, n_parameters, predict_probe, train_probe
from methods._shared.training import RATE_AND_DECAY, check_fitted

_STATE = Hidden(1.0, At.PROMPT_END)


@method("pik")
@dataclass(kw_only=True, eq=False)
class PIK(ConfidenceMethod):
    """A linear probe on the state that is about to answer, before any answer is seen; needs labels.

    In the sources of its constants, "paper" is arXiv:2505.21772, whose baseline this is.
    """

    reference: ClassVar[str] = "arXiv:2207.05221"
    needs: ClassVar[Needs] = Needs(fit=frozenset({_STATE}), predict=frozenset({_STATE}))
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {"standardise": False},
        "refcode": {"standardise": False},  # the official repository holds no baseline (docs/methods.md, Sources)
        "fixed": {},
        "demo": {},
    }
    small: ClassVar[Mapping[str, object]] = {"steps": 200, "learning_rate": 1e-2}
    search: ClassVar[Mapping[str, Search]] = RATE_AND_DECAY
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        "paper": (
            "Its own publication's training: the paper's one budget for all methods is taken (docs/methods.md §6 #52).",
        ),
        "refcode": ("There is no official code of this baseline: these are the paper's values.",),
    }

    steps: int = 10_000
    """Most steps. Paper, Training Details (docs/methods.md §2.0, §0.19)."""
    batch_size: int = 32
    """Most rows in a step. Paper, Training Details (docs/methods.md §2.0, §0.19)."""
    learning_rate: float = 1e-4
    """Constant. Paper, Training Details (docs/methods.md §2.0); its schedule is unspecified."""
    weight_decay: float = 0.1
    """Weight decay of AdamW, betas 0.9 and 0.999. Paper, Training Details (docs/methods.md §2.0, §0.8)."""
    standardise: bool = True
    """Inputs to mean 0 and deviation 1 over the training rows. Paper: not mentioned; on in fixed
    (docs/methods.md §0.8)."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Train the probe on the labels of the greedy answers.

        Raises:
            UserError: states that are not finite.
        """
        settings = ProbeSettings(
            (), self.steps, self.batch_size, self.learning_rate, self.weight_decay, self.standardise
        )
        self.weights_ = train_probe(self.name, train, lambda batch: batch[_STATE], settings, ctx)
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that the answer to come is right, shape (n,), float64."""
        check_fitted(self)
        return predict_probe(self.name, self.weights_, batch[_STATE])

    def n_parameters(self, facts: RunFacts) -> int:
        """2 d + 2."""
        return n_parameters(facts.model.hidden_size, ())
