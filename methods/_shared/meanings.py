"""Meanings of sampled answers."""

from __future__ import annotations

import numpy as np

from bench.api import FloatArray, IntArray

_ENTAILS = 2


def meanings(entailment: FloatArray) -> IntArray:
    """Meaning of each text, `(m,)`: the number of the first one that it entails and is entailed by.

    Only texts that brought a new meaning count as first.

    Args:
        entailment: `(m, m, 3)` probabilities of contradiction, neutrality and entailment, of which the largest counts.
    """
    entails = entailment.argmax(axis=-1) == _ENTAILS
    meaning = np.arange(len(entails))
    for i, alike in enumerate(entails & entails.T):
        earlier = np.flatnonzero(alike[:i] & (meaning[:i] == np.arange(i)))
        meaning[i] = earlier[0] if len(earlier) else i
    return meaning
