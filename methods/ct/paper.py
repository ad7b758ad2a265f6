"""The constants of CT, each with its source, and the presets made of them; the diff between presets is the code.

Sources: "paper" is arXiv:2505.21772, whose baseline this is; "code" is what the repository of Kapoor et al.
(arXiv:2406.08391), github.com/activatedgeek/calibration-tuning, executes; methods.md §n is this project's account of
both. CHOSEN marks what neither gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Literal

from bench.api import POINTS


@dataclass(frozen=True)
class Settings:
    """Everything about CT that can be set; the names are the arguments of `CT`."""

    divergence: Literal["jsd", "forward_kl", "reverse_kl"] = "jsd"
    """From the frozen model, on gold tokens. Code: kl_type (methods.md §6 #56)."""
    divergence_weight: float = 1.0
    """Lambda. Code: README (its default is 0); the paper names none (methods.md §6 #56)."""
    steps: int = 10_000
    """Paper, Training Details; code: 5,000 (methods.md §6 #53)."""
    batch_size: int = 32
    """Over all processes. Paper, Training Details; code: 4 on each device (methods.md §6 #53)."""
    learning_rate: float = 1e-4
    """Paper, Training Details; along a half cosine without warm-up, as the code (methods.md §0.8)."""
    weight_decay: float = 0.1
    """Of AdamW. Paper, Training Details; code: 0.0 (methods.md §6 #51)."""
    beta1: float = 0.9
    """Of AdamW. CHOSEN: torch's default, as the paper names none (methods.md §0.8)."""
    beta2: float = 0.999
    """Of AdamW. CHOSEN: as beta1 (methods.md §0.8)."""
    clip: float = 0.0
    """Longest gradient of a step; 0: none. Paper: unspecified; code: the trainer's default, 1.0 (methods.md §2.6)."""
    rank: int = 8
    """LoRA on query and value of every layer. Paper, parameter table; code: lora_rank (methods.md §2.6)."""
    alpha: int = 32
    """Code: lora_alpha (methods.md §2.5)."""
    dropout: float = 0.1
    """Code: lora_dropout (methods.md §2.5)."""
    points: int = POINTS
    """At which the loss on validation is taken. As every method (methods.md §0.20)."""
    published_steps: int = 10_000
    """Of the paper's training: where fewer are taken and the loss still falls, the result says "cut short"."""
    target_modules: str = ""
    """Last names of the layers to adapt, with commas between; CHOSEN: empty finds queries and values."""
    deepspeed: bool = True
    """ZeRO stage 2; off: plain torch does the same training. Paper, Training Details (methods.md §6 #54)."""


PAPER = Settings()
REFCODE = replace(PAPER, steps=5_000, batch_size=4, weight_decay=0.0, clip=1.0)  # on one device
FIXED = replace(PAPER)
DEMO = replace(FIXED, steps=40, learning_rate=3e-3, points=3)  # CHOSEN on validation (bench/DESIGN.md, 25)

PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        name: MappingProxyType(asdict(settings))
        for name, settings in {"paper": PAPER, "refcode": REFCODE, "fixed": FIXED, "demo": DEMO}.items()
    }
)
"""Preset name -> arguments of `CT`."""

NOT_REPRODUCED: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "paper": (
            "Its own publication's training: the paper's one budget for all methods is taken (methods.md §6 #52).",
        ),
        "refcode": (
            "A base model in 8 bits: it is read in the precision of the run (methods.md §6 #55).",
            "Plain text without a chat template, and a query with roman numerals (methods.md §2.0).",
            "Four examples on each device: four in all (methods.md §6 #53).",
            "A mask that covers part of the prompt for Llama 3 (methods.md §6 #58).",
        ),
    }
)
"""Preset -> what its source does and this one does not."""
