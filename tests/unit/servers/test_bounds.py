"""Bounds from the likeliest tokens hold the truth, whatever the distribution."""

from __future__ import annotations

import numpy as np
import pytest

from bench.servers.readings import bound_entropy, bound_shares, difference


@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_the_truth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=500) * rng.choice([0.5, 2, 6])
    log_p = logits - np.log(np.exp(logits).sum())
    k, words = int(rng.choice([5, 20, 100])), rng.choice(500, 4, replace=False).tolist()
    order = np.argsort(-log_p)
    words = [int(order[rng.integers(k)]), *words]
    values, missing, width = bound_shares({int(i): float(log_p[i]) for i in order[:k]}, [[word] for word in words])
    assert missing == sum(word not in order[:k] for word in words)
    for word, value in zip(words, values, strict=True):
        assert value == log_p[word] if word in order[:k] else value >= log_p[word] - 1e-9
    listed = [word for word in words if word in order[:k]]
    best = max(listed, key=lambda word: log_p[word])
    share, high = np.exp(log_p[best]) / np.exp(log_p[words]).sum(), np.exp(log_p[best]) / np.exp(log_p[listed]).sum()
    assert high - width - 1e-9 <= share <= high + 1e-9
    assert high - width == pytest.approx(np.exp(log_p[best]) / np.exp(values).sum()), "the share that is used"
    low, top = bound_entropy(log_p[order[:k]][None].astype(np.float32), 500)
    assert low[0] - 1e-4 <= -(np.exp(log_p) * log_p).sum() <= top[0] + 1e-4


def test_bound_of_words_none_of_which_is_listed_leaves_all_open() -> None:
    values, missing, width = bound_shares({7: np.log(0.5), 8: np.log(0.3)}, [[1], [2]])
    assert (values, missing, width) == ([pytest.approx(np.log(0.2))] * 2, 2, 1.0)
    assert bound_shares({}, [[1], [2]])[1:] == (2, 1.0)


def test_bounds_of_words_of_two_tokens_are_those_of_sums() -> None:
    listed = {1: np.log(0.4), 2: np.log(0.2), 3: np.log(0.1), 9: np.log(0.01)}
    values, missing, width = bound_shares(listed, [[1, 2], [3, 4], [5, 6]])
    assert (np.exp(values), missing) == (pytest.approx([0.6, 0.1, 0.02]), 1)
    assert width == pytest.approx(0.6 / 0.7 - 0.6 / 0.72)


def test_difference_of_probes() -> None:
    a, b = {"x": -0.1, "y": -3.0}, {"x": -0.2, "z": -3.5}
    assert difference([a], [a]) == 0
    assert difference([a], [b]) == pytest.approx(0.5)
    assert difference([a], [a, a]) == difference([a], [{}]) == np.inf
    assert np.isnan(difference([{"x": np.nan}], [a])) or difference([{"x": np.nan}], [a]) > 0
