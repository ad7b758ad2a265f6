"""SHAP values are held to closed forms, to all coalitions of small games, and to shap's own use of a background."""

from __future__ import annotations

import sys
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.api import Format, UserError
from methods.ccps import shap_values as of_shap
from methods.ccps.networks import Mlp, build
from methods.ccps.shap_values import Logit, expected_gradients, kernel_values

shap = of_shap.kernel_explainer  # imported once, with the warnings of its plots left out


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small_network(columns: int, activation: Any = "elu") -> Logit:
    """A network with strong interactions."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        mlp = Mlp((columns, 12, 6, 2), activation).double().eval()
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.mul_(2.5)

    def logit(x: Tensor) -> Tensor:
        return (mlp(x) @ torch.tensor([-1.0, 1.0], dtype=torch.float64)).reshape(len(x))

    return logit


def shapley(worth: Any, players: int) -> np.ndarray[Any, Any]:
    """Shapley values from all coalitions, by their definition."""
    found = np.zeros(players)
    for i in range(players):
        others = [k for k in range(players) if k != i]
        for size in range(players):
            weight = factorial(size) * factorial(players - size - 1) / factorial(players)
            found[i] += weight * sum(worth({*s, i}) - worth(set(s)) for s in combinations(others, size))
    return found


def games(logit: Logit, x: Tensor, background: Tensor) -> tuple[Any, Any]:
    """Logit of the mean probability, and mean logit, of a coalition of columns; both by plain arithmetic."""

    def logits(coalition: set[int]) -> Tensor:
        rows = background.clone()
        for k in coalition:
            rows[..., k] = x[..., k]
        with torch.no_grad():
            return logit(rows)

    def odds(coalition: set[int]) -> float:
        p = float(torch.sigmoid(logits(coalition)).mean())
        return float(np.log(p / (1 - p)))

    return odds, lambda coalition: float(logits(coalition).mean())


@pytest.mark.parametrize("activation", ["relu", "elu"])
def test_kernel_values_are_those_of_all_coalitions(activation: str) -> None:
    logit, x, background = small_network(7, activation), drawn(2, 7, seed=1), drawn(9, 7, seed=2)
    found = kernel_values(logit, x, background, 2**7, 10, seed=0)
    for i, row in enumerate(x):
        for values, game in zip(found, games(logit, row, background), strict=True):
            np.testing.assert_allclose(values[i], shapley(game, 7), rtol=0, atol=1e-8)
    assert np.abs(found.values - found.of_logits).max() > 0.05  # two games, told apart


def test_kernel_values_are_those_of_shap() -> None:
    """The background is averaged here; shap given probabilities, background and link does the same."""
    logit, x, background = small_network(8), drawn(2, 8, seed=1), drawn(9, 8, seed=2)

    def probability(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            return torch.sigmoid(logit(torch.from_numpy(rows))).numpy()

    explainer = shap()(probability, background.numpy(), link="logit")
    theirs = explainer.shap_values(x.numpy(), nsamples=2**8, l1_reg=False, silent=True)
    ours = kernel_values(logit, x, background, 2**8, 10, seed=0).values
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)


def test_drawn_coalitions_come_close_to_all_of_them() -> None:
    logit, x, background = small_network(10), drawn(3, 10, seed=1), drawn(5, 10, seed=2)
    every, some = (kernel_values(logit, x, background, n, 10, seed=0).values for n in (2**10, 400))
    assert 0 < np.abs(every - some).max() < 0.2 * np.abs(every).max()
    np.testing.assert_allclose(some.sum(1), every.sum(1), atol=1e-8)  # the sum is not an estimate


@pytest.mark.parametrize("columns", [3, 40])
def test_shap_values_of_a_linear_logit_are_closed(columns: int) -> None:
    """phi = w (x - mean b); with as many coalitions as players a sum over players is found without error."""
    weights, x, background = drawn(columns, seed=0), drawn(4, columns, seed=1), drawn(6, columns, seed=2)
    closed = (weights * (x - background.mean(0))).numpy()
    found = expected_gradients(lambda rows: rows @ weights - 0.3, x, background, 2, 10)
    np.testing.assert_allclose(found.values, closed, atol=1e-12)
    assert found.gaps.max() < 1e-12
    kernel = kernel_values(lambda rows: rows @ weights - 0.3, x, background, 4 * columns, 10, seed=0)
    np.testing.assert_allclose(kernel.of_logits, closed, atol=1e-9)


def test_gradients_are_aumann_shapley_of_a_product() -> None:
    """Of x y z each player gets a third, as with Shapley; of x^2 y it is 2/3 and 1/3, where Shapley has halves."""
    zero = torch.zeros(1, 3, dtype=torch.float64)
    x = torch.tensor([[2.0, 3.0, 5.0]], dtype=torch.float64)
    product = expected_gradients(lambda rows: rows.prod(1), x, zero, 4, 10)
    np.testing.assert_allclose(product.values, [[10.0, 10.0, 10.0]], atol=1e-12)
    logit: Logit = lambda rows: rows[:, 0] ** 2 * rows[:, 1]  # noqa: E731
    np.testing.assert_allclose(expected_gradients(logit, x, zero, 4, 10).values, [[8.0, 4.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(kernel_values(logit, x, zero, 8, 10, seed=0).of_logits, [[6.0, 6.0, 0.0]], atol=1e-9)


def test_gradients_are_the_limit_of_draws() -> None:
    """GradientSHAP as published: a random background answer and a random place on its line, many times."""
    logit, x, background = small_network(6), drawn(1, 6, seed=1), drawn(8, 6, seed=2)
    found = expected_gradients(logit, x, background, 64, 10)
    assert found.gaps[0] < 1e-2
    rng, n = torch.Generator().manual_seed(3), 200_000
    b = background[torch.randint(8, (n,), generator=rng)]
    at = (b + torch.rand(n, 1, generator=rng, dtype=torch.float64) * (x - b)).requires_grad_()
    (gradient,) = torch.autograd.grad(logit(at).sum(), at)
    draws = (gradient * (x - b)).detach().numpy()
    error = draws.std(0) / np.sqrt(n)
    assert (np.abs(found.values[0] - draws.mean(0)) < 5 * error).all()
    assert error.max() < 0.05 * np.abs(found.values).max()


def test_gradients_at_more_points_close_the_gap() -> None:
    logit, x, background = small_network(6), drawn(5, 6, seed=1), drawn(8, 6, seed=2)
    coarse, fine = (expected_gradients(logit, x, background, points, 10).gaps for points in (2, 64))
    assert fine.max() < coarse.max() / 10
    direct = expected_gradients(logit, x, background, 2, 10).values.sum(1)
    with torch.no_grad():
        whole = (logit(x) - logit(background).mean()).numpy()
    np.testing.assert_allclose(coarse, np.abs(direct - whole), atol=1e-12)


def test_gradients_of_a_far_answer_get_more_points() -> None:
    logit, x, background = small_network(6), drawn(3, 6, seed=1), drawn(8, 6, seed=2)
    x[1] *= 300
    bare, refined = (expected_gradients(logit, x, background, 16, 10, close) for close in (np.inf, 0.01))
    assert bare.gaps[1] > 0.05
    assert refined.gaps.max() <= 0.01
    near = [i for i in (0, 2) if bare.gaps[i] <= 0.01]
    assert near
    np.testing.assert_array_equal(refined.values[near], bare.values[near])


def test_column_at_all_explained_tokens_is_one_player() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build(Format.OPEN, 5, (8, 4), pool_mask=False).double().eval()

    def logit(rows: Tensor) -> Tensor:
        z: Tensor = network(rows)
        return 6 * (z[:, 1] - z[:, 0])

    x, background = drawn(2, 6, 5, seed=1), drawn(4, 6, 5, seed=2)
    kernel = kernel_values(logit, x, background, 2**5, 3, seed=0)
    gradients = expected_gradients(logit, x, background, 64, 3)
    for i, row in enumerate(x):
        own = background.clone()
        own[:, 3:] = row[3:]
        for values, game in zip(kernel, games(logit, row, own), strict=True):
            np.testing.assert_allclose(values[i], shapley(game, 5), atol=1e-8)
        with torch.no_grad():
            whole = float(logit(row[None]) - logit(own).mean())
        assert gradients.values[i].sum() == pytest.approx(whole, abs=0.02)
        assert kernel.of_logits[i].sum() == pytest.approx(whole, abs=1e-8)
    everything = kernel_values(logit, x, background, 2**5, 6, seed=0)
    assert np.abs(everything.values - kernel.values).max() > 1e-3


def test_columns_without_a_difference_get_nothing() -> None:
    logit, x, background = small_network(6), drawn(2, 6, seed=1), drawn(4, 6, seed=2)
    background[:, 2] = x[0, 2]
    background[:, 4] = x[1, 4] = x[0, 4]
    found = kernel_values(logit, x, background, 2**6, 10, seed=0)
    assert found.values[0, 2] == 0
    assert found.values[1, 2] != 0
    assert not found.values[:, 4].any()
    assert not expected_gradients(logit, x, background, 8, 10).values[:, 4].any()
    same = kernel_values(logit, x[:1], x[:1], 2**6, 10, seed=0)
    assert not same.values.any()


def test_shap_values_of_a_sure_network_are_finite() -> None:
    """Probabilities that round to 1: their log-odds come from logits."""
    x, background = drawn(2, 4, seed=1), drawn(3, 4, seed=2)
    found = kernel_values(lambda rows: 400 * rows.sum(1), x, background, 2**4, 10, seed=0)
    assert np.isfinite(found.values).all()
    np.testing.assert_allclose(found.of_logits.sum(1), (400 * (x.sum(1) - background.sum(1).mean())).numpy(), rtol=1e-9)


def test_coalitions_depend_on_the_seed_alone() -> None:
    logit, x, background = small_network(12), drawn(2, 12, seed=1), drawn(4, 12, seed=2)
    found, left = [], []
    for seed in (1, 1, 2):
        np.random.seed(5)  # noqa: NPY002
        found.append(kernel_values(logit, x, background, 60, 10, seed).values)
        left.append(np.random.random())  # noqa: NPY002  # nobody else's draws are moved
    np.random.seed(5)  # noqa: NPY002
    assert left == [np.random.random()] * 3  # noqa: NPY002
    np.random.seed(6)  # noqa: NPY002
    assert np.array_equal(found[0], kernel_values(logit, x, background, 60, 10, 1).values)
    assert not np.array_equal(found[0], found[2])


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(UserError, match=r"pip install 'confbench\[analysis\]'"):
        kernel_values(small_network(3), drawn(1, 3, seed=1), drawn(2, 3, seed=2), 8, 10, seed=0)
