"""P(True) against the softmax written out, and at the edges of floating point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.api import Batch, ChoiceLogits, ContractError, QueryLogits
from methods.ptrue import PTrue


def confidences(logits: list[list[float]]) -> np.ndarray:
    array = np.array(logits, dtype=np.float32)
    return PTrue().predict(Batch([str(i) for i in range(len(array))], {QueryLogits(): array}))


def test_it_is_the_probability_of_yes() -> None:
    values = confidences([[0.0, 0.0], [1.0, 3.0], [3.0, 1.0]])
    yes = math.exp(3) / (math.exp(1) + math.exp(3))
    assert values == pytest.approx([0.5, yes, 1 - yes], abs=1e-12)
    assert values.dtype == np.float64


def test_large_logits_neither_overflow_nor_tie() -> None:
    values = confidences([[1e4, -1e4], [-1e4, 1e4], [0.0, 20.0], [0.0, 25.0]])
    assert np.isfinite(values).all()
    assert values[0] == 0
    assert values[1] == 1
    assert values[2] < values[3] < 1  # float32 would give 1.0 twice


def test_it_learns_nothing_and_reads_only_the_query() -> None:
    assert not PTrue.trains()
    with pytest.raises(ContractError, match=r"QueryLogits\(\) was read"):
        PTrue().predict(Batch(["0"], {ChoiceLogits(): np.zeros((1, 4), dtype=np.float32)}))
