"""Signal `Related`: how samples and the answer are related as texts, by entailment, similarity, a judge or equality."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.api import FloatArray, IntArray, Of, Related
from bench.signals.samples import FromSamplesDefinition, decode_samples
from bench.signals.split_data import raise_if_failed

if TYPE_CHECKING:
    from bench.signals.split_data import RelateTexts, SplitData, StoredSplit
    from bench.signals.synthetic import SyntheticQuestions


class RelatedDefinition(FromSamplesDefinition[Related]):
    """Definition of `Related`."""

    declares = Related

    def note(self, split_data: SplitData) -> str:
        """Return a remark that names the model or judge that compared the samples."""
        return f"its samples are related by {split_data.related_by.get(self.signal, 'nobody')}"

    def relation(self, split: StoredSplit, relate: RelateTexts) -> FloatArray:
        """Return how the N samples and the answer of each question are related, in the order of the shards.

        Similarities are `(n, N + 1, N + 1)`; entailment has a further dimension of 3 classes (see `Related`). Questions
        that methods don't get have zeros.
        """
        split_data = split.split_data
        pairs: dict[tuple[int, str, str], int] = {}
        pair_indices: list[IntArray] = []
        usable = split_data.usable
        for row, sampled in zip(split_data.rows.tolist(), decode_samples(self.signal.samples, split), strict=True):
            texts = [*sampled, split_data.answers[row].text] if usable[row] else []
            index = [pairs.setdefault((row, one, other), len(pairs)) for one in texts for other in texts]
            pair_indices.append(np.asarray(index or [-1] * (self.signal.samples.n + 1) ** 2, dtype=np.int64))
        related = relate(split_data, self.signal, list(pairs))
        padded = np.concatenate([related, np.zeros_like(related[:1], shape=(1, *related.shape[1:]))])
        n_texts = self.signal.samples.n + 1
        return padded[np.stack(pair_indices)].reshape(len(pair_indices), n_texts, n_texts, *related.shape[1:])

    def column(self, split: StoredSplit) -> FloatArray:
        """Return how the N samples and the answer of each question are related, computed when the split was graded.

        The shapes are those in the docstring of `Related`.
        """
        return raise_if_failed(split.split_data.relations[self.signal])[split.positions]

    def synthesize(self, data: SyntheticQuestions) -> FloatArray:
        """Return synthetic relations: equal texts are similar or entail each other, other texts don't."""
        answers = data.texts[Of.ANSWER].ids
        sampled = data.samples(self.signal.samples)
        texts = [[*(ids for ids, _ in group), answers[i]] for i, group in enumerate(sampled)]
        same = np.asarray([[[np.array_equal(a, b) for b in group] for a in group] for group in texts])
        probability = np.where(same, 0.95, 0.1) + 0.04 * data.rng.random(same.shape)
        if self.signal.by != "entailment":
            return probability.astype(np.float32)
        return np.stack([0.75 * (1 - probability), 0.25 * (1 - probability), probability], axis=-1).astype(np.float32)


DEFINITION = RelatedDefinition
