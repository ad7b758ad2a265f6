"""Questions of a world with a planted truth, from which every signal can be made for the contract checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from bench.api import IntArray, ModelFacts, Of, Ragged, Samples

MODEL = ModelFacts(name="planted", hidden_size=16, vocab_size=64, n_layers=4)
_SILENT = 0.02
"""Share of samples without text among those that don't agree with the answer."""
LETTERS = 4
"""Options of a choice question; their letters are the token ids 0 to 3."""


@dataclass(frozen=True)
class Texts:
    """Tokens that follow the prompts, and the last hidden states that predict them."""

    ids: Ragged
    """(t_i,) tokens each."""
    states: npt.NDArray[np.float32]
    """(sum of t_i, d)"""


@dataclass(frozen=True)
class World:
    """Questions from which all signals of a batch are made."""

    rng: np.random.Generator
    sure: npt.NDArray[np.float64]
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

    @property
    def first(self) -> npt.NDArray[np.float32]:
        """(n, d): the states at the prompt's end."""
        answers = self.texts[Of.ANSWER]
        return answers.states[answers.ids.offsets[:-1]]

    @property
    def head(self) -> npt.NDArray[np.float32]:
        """The output head, (v, d), rows of length 1: a state along row t has its largest logit at t."""
        return output_weight().copy()

    def samples(self, samples: Samples) -> list[tuple[list[IntArray], list[npt.NDArray[np.float32]]]]:
        """Ids, `(t,)` each, and the states that predict them, `(t, d)` each, of every question's samples.

        Those of sure answers say the answer more often; one in fifty says nothing.
        """
        rng, answers = self._rng(samples), self.texts[Of.ANSWER]
        drawn = []
        for i, agreeing in enumerate(self.agreeing(samples)):
            rows = slice(*answers.ids.offsets[i : i + 2])
            said, first = (answers.ids.values[rows], answers.states[rows]), answers.states[rows][:1]
            own = [said if agrees else self._otherwise(rng, said[0], first) for agrees in agreeing]
            drawn.append(([ids for ids, _ in own], [states for _, states in own]))
        return drawn

    def agreeing(self, samples: Samples) -> npt.NDArray[np.bool_]:
        """`(n, N)`: which samples say the answer."""
        drawn = self._rng(samples).random((len(self.sure), samples.n))
        return drawn < 1 / (1 + np.exp(-self.sure[:, None]))

    def _rng(self, samples: Samples) -> np.random.Generator:
        return np.random.default_rng([self.seed, *repr(samples).encode()])

    def _otherwise(
        self, rng: np.random.Generator, said: IntArray, first: npt.NDArray[np.float32]
    ) -> tuple[IntArray, npt.NDArray[np.float32]]:
        if rng.random() < _SILENT:
            return said[:0], first[:0]
        if self.limit > 1:
            return unsaid(rng, first, self.limit)
        others = np.setdiff1d(np.arange(self.letters), said)
        return rng.choice(others, 1), first

    @cached_property
    def unlabelled(self) -> list[list[tuple[IntArray, npt.NDArray[np.float32]]]]:
        """Ids and predicting states of every question's options, in the order of their ids."""
        gold, wrong = self.texts[Of.GOLD], self.texts[Of.WRONG]
        assert wrong.ids.owner is not None  # noqa: S101  # for the type checker
        found = []
        for i in range(len(self.sure)):
            right, others = (slice(*texts.ids.offsets[i : i + 2]) for texts in (gold, wrong))
            ids, states, owner = wrong.ids.values[others], wrong.states[others], wrong.ids.owner[others]
            options = [(ids[owner == k], states[owner == k]) for k in np.unique(owner)]
            options.append((gold.ids.values[right], gold.states[right]))
            found.append(sorted(options, key=lambda option: option[0].tolist()))
        return found

    def elsewhere(self, place: str, sure: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """States at another place of the network, (m, d), which lie along a direction of its own.

        Args:
            place: names it.
            sure: (m,) the sureness of the question that each state belongs to.
        """
        noise = self.rng.standard_normal((len(sure), MODEL.hidden_size))
        return np.asarray(2.0 * sure[:, None] * direction(place) + noise, dtype=np.float32)


def states_of(rng: np.random.Generator, tokens: IntArray, sure: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Last states that predict tokens, `(m, d)`: those of sure answers predict them by more."""
    length = np.maximum(4.0 + 2.0 * sure, 0.5)
    noise = 0.1 * rng.standard_normal((len(tokens), MODEL.hidden_size))
    along = 0.5 * sure[:, None] * direction("last")
    return (length[:, None] * output_weight()[tokens] + along + noise).astype(np.float32)


def unsaid(
    rng: np.random.Generator, first: npt.NDArray[np.float32], longest: int
) -> tuple[IntArray, npt.NDArray[np.float32]]:
    """A phrase that the model did not say: its tokens, and states that predict them poorly."""
    tokens = rng.integers(0, MODEL.vocab_size, int(rng.integers(1, longest + 1)))
    return tokens, np.concatenate([first, states_of(rng, tokens[1:], np.full(len(tokens) - 1, -1.0))])


@cache
def output_weight() -> npt.NDArray[np.float32]:
    """The output head, (v, d), rows of length 1: a state along row t has its largest logit at t."""
    rows = np.random.default_rng(0).standard_normal((MODEL.vocab_size, MODEL.hidden_size))
    weight = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
    weight.flags.writeable = False  # one array for all who ask
    return weight


@cache
def direction(place: str) -> npt.NDArray[np.float64]:
    """A unit vector, (d,), that belongs to a place in the network."""
    vector: npt.NDArray[np.float64] = np.random.default_rng(list(place.encode())).standard_normal(MODEL.hidden_size)
    vector /= np.linalg.norm(vector)
    vector.flags.writeable = False  # one array for all who ask
    return vector
