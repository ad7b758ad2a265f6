"""IT: the model is tuned to say whether its answer is right, by plain next-token cross-entropy on the verdict.

The instruction-tuning baseline of Kapoor et al., 2024, "Large Language Models Must Be Taught to Know What They Don't
Know", arXiv:2406.08391; methods.md §2.5. The answers stay the frozen model's; the adapter is on for the query alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from bench.api import (
    POINTS,
    Adapter,
    Batch,
    ConfidenceMethod,
    Context,
    FloatArray,
    Needs,
    Of,
    Preset,
    QueryLogits,
    RunFacts,
    TokenIds,
    method,
)
from methods._shared.lora import n_lora_parameters, probability_of_yes, train_adapter
from methods._shared.training import check_fitted

_QUERY = TokenIds(Of.QUERY)
_VERDICT = QueryLogits(Adapter.OWN)


@dataclass(frozen=True)
class Settings:
    """The constants; "paper" is arXiv:2505.21772, whose baseline this is, "code" that of arXiv:2406.08391."""

    steps: int = 10_000
    """Paper, Training Details (methods.md §2.0)."""
    batch_size: int = 32
    """Paper, Training Details (methods.md §2.0)."""
    learning_rate: float = 1e-4
    """Paper, Training Details; along a half cosine without warm-up, as the code (methods.md §0.8)."""
    weight_decay: float = 0.1
    """Of AdamW. Paper, Training Details; code: 0.0 (methods.md §6 #51)."""
    beta1: float = 0.9
    """Of AdamW. CHOSEN: torch's default, as the paper names none (methods.md §0.8)."""
    beta2: float = 0.999
    """As beta1."""
    clip: float = 0.0
    """Longest gradient of a step; 0: none. Paper: unspecified; code: the trainer's default, 1.0 (methods.md §2.6)."""
    rank: int = 8
    """LoRA on query and value of every layer. Paper, parameter table; code: lora_rank (methods.md §2.5)."""
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
REFCODE = replace(PAPER, steps=5_000, batch_size=4, weight_decay=0.0, clip=1.0)  # code: README (methods.md §6 #53)
FIXED = replace(PAPER)
DEMO = replace(FIXED, steps=40, learning_rate=3e-3, points=3)  # CHOSEN on validation (bench/DESIGN.md, 25)


@method("it")
class IT(ConfidenceMethod):
    """LoRA tuned to say after the self-check query whether the answer is right; needs labels."""

    reference: ClassVar[str] = "arXiv:2406.08391"
    needs: ClassVar[Needs] = Needs(fit=frozenset({_QUERY}), predict=frozenset({_VERDICT}))
    presets: ClassVar[Mapping[str, Preset]] = MappingProxyType(
        {"paper": asdict(PAPER), "refcode": asdict(REFCODE), "fixed": asdict(FIXED), "demo": asdict(DEMO)}
    )
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType(
        {
            "paper": (
                "Its own publication's training: the paper's one budget for all methods is taken (methods.md §6 #52).",
            ),
            "refcode": (
                "A base model in 8 bits: it is read in the precision of the run (methods.md §6 #55).",
                "Plain text without a chat template, and a query with roman numerals (methods.md §2.0).",
                "Four examples on each device: four in all (methods.md §6 #53).",
            ),
        }
    )

    def __init__(  # noqa: PLR0913 -- one argument per field of Settings, where each is explained
        self,
        *,
        steps: int = FIXED.steps,
        batch_size: int = FIXED.batch_size,
        learning_rate: float = FIXED.learning_rate,
        weight_decay: float = FIXED.weight_decay,
        beta1: float = FIXED.beta1,
        beta2: float = FIXED.beta2,
        clip: float = FIXED.clip,
        rank: int = FIXED.rank,
        alpha: int = FIXED.alpha,
        dropout: float = FIXED.dropout,
        target_modules: str = FIXED.target_modules,
        points: int = FIXED.points,
        published_steps: int = FIXED.published_steps,
        deepspeed: bool = FIXED.deepspeed,
    ) -> None:
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.beta1 = beta1
        self.beta2 = beta2
        self.clip = clip
        self.rank = rank
        self.alpha = alpha
        self.dropout = dropout
        self.target_modules = target_modules
        self.points = points
        self.published_steps = published_steps
        self.deepspeed = deepspeed

    def fit(self, train: Batch, ctx: Context) -> IT:
        """Train the adapter; it stays in the cache and is kept here by its folder.

        Raises:
            UntrainableError: all labels are equal.
            UserError: training failed.
        """
        self.adapter_ = train_adapter(self, train, ctx, "it_loss")
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability of yes through the adapter, shape (n,), float64."""
        check_fitted(self)
        return probability_of_yes(batch[_VERDICT])

    def n_parameters(self, facts: RunFacts) -> int:
        """Rank x (inputs + outputs) of the adapted layers."""
        return n_lora_parameters(facts, self.rank, self.target_modules)
