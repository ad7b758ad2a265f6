"""Methods by their worst cell: how often ranks are wrong, intervals, and the fewer degrees of freedom."""

import numpy as np
import pytest
from scipy import stats

from bench.stats import Settings
from bench.stats.comparison import normal_draws
from bench.stats.worst import MethodCells


@pytest.mark.parametrize(("freedom", "rank"), [((1e6, 1e6), 2), ((3.0, 1e6), 1), ((1e6, 3.0), 1)])
def test_worst_cell_uses_the_fewer_degrees_of_freedom(freedom: tuple[float, float], rank: int) -> None:
    """2.5 standard errors are significant at 1.96, and not at 3.18, of t with three degrees."""
    error = 0.01
    value = np.array([0.1, 0.1 + 2.5 * error * np.sqrt(2)])
    draws = np.random.default_rng(0).normal(0, error, (20_000, 2))
    cells = MethodCells("brier", np.array(["good", "bad"]), value, np.eye(2) * error**2, np.array(freedom), draws)
    assert cells.rank_by_worst_cell(["good", "bad"]) == {"good": 1, "bad": rank}


@pytest.mark.parametrize(
    ("n_first", "truth", "errors"),
    [
        (1, [0, 0, -0.3], [0.05, 1.0, 0.05]), (1, [0, 0, -0.5], [0.05, 3.0, 0.05]),
        (8, [0.0] * 10, [0.01] * 10), (8, [0.0] * 9 + [-0.04], [0.01] * 10),
    ],
)  # fmt: skip
def test_worst_cell_decides_rarely_without_a_difference(n_first: int, truth: list[float], errors: list[float]) -> None:
    """Both methods are 0 at worst; where the noisy cell looks good, the other one's observed worst is below 0."""
    rng, method = np.random.default_rng(3), np.array(["one"] * n_first + ["two"] * (len(truth) - n_first))
    draws, decided, covered = rng.normal(0, errors, (4_000, len(truth))), 0, 0
    for _ in range(400):
        value = 0.5 + np.array(truth) + rng.normal(0, errors)
        cells = MethodCells("brier", method, value, np.diag(np.square(errors)), np.full(len(truth), 1e6), draws)
        decided += max(cells.rank_by_worst_cell(["one", "two"]).values()) > 1
        low, high = cells.interval("one").ends or (1.0, 1.0)
        covered += low <= 0.5 <= high
    assert decided <= 30  # more come with a chance of 0.01 where the level is 0.05
    assert covered >= 370


def test_worst_cell_of_one_has_its_interval() -> None:
    value, covariance = np.array([0.2, 0.3, 0.3]), np.array([[4.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 0.0]]) / 1e4
    draws = normal_draws(covariance, Settings())
    one = MethodCells("auroc", np.array(["a", "b", "c"]), value, covariance, np.full(3, 8.0), draws)
    half = stats.t.ppf(0.975, 8) * 0.02
    assert one.interval("a").ends == pytest.approx((0.2 - half, 0.2 + half), abs=0.002)
    assert one.interval("c").reason == "nothing varies between these questions"
    assert one.rank_by_worst_cell(["a", "b"]) == {"a": 2, "b": 1}  # 0.1 is 5 errors of 0.02
    assert one.rank_by_worst_cell(["b", "c"]) == {"b": 1, "c": 1}
