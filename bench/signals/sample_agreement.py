"""Whether sampled answers say what the greedy one says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import BoolArray, Format, SampleAgreement
from bench.grading.grade import normalise_text
from bench.signals.definition import PassDefinition, SignalDefinition
from bench.signals.samples import decode_samples, sample_sources
from bench.signals.split_data import Agreement, unless_failed

if TYPE_CHECKING:
    from bench.signals.split_data import CompareSamples, StoredSplit
    from bench.signals.synthetic import SyntheticQuestions


class SampleAgreementDefinition(SignalDefinition[SampleAgreement]):
    """Made of the stored samples; grading says which agree."""

    declares = SampleAgreement

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """The samples' ids."""
        return sample_sources(self.signal.samples, max_new_tokens)

    def agreement(self, split: StoredSplit, compare: CompareSamples) -> Agreement:
        """Whether each sample says what the greedy answer says (docs/methods.md §2.14)."""
        texts = list(decode_samples(self.signal.samples, split))
        agree = compare(split.split_data, texts)
        groups = (
            ["" if same else f"={normalise_text(text)}" for text, same in zip(sampled, row, strict=True)]
            for sampled, row in zip(texts, agree.tolist(), strict=True)
        )
        largest = [max(Counter(labels).values()) for labels in groups]  # samples that match the answer are one group
        return Agreement(agree, float(np.mean(largest) / agree.shape[1]))

    def column(self, split: StoredSplit) -> BoolArray:
        """`(n, N)` bool, as it was graded."""
        return unless_failed(split.split_data.agreements[self.signal]).agree[split.places]

    def synthesize(self, data: SyntheticQuestions) -> BoolArray:
        """Samples of sure answers agree more often."""
        return data.sample_agreement(self.signal.samples)


DEFINITION = SampleAgreementDefinition
