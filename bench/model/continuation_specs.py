"""Inputs of the extractor, which runs the model: token ids of questions, and specs of the continuations to read.

A continuation is a sequence of tokens that the model reads, or generates, after a prompt. A spec names the
continuations that a signal needs.
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
"""Tensors of a signal by name, for one question or a whole shard. If a signal has one tensor, its name is `values`."""


def identity_transform(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor unchanged."""
    return value


def first_row(rows: torch.Tensor) -> torch.Tensor:
    """Return the first row `(d,)` of a matrix `(n, d)`."""
    return rows[0]


@dataclass(frozen=True, eq=False)
class PendingArray:
    """A tensor on the device, to be copied to the host together with the other such tensors of the decode batch."""

    rows: torch.Tensor | tuple[int, Sequence[int]]
    """The tensor itself; or a pair (block, nodes) that stands for hidden states `(len(nodes), d)`.

    These are the hidden states that transformer block `block` returns at the nodes `nodes` of the token tree.
    """
    transform: Callable[[torch.Tensor], torch.Tensor] = identity_transform
    """Function that is applied to the tensor's copy on the host; its result is stored."""


PendingArrays = Mapping[str, "torch.Tensor | PendingArray"]
"""Tensors of a signal by name, on the host or still on the device."""


NOTHING: Ids = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class ModelInput:
    """Token ids of one question: its prompt, and the answers to read after the prompt."""

    prompt: Ids
    options: int
    """Number of lettered options; 0 for an open question."""
    answer: Ids | None = None
    """Token ids of the stored answer; None if the model is to generate the answer."""
    gold: Ids = field(default_factory=lambda: NOTHING)
    """Token ids of the right answer to an open question; empty if no signal reads them."""
    wrong: tuple[Ids, ...] = ()
    """Token ids of each wrong answer to an open question; empty if no signal reads them."""
    query_prompt: Ids | None = None
    """Token ids of the self-check conversation up to the answer; None if they equal `prompt`, or if no signal needs a
    user turn."""
    uniforms: FloatArray | None = None
    """`(n, t)` random numbers in [0, 1), one row for each of n samples; None if none are generated. t is
    `max_new_tokens`, or for traces one more than `TraceDecoder.longest`."""
    samples: Mapping[Samples, Sequence[Ids]] = field(default_factory=dict)
    """Token ids of the stored samples, by sampling settings. For settings without stored samples, samples are
    generated."""
    trace: tuple[int, int] = (0, 0)
    """Range of positions in `prompt` that the reasoning trace has; empty if there is none."""
    steps: Sequence[int] = ()
    """Position in `prompt` of the last token of each step of the trace; empty if no signal reads states there."""
    id: str = ""
    """Question id, from which the random numbers of the question's samples are derived."""


class AnswerSpan(enum.IntEnum):
    """How much of the answer a signal needs: the last position at which it reads a hidden state."""

    NOTHING = 0
    """The signal reads no hidden state. Logits at the prompt's end are available without one."""
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
    """Maximum number of tokens that the model generates as a reply to this turn; 0 for no reply."""


class Generation(NamedTuple):
    """Identifies one text that the model generates in a decode batch: an answer, a reply or a sample."""

    row: int
    """Index in `DecodeBatch.items` of the prompt after which the text is generated."""
    kind: UserTurn | Samples | None = None
    """What kind of text: for a reply its user turn, for a sample its sampling settings, None for an answer."""
    question: int = 0
    """For a sample: index of the question that it answers, among the questions that share the prompt."""
    number: int = 0
    """For a sample: its index among the samples of the same question."""


@dataclass(frozen=True)
class Continuations:
    """Spec of the continuations of a prompt that a signal needs; `a | b` is the spec of two signals together."""

    answer: AnswerSpan = AnswerSpan.NOTHING
    turns: frozenset[UserTurn] = frozenset()
    """User turns after the answer, each in a conversation of its own."""
    gold: bool = False
    """Whether to read the right answer of an open question after the prompt."""
    wrong: bool = False
    """Whether to read each wrong answer of an open question after the prompt."""
    attention: bool = False
    """Whether to keep what the tokens of the answer attend to."""
    samples: frozenset[Samples] = frozenset()
    """Sampling settings with which samples are generated after the prompt."""
    sample_ends: frozenset[Samples] = frozenset()
    """Sampling settings for which the model reads the last token of a sample even if the sample has the maximum length.

    Samples with these settings keep their hidden states at all depths that signals use.
    """
    trace: bool = False
    """Whether to keep the last hidden states that predict the tokens of the reasoning trace."""
    steps: bool = False
    """Whether to keep the hidden states at the ends of the trace's steps."""
    forced: frozenset[float] = frozenset()
    """Shares of the trace's tokens after which an answer is forced, each in a branch of its own."""

    def __or__(self, other: Continuations) -> Continuations:
        """Return the spec of all continuations in either spec."""
        sets = (getattr(self, f.name) | getattr(other, f.name) for f in fields(self) if f.name != "answer")
        return Continuations(max(self.answer, other.answer), *sets)

    @classmethod
    def union(cls, specs: Iterable[Continuations]) -> Continuations:
        """Return the spec of all continuations in any of these specs; without specs, an empty one."""
        return reduce(or_, specs, cls())
