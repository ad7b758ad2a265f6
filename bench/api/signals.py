"""Signals that can be measured on a frozen backbone, once and for all methods: the vocabulary of `needs`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from bench.api.errors import ContractError


class At(enum.Enum):
    """Position in the sequence at which a hidden state is read, for a prompt of n tokens and an answer of L tokens."""

    PROMPT_END = "prompt_end"
    """Position n-1, the state that predicts the first answer token; one row per question."""
    ANSWER_PREDICTING = "answer_predicting"
    """Positions n-1 ... n+L-2: row i predicts answer token i; L rows per question."""
    ANSWER_END = "answer_end"
    """Position n+L-1, after the last answer token was read back in; one row per question."""
    GOLD_PREDICTING = "gold_predicting"
    """ANSWER_PREDICTING for the right answer put after the prompt: the right letter, or the right text."""
    WRONG_PREDICTING = "wrong_predicting"
    """GOLD_PREDICTING for all wrong options one after the other; `Ragged.owner` says which option a row is of."""


class Of(enum.Enum):
    """Choice of token ids."""

    PROMPT = "prompt"
    """The rendered prompt with its generation prompt."""
    ANSWER = "answer"
    """The generated ids themselves, not re-tokenised text; trailing end tokens removed."""
    QUERY = "query"
    """The whole conversation: prompt, answer, and the self-check query after it."""
    GOLD = "gold"
    """The right answer as the model would have to say it: the right letter, or the right text."""
    WRONG = "wrong"
    """All wrong options, one after the other; `Ragged.owner` says which option an id is of."""


class Adapter(enum.Enum):
    """Through which weights a signal is read."""

    NONE = "none"
    """The frozen backbone's own."""
    OWN = "own"
    """Adapter that this method trained (its `adapter_`), after `fit`."""


@dataclass(frozen=True, repr=False)
class Signal:
    """Something measured once on the frozen backbone; its fields are part of its identity."""

    drawn: ClassVar[bool] = False
    """Whether it differs from seed to seed."""

    def __repr__(self) -> str:
        """Constructor call that makes the signal: fields that have their default are left out."""
        shown = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        texts = (f"{name}={value if isinstance(value, enum.Enum) else repr(value)}" for name, value in shown)
        return f"{type(self).__name__}({', '.join(texts)})"


@dataclass(frozen=True, repr=False)
class Hidden(Signal):
    """Hidden states, float32: `(n, d)`, or for `..._PREDICTING` a `Ragged` of `(t_i, d)` rows.

    `depth` is a fraction of the number of blocks L: the output of block `int(depth * L)` is read; 1.0 is the last
    state after the final norm.
    """

    depth: float = 1.0
    at: At = At.ANSWER_PREDICTING


@dataclass(frozen=True, repr=False)
class TokenIds(Signal):
    """Token ids, a `Ragged` of int64 with `(t_i,)` per question; costs no forward pass."""

    of: Of = Of.ANSWER


@dataclass(frozen=True, repr=False)
class TokenScores(Signal):
    """Log-probability and entropy of each answer token: a `Ragged` of records, `(t_i,)` of `dtype` for each question.

    Fields, of one token each, in nats and from float32 logits:

    - `log_probability`, float32: of the token that came.
    - `entropy`, float32: of the distribution that it came from.
    - `top_ids`, int64 `(top,)`: the most likely tokens, the likeliest first; left out where `top` is 0.
    - `top_log_probabilities`, float32 `(top,)`: of these; left out where `top` is 0.

    The token that ends an answer is none of its tokens. Reading them costs no forward pass beyond the answer's own.
    """

    of: Of = Of.ANSWER
    """The answer; nothing else is scored."""
    top: int = 0
    """Number of the most likely tokens that are kept."""

    def __post_init__(self) -> None:
        """Refuse what is not measured.

        Raises:
            ContractError: another text than the answer, or a `top` below 0.
        """
        if self.of is not Of.ANSWER:
            raise ContractError(f"TokenScores: expected of=Of.ANSWER, got {self.of}; other tokens are not scored")
        if self.top < 0:
            raise ContractError(f"TokenScores: expected top of at least 0, got {self.top}")

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Dtype of one token's record."""
        kept = [("top_ids", np.int64, (self.top,)), ("top_log_probabilities", np.float32, (self.top,))]
        return np.dtype([("log_probability", np.float32), ("entropy", np.float32), *(kept if self.top else [])])


@dataclass(frozen=True, repr=False)
class ChoiceLogits(Signal):
    """`(n, k)` float32 logits of the option letters at the prompt's end; -inf where a question has fewer options."""


@dataclass(frozen=True, repr=False)
class QueryLogits(Signal):
    """`(n, 2)` float32 logits of (no, yes) after the self-check query (docs/methods.md §2.0)."""

    adapter: Adapter = Adapter.NONE


@dataclass(frozen=True, repr=False)
class SampleAgreement(Signal):
    """`(n, N)` bool: does sample j agree with the greedy answer (docs/methods.md §2.14).

    A choice answer agrees by its letter (a sampled non-letter disagrees), an open one by the judge of the run. Samples
    are drawn with a generator keyed by (seed, question id, sample), so that they depend neither on batches nor on
    resuming.
    """

    drawn: ClassVar[bool] = True

    n: int = 10
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True, repr=False)
class Unembedding(Signal):
    """The model's output head, an `OutputHead`; shared, never copied to disk."""


_GOLD = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING, Of.GOLD, Of.WRONG})


def tells_gold(signal: Signal) -> bool:
    """Whether a signal holds the right answer, or all others: such signals are for `fit` (docs/methods.md §0.21)."""
    return _place(signal) in _GOLD


def _place(signal: Signal) -> At | Of | None:
    """Tokens or position that a signal is of, where that is a field of it."""
    if isinstance(signal, Hidden):
        return signal.at
    return signal.of if isinstance(signal, TokenIds | TokenScores) else None


def _is_plain(signal: Signal) -> bool:
    """Whether a signal is one of these classes themselves; a subclass could be one thing here and another when read."""
    place = _place(signal)
    ours = type(signal).__module__ == __name__ and type(signal) in Signal.__subclasses__()
    return ours and (place is None or type(place) in {At, Of})
