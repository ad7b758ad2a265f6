"""The constants of CCPS, each with its source, and the presets made of them; the diff between presets is the code.

Sources: "paper" is arXiv:2505.21772; "code" is what the authors' repository github.com/ledengary/CCPS executes;
methods.md §n is this project's account of both. CHOSEN marks what neither gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True)
class Settings:
    """Everything about CCPS that can be set; the names are the arguments of `Ccps`."""

    radius: float = 20.0
    """Largest perturbation eps_max, absolute. Paper, Method; code: README (methods.md §2.8, §2.13)."""
    steps: int = 5
    """Number S of equal steps up to the radius. Paper, Method (methods.md §2.8)."""
    js: Literal["true", "ref"] = "true"
    """Jensen-Shannon divergence. Paper, feature appendix; the code averages the reversed halves (methods.md §6 #27)."""
    eps_flip: Literal["grid", "exact"] = "grid"
    """How epsilon-to-flip is found. Code: first grid point (methods.md §6 #25)."""
    eps_relative: bool = False
    """Radius in units of the state's norm. Paper and code: no (methods.md §2.8)."""
    entropy_epsilon: float = 0.0
    """Added inside the entropy's logarithm. Paper, feature appendix: nothing; code: 1e-6 (methods.md §3 #6)."""
    unflipped_at_test: float | None = None
    """Epsilon-to-flip of a single-token test answer that never flips; None: the radius, as in training. Code: 0
    (methods.md §6 #21)."""
    max_tokens: int = 30
    """Answer tokens an open answer is cut or padded to. Paper, architecture appendix (methods.md §2.10)."""
    pool_mask: bool = False
    """Keep padding out of the pool over tokens. Code: padding takes part (methods.md §6 #70)."""
    encoder_channels: tuple[int, ...] = (64, 32)
    """Convolutions of the open-ended encoder. Paper, architecture appendix; code: 64, 32, 16 (methods.md §6 #14)."""
    contrastive_dropout: float = 0.0
    """Dropout in the encoder, contrastive stage. Paper: none mentioned; code: 0.05 (methods.md §2.12)."""
    classifier_dropout: float = 0.0
    """Dropout in the encoder, classification stage. Paper: none mentioned; code: 0.1 (methods.md §2.12)."""
    classifier_dropout_open: float = 0.0
    """The same for open answers. Paper: none mentioned; code: 0.2 (methods.md §2.12)."""
    margin: float = 1.0
    """Margin gamma of the contrastive loss. Paper: unspecified; code: 1.0 (methods.md §2.11)."""
    optimiser: Literal["adamw", "adam"] = "adamw"
    """Paper, Training Details: AdamW; code: Adam with L2 (methods.md §6 #11)."""
    weight_decay: float = 0.1
    """Paper, Training Details: 0.1; code: 0.01 (methods.md §6 #11)."""
    learning_rate: float = 1e-4
    """Classification stage, constant. Paper, Training Details (methods.md §2.12)."""
    contrastive_learning_rate: float = 1e-4
    """Contrastive stage, constant. Paper, Training Details (methods.md §2.12)."""
    contrastive_learning_rate_open: float = 1e-4
    """The same for open answers. Paper, Training Details; code: 1e-3 (methods.md §6 #13)."""
    batch_size: int = 32
    """Classification stage. Paper, Training Details (methods.md §2.12)."""
    contrastive_batch_size: int = 32
    """Contrastive stage, single-token answers. Paper, Training Details; code: 64 (methods.md §6 #12)."""
    contrastive_batch_size_open: int = 32
    """The same for open answers. Paper, Training Details; code: 32 (methods.md §2.12)."""
    contrastive_steps: int = 5000
    """At most. Paper, Training Details (methods.md §2.12, §0.19)."""
    classifier_steps: int = 5000
    """At most. Paper, Training Details (methods.md §2.12, §0.19)."""


PAPER = Settings()
REFCODE = replace(
    PAPER,
    js="ref",
    entropy_epsilon=1e-6,
    unflipped_at_test=0.0,
    encoder_channels=(64, 32, 16),
    contrastive_dropout=0.05,
    classifier_dropout=0.1,
    classifier_dropout_open=0.2,
    optimiser="adam",
    weight_decay=0.01,
    contrastive_learning_rate_open=1e-3,
    contrastive_batch_size=64,
)
FIXED = replace(PAPER)
DEMO = FIXED

PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        name: MappingProxyType(asdict(settings))
        for name, settings in {"paper": PAPER, "refcode": REFCODE, "fixed": FIXED, "demo": DEMO}.items()
    }
)
"""Preset name -> arguments of `Ccps`."""

NOT_REPRODUCED: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "paper": (
            (
                "A hinge on the difference of two distances over pairs of one question: there is one graded answer to a"
                " question, so the code's loss over random pairs stands for it (methods.md §2.11, §6 #8, #9, #10)."
            ),
            "PEI as total normalised drop: the code's mean drop over the steps is taken (methods.md §6 #26).",
            "Epsilon-to-flip from the answer's token: the code's, from the first choice, is taken (methods.md §6 #25).",
        ),
        "refcode": (
            "Half-precision arithmetic (methods.md §6 #24).",
            "A second begin token, and answers that are tokenised again (methods.md §6 #33, #34).",
            "A tenth of the training rows, drawn by tokens, kept from training (methods.md §6 #18, #19).",
        ),
    }
)
"""Preset -> what its source does and this one does not."""
