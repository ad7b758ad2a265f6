"""SAPLMA: a small MLP on the hidden state at the answer's last token predicts whether the answer is right.

Azaria and Mitchell, 2023, "The Internal State of an LLM Knows When It's Lying", arXiv:2304.13734; docs/methods.md §2.4.
Registered for three depths: the final layer (F), the middle (M) and the upper middle (UM).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from bench.api import At, Hidden, Needs, Preset, RunFacts, method
from methods._shared.probe import StateProbe, n_parameters


@dataclass(kw_only=True, eq=False)
class Saplma(StateProbe):
    """An MLP on one hidden state of the answer, the only signal in `needs`.

    In the sources of its constants, "paper" is arXiv:2505.21772, whose baseline this is, and "Kapoor" the code of
    arXiv:2406.08391.
    """

    reference = "arXiv:2304.13734"
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
    """Widths of the hidden layers, with ReLU after each. Paper, baseline appendix (docs/methods.md §2.4); biases
    everywhere (docs/methods.md §6 #49)."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Schedule of the learning rate. Paper: unspecified (docs/methods.md §2.0); Kapoor: cosine
    (docs/methods.md §2.4)."""
    initialisation: Literal["uniform", "xavier"] = "uniform"
    """Initial weights. CHOSEN: torch's default, as the paper names none; Kapoor: Xavier's normal
    (docs/methods.md §2.4)."""

    def n_parameters(self, facts: RunFacts) -> int:
        """Number of weights and biases, for hidden size d: 256 d + 41,538 with the paper's layers."""
        return n_parameters(facts.model.hidden_size, self.hidden_layers)


def _needs_at(depth: float) -> Needs:
    signals = frozenset({Hidden(depth, At.ANSWER_END)})
    return Needs(fit=signals, predict=signals)


@method("saplma-f")
class SaplmaF(Saplma):
    """Statement Accuracy Prediction based on Language Model Activations (SAPLMA), final layer; needs labels."""

    needs = _needs_at(1.0)


@method("saplma-m")
class SaplmaM(Saplma):
    """Statement Accuracy Prediction based on Language Model Activations (SAPLMA), middle layer; needs labels."""

    needs = _needs_at(0.5)


@method("saplma-um")
class SaplmaUM(Saplma):
    """Statement Accuracy Prediction based on Language Model Activations (SAPLMA), upper-middle layer; needs labels."""

    needs = _needs_at(0.75)
