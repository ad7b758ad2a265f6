"""CT: the model is tuned to say whether its answer is right, and held to its old self where it answers.

Kapoor et al., 2024, "Large Language Models Must Be Taught to Know What They Don't Know", arXiv:2406.08391; methods.md
§2.6. The answers stay the frozen model's; the adapter is on for the query alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from bench.api import (
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
    UserError,
    method,
)
from methods._shared.lora import DIVERGENCES, n_lora_parameters, probability_of_yes, train_adapter
from methods._shared.training import check_fitted
from methods.ct.paper import FIXED, NOT_REPRODUCED, PRESETS

_QUERY, _PROMPT, _GOLD = TokenIds(Of.QUERY), TokenIds(Of.PROMPT), TokenIds(Of.GOLD)
_VERDICT = QueryLogits(Adapter.OWN)


@method("ct")
class CT(ConfidenceMethod):
    """LoRA tuned to judge the answer, with a penalty for changing what the model would answer; needs labels."""

    reference: ClassVar[str] = "arXiv:2406.08391"
    needs: ClassVar[Needs] = Needs(fit=frozenset({_QUERY, _PROMPT, _GOLD}), predict=frozenset({_VERDICT}))
    presets: ClassVar[Mapping[str, Preset]] = PRESETS
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = NOT_REPRODUCED

    def __init__(  # noqa: PLR0913 -- one argument per field of paper.Settings, where each is explained
        self,
        *,
        divergence: Literal["jsd", "forward_kl", "reverse_kl"] = FIXED.divergence,
        divergence_weight: float = FIXED.divergence_weight,
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
        self.divergence: Literal["jsd", "forward_kl", "reverse_kl"] = divergence
        self.divergence_weight = divergence_weight
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

    def fit(self, train: Batch, ctx: Context) -> CT:
        """Train the adapter; it stays in the cache and is kept here by its folder.

        Raises:
            UntrainableError: all labels are equal.
            UserError: an unknown divergence, or training failed.
        """
        if self.divergence not in DIVERGENCES:
            raise UserError(f"ct.divergence: expected one of {', '.join(DIVERGENCES)}, got {self.divergence!r}.")
        self.adapter_ = train_adapter(self, train, ctx, "ct_loss", (Of.QUERY, Of.PROMPT, Of.GOLD))
        return self

    def predict(self, batch: Batch) -> FloatArray:
        """Probability of yes through the adapter, shape (n,), float64."""
        check_fitted(self)
        return probability_of_yes(batch[_VERDICT])

    def n_parameters(self, facts: RunFacts) -> int:
        """Rank x (inputs + outputs) of the adapted layers."""
        return n_lora_parameters(facts, self.rank, self.target_modules)
