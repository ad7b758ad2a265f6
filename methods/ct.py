"""CT: LoRA tuning to judge the model's own answer, regularised towards the frozen model's answers.

Kapoor et al., 2024, "Large Language Models Must Be Taught to Know What They Don't Know", arXiv:2406.08391;
docs/methods.md §2.6. The frozen model gives the answers. The adapter is active only when the self-check query is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from bench.api import Batch, Context, Needs, Of, TokenIds, UserError, method
from methods._shared.lora import DIVERGENCES, VERDICT, LoraMethod, train_adapter

_QUERY, _PROMPT, _GOLD = TokenIds(Of.QUERY), TokenIds(Of.PROMPT), TokenIds(Of.GOLD)


@method("ct")
@dataclass(kw_only=True, eq=False)
class CT(LoraMethod):
    """Calibration tuning (CT): LoRA that judges the answer, penalised if the model's answers change; needs labels."""

    needs = Needs(fit=frozenset({_QUERY, _PROMPT, _GOLD}), predict=frozenset({VERDICT}))
    not_reproduced: ClassVar[Mapping[str, Sequence[str]]] = {
        **LoraMethod.not_reproduced,
        "refcode": (
            *LoraMethod.not_reproduced["refcode"],
            "A mask that covers part of the prompt for Llama 3 (docs/methods.md §6 #58).",
        ),
    }

    divergence: Literal["jsd", "forward_kl", "reverse_kl"] = "jsd"
    """Divergence from the frozen model, at the tokens of the gold answer. Code: kl_type (docs/methods.md §6 #56)."""
    divergence_weight: float = 1.0
    """Factor lambda of the divergence in the loss. Code: README (its default is 0); the paper names none
    (docs/methods.md §6 #56)."""

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Train the adapter, and set `adapter_`, a reference to the adapter's folder in the cache.

        Raises:
            UserError: an unknown divergence, or training failed.
        """
        if self.divergence not in DIVERGENCES:
            raise UserError(f"ct.divergence: expected one of {', '.join(DIVERGENCES)}, got {self.divergence!r}.")
        self.adapter_ = train_adapter(self, train, ctx, "ct_loss", (Of.QUERY, Of.PROMPT, Of.GOLD))
        return self
