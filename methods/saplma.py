"""SAPLMA: a small MLP on the hidden state after the answer's last token says whether the answer is right.

Azaria and Mitchell, 2023, "The Internal State of an LLM Knows When It's Lying", arXiv:2304.13734; docs/methods.md §2.4.
Three registrations read three depths: the final state (F), the middle (M) and the upper middle (UM).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from bench.api import At, Batch, ConfidenceMethod, Context, FloatArray, Hidden, Needs, Preset, RunFacts, Search, method
from methods._shared.probe import ProbeSettings, n_parameters, predict_probe, train_probe
from methods._shared.training import RATE_AND_DECAY, check_fitted


@dataclass(kw_only=True, eq=False)
class Saplma(ConfidenceMethod):
    """An MLP on one hidden state of the answer; what it reads is the one signal in `needs`.

    In the sources of its constants, "paper" is arXiv:2505.21772, whose baseline this is, and "Kapoor" the code of
    arXiv:2406.08391.
    """

    reference: ClassVar[str] = "arXiv:2304.13734"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": {"standardise": False},
        # The official repository holds no baseline; Kapoor et al.'s probe is the nearest code (docs/methods.md §2.4).
        "refcode": {
            "steps": 5_000,
            "batch_size": 4,
            "weight_decay": 0.0,
            "standardise": False,
            "schedule": "cosine",
            "initialisation": "xavier",
        },
        "fixed": {},
        "demo": {},
    }
    small: ClassVar[Mapping[str, object]] = {"steps": 200, "learning_rate": 1e-2}
    search: ClassVar[Mapping[str, Search]] = RATE_AND_DECAY
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        "paper": (
            "Its own publication's training: the paper's one budget for all methods is taken (docs/methods.md §6 #52).",
        ),
        "refcode": (
            (
                "There is no official code of this baseline: these are the values of Kapoor et al.'s probe, which"
                " reads the final state alone (docs/methods.md §2.4)."
            ),
            "Four examples on each device: four in all (docs/methods.md §6 #53).",
        ),
    }

    hidden_layers: tuple[int, ...] = (256, 128, 64)
    """ReLU after each. Paper, baseline appendix (docs/methods.md §2.4); biases everywhere (docs/methods.md §6 #49)."""
    steps: int = 10_000
    """Most steps. Paper, Training Details (docs/methods.md §2.0, §0.19); Kapoor: 5,000."""
    batch_size: int = 32
    """Most rows in a step. Paper, Training Details (docs/methods.md §2.0, §0.19); Kapoor: 4 on each device."""
    learning_rate: float = 1e-4
    """Paper, Training Details; Kapoor: the same (docs/methods.md §2.0, §2.4)."""
    weight_decay: float = 0.1
    """Weight decay of AdamW, betas 0.9 and 0.999. Paper, Training Details; Kapoor: 0 (docs/methods.md §6 #51)."""
    standardise: bool = True
    """Inputs to mean 0 and deviation 1 over the training rows. Paper: not mentioned; on in fixed
    (docs/methods.md §0.8)."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Paper: unspecified (docs/methods.md §2.0); Kapoor: cosine (docs/methods.md §2.4)."""
    initialisation: Literal["uniform", "xavier"] = "uniform"
    """CHOSEN: torch's default, as the paper names none; Kapoor: Xavier's normal (docs/methods.md §2.4)."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Train the MLP on the labels.

        Raises:
            UserError: states that are not finite.
        """
        settings = ProbeSettings(**self.params())  # type: ignore[arg-type]  # the fields have the arguments' names
        self.weights_ = train_probe(self.name, train, self._states, settings, ctx)
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability that the answer is right, shape (n,), float64."""
        check_fitted(self)
        return predict_probe(self.name, self.weights_, self._states(batch))

    def n_parameters(self, facts: RunFacts) -> int:
        """256 d + 41,538 with the paper's layers."""
        return n_parameters(facts.model.hidden_size, self.hidden_layers)

    def _states(self, batch: Batch) -> FloatArray:
        (signal,) = self.needs.predict
        states: FloatArray = batch[signal]  # (n, d)
        return states


def _reading(depth: float) -> Needs:
    signals = frozenset({Hidden(depth, At.ANSWER_END)})
    return Needs(fit=signals, predict=signals)


@method("saplma-f")
class SaplmaF(Saplma):
    """An MLP on the final hidden state of the answer's last token; needs labels."""

    needs: ClassVar[Needs] = _reading(1.0)


@method("saplma-m")
class SaplmaM(Saplma):
    """An MLP on the middle hidden state of the answer's last token; needs labels."""

    needs: ClassVar[Needs] = _reading(0.5)


@method("saplma-um")
class SaplmaUM(Saplma):
    """An MLP on the upper-middle hidden state of the answer's last token; needs labels."""

    needs: ClassVar[Needs] = _reading(0.75)
