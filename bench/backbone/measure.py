"""Demands of a signal on the extractor: how far it needs a prompt to be continued, and what it takes from a pass."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bench.api import Samples

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
class Awaited:
    """A value on the device that comes down together with all others of a pass."""

    rows: torch.Tensor | tuple[int, Sequence[int]]
    """The value; or the states of a block at some nodes, `(len(nodes), d)`."""
    then: Callable[[torch.Tensor], torch.Tensor] = as_it_is
    """Makes of it what is stored, once it is on the host."""


Taken = Mapping[str, "torch.Tensor | Awaited"]
"""Name -> what will be a tensor of `Arrays`."""


class Upto(enum.IntEnum):
    """Reach of a signal's states along prompt and answer."""

    NOTHING = 0
    """No state of the answer's path is asked for; what the prompt's end shows is there anyway."""
    PROMPT_END = 1
    ANSWER_PREDICTING = 2
    """Up to the state that predicts the last answer token."""
    ANSWER_END = 3


@dataclass(frozen=True, order=True)
class Turn:
    """One more user turn after the answer."""

    wording: str = ""
    """Empty: the self-check query."""
    say: int = 0
    """Tokens of the reply at most that are generated."""


class Generation(NamedTuple):
    """One text that the model writes in a pass."""

    row: int
    """The prompt that it follows, of those that are distinct."""
    kind: Turn | Samples | None = None
    """The turn to which it replies, or how it is sampled; None: the answer."""
    question: int = 0
    """The question whose sample it is, of those with this prompt."""
    number: int = 0
    """Number of the sample."""


@dataclass(frozen=True)
class Growth:
    """Tokens that are read after a prompt for a signal, and so its cost; `|` is what two signals need together."""

    answer: Upto = Upto.NOTHING
    turns: frozenset[Turn] = frozenset()
    """User turns after the answer, each by itself."""
    gold: bool = False
    """The right answer of an open question after the prompt."""
    wrong: bool = False
    """Each of its wrong answers."""
    samples: frozenset[Samples] = frozenset()
    sample_ends: frozenset[Samples] = frozenset()
    """Those of which the last token is read too, at all depths."""

    def __or__(self, other: Growth) -> Growth:
        """The union."""
        return Growth(
            max(self.answer, other.answer),
            self.turns | other.turns,
            self.gold or other.gold,
            self.wrong or other.wrong,
            self.samples | other.samples,
            self.sample_ends | other.sample_ends,
        )

    @classmethod
    def union(cls, growths: Iterable[Growth]) -> Growth:
        """Growth that all of them need together; nothing for none."""
        whole = cls()
        for growth in growths:
            whole |= growth
        return whole
