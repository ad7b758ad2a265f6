"""Drawing tokens: many draws from many rows at once are those of the definition, one at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.model.token_sampling import pad_by_row, sample_tokens, uniform_numbers


def drawn_singly(logits: np.ndarray, number: float, temperature: float, top_p: float) -> int:
    """The first token whose cumulated probability exceeds the number, in float64."""
    z = logits.astype(np.float64) / temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    if top_p < 1:
        order = np.argsort(-p, kind="stable")
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= top_p]] = 0
    cumulated = np.cumsum(p)
    return min(int(np.searchsorted(cumulated, number * cumulated[-1], side="right")), len(p) - 1)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.tuples(st.integers(1, 6), st.integers(2, 60)),
    draws=st.integers(0, 40),
    temperature=st.floats(0.2, 3),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
)
def test_draws_follow_the_definition(
    seed: int, shape: tuple[int, int], draws: int, temperature: float, top_p: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=shape).astype(np.float32) * 3
    rows = rng.integers(0, shape[0], draws).tolist()
    numbers = rng.random(draws).tolist()
    expected = [drawn_singly(logits[row], u, temperature, top_p) for row, u in zip(rows, numbers, strict=True)]
    assert sample_tokens(torch.from_numpy(logits), rows, numbers, temperature, top_p) == expected
    there = torch.from_numpy(pad_by_row(rows, numbers, shape[0]))
    assert sample_tokens(torch.from_numpy(logits), rows, there, temperature, top_p) == expected


@pytest.mark.parametrize("row", [0, 1])
def test_draws_just_below_one_take_the_last_token(row: int) -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf], [-torch.inf, 0.0, 2.0]])
    assert sample_tokens(logits, [row], [np.nextafter(1.0, 0)], 1.0, 1.0) == [1 + row]


def test_numbers_depend_on_seed_and_question() -> None:
    assert np.array_equal(uniform_numbers(0, "q", 10, 5)[:3], uniform_numbers(0, "q", 3, 5))
    assert not np.array_equal(uniform_numbers(0, "q", 1, 5), uniform_numbers(0, "r", 1, 5))
    assert not np.array_equal(uniform_numbers(0, "q", 1, 5), uniform_numbers(1, "q", 1, 5))
