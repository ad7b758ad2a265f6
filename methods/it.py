"""IT: LoRA tuning to judge the model's own answer, by next-token cross-entropy on the verdict.

The instruction-tuning baseline of Kapoor et al., 2024, "Large Language Models Must Be Taught to Know What They Don't
Know", arXiv:2406.08391; docs/methods.md §2.5. The frozen model gives the answers. The adapter is active only when the
self-check query is read.
"""

from __future__ import annotations

from typing import Self

from bench.api import Batch, Context, Needs, Of, TokenIds, method
from methods._shared.lora import VERDICT, LoraMethod, train_adapter

_QUERY = TokenIds(Of.QUERY)


@method("it")
class IT(LoraMethod):
    """Instruction tuning (IT): LoRA tuned to answer the self-check query, whether the answer is right; needs labels."""

    needs = Needs(fit=frozenset({_QUERY}), predict=frozenset({VERDICT}))

    def fit(self, train: Batch, ctx: Context) -> Self:
        """Train the adapter, and set `adapter_`, a reference to the adapter's folder in the cache.

        Raises:
            UserError: training failed.
        """
        self.adapter_ = train_adapter(self, train, ctx, "it_loss")
        return self
