"""Synthetic signals: random values that tell right from wrong answers, to check methods without a model.

Each question has a latent certainty: +1 if its answer is right, -1 if it is wrong, plus noise. All signals but texts
and token ids of prompts and the output head depend on the answers or their certainty. If it is higher, the answer's
tokens have larger logits relative to other tokens, hidden states lie further along one direction, and the self-check
favours yes. Signals fit each other: up to noise, the output head predicts the answer's tokens from the hidden states. A
right answer equals the gold answer; a wrong one equals a wrong option.
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

MODEL = ModelFacts(name="planted", hidden_size=16, vocab_size=64, n_layers=4, n_heads=8)
_EMPTY_SHARE = 0.02
"""Share of empty samples among those that don't agree with the answer."""
LETTERS = 4
"""Number of options of a choice question; some questions have one fewer. The option letters are the token ids 0 to
3."""
LONGEST = 5
"""Length limit of open answers in tokens."""
_CORRECT_SHARE = 0.6
"""Share of right answers."""
_NOISE = 0.8
"""Standard deviation of the noise on the certainty. With it, right and wrong answers differ by an AUROC of 0.96."""


@dataclass(frozen=True)
class Texts:
    """Token ids of texts after the prompts, and the last layer's hidden state that predicts each token."""

    ids: Ragged
    """`(t_i,)` token ids for each question; those of all its wrong options are joined."""
    states: FloatArray
    """`(sum of t_i, d)` hidden states of the last layer that predict the tokens."""


@dataclass(frozen=True)
class SyntheticQuestions:
    """Synthetic questions from which all signals of a batch are computed."""

    rng: np.random.Generator
    certainty: FloatArray
    """`(n,)` latent certainty of each answer (see the docstring of this module)."""
    prompts: Ragged
    """Token ids of the prompts, of random length."""
    options: IntArray
    """`(n,)` number of options of each question."""
    texts: Mapping[Of, Texts]
    """Answers, traces, gold answers and wrong options, with their hidden states."""
    letters: int = LETTERS
    """Largest number of options of a question; the option letters are the token ids from 0 on."""
    limit: int = 1
    """Length limit of answers in tokens: 1 in choice tasks."""
    seed: int = 0
    model: ModelFacts = MODEL
    """Hidden size and vocabulary size of the imitated model."""

    @property
    def prompt_end_states(self) -> FloatArray:
        """`(n, d)` hidden states of the last layer at the prompts' ends."""
        answers = self.texts[Of.ANSWER]
        return answers.states[answers.ids.offsets[:-1]]

    @property
    def trace_steps(self) -> IntArray:
        """`(n + 1,)` offsets of the steps of the traces: one step for up to eight tokens of a trace."""
        return np.concatenate([[0], np.cumsum(-(-self.texts[Of.TRACE].ids.lengths // 8))])

    @property
    def output_head(self) -> FloatArray:
        """Copy of the output head's weight matrix, `(v, d)`: see `output_weight`."""
        return output_weight(self.model).copy()

    def samples(self, samples: Samples) -> list[list[tuple[IntArray, FloatArray]]]:
        """Return each question's samples as (token ids `(t,)`, hidden states that predict them `(t, d)`).

        If the certainty is higher, more samples equal the answer. Of the other samples one in fifty is empty.
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
        """Return `(n, N)` bool: whether each sample equals the answer."""
        uniforms = self._rng(samples).random((len(self.certainty), samples.n))
        return uniforms < 1 / (1 + np.exp(-self.certainty[:, None]))

    def _rng(self, samples: Samples) -> np.random.Generator:
        return np.random.default_rng([self.seed, *repr(samples).encode()])

    @cached_property
    def unlabelled(self) -> list[list[tuple[IntArray, FloatArray]]]:
        """Options of every question, as pairs (token ids, hidden states that predict them).

        Options are sorted by token ids, so that their order does not reveal the right one.
        """
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
        """Return hidden states `(m, d)` of a layer and position.

        They depend on the certainty along one direction, which is different for each layer and position.

        Args:
            place: name of the layer and position.
            certainty: `(m,)` certainty of each state's question.
        """
        noise = self.rng.standard_normal((len(certainty), self.model.hidden_size))
        return np.asarray(2.0 * certainty[:, None] * direction(place, self.model) + noise, dtype=np.float32)


def last_states(rng: np.random.Generator, tokens: IntArray, certainty: FloatArray, model: ModelFacts) -> FloatArray:
    """Return last-layer states `(m, d)` that predict the given tokens; more clearly if the certainty is higher."""
    length = np.maximum(4.0 + 2.0 * certainty, 0.5)
    noise = 0.1 * rng.standard_normal((len(tokens), model.hidden_size))
    along = 0.5 * certainty[:, None] * direction("last", model)
    return np.asarray(length[:, None] * output_weight(model)[tokens] + along + noise, dtype=np.float32)


def phrase(rng: np.random.Generator, first: FloatArray, longest: int, model: ModelFacts) -> tuple[IntArray, FloatArray]:
    """Return the token ids of a random phrase, and hidden states that predict these tokens poorly.

    The first of the states is `first`: at the prompt's end, which is the same for all phrases.
    """
    tokens = rng.integers(0, model.vocab_size, int(rng.integers(1, longest + 1)))
    return tokens, np.concatenate([first, last_states(rng, tokens[1:], np.full(len(tokens) - 1, -1.0), model)])


@lru_cache(maxsize=1)
def output_weight(model: ModelFacts) -> FloatArray:
    """Return the output head's weight, `(v, d)`, with rows of norm 1.

    A state in the direction of row t has its largest logit at token t.
    """
    rows = np.random.default_rng(0).standard_normal((model.vocab_size, model.hidden_size))
    weight = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
    weight.flags.writeable = False  # cached: all callers share one array
    return weight


@cache
def direction(place: str, model: ModelFacts) -> FloatArray:
    """Return the unit vector, (d,), along which the states of a layer and position depend on certainty."""
    vector: FloatArray = np.random.default_rng(list(place.encode())).standard_normal(model.hidden_size)
    vector /= np.linalg.norm(vector)
    vector.flags.writeable = False  # cached: all callers share one array
    return vector


def planted(
    signals: Iterable[Signal], n: int, *, seed: int, fmt: Format = Format.CHOICE, correct: BoolArray | None = None
) -> Batch:
    """Return a synthetic batch of n questions with labels and the given signals.

    Batches that differ only in the seed have the same distribution: a method fitted on one can predict on another.

    Args:
        signals: columns of the batch.
        n: number of questions.
        seed: seed of the random values.
        fmt: format of the questions.
        correct: `(n,)` labels; None for random ones.
    """
    labels = None if correct is None else tuple(correct.tolist())
    # the output head is copied too: the caller may write into it
    return copy.deepcopy(_cached_batch(frozenset(signals), n, seed, fmt, labels))


def make_batch(
    signals: Iterable[Signal],
    n: int,
    seed: int,
    fmt: Format,
    correct: Sequence[bool] | None = None,
    model: ModelFacts = MODEL,
    longest: int = LONGEST,
    longest_option: int = LONGEST,
) -> Batch:
    """Return a synthetic batch like `planted`, for a model with the sizes in `model`.

    Open answers have at most `longest` tokens, and the options of open questions at most `longest_option`. The first
    `longest_option` tokens of the answer are one of the options: the right one or a wrong one.
    """
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < _CORRECT_SHARE if correct is None else np.asarray(correct, dtype=np.bool_)
    certainty = np.where(labels, 1.0, -1.0) + _NOISE * rng.standard_normal(n)
    lengths = np.ones(n, dtype=np.int64) if fmt is Format.CHOICE else rng.integers(1, longest + 1, n)
    tokens = rng.integers(0, LETTERS if fmt is Format.CHOICE else model.vocab_size, int(lengths.sum()))
    sizes = rng.integers(8, 20, n)
    prompts = _ragged(rng.integers(0, model.vocab_size, int(sizes.sum())), sizes)
    answers = Texts(_ragged(tokens, lengths), last_states(rng, tokens, np.repeat(certainty, lengths), model))
    last_shown = answers.ids.values[answers.ids.offsets[:-1]] == LETTERS - 1
    options = np.where((rng.random(n) < 0.2) & ~last_shown, LETTERS - 1, LETTERS)  # every fifth
    golds: list[tuple[IntArray, FloatArray]] = []
    wrongs = []  # for each question: token ids, states, and to which option each of them belongs
    for i, (shown, is_correct) in enumerate(zip(options, labels, strict=True)):
        rows = slice(*answers.ids.offsets[i : i + 2])
        answer = answers.ids.values[rows], answers.states[rows]
        if fmt is Format.CHOICE:  # the state at the prompt's end predicts every letter
            letter = answer[0] if is_correct else rng.choice(np.setdiff1d(np.arange(shown), answer[0]), 1)
            others = np.setdiff1d(np.arange(shown), letter)
            golds.append((letter, answer[1]))
            wrongs.append([others, np.repeat(answer[1], len(others), axis=0), others])
            continue
        phrases = [phrase(rng, answer[1][:1], longest_option, model) for _ in range(shown - 1)]
        shortened = answer[0][:longest_option], answer[1][:longest_option]
        phrases.insert(0 if is_correct else int(rng.integers(1, shown)), shortened)  # all share the prompt-end state
        golds.append(phrases[0])
        parts = [(ids, states, np.full(len(ids), k)) for k, (ids, states) in enumerate(phrases[1:], 1)]
        wrongs.append([np.concatenate(each) for each in zip(*parts, strict=True)])
    gold = Texts(Ragged.of([ids for ids, _ in golds]), np.concatenate([states for _, states in golds]))
    ids, states, owner = (Ragged.of(each) for each in zip(*wrongs, strict=True))
    wrong = Texts(Ragged(ids.values, ids.offsets, owner.values), states.values)
    drawn = np.random.default_rng([seed, *b"traces"])  # its own, so that other signals stay what they are
    sizes = np.maximum(2, drawn.normal(24 - 8 * certainty, 4)).astype(np.int64)  # shorter if the certainty is higher
    tokens = drawn.integers(0, model.vocab_size, int(sizes.sum()))
    traces = Texts(_ragged(tokens, sizes), last_states(drawn, tokens, np.repeat(certainty, sizes), model))
    texts = {Of.ANSWER: answers, Of.GOLD: gold, Of.WRONG: wrong, Of.TRACE: traces}
    limit = 1 if fmt is Format.CHOICE else longest
    data = SyntheticQuestions(rng, certainty, prompts, options, texts, limit=limit, seed=seed, model=model)
    ordered = sorted(signals, key=repr)  # a set's order changes from process to process
    columns = {signal: definition(signal).synthesize(data) for signal in ordered}
    return Batch([f"planted/{seed}/{i}" for i in range(n)], columns, labels).own()  # some columns share arrays


_cached_batch = lru_cache(maxsize=256)(make_batch)
"""The same as `make_batch`, but remembers the batches, since most checks of methods use equal ones."""


def _ragged(values: npt.NDArray[Any], lengths: IntArray) -> Ragged:
    return Ragged(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
