"""Signal `SampleAgreement`: whether sampled answers agree with the greedy answer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from bench.api import BoolArray, SampleAgreement
from bench.grading.grade import normalise_text
from bench.signals.samples import FromSamplesDefinition, decode_samples
from bench.signals.split_data import Agreement, raise_if_failed

if TYPE_CHECKING:
    from bench.signals.split_data import CompareSamples, StoredSplit
    from bench.signals.synthetic import SyntheticQuestions


class SampleAgreementDefinition(FromSamplesDefinition[SampleAgreement]):
    """Definition of `SampleAgreement`."""

    declares = SampleAgreement

    def agreement(self, split: StoredSplit, compare: CompareSamples) -> Agreement:
        """Return whether each sample agrees with the greedy answer (docs/methods.md §2.14)."""
        texts = list(decode_samples(self.signal.samples, split))
        agree = compare(split.split_data, texts)
        groups = (
            ["" if same else f"={normalise_text(text)}" for text, same in zip(sampled, row, strict=True)]
            for sampled, row in zip(texts, agree.tolist(), strict=True)
        )
        largest = [max(Counter(labels).values()) for labels in groups]  # those that agree with the answer are one group
        return Agreement(agree, float(np.mean(largest) / agree.shape[1]))

    def column(self, split: StoredSplit) -> BoolArray:
        """Return whether each sample agrees with the answer, `(n, N)` bool, as computed when the split was graded."""
        return raise_if_failed(split.split_data.agreements[self.signal]).agree[split.positions]

    def synthesize(self, data: SyntheticQuestions) -> BoolArray:
        """Return synthetic agreement, `(n, N)` bool. If the answer is right, more samples agree with it."""
        return data.sample_agreement(self.signal.samples)


DEFINITION = SampleAgreementDefinition
