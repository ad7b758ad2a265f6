"""Inputs of the extractor: a question's token ids, and the continuations and tensors that a signal needs of it."""

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
"""Name -> tensor, of one question or of a shard; a signal with a single tensor names it `values`."""


def identity_transform(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor unchanged."""
    return value


def first_row(rows: torch.Tensor) -> torch.Tensor:
    """Return the first row, `(d,)`, of `(n, d)`."""
    return rows[0]


@dataclass(frozen=True, eq=False)
class PendingArray:
    """A tensor on the device, copied to the host together with all others of a decode batch."""

    rows: torch.Tensor | tuple[int, Sequence[int]]
    """The tensor; or (block, nodes) for the hidden states of a block at nodes of the tree, `(len(nodes), d)`."""
    transform: Callable[[torch.Tensor], torch.Tensor] = identity_transform
    """Function of the host copy whose result is stored."""


PendingArrays = Mapping[str, "torch.Tensor | PendingArray"]
"""Name -> a tensor of `Arrays`, perhaps still on the device."""


NOTHING: Ids = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class ModelInput:
    """Token ids of one question: its prompt, and answers to read after it."""

    prompt: Ids
    options: int
    """Number of lettered options; 0 for an open question."""
    answer: Ids | None = None
    """The stored answer; None to generate it."""
    gold: Ids = field(default_factory=lambda: NOTHING)
    """The right answer of an open question; empty where no signal reads it."""
    wrong: tuple[Ids, ...] = ()
    """The wrong answers of an open question; empty where no signal reads them."""
    query_prompt: Ids | None = None
    """Ids before the answer in the self-check conversation; None where they equal the prompt."""
    uniforms: FloatArray | None = None
    """`(n, max_new_tokens)` random numbers in [0, 1), a row for each sample."""
    samples: Mapping[Samples, Sequence[Ids]] = field(default_factory=dict)
    """Stored samples; samples that are not here are generated."""
    id: str = ""
    """Question id, which seeds the samples."""


class AnswerSpan(enum.IntEnum):
    """Last position along prompt and answer whose hidden state a signal reads."""

    NOTHING = 0
    """No hidden state; only logits at the prompt's end, which are always available."""
    PROMPT_END = 1
    ANSWER_PREDICTING = 2
    """Up to the state that predicts the last answer token."""
    ANSWER_END = 3


@dataclass(frozen=True, order=True)
class UserTurn:
    """A user turn after the answer."""

    wording: str = ""
    """Text of the turn; empty for the self-check query."""
    say: int = 0
    """Maximum tokens of the generated reply."""


class Generation(NamedTuple):
    """Key of one text that the model generates in a decode batch."""

    row: int
    """Index of its prompt among the distinct ones."""
    kind: UserTurn | Samples | None = None
    """User turn to which it replies, or sampling settings of a sample; None for the answer."""
    question: int = 0
    """Index of the sample's question among those with this prompt."""
    number: int = 0
    """Index of the sample."""


@dataclass(frozen=True)
class ContinuationSpec:
    """Tokens to read after a prompt for a signal, which determine its cost; `a | b` covers two signals."""

    answer: AnswerSpan = AnswerSpan.NOTHING
    turns: frozenset[UserTurn] = frozenset()
    """User turns after the answer, each in a conversation of its own."""
    gold: bool = False
    """Whether to read the right answer of an open question after the prompt."""
    wrong: bool = False
    """Whether to read each of its wrong answers after the prompt."""
    samples: frozenset[Samples] = frozenset()
    sample_ends: frozenset[Samples] = frozenset()
    """Samples whose last token is read too, and whose states are read at all depths."""

    def __or__(self, other: ContinuationSpec) -> ContinuationSpec:
        """Return the continuations that either needs."""
        sets = (getattr(self, f.name) | getattr(other, f.name) for f in fields(self) if f.name != "answer")
        return ContinuationSpec(max(self.answer, other.answer), *sets)

    @classmethod
    def union(cls, specs: Iterable[ContinuationSpec]) -> ContinuationSpec:
        """Return the continuations that any of them needs; an empty spec for none."""
        return reduce(or_, specs, cls())
