"""Holm's correction against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from bench.stats.holm import holm


def test_holm_is_the_largest_of_steps_so_far() -> None:
    p = np.random.default_rng(0).random(9) ** 3
    order = np.argsort(p)
    expected = np.empty(9)
    largest = 0.0
    for step, place in enumerate(order):
        largest = max(largest, min(1.0, (9 - step) * p[place]))
        expected[place] = largest
    np.testing.assert_allclose(holm(p), expected)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_holm_below_alpha_is_what_the_procedure_rejects(alpha: float) -> None:
    p = np.random.default_rng(1).random(40) ** 4
    rejected = np.zeros(40, dtype=bool)
    for step, place in enumerate(np.argsort(p)):
        if p[place] * (40 - step) >= alpha:
            break
        rejected[place] = True
    np.testing.assert_array_equal(holm(p) < alpha, rejected)


def test_holm_of_nothing_is_nothing() -> None:
    assert holm([]).size == 0
