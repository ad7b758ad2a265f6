"""What a server can be asked for (`Ability`), what it answers (`Scored`), and the interface of a dialect."""

from __future__ import annotations

import enum
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bench.prompts.front_coding import Ids

Floats = npt.NDArray[np.float32]


class Ability(enum.Flag):
    """Ways in which a model behind a server can be read; each of the first five is a tier of docs/servers.md."""

    TEXT = enum.auto()
    TOP = enum.auto()
    CHOSEN = enum.auto()
    GIVEN = enum.auto()
    WHOLE = enum.auto()
    STATES = enum.auto()
    SAMPLED = enum.auto()
    ATTENTION = enum.auto()


WORDS: Mapping[Ability, str] = {
    Ability.TEXT: "text",
    Ability.TOP: "log-probabilities of the likeliest tokens",
    Ability.CHOSEN: "log-probabilities of chosen tokens",
    Ability.GIVEN: "log-probabilities of given texts",
    Ability.WHOLE: "whole distributions",
    Ability.STATES: "hidden states, output head or gradients",
    Ability.SAMPLED: "the entropy at each token of samples (some megabytes for each)",
    Ability.ATTENTION: "attention weights",
}
"""Ability -> what it reads, in words."""


def tier(abilities: Ability) -> int:
    """Return the tier: the number of abilities in a row, from the first one, less one."""
    missing = (k for k, each in enumerate(Ability) if each not in abilities)
    return next(missing, len(Ability)) - 1


@dataclass(frozen=True, eq=False)
class Scored:
    """Tokens of a text with their log-probabilities by the model itself, in nats: before any sampler."""

    ids: Ids
    log_probability: Floats
    """`(t,)`."""
    top_ids: npt.NDArray[np.int64]
    """`(t, k)`: the likeliest tokens at each position, the likeliest first."""
    top_log_probabilities: Floats
    entropy: Floats | None = None
    """`(t,)`; None unless whole distributions were read. So is `divergence`."""
    divergence: Floats | None = None
    first: Floats | None = None
    """`(v,)` log-probabilities of all tokens at the first position."""

    def to_json(self) -> dict[str, Any]:
        """Return the values as lists."""
        fields = {name: None if value is None else value.tolist() for name, value in vars(self).items()}
        return fields | {"first": self.first if self.first is None else b64encode(self.first.tobytes()).decode()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Scored:
        """Return the object whose `to_json` gave these values."""
        ids = np.asarray(fields["ids"], dtype=np.int32)
        tops = np.asarray(fields["top_ids"], dtype=np.int64).reshape(len(ids), -1)
        names = ("log_probability", "entropy", "divergence")
        floats = {n: None if fields[n] is None else np.asarray(fields[n], dtype=np.float32) for n in names}
        values = np.asarray(fields["top_log_probabilities"], dtype=np.float32).reshape(tops.shape)
        first = fields["first"] and np.frombuffer(b64decode(fields["first"]), dtype=np.float32)
        return cls(ids, top_ids=tops, top_log_probabilities=values, first=first, **floats)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Draw:
    """How a text is sampled."""

    temperature: float
    top_p: float
    seed: int


class Dialect(Protocol):
    """A kind of server: how it is asked, and what it says of its model."""

    name: str
    """Name of the kind, e.g. `llama.cpp`."""
    model: str
    """Name of the model as the server reports it."""
    identity: Mapping[str, Any]
    """All that the server says of its model, and the token ids of fixed texts. Part of store keys."""
    abilities: Ability
    notes: list[str]
    """Remarks for the user on what was found."""
    context: int
    """Tokens of prompt and answer together."""
    vocabulary: int
    width: int
    """Width of the hidden states; 0 if it is not said."""
    slots: int
    """Requests that the server answers at once."""
    tokenizer: Any
    """Tokenizer by the server, with those parts of a transformers tokenizer that prompts need."""

    def probe(self) -> list[float]:
        """Return log-probabilities after fixed prompts; those of the first prompt come first."""

    def quick_probe(self) -> list[float]:
        """Return the log-probabilities after the first of the fixed prompts."""

    def complete(self, prompt: Ids, limit: int, draw: Draw | None = None, *, whole: bool = False) -> Scored:
        """Return the model's continuation of a prompt, greedy unless it is drawn, without the end token.

        Args:
            prompt: token ids.
            limit: most tokens.
            draw: how it is sampled.
            whole: whether whole distributions are read; else those of the likeliest tokens.
        """

    def given(self, prompt: Ids, text: Ids, *, whole: bool = False) -> Scored:
        """Return the log-probabilities of a given text after a prompt."""

    def chosen(self, prompt: Ids, ids: Ids) -> Floats:
        """Return the log-probabilities of tokens after a prompt, less a constant: softmax makes shares of them."""
