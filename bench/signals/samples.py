"""Sampled answers, and whether they agree with the greedy one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import At, BoolArray, Format, Hidden, SampleAgreement
from bench.backbone.measure import Growth, Sampling, Taken
from bench.grading.grade import normalise_text
from bench.prompts.tails import Ids
from bench.signals.definition import PassDefinition
from bench.signals.hidden import HiddenDefinition
from bench.signals.reading import Agreement

if TYPE_CHECKING:
    from bench.backbone.items import Pass
    from bench.prompts.asking import Asking
    from bench.signals.planted import World
    from bench.signals.reading import Comparer
    from bench.signals.stored import StoredSplit


_AT_ONCE = 64
"""Questions whose logits are held at once: 80 MB in float64 for 152,064 tokens."""


class SampleAgreementDefinition(PassDefinition[SampleAgreement]):
    """Stored are the samples' ids, `values` with `offsets`, each sample closed by -1; grading says which agree."""

    declares = SampleAgreement

    @property
    def growth(self) -> Growth:
        """The samples."""
        return Growth(samples=frozenset({self._sampling}))

    @property
    def _sampling(self) -> Sampling:
        return Sampling(self.signal.n, self.signal.temperature, self.signal.top_p)

    @property
    def ragged(self) -> bool:
        """Samples differ in length."""
        return True

    def stored_as(self, fmt: Format, max_new_tokens: int) -> PassDefinition[Hidden] | PassDefinition[SampleAgreement]:
        """Samples of one token are drawn from the state at the prompt's end, without a pass and for any seed."""
        del fmt
        return HiddenDefinition(Hidden(1.0, At.PROMPT_END)) if max_new_tokens == 1 else self

    def name(self, asking: Asking, seed: int) -> str:
        """Name with the seed."""
        return f"{super().name(asking, seed)} seed {seed}"

    def take(self, done: Pass) -> list[list[Taken]]:
        """`values`: the sampled ids, each sample closed by -1."""
        import torch

        return [
            [
                {"values": torch.as_tensor(np.concatenate([[*ids, -1] for ids in done.samples[self._sampling, i, m]]))}
                for m in range(len(group))
            ]
            for i, group in enumerate(done.items)
        ]

    def samples(self, split: StoredSplit) -> Iterator[list[Ids]]:
        """The ids of each question's samples, in the order of the shards."""
        if split.asking.max_new_tokens == 1:
            yield from self._letters(split)
            return
        arrays = split.arrays(self.name(split.asking, split.seed))
        for row in np.split(arrays["values"], arrays["offsets"][1:-1]):
            closed = np.split(row, np.flatnonzero(row < 0) + 1)[:-1]
            yield [sample[:-1].astype(np.int32) for sample in closed]

    def _letters(self, split: StoredSplit) -> Iterator[list[Ids]]:
        import torch

        from bench.backbone.sampling import draw, uniforms

        states: Any = HiddenDefinition(Hidden(1.0, At.PROMPT_END)).column(split)  # (n, d): one row for each prompt
        head, stops, signal = split.backbone.head, split.backbone.stops, self.signal
        for first in range(0, len(states), _AT_ONCE):
            part = torch.tensor(states[first : first + _AT_ONCE]).to(head.weight)  # back to the dtype they were read in
            questions = split.questions[first : first + _AT_ONCE]
            numbers = [float(u) for q in questions for u in uniforms(split.seed, q.id, signal.n, 1)[:, 0]]
            rows = [row for row in range(len(questions)) for _ in range(signal.n)]
            drawn = draw(head.logits(part), rows, numbers, signal.temperature, signal.top_p)
            letters = [np.asarray([] if token in stops else [token], dtype=np.int32) for token in drawn]
            for own in range(0, len(letters), signal.n):
                yield letters[own : own + signal.n]

    def agreement(self, split: StoredSplit, comparer: Comparer) -> Agreement:
        """Whether each sample says what the greedy answer says (docs/methods.md §2.14)."""
        texts = list(_decoded(self.samples(split), split))
        agree = comparer(split.reading, texts)
        return Agreement(agree, _modal_share(texts, agree))

    def column(self, split: StoredSplit) -> BoolArray:
        """`(n, N)` bool, as it was graded."""
        agree = split.reading.agreement(self.signal).agree
        return agree if split.places is None else agree[split.places]

    def planted(self, world: World) -> BoolArray:
        """Samples of sure answers agree more often."""
        agree = 1 / (1 + np.exp(-world.sure))  # (n,)
        return np.asarray(world.rng.random((len(agree), self.signal.n)) < agree[:, None])


def _decoded(samples: Iterator[list[Ids]], split: StoredSplit) -> Iterator[list[str]]:
    """The texts of each question's samples; each is decoded once."""
    decoded: dict[bytes, str] = {}
    for ids_of in samples:
        for ids in ids_of:
            if ids.tobytes() not in decoded:
                decoded[ids.tobytes()] = split.backbone.chat.decode(ids.tolist())
        yield [decoded[ids.tobytes()] for ids in ids_of]


def _modal_share(texts: Sequence[Sequence[str]], agree: BoolArray) -> float:
    """Mean over the questions of the largest group of samples that say the same, those of the answer being one."""
    largest = [
        max(
            Counter(
                "" if same else f"={normalise_text(text)}" for text, same in zip(sampled, row, strict=True)
            ).values()
        )
        for sampled, row in zip(texts, agree.tolist(), strict=True)
    ]
    return float(np.mean(largest) / agree.shape[1])


DEFINITION = SampleAgreementDefinition
