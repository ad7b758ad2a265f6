"""What a server can be asked for (`Ability`), what it answers (`Scored`), and bounds on what it doesn't tell."""

from __future__ import annotations

import enum
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.prompts.front_coding import Ids

Floats = npt.NDArray[np.float32]


class Ability(enum.Flag):
    """Ways in which a model behind a server can be read; each of the first six is a tier of docs/servers.md.

    With `TRACES` the model goes on from any token ids, so that its answer can be read behind a reasoning trace.
    """

    TEXT = enum.auto()
    TOP = enum.auto()
    CHOSEN = enum.auto()
    GIVEN = enum.auto()
    WHOLE = enum.auto()
    STATES = enum.auto()
    SAMPLED = enum.auto()
    ATTENTION = enum.auto()
    TRACES = enum.auto()
    ADAPTERS = enum.auto()


WORDS: Mapping[Ability, str] = {
    Ability.TEXT: "text",
    Ability.TOP: "log-probabilities of the likeliest tokens",
    Ability.CHOSEN: "log-probabilities of chosen tokens",
    Ability.GIVEN: "log-probabilities of given texts",
    Ability.WHOLE: "whole distributions",
    Ability.STATES: "hidden states or the output head",
    Ability.SAMPLED: "the entropy at each token of samples (some megabytes for each)",
    Ability.ATTENTION: "attention weights",
    Ability.TRACES: "reasoning traces",
    Ability.ADAPTERS: "gradients, which train an adapter",
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
    """`(t, k)`: the likeliest tokens at each position, the likeliest first; of an empty text those at its end."""
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
        shape = len(fields["top_ids"]), max(map(len, fields["top_ids"]), default=0)  # an empty reply may have no rows
        tops = np.asarray(fields["top_ids"], dtype=np.int64).reshape(shape)
        names = ("log_probability", "entropy", "divergence")
        floats = {n: None if fields[n] is None else np.asarray(fields[n], dtype=np.float32) for n in names}
        values = np.asarray(fields["top_log_probabilities"], dtype=np.float32).reshape(shape)
        first = fields["first"] and np.frombuffer(b64decode(fields["first"]), dtype=np.float32)
        return cls(ids, top_ids=tops, top_log_probabilities=values, first=first, **floats)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Draw:
    """How a text is sampled."""

    temperature: float
    top_p: float
    seed: int


def difference(before: Sequence[Mapping[Any, float]], now: Sequence[Mapping[Any, float]]) -> float:
    """Return the largest difference between the log-probabilities of two probes, in nats.

    A token that one of them doesn't list counts as the least likely one that it lists.
    """
    if len(before) != len(now):
        return np.inf
    pairs = [(a, b) for a, b in zip(before, now, strict=True) if a or b]
    if not all(a and b for a, b in pairs):
        return np.inf
    gaps = (abs(a.get(t, min(a.values())) - b.get(t, min(b.values()))) for a, b in pairs for t in {*a, *b})
    return float(np.max([0.0, *gaps]))  # NaN stays


def score_rows(ids: Ids, rows: Floats, top: int) -> Scored:
    """Return tokens with their log-probabilities from those of all tokens at each position, `(t, v)`."""
    order = np.argsort(-rows, axis=1, kind="stable")[:, :top]
    entropy, divergence = -(np.exp(rows) * rows).sum(axis=1), -rows.mean(axis=1) - np.log(rows.shape[1])
    own, likeliest = np.take_along_axis(rows, ids[:, None], axis=1)[:, 0], np.take_along_axis(rows, order, axis=1)
    return Scored(ids, own, order, likeliest, entropy, divergence)


def bound_shares(listed: Mapping[int, float], words: Sequence[Sequence[int]]) -> tuple[list[float], int, float]:
    """Return log-probabilities of some words, where the server lists only the likeliest tokens.

    A word has the sum over its listed tokens. One without gets its upper bound: each of its tokens is no likelier than
    the last one listed, and all together are no likelier than all that is not listed.

    Args:
        listed: the log-probabilities of the likeliest tokens.
        words: the tokens of each word, any one of which says it.

    Returns:
        The log-probabilities; how many of them are bounds; and by how much the share of the likeliest of the words may
        be larger than the one that they give.
    """
    least, rest = min(listed.values(), default=0.0), max(1 - sum(map(np.exp, listed.values())), 1e-9)
    found = [[listed[token] for token in word if token in listed] for word in words]
    known = [np.exp(np.logaddexp.reduce(each)) for each in found if each]
    values = [
        float(np.logaddexp.reduce(each) if each else min(least + np.log(len(word)), np.log(rest)))
        for each, word in zip(found, words, strict=True)
    ]
    missing = len(words) - len(known)
    if not known:
        return values, missing, 1.0
    likeliest, total = max(known), sum(known)
    return values, missing, float(likeliest / total - likeliest / np.exp(values).sum())


def bound_entropy(tops: Floats, vocabulary: int) -> tuple[Floats, Floats]:
    """Return bounds of the entropy at each position, `(t,)` each, from the likeliest tokens' log-probabilities."""
    tops = tops.astype(np.float64)
    part, rest = -(np.exp(tops) * tops).sum(axis=1), np.clip(1 - np.exp(tops).sum(axis=1), 1e-9, 1)
    low = part - rest * tops[:, -1]
    high = part - rest * np.log(rest) + rest * np.log(vocabulary - tops.shape[1])
    return low.astype(np.float32), np.maximum(low, high).astype(np.float32)
