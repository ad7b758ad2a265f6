"""Signals with a planted truth: columns of every type in which right answers can be told from wrong ones.

A question has a hidden sureness: +1 where its answer is right and -1 where it is wrong, plus noise. Every signal
carries it the way a model would: a sure answer's token leads the others by more, hidden states lie further along
one direction, the self-check leans towards yes. The signals agree with each other: the answer's tokens are what the
output head makes of the hidden states, as far as the noise allows; the gold answer is the answer itself where that is
right, and one of the wrong options is where it is not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api import Batch, BoolArray, FloatArray, Format, IntArray, ModelFacts, Of, Ragged, Samples, Signal
from bench.signals.definition import definition

MODEL = ModelFacts(name="planted", hidden_size=16, vocab_size=64, n_layers=4)
_EMPTY_SHARE = 0.02
"""Share of samples without text among those that don't agree with the answer."""
LETTERS = 4
"""Options of a choice question; their letters are the token ids 0 to 3."""
LONGEST = 5
"""Tokens of the longest open answer."""
_CORRECT_SHARE = 0.6
"""Share of right answers."""
_NOISE = 0.8
"""Standard deviation of the sureness around +1 and -1: AUROC of the sureness itself is about 0.96."""


@dataclass(frozen=True)
class Texts:
    """Tokens that follow the prompts, and the last hidden states that predict them."""

    ids: Ragged
    """(t_i,) tokens each."""
    states: FloatArray
    """(sum of t_i, d)"""


@dataclass(frozen=True)
class SyntheticQuestions:
    """Questions from which all signals of a batch are made."""

    rng: np.random.Generator
    certainty: FloatArray
    """(n,)"""
    prompts: Ragged
    """Prompt tokens, of random length."""
    options: IntArray
    """(n,) how many letters each question shows."""
    texts: Mapping[Of, Texts]
    """ANSWER, GOLD and WRONG."""
    letters: int = LETTERS
    """Options of the widest question; their letters are the token ids from 0 on."""
    limit: int = 1
    """Tokens of the longest answer: 1 in choice tasks."""
    seed: int = 0
    model: ModelFacts = MODEL
    """The model whose widths the states have."""

    @property
    def prompt_end_states(self) -> FloatArray:
        """(n, d): the states at the prompt's end."""
        answers = self.texts[Of.ANSWER]
        return answers.states[answers.ids.offsets[:-1]]

    @property
    def output_head(self) -> FloatArray:
        """The output head, (v, d), rows of length 1: a state along row t has its largest logit at t."""
        return output_weight(self.model).copy()

    def samples(self, samples: Samples) -> list[list[tuple[IntArray, FloatArray]]]:
        """Ids, `(t,)` each, and the states that predict them, `(t, d)` each, of every question's samples.

        Those of sure answers say the answer more often; one in fifty says nothing.
        """
        rng, answers = self._rng(samples), self.texts[Of.ANSWER]
        by_question = []
        for i, row_agreement in enumerate(self.sample_agreement(samples)):
            rows = slice(*answers.ids.offsets[i : i + 2])
            answer, first_state = (answers.ids.values[rows], answers.states[rows]), answers.states[rows][:1]
            sampled = []
            for agrees in row_agreement:
                if agrees:
                    sampled.append(answer)
                elif rng.random() < _EMPTY_SHARE:
                    sampled.append((answer[0][:0], first_state[:0]))
                elif self.limit > 1:
                    sampled.append(phrase(rng, first_state, self.limit, self.model))
                else:
                    sampled.append((rng.choice(np.setdiff1d(np.arange(self.letters), answer[0]), 1), first_state))
            by_question.append(sampled)
        return by_question

    def sample_agreement(self, samples: Samples) -> BoolArray:
        """`(n, N)`: which samples say the answer."""
        uniforms = self._rng(samples).random((len(self.certainty), samples.n))
        return uniforms < 1 / (1 + np.exp(-self.certainty[:, None]))

    def _rng(self, samples: Samples) -> np.random.Generator:
        return np.random.default_rng([self.seed, *repr(samples).encode()])

    @cached_property
    def unlabelled(self) -> list[list[tuple[IntArray, FloatArray]]]:
        """Ids and predicting states of every question's options, in the order of their ids."""
        gold, wrong = self.texts[Of.GOLD], self.texts[Of.WRONG]
        assert wrong.ids.owner is not None  # noqa: S101  # for the type checker
        rows = []
        for i in range(len(self.certainty)):
            gold_rows, wrong_rows = (slice(*texts.ids.offsets[i : i + 2]) for texts in (gold, wrong))
            ids, states, owner = wrong.ids.values[wrong_rows], wrong.states[wrong_rows], wrong.ids.owner[wrong_rows]
            options = [(ids[owner == k], states[owner == k]) for k in np.unique(owner)]
            options.append((gold.ids.values[gold_rows], gold.states[gold_rows]))
            rows.append(sorted(options, key=lambda option: option[0].tolist()))
        return rows

    def layer_states(self, place: str, certainty: FloatArray) -> FloatArray:
        """States at another place of the network, (m, d), which lie along a direction of its own.

        Args:
            place: names it.
            sure: (m,) the sureness of the question that each state belongs to.
        """
        noise = self.rng.standard_normal((len(certainty), self.model.hidden_size))
        return np.asarray(2.0 * certainty[:, None] * direction(place, self.model) + noise, dtype=np.float32)


def last_states(rng: np.random.Generator, tokens: IntArray, certainty: FloatArray, model: ModelFacts) -> FloatArray:
    """Last states that predict tokens, `(m, d)`: those of sure answers predict them by more."""
    length = np.maximum(4.0 + 2.0 * certainty, 0.5)
    noise = 0.1 * rng.standard_normal((len(tokens), model.hidden_size))
    along = 0.5 * certainty[:, None] * direction("last", model)
    return np.asarray(length[:, None] * output_weight(model)[tokens] + along + noise, dtype=np.float32)


def phrase(rng: np.random.Generator, first: FloatArray, longest: int, model: ModelFacts) -> tuple[IntArray, FloatArray]:
    """A phrase that the model did not say: its tokens, and states that predict them poorly."""
    tokens = rng.integers(0, model.vocab_size, int(rng.integers(1, longest + 1)))
    return tokens, np.concatenate([first, last_states(rng, tokens[1:], np.full(len(tokens) - 1, -1.0), model)])


@lru_cache(maxsize=1)
def output_weight(model: ModelFacts) -> FloatArray:
    """The output head, (v, d), rows of length 1: a state along row t has its largest logit at t."""
    rows = np.random.default_rng(0).standard_normal((model.vocab_size, model.hidden_size))
    weight = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
    weight.flags.writeable = False  # one array for all who ask
    return weight


@cache
def direction(place: str, model: ModelFacts) -> FloatArray:
    """A unit vector, (d,), that belongs to a place in the network."""
    vector: FloatArray = np.random.default_rng(list(place.encode())).standard_normal(model.hidden_size)
    vector /= np.linalg.norm(vector)
    vector.flags.writeable = False  # one array for all who ask
    return vector


def planted(
    signals: Iterable[Signal], n: int, *, seed: int, fmt: Format = Format.CHOICE, correct: BoolArray | None = None
) -> Batch:
    """A labelled batch of n questions with these signals; `correct` (n,) replaces the labels that would be drawn.

    Batches with different seeds come from one world: what is learned on one holds on the other.
    """
    labels = None if correct is None else tuple(correct.tolist())
    # the output head is copied too: it may be written
    return copy.deepcopy(_cached_batch(frozenset(signals), n, seed, fmt, labels))


def labelled(
    signals: Iterable[Signal],
    n: int,
    seed: int,
    fmt: Format,
    correct: Sequence[bool] | None = None,
    model: ModelFacts = MODEL,
    longest: int = LONGEST,
    longest_option: int = LONGEST,
) -> Batch:
    """A batch like `planted`, of a model with these widths, with so many tokens of open answers and options at most."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < _CORRECT_SHARE if correct is None else np.asarray(correct, dtype=np.bool_)
    certainty = np.where(labels, 1.0, -1.0) + _NOISE * rng.standard_normal(n)
    lengths = np.ones(n, dtype=np.int64) if fmt is Format.CHOICE else rng.integers(1, longest + 1, n)
    tokens = rng.integers(0, LETTERS if fmt is Format.CHOICE else model.vocab_size, int(lengths.sum()))
    sizes = rng.integers(8, 20, n)
    prompts = _ragged(rng.integers(0, model.vocab_size, int(sizes.sum())), sizes)
    answers = Texts(_ragged(tokens, lengths), last_states(rng, tokens, np.repeat(certainty, lengths), model))
    last_shown = answers.ids.values[answers.ids.offsets[:-1]] == LETTERS - 1
    options = np.where((rng.random(n) < 0.2) & ~last_shown, LETTERS - 1, LETTERS)  # noqa: PLR2004  (every fifth)
    golds: list[tuple[IntArray, FloatArray]] = []
    wrongs = []  # of each question, ids, states and the numbers of the options to which they belong
    for i, (shown, is_correct) in enumerate(zip(options, labels, strict=True)):
        rows = slice(*answers.ids.offsets[i : i + 2])
        answer = answers.ids.values[rows], answers.states[rows]
        if fmt is Format.CHOICE:  # the prompt's end predicts each of the letters
            letter = answer[0] if is_correct else rng.choice(np.setdiff1d(np.arange(shown), answer[0]), 1)
            others = np.setdiff1d(np.arange(shown), letter)
            golds.append((letter, answer[1]))
            wrongs.append([others, np.repeat(answer[1], len(others), axis=0), others])
            continue
        phrases = [phrase(rng, answer[1][:1], longest_option, model) for _ in range(shown - 1)]
        phrases.insert(0 if is_correct else int(rng.integers(1, shown)), answer)  # all begin at the prompt's end
        golds.append(phrases[0])
        parts = [(ids, states, np.full(len(ids), k)) for k, (ids, states) in enumerate(phrases[1:], 1)]
        wrongs.append([np.concatenate(each) for each in zip(*parts, strict=True)])
    gold = Texts(Ragged.of([ids for ids, _ in golds]), np.concatenate([states for _, states in golds]))
    ids, states, owner = (Ragged.of(each) for each in zip(*wrongs, strict=True))
    wrong = Texts(Ragged(ids.values, ids.offsets, owner.values), states.values)
    texts = {Of.ANSWER: answers, Of.GOLD: gold, Of.WRONG: wrong}
    limit = 1 if fmt is Format.CHOICE else longest
    data = SyntheticQuestions(rng, certainty, prompts, options, texts, limit=limit, seed=seed, model=model)
    ordered = sorted(signals, key=repr)  # a set's order changes from process to process
    columns = {signal: definition(signal).synthesize(data) for signal in ordered}
    return Batch([f"planted/{seed}/{i}" for i in range(n)], columns, labels).own()  # some columns share arrays


_cached_batch = lru_cache(maxsize=256)(labelled)
"""Batches that most checks of a method and other methods of the same signals ask for again."""


def _ragged(values: npt.NDArray[Any], lengths: IntArray) -> Ragged:
    return Ragged(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
