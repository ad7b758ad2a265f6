"""Sampled answers: stored once for all signals that are about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import At, FloatArray, Format, Hidden, Of, Ragged, Samples, TokenScores
from bench.model.continuation_specs import ContinuationSpec, PendingArrays
from bench.prompts.front_coding import Ids
from bench.signals.definition import PassDefinition, definition

if TYPE_CHECKING:
    import torch

    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import World


_AT_ONCE = 64
"""Questions whose logits are held at once: 80 MB in float64 for 152,064 tokens."""


class SamplesDefinition(PassDefinition[Samples]):
    """Stored are the samples' ids, `values` with `offsets`, each sample closed by -1."""

    declares = Samples

    @property
    def growth(self) -> ContinuationSpec:
        """The samples."""
        return ContinuationSpec(samples=frozenset({self.signal}))

    @property
    def ragged(self) -> bool:
        """Samples differ in length."""
        return True

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """The ids, and the scores of their tokens."""
        scores = definition(TokenScores(Of.SAMPLES, samples=self.signal)).sources(fmt, max_new_tokens)
        return (*ids_from(self.signal, max_new_tokens), *scores)

    def name(self, asking: PromptSettings, seed: int) -> str:
        """Name with the seed."""
        return f"{self.signal!r} seed {seed}"

    def take(self, done: DecodeBatch) -> list[list[PendingArrays]]:
        """`values`: the sampled ids, each sample closed by -1."""
        import torch

        return [
            [
                {"values": torch.as_tensor(np.concatenate([[*ids, -1] for ids in done.samples[self.signal, i, m]]))}
                for m in range(len(group))
            ]
            for i, group in enumerate(done.items)
        ]

    def column(self, split: StoredSplit) -> Ragged:
        """A `Ragged` of `Samples.dtype`, `(t_i,)` for each question, with the number of the sample."""
        ids = list(drawn(split, self.signal))
        scores: Any = definition(TokenScores(Of.SAMPLES, samples=self.signal)).column(split)
        limit = split.asking.max_new_tokens if split.samples is None else None
        return self._records(ids, scores.values["log_probability"], limit)

    def planted(self, world: World) -> Ragged:
        """Samples of sure answers agree more often, and their tokens are likelier."""
        scores: Any = definition(TokenScores(Of.SAMPLES, samples=self.signal)).planted(world)
        ids = [[ids for ids, _ in own] for own in world.samples(self.signal)]
        return self._records(ids, scores.values["log_probability"], world.limit)

    def _records(
        self, ids: Sequence[Sequence[npt.NDArray[Any]]], log_probabilities: FloatArray, limit: int | None
    ) -> Ragged:
        """The column; samples that were made elsewhere, without a limit that is known, ended."""
        joined = joined_texts(ids)
        records = np.empty(len(joined.values), dtype=self.signal.dtype)
        records["id"], records["log_probability"] = joined.values, log_probabilities
        each = [len(one) for own in ids for one in own]
        records["ended"] = np.repeat([limit is None or length < limit for length in each], each)
        return Ragged(records, joined.offsets, joined.owner)


def ids_from(samples: Samples, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
    """Sources of the ids of samples; those of one token are drawn from the state at the prompt's end, for any seed."""
    first = definition(Hidden(1.0, At.PROMPT_END))
    assert isinstance(first, PassDefinition)  # noqa: S101  # for the type checker
    return (first,) if max_new_tokens == 1 else (SamplesDefinition(samples),)


def joined_texts(texts: Sequence[Sequence[npt.NDArray[Any]]]) -> Ragged:
    """The ids of several texts of each question as int64, one after the other, with the number of the text."""
    flat = [np.asarray(ids, dtype=np.int64) for own in texts for ids in own]
    sizes = [sum(map(len, own)) for own in texts]
    owners = [k for own in texts for k, ids in enumerate(own) for _ in range(len(ids))]
    values = np.concatenate(flat) if flat else np.zeros(0, dtype=np.int64)
    return Ragged(values, np.cumsum([0, *sizes], dtype=np.int64), np.asarray(owners, dtype=np.int64))


def drawn(split: StoredSplit, sampling: Samples) -> Iterator[list[Ids]]:
    """The ids of each question's samples, in the order of the shards."""
    if split.asking.max_new_tokens == 1:
        for letters, _ in drawn_letters(split, sampling):
            yield from letters
        return
    yield from parted(split.arrays(sampling))


def parted(arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[list[Ids]]:
    """The ids of each question's samples, from the arrays of a shard as they are stored."""
    for row in np.split(arrays["values"], arrays["offsets"][1:-1]):
        closed = np.split(row, np.flatnonzero(row < 0) + 1)[:-1]
        yield [sample[:-1].astype(np.int32) for sample in closed]


def drawn_letters(split: StoredSplit, sampling: Samples) -> Iterator[tuple[list[list[Ids]], torch.Tensor]]:
    """Samples of one token, drawn from the stored states at the prompts' ends, some questions at a time.

    Beside them `(questions, v)` float32, the logits from which they were drawn.
    """
    import torch

    from bench.model.sampling import draw, uniforms

    states: Any = definition(Hidden(1.0, At.PROMPT_END)).column(split)  # (n, d): one row for each prompt
    head, stops, n = split.lm.head, split.lm.stops, sampling.n
    for first in range(0, len(states), _AT_ONCE):
        part = torch.tensor(states[first : first + _AT_ONCE]).to(head.weight)  # back to the dtype they were read in
        questions = split.questions[first : first + _AT_ONCE]
        numbers = [float(u) for q in questions for u in uniforms(split.seed, q.id, n, 1)[:, 0]]
        rows = [row for row in range(len(questions)) for _ in range(n)]
        logits = head.logits(part)
        tokens = draw(logits, rows, numbers, sampling.temperature, sampling.top_p)
        letters = [np.asarray([] if token in stops else [token], dtype=np.int32) for token in tokens]
        ids = [letters[own : own + n] for own in range(0, len(letters), n)]
        if split.samples is not None:
            given = split.samples[first : first + _AT_ONCE]  # what is longer than one token is no letter, so nothing
            ids = [[each if len(each) == 1 else each[:0] for each in own[:n]] for own in given]
        yield ids, logits


def texts_of(samples: Samples, split: StoredSplit) -> Iterator[list[str]]:
    """The texts of each question's samples, outer white space removed; each is decoded once."""
    decoded: dict[bytes, str] = {}
    for ids_of in drawn(split, samples):
        for ids in ids_of:
            if ids.tobytes() not in decoded:
                decoded[ids.tobytes()] = split.lm.chat.decode(ids.tolist())
        yield [decoded[ids.tobytes()] for ids in ids_of]


DEFINITION = SamplesDefinition
