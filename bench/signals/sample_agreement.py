"""Whether sampled answers say what the greedy one says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import BoolArray, Format, SampleAgreement
from bench.grading.grade import normalise_text
from bench.signals.definition import PassDefinition, SignalDefinition
from bench.signals.samples import ids_from, texts_of
from bench.signals.split_data import Agreement, unless_failed

if TYPE_CHECKING:
    from bench.signals.split_data import Comparer, StoredSplit
    from bench.signals.synthetic import World


class SampleAgreementDefinition(SignalDefinition[SampleAgreement]):
    """Made of the stored samples; grading says which agree."""

    declares = SampleAgreement

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """The samples' ids."""
        return ids_from(self.signal.samples, max_new_tokens)

    def agreement(self, split: StoredSplit, comparer: Comparer) -> Agreement:
        """Whether each sample says what the greedy answer says (docs/methods.md §2.14)."""
        texts = list(texts_of(self.signal.samples, split))
        agree = comparer(split.split_data, texts)
        said = (
            ["" if same else f"={normalise_text(text)}" for text, same in zip(sampled, row, strict=True)]
            for sampled, row in zip(texts, agree.tolist(), strict=True)
        )
        largest = [max(Counter(each).values()) for each in said]  # samples that say the answer are one group
        return Agreement(agree, float(np.mean(largest) / agree.shape[1]))

    def column(self, split: StoredSplit) -> BoolArray:
        """`(n, N)` bool, as it was graded."""
        return unless_failed(split.split_data.agreements[self.signal]).agree[split.places]

    def planted(self, world: World) -> BoolArray:
        """Samples of sure answers agree more often."""
        return world.agreeing(self.signal.samples)


DEFINITION = SampleAgreementDefinition
