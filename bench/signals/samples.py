"""Signal `Samples`: sampled answers, stored once for all signals that are computed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from bench.api import At, FloatArray, Format, Hidden, Of, Ragged, Related, SampleAgreement, Samples, Task, TokenScores
from bench.api.question import drawn_by
from bench.grading.grade import parse_letter
from bench.model.continuation_specs import Continuations, PendingArrays
from bench.prompts.front_coding import Ids
from bench.servers.readings import Ability
from bench.signals.definition import PassDefinition, SignalDefinition, definition

if TYPE_CHECKING:
    import torch

    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.server_extractor import QuestionRequests
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import SyntheticQuestions

S = TypeVar("S", Related, SampleAgreement)
_CHUNK = 64
"""Number of questions whose logits are in memory at once; in float64 and with a vocabulary of 152,064 they take 80
MB."""


class SamplesDefinition(PassDefinition[Samples]):
    """Definition of `Samples`, stored as token ids in `values`; -1 ends each sample, `offsets` separate questions."""

    declares = Samples
    ragged = True
    """Samples differ in length."""

    @property
    def continuations(self) -> Continuations:
        """What the model generates after the prompt: the samples."""
        return Continuations(samples=frozenset({self.signal}))

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the definitions of the stored token ids and token scores from which the samples are read.

        For samples of one token it is the definition of the hidden states at the prompts' ends instead.
        """
        scores = definition(TokenScores(Of.SAMPLES, samples=self.signal)).sources(fmt, max_new_tokens)
        return (*sample_sources(self.signal, max_new_tokens), *scores)

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys, with the seed of the samples."""
        return f"{self.signal!r} seed {seed}"

    def take(self, batch: DecodeBatch) -> list[list[PendingArrays]]:
        """Return `values` for each question: the token ids of its samples, with -1 after each sample."""
        import torch

        return [
            [{"values": torch.as_tensor(stored_ids(batch.samples[self.signal, i, m]))} for m in range(len(group))]
            for i, group in enumerate(batch.items)
        ]

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return why tokens of samples can't be read; None if they can."""
        return prompts.no_sample_states_reason

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: log-probabilities of its own tokens; of letters, whole distributions."""
        return Ability.WHOLE if fmt is Format.CHOICE else Ability.TOP

    def ask(self, requests: QuestionRequests) -> Mapping[str, Any]:
        """Return `values`: the token ids of the samples, with -1 after each sample."""
        return {"values": stored_ids(requests.sampled_ids(self.signal))}

    def column(self, split: StoredSplit) -> Ragged:
        """Return a `Ragged` of `Samples.dtype`, `(t_i,)` for each question; `owner` has each token's sample."""
        ids = list(sampled_ids(split, self.signal))
        scores: Any = definition(TokenScores(Of.SAMPLES, samples=self.signal)).column(split)
        limit = split.settings.max_new_tokens if split.samples is None else None
        return self._records(ids, scores.values["log_probability"], limit)

    def synthesize(self, data: SyntheticQuestions) -> Ragged:
        """Return synthetic samples. If the answer is right, more samples agree with it, with likelier tokens."""
        scores: Any = definition(TokenScores(Of.SAMPLES, samples=self.signal)).synthesize(data)
        ids = [[ids for ids, _ in sampled] for sampled in data.samples(self.signal)]
        return self._records(ids, scores.values["log_probability"], data.limit)

    def _records(
        self, ids: Sequence[Sequence[npt.NDArray[Any]]], log_probabilities: FloatArray, limit: int | None
    ) -> Ragged:
        """Build the signal's values from token ids and log-probabilities.

        A sample of `limit` tokens counts as cut off at that length. If `limit` is None, because samples come from a
        file, none counts as cut off.
        """
        joined = join_texts(ids)
        records = np.empty(len(joined.values), dtype=self.signal.dtype)
        records["id"], records["log_probability"] = joined.values, log_probabilities
        lengths = [len(sample) for sampled in ids for sample in sampled]
        records["ended"] = np.repeat([limit is None or length < limit for length in lengths], lengths)
        return Ragged(records, joined.offsets, joined.owner)


class FromSamplesDefinition(SignalDefinition[S]):
    """Base class of definitions of signals that are computed from the stored samples when answers are graded."""

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: samples as texts."""
        return sampling_needs(fmt)

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the definitions of the stored signals that have the samples' token ids."""
        return sample_sources(self.signal.samples, max_new_tokens)


def sampling_needs(fmt: Format) -> Ability:
    """Return what a server has to give for samples as texts: letters are drawn from the whole distribution."""
    return Ability.WHOLE if fmt is Format.CHOICE else Ability.TEXT


def sample_sources(samples: Samples, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
    """Return the definitions of the stored signals from which samples are computed.

    Longer samples are stored as token ids. Samples of one token are not stored: they are drawn from the stored hidden
    states at the prompts' ends.
    """
    first = definition(Hidden(1.0, At.PROMPT_END))
    assert isinstance(first, PassDefinition)  # noqa: S101  # for the type checker
    return (first,) if max_new_tokens == 1 else (SamplesDefinition(samples),)


def join_texts(texts: Sequence[Sequence[npt.NDArray[Any]]]) -> Ragged:
    """Join the token ids of each question's texts, int64; `owner` has the number of each token's text, from 0."""
    flat = [np.asarray(ids, dtype=np.int64) for group in texts for ids in group]
    sizes = [sum(map(len, group)) for group in texts]
    owners = [k for group in texts for k, ids in enumerate(group) for _ in range(len(ids))]
    values = np.concatenate(flat) if flat else np.zeros(0, dtype=np.int64)
    return Ragged(values, np.cumsum([0, *sizes], dtype=np.int64), np.asarray(owners, dtype=np.int64))


def sampled_ids(split: StoredSplit, sampling: Samples) -> Iterator[list[Ids]]:
    """Yield the token ids of each question's samples, in the order of `split.rows`."""
    if split.prompts.thinking is not None:  # each follows a trace of its own
        generated = split.split_data.generated.get(sampling)
        if generated is not None:
            yield from ([text.answer for text in generated[place]] for place in split.positions)
        else:
            yield from (sampled[: sampling.n] for sampled in split.samples or ())
        return
    if split.settings.max_new_tokens == 1:
        for letters, _ in sample_letters(split, sampling):
            yield from letters
        return
    yield from split_samples(split.arrays(sampling))


def stored_ids(samples: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Return the token ids of a question's samples in one array, each followed by -1; see `split_samples`."""
    return np.concatenate([[*ids, -1] for ids in samples])


def split_samples(arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[list[Ids]]:
    """Yield the token ids of each question's samples, from a shard's stored `values` and `offsets`."""
    for row in np.split(arrays["values"], arrays["offsets"][1:-1]):
        samples = np.split(row, np.flatnonzero(row < 0) + 1)[:-1]
        yield [sample[:-1].astype(np.int32) for sample in samples]


def sample_letters(split: StoredSplit, sampling: Samples) -> Iterator[tuple[list[list[Ids]], torch.Tensor]]:
    """Sample letters, one token each, from the stored states at the prompts' ends.

    Yields (token ids of each question's samples, logits `(questions, v)` float32) for some questions at a time.
    """
    import torch

    from bench.model.token_sampling import sample_tokens, uniform_numbers

    states: Any = definition(Hidden(1.0, At.PROMPT_END)).column(split)  # (n, d): one row for each prompt
    head, stops, n = split.lm.head, split.lm.stops, sampling.n
    for offset in range(0, len(states), _CHUNK):
        part = torch.tensor(states[offset : offset + _CHUNK]).to(head.weight)  # back to the model's dtype
        questions = split.questions[offset : offset + _CHUNK]
        numbers = [float(u) for q in questions for u in uniform_numbers(split.seed, drawn_by(q), n, 1)[:, 0]]
        rows = [row for row in range(len(questions)) for _ in range(n)]
        logits = head.logits(part)
        tokens = sample_tokens(logits, rows, numbers, sampling.temperature, sampling.top_p)
        letters = [np.asarray([] if token in stops else [token], dtype=np.int32) for token in tokens]
        ids = [letters[start : start + n] for start in range(0, len(letters), n)]
        if split.samples is not None:
            external = split.samples[offset : offset + _CHUNK]
            asked = zip(questions, external, strict=True)
            ids = [[_as_letter(split, q.choices, sample) for sample in sampled[:n]] for q, sampled in asked]
        yield ids, logits


def _as_letter(split: StoredSplit, choices: Sequence[str], ids: Ids) -> Ids:
    """Return another program's sample as one token: its own, or that of the letter it is read as; else no token."""
    if len(ids) == 1:
        return ids
    letters = split.prompts.protocol.letters[: len(choices)]
    letter = parse_letter(split.lm.chat.decode(ids.tolist()), letters)
    return ids[:0] if letter is None else split.settings.letter_ids[[letters.index(letter)]]


def decode_samples(samples: Samples, split: StoredSplit) -> Iterator[list[str]]:
    """Yield the decoded texts of each question's samples, stripped of white space; equal token ids are decoded once."""
    decoded: dict[bytes, str] = {}
    for sample_ids in sampled_ids(split, samples):
        for ids in sample_ids:
            if ids.tobytes() not in decoded:
                decoded[ids.tobytes()] = split.lm.chat.decode(ids.tolist())
        yield [decoded[ids.tobytes()] for ids in sample_ids]


DEFINITION = SamplesDefinition
