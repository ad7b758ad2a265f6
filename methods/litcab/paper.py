"""The constants of LitCab, each with its source, and the presets made of them; the diff between presets is the code.

Sources: "paper" is arXiv:2505.21772, whose baseline this is; "code" is what the authors of LitCab (arXiv:2310.19208)
released as github.com/launchnlp/LitCab; methods.md §n is this project's account of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True)
class Settings:
    """Everything about LitCab that can be set; the names are the arguments of `LitCab`."""

    relu_input: bool = False
    """Give the layer ReLU(h) instead of h. Paper, baseline appendix: h; code: ReLU(h) (methods.md §2.7, §6 #60)."""
    cap: float = 3.0
    """Nats of mean cross-entropy beyond which wrong answers are no longer pushed away. Code (methods.md §2.7)."""
    penalty: float = 0.01
    """Factor of the norm of the weights in the loss. Code (methods.md §2.7)."""
    negatives: int | None = None
    """Wrong options per question, drawn once; None: all. CHOSEN: all (methods.md §0.8); code: 3 (methods.md §2.7)."""
    steps: int = 10_000
    """At most. Paper, Training Details (methods.md §2.0, §0.19)."""
    batch_size: int = 32
    """Questions per step at most. Paper, Training Details; code: at least 128 (methods.md §2.7)."""
    learning_rate: float = 1e-4
    """Constant. Paper, Training Details; code: 5e-6 (methods.md §2.7)."""
    weight_decay: float = 0.1
    """Of AdamW, betas 0.9 and 0.999. Paper, Training Details; code: 0.01 (methods.md §2.7)."""


PAPER = Settings()
REFCODE = replace(PAPER, relu_input=True, negatives=3, batch_size=128, learning_rate=5e-6, weight_decay=0.01)
FIXED = replace(PAPER)
DEMO = FIXED

PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        name: MappingProxyType(asdict(settings))
        for name, settings in {"paper": PAPER, "refcode": REFCODE, "fixed": FIXED, "demo": DEMO}.items()
    }
)
"""Preset name -> arguments of `LitCab`."""

NOT_REPRODUCED: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "paper": (
            "Its own publication's training: the paper's one budget for all methods is taken (methods.md §6 #52).",
            "A max-margin loss: the code's capped difference of cross-entropies is taken (methods.md §6 #59).",
        ),
        "refcode": (
            "A random initial bias, and scoring without a bias (methods.md §6 #60).",
            "Twenty epochs with the best validation step kept: the paper's steps to their end (methods.md §2.7).",
        ),
    }
)
"""Preset -> what its source does and this one does not."""
