"""Questions as the extractor is handed them, how far a signal needs them to be continued, what it takes from a pass."""

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
"""Name -> tensor, of one question or of a shard; a signal that is one tensor calls it `values`."""


def as_it_is(value: torch.Tensor) -> torch.Tensor:
    """The same."""
    return value


def first_row(rows: torch.Tensor) -> torch.Tensor:
    """`(d,)` of `(n, d)`."""
    return rows[0]


@dataclass(frozen=True, eq=False)
class PendingArray:
    """A value on the device that comes down together with all others of a pass."""

    rows: torch.Tensor | tuple[int, Sequence[int]]
    """The value; or the states of a block at some nodes, `(len(nodes), d)`."""
    then: Callable[[torch.Tensor], torch.Tensor] = as_it_is
    """Makes of it what is stored, once it is on the host."""


PendingArrays = Mapping[str, "torch.Tensor | PendingArray"]
"""Name -> what will be a tensor of `Arrays`."""


NOTHING: Ids = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class ModelInput:
    """One question as the model sees it."""

    prompt: Ids
    options: int
    """Number of lettered options; 0 for an open question."""
    answer: Ids | None = None
    """The stored answer; None to generate it."""
    gold: Ids = field(default_factory=lambda: NOTHING)
    """The right answer of an open question, where a signal reads it."""
    wrong: tuple[Ids, ...] = ()
    """The wrong answers of an open question, where a signal reads them."""
    query_prompt: Ids | None = None
    """Ids before the answer in the self-check conversation; None where that is the prompt itself."""
    uniforms: FloatArray | None = None
    """`(N, max_new_tokens)` random numbers in [0, 1) for samples."""
    samples: Mapping[Samples, Sequence[Ids]] = field(default_factory=dict)
    """Stored samples; others are drawn."""
    id: str = ""
    """Samples are drawn by it."""


class AnswerSpan(enum.IntEnum):
    """Reach of a signal's states along prompt and answer."""

    NOTHING = 0
    """No state of the answer's path is asked for; what the prompt's end shows is there anyway."""
    PROMPT_END = 1
    ANSWER_PREDICTING = 2
    """Up to the state that predicts the last answer token."""
    ANSWER_END = 3


@dataclass(frozen=True, order=True)
class UserTurn:
    """One more user turn after the answer."""

    wording: str = ""
    """Empty: the self-check query."""
    say: int = 0
    """Tokens of the reply at most that are generated."""


class Generation(NamedTuple):
    """One text that the model writes in a pass."""

    row: int
    """The prompt that it follows, of those that are distinct."""
    kind: UserTurn | Samples | None = None
    """The turn to which it replies, or how it is sampled; None: the answer."""
    question: int = 0
    """The question whose sample it is, of those with this prompt."""
    number: int = 0
    """Number of the sample."""


@dataclass(frozen=True)
class ContinuationSpec:
    """Tokens that are read after a prompt for a signal, and so its cost; `|` is what two signals need together."""

    answer: AnswerSpan = AnswerSpan.NOTHING
    turns: frozenset[UserTurn] = frozenset()
    """User turns after the answer, each by itself."""
    gold: bool = False
    """The right answer of an open question after the prompt."""
    wrong: bool = False
    """Each of its wrong answers."""
    samples: frozenset[Samples] = frozenset()
    sample_ends: frozenset[Samples] = frozenset()
    """Those of which the last token is read too, at all depths."""

    def __or__(self, other: ContinuationSpec) -> ContinuationSpec:
        """The union."""
        sets = (getattr(self, each.name) | getattr(other, each.name) for each in fields(self) if each.name != "answer")
        return ContinuationSpec(max(self.answer, other.answer), *sets)

    @classmethod
    def union(cls, growths: Iterable[ContinuationSpec]) -> ContinuationSpec:
        """Growth that all of them need together; nothing for none."""
        return reduce(or_, growths, cls())
