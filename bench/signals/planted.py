"""Questions of a world with a planted truth, from which every signal can be made for the contract checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.api import IntArray, ModelFacts, Of, Ragged

MODEL = ModelFacts(name="planted", hidden_size=16, vocab_size=64, n_layers=4)
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

    @property
    def first(self) -> npt.NDArray[np.float32]:
        """(n, d): the states at the prompt's end."""
        answers = self.texts[Of.ANSWER]
        return answers.states[answers.ids.offsets[:-1]]

    @property
    def head(self) -> npt.NDArray[np.float32]:
        """The output head, (v, d), rows of length 1: a state along row t has its largest logit at t."""
        return output_weight()

    def elsewhere(self, place: str, sure: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """States at another place of the network, (m, d), which lie along a direction of its own.

        Args:
            place: names it.
            sure: (m,) the sureness of the question that each state belongs to.
        """
        noise = self.rng.standard_normal((len(sure), MODEL.hidden_size))
        return np.asarray(2.0 * sure[:, None] * direction(place) + noise, dtype=np.float32)


def output_weight() -> npt.NDArray[np.float32]:
    """The output head, (v, d), rows of length 1: a state along row t has its largest logit at t."""
    rows = np.random.default_rng(0).standard_normal((MODEL.vocab_size, MODEL.hidden_size))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def direction(place: str) -> npt.NDArray[np.float64]:
    """A unit vector, (d,), that belongs to a place in the network."""
    vector: npt.NDArray[np.float64] = np.random.default_rng(list(place.encode())).standard_normal(MODEL.hidden_size)
    return vector / np.linalg.norm(vector)
