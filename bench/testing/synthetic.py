"""Signals with a planted truth: columns of every type in which right answers can be told from wrong ones.

A question has a hidden sureness: +1 where its answer is right and -1 where it is wrong, plus noise. Every signal
carries it the way a backbone would: a sure answer's token leads the others by more, hidden states lie further along
one direction, the self-check leans towards yes. The signals agree with each other: the answer's tokens are what the
output head makes of the hidden states, as far as the noise allows; the gold answer is the answer itself where that is
right, and one of the wrong options is where it is not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api import Batch, BoolArray, Format, IntArray, Of, Ragged, Signal
from bench.signals.definition import definition
from bench.signals.planted import LETTERS, MODEL, Texts, World, states_of, unsaid

LONGEST = 5
"""Tokens of the longest open answer."""
_RIGHT = 0.6
"""Share of right answers."""
_NOISE = 0.8
"""Standard deviation of the sureness around +1 and -1: AUROC of the sureness itself is about 0.96."""


def planted(
    signals: Iterable[Signal], n: int, *, seed: int, fmt: Format = Format.CHOICE, correct: BoolArray | None = None
) -> Batch:
    """A labelled batch of n questions with these signals; `correct` (n,) replaces the labels that would be drawn.

    Batches with different seeds come from one world: what is learned on one holds on the other.
    """
    told = None if correct is None else tuple(correct.tolist())
    return copy.deepcopy(_made(frozenset(signals), n, seed, fmt, told))  # the output head too, which may be written


@lru_cache(maxsize=256)
def _made(signals: frozenset[Signal], n: int, seed: int, fmt: Format, correct: tuple[bool, ...] | None) -> Batch:
    """The batch, which most checks of a method and other methods of the same signals ask for again."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < _RIGHT if correct is None else np.asarray(correct, dtype=np.bool_)
    sure = np.where(labels, 1.0, -1.0) + _NOISE * rng.standard_normal(n)
    lengths = np.ones(n, dtype=np.int64) if fmt is Format.CHOICE else rng.integers(1, LONGEST + 1, n)
    tokens = rng.integers(0, LETTERS if fmt is Format.CHOICE else MODEL.vocab_size, int(lengths.sum()))
    sizes = rng.integers(8, 20, n)
    prompts = _ragged(rng.integers(0, MODEL.vocab_size, int(sizes.sum())), sizes)
    answers = Texts(_ragged(tokens, lengths), states_of(rng, tokens, np.repeat(sure, lengths)))
    last_shown = answers.ids.values[answers.ids.offsets[:-1]] == LETTERS - 1
    options = np.where((rng.random(n) < 0.2) & ~last_shown, LETTERS - 1, LETTERS)  # noqa: PLR2004  (every fifth)
    gold, wrong = (_letters if fmt is Format.CHOICE else _phrases)(rng, answers, options, labels)
    texts = {Of.ANSWER: answers, Of.GOLD: gold, Of.WRONG: wrong}
    world = World(rng, sure, prompts, options, texts, limit=1 if fmt is Format.CHOICE else LONGEST, seed=seed)
    ordered = sorted(signals, key=repr)  # a set's order changes from process to process
    columns = {signal: definition(signal).planted(world) for signal in ordered}
    return Batch([f"planted/{seed}/{i}" for i in range(n)], columns, labels).own()  # some columns share arrays


def _ragged(values: npt.NDArray[Any], lengths: IntArray) -> Ragged:
    return Ragged(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def _letters(rng: np.random.Generator, answers: Texts, options: IntArray, labels: BoolArray) -> tuple[Texts, Texts]:
    """The right letter and the wrong ones; the prompt's end predicts each of them."""
    gold, wrong = [], []
    for answer, shown, is_right in zip(answers.ids.values, options, labels, strict=True):
        others = np.setdiff1d(np.arange(shown), answer)
        gold.append(int(answer if is_right else rng.choice(others)))
        wrong.append(np.setdiff1d(np.arange(shown), gold[-1]))
    ids = Ragged.of(wrong)
    return (
        Texts(Ragged(np.asarray(gold), answers.ids.offsets), answers.states),
        Texts(Ragged(ids.values, ids.offsets, ids.values), np.repeat(answers.states, ids.lengths, axis=0)),
    )


def _phrases(rng: np.random.Generator, answers: Texts, options: IntArray, labels: BoolArray) -> tuple[Texts, Texts]:
    """The right phrase and the wrong ones, a wrong answer of the model among them; all begin at the prompt's end."""
    gold, wrong = [], []
    for i, (shown, is_right) in enumerate(zip(options, labels, strict=True)):
        rows = slice(*answers.ids.offsets[i : i + 2])
        answer = answers.ids.values[rows], answers.states[rows]
        texts = [unsaid(rng, answer[1][:1], LONGEST) for _ in range(shown - 1)]
        texts.insert(0 if is_right else int(rng.integers(1, shown)), answer)
        gold.append(texts[0])
        wrong.append([(ids, states, np.full(len(ids), k)) for k, (ids, states) in enumerate(texts[1:], 1)])
    of_questions = [[np.concatenate(parts) for parts in zip(*texts, strict=True)] for texts in wrong]
    ids, states, owner = (Ragged.of(parts) for parts in zip(*of_questions, strict=True))
    return (
        Texts(Ragged.of([text for text, _ in gold]), np.concatenate([rows for _, rows in gold])),
        Texts(Ragged(ids.values, ids.offsets, owner.values), states.values),
    )
