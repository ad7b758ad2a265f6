"""Signals with a planted truth: columns of every type in which right answers can be told from wrong ones.

A question has a hidden sureness: +1 where its answer is right and -1 where it is wrong, plus noise. Every signal
carries it the way a backbone would: a sure answer's token leads the others by more, hidden states lie further along
one direction, the self-check leans towards yes. The signals agree with each other: the answer's tokens are what the
output head makes of the hidden states, as far as the noise allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api import (
    At,
    Batch,
    BoolArray,
    ChoiceLogits,
    Column,
    Format,
    Hidden,
    IntArray,
    ModelFacts,
    Of,
    OutputHead,
    QueryLogits,
    Ragged,
    Signal,
    TokenIds,
    Unembedding,
)

MODEL = ModelFacts(name="planted", hidden_size=16, vocab_size=64, n_layers=4)
LETTERS = 4
"""Options of a choice question; their letters are the token ids 0 to 3."""
LONGEST = 5
"""Tokens of the longest open answer."""
RIGHT = 0.6
"""Share of right answers."""
NOISE = 0.8
"""Standard deviation of the sureness around +1 and -1: AUROC of the sureness itself is about 0.96."""


@dataclass(frozen=True)
class _Questions:
    """What all signals of a batch are made from."""

    rng: np.random.Generator
    sure: npt.NDArray[np.float64]
    """(n,)"""
    prompts: Ragged
    """Prompt tokens, of random length."""
    ids: Ragged
    """Answer tokens, (t_i,) each."""
    states: npt.NDArray[np.float32]
    """(sum of t_i, d): the last hidden states, which predict the answer's tokens."""

    @property
    def first(self) -> npt.NDArray[np.float32]:
        """(n, d): the states at the prompt's end."""
        return self.states[self.ids.offsets[:-1]]


def planted(
    signals: Iterable[Signal], n: int, *, seed: int, fmt: Format = Format.CHOICE, correct: BoolArray | None = None
) -> Batch:
    """A labelled batch of n questions with these signals; `correct` (n,) replaces the labels that would be drawn.

    Batches with different seeds come from one world: what is learned on one holds on the other.
    """
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < RIGHT if correct is None else correct
    sure = np.where(labels, 1.0, -1.0) + NOISE * rng.standard_normal(n)
    lengths = np.ones(n, dtype=np.int64) if fmt is Format.CHOICE else rng.integers(1, LONGEST + 1, n)
    tokens = rng.integers(0, LETTERS if fmt is Format.CHOICE else MODEL.vocab_size, int(lengths.sum()))
    sizes = rng.integers(8, 20, n)
    prompts = _ragged(rng.integers(0, MODEL.vocab_size, int(sizes.sum())), sizes)
    questions = _Questions(rng, sure, prompts, _ragged(tokens, lengths), _states(rng, tokens, np.repeat(sure, lengths)))
    ordered = sorted(set(signals), key=repr)  # a set's order changes from process to process
    return Batch([f"planted/{seed}/{i}" for i in range(n)], {s: _column(s, questions) for s in ordered}, labels)


def _ragged(values: npt.NDArray[Any], lengths: IntArray) -> Ragged:
    return Ragged(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def _weight() -> npt.NDArray[np.float32]:
    """The output head, (v, d), rows of length 1: a state along row t has its largest logit at t."""
    rows = np.random.default_rng(0).standard_normal((MODEL.vocab_size, MODEL.hidden_size))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def _direction(place: str) -> npt.NDArray[np.float64]:
    """A unit vector, (d,), that belongs to a place in the network."""
    vector: npt.NDArray[np.float64] = np.random.default_rng(list(place.encode())).standard_normal(MODEL.hidden_size)
    return vector / np.linalg.norm(vector)


def _states(rng: np.random.Generator, tokens: IntArray, sure: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    length = np.maximum(4.0 + 2.0 * sure, 0.5)
    noise = 0.1 * rng.standard_normal((len(tokens), MODEL.hidden_size))
    along = 0.5 * sure[:, None] * _direction("last")
    return (length[:, None] * _weight()[tokens] + along + noise).astype(np.float32)  # (sum of t_i, d)


def _column(signal: Signal, questions: _Questions) -> Column:
    match signal:
        case Hidden():
            return _hidden(signal, questions)
        case TokenIds():
            return _token_ids(signal.of, questions)
        case ChoiceLogits():
            return _choice_logits(questions)
        case QueryLogits():
            half = 0.75 * questions.sure
            base = questions.rng.standard_normal(len(half))
            return np.stack([base - half, base + half], axis=1).astype(np.float32)  # (n, 2): no, yes
        case Unembedding():
            import torch

            return OutputHead(torch.from_numpy(_weight()))
        case _:
            raise NotImplementedError(f"bench.testing.synthetic plants no {signal!r}; add it beside the other signals")


def _hidden(signal: Hidden, questions: _Questions) -> Column:
    last = signal.depth == 1.0
    if signal.at is At.ANSWER_PREDICTING:
        lengths = questions.ids.lengths
        states = questions.states if last else _elsewhere(signal, np.repeat(questions.sure, lengths), questions.rng)
        return _ragged(states, lengths)
    if signal.at is At.PROMPT_END and last:
        return questions.first
    return _elsewhere(signal, questions.sure, questions.rng)


def _elsewhere(signal: Hidden, sure: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float32]:
    noise = rng.standard_normal((len(sure), MODEL.hidden_size))
    return np.asarray(2.0 * sure[:, None] * _direction(repr(signal)) + noise, dtype=np.float32)


def _token_ids(of: Of, questions: _Questions) -> Ragged:
    if of is Of.ANSWER:
        return questions.ids
    if of is Of.PROMPT:
        return questions.prompts
    query = np.arange(5)
    return Ragged.of(
        [np.concatenate([questions.prompts[i], questions.ids[i], query]) for i in range(len(questions.ids))]
    )


def _choice_logits(questions: _Questions) -> npt.NDArray[np.float32]:
    logits = np.asarray(questions.first @ _weight()[:LETTERS].T, dtype=np.float32)  # (n, k)
    chosen = questions.ids.values[questions.ids.offsets[:-1]]
    fewer = (questions.rng.random(len(logits)) < 0.2) & (chosen != LETTERS - 1)  # noqa: PLR2004  (every fifth)
    logits[fewer, -1] = -np.inf
    return logits
