"""Inputs of the extractor: the token ids of a question, and the continuations of its prompt that a signal needs.

A continuation is a sequence of tokens that the model reads, or generates, after a prompt.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.api import FloatArray, Samples
from bench.prompts.front_coding import Ids

if TYPE_CHECKING:
    import torch


Arrays = dict[str, "torch.Tensor"]
"""Name -> tensor of a signal, for one question or a whole shard; the only tensor of a signal is named `values`."""


def identity_transform(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor unchanged."""
    return value


def first_row(rows: torch.Tensor) -> torch.Tensor:
    """Return the first row `(d,)` of a matrix `(n, d)`."""
    return rows[0]


@dataclass(frozen=True, eq=False)
class PendingArray:
    """A tensor on the device that is to be copied to the host, together with all others of its decode batch."""

    rows: torch.Tensor | tuple[int, Sequence[int]]
    """The tensor; or (block, nodes): hidden states `(len(nodes), d)` after a block at nodes of the token tree."""
    transform: Callable[[torch.Tensor], torch.Tensor] = identity_transform
    """Function that is applied to the copy on the host; its result is stored."""


PendingArrays = Mapping[str, "torch.Tensor | PendingArray"]
"""Name -> tensor of a signal, as in `Arrays`, but perhaps still on the device."""


NOTHING: Ids = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class ModelInput:
    """Token ids of one question: its prompt, and the answers to read after the prompt."""

    prompt: Ids
    options: int
    """Number of lettered options; 0 for an open question."""
    answer: Ids | None = None
    """The stored answer; None if the model is to generate one."""
    gold: Ids = field(default_factory=lambda: NOTHING)
    """The right answer of an open question; empty where no signal reads it."""
    wrong: tuple[Ids, ...] = ()
    """The wrong answers of an open question; empty where no signal reads them."""
    query_prompt: Ids | None = None
    """Ids of the self-check conversation up to the answer; None where they equal the prompt."""
    uniforms: FloatArray | None = None
    """`(n, max_new_tokens)` random numbers in [0, 1), a row for each sample; set whenever samples are generated."""
    samples: Mapping[Samples, Sequence[Ids]] = field(default_factory=dict)
    """Sampling settings -> ids of the stored samples; missing samples are generated."""
    id: str = ""
    """Question id, which seeds the samples."""


class AnswerSpan(enum.IntEnum):
    """Last position, along the prompt and then the answer, whose hidden state a signal reads."""

    NOTHING = 0
    """The signal reads no hidden state; the logits at the prompt's end are always available."""
    PROMPT_END = 1
    ANSWER_PREDICTING = 2
    """The position whose hidden state predicts the last answer token."""
    ANSWER_END = 3


@dataclass(frozen=True, order=True)
class UserTurn:
    """A user turn that follows the answer."""

    wording: str = ""
    """Text of the turn; empty for the self-check query."""
    say: int = 0
    """Maximum number of tokens of the generated reply; 0 for no reply."""


class Generation(NamedTuple):
    """Identifies one text that the model generates in a decode batch: an answer, a reply or a sample."""

    row: int
    """Index of the text's prompt in `DecodeBatch.items`."""
    kind: UserTurn | Samples | None = None
    """User turn to which the text replies, or sampling settings of the sample; None for the answer."""
    question: int = 0
    """Index of the sample's question among the questions with this prompt."""
    number: int = 0
    """Index of the sample among the samples of its question."""


@dataclass(frozen=True)
class Continuations:
    """The continuations of a prompt that a signal needs; `a | b` is the spec of two signals together."""

    answer: AnswerSpan = AnswerSpan.NOTHING
    turns: frozenset[UserTurn] = frozenset()
    """User turns after the answer, each in a conversation of its own."""
    gold: bool = False
    """Whether to read the right answer of an open question after the prompt."""
    wrong: bool = False
    """Whether to read each wrong answer of an open question after the prompt."""
    samples: frozenset[Samples] = frozenset()
    """Settings with which samples are generated."""
    sample_ends: frozenset[Samples] = frozenset()
    """Settings of the samples whose last token is read, too, and whose hidden states are kept at all depths in use."""

    def __or__(self, other: Continuations) -> Continuations:
        """Return the spec of all continuations that either spec needs."""
        sets = (getattr(self, f.name) | getattr(other, f.name) for f in fields(self) if f.name != "answer")
        return Continuations(max(self.answer, other.answer), *sets)

    @classmethod
    def union(cls, specs: Iterable[Continuations]) -> Continuations:
        """Return the spec of all continuations that any of these specs needs; an empty one if there are no specs."""
        return reduce(or_, specs, cls())
