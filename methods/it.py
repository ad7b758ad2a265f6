"""IT: LoRA tuning to judge the own answer, by next-token cross-entropy on the verdict.

The instruction-tuning baseline of Kapoor et al., 2024, "Large Language Models Must Be Taught to Know What They Don't
Know", arXiv:2406.08391; docs/methods.md §2.5. The answers stay the frozen model's; the adapter is on for the query
alone.
"""

from __future__ import annotations

from typing import Self

from bench.api import Batch, Context, Needs, Of, TokenIds, method
from methods._shared.lora import VERDICT, LoraMethod, train_adapter

_QUERY = TokenIds(Of.QUERY)


@method("it")
class IT(LoraMethod):
    """LoRA tuned to answer the self-check query, whether the answer is right; needs labels."""

    needs = Needs(fit=frozenset({_QUERY}), predict=frozenset({VERDICT}))

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Train the adapter; `adapter_` refers to its folder in the cache.

        Raises:
            UserError: training failed.
        """
        self.adapter_ = train_adapter(self, train, ctx, "it_loss")
        return self
