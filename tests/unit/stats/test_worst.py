"""Methods by their worst cell: how often ranks are wrong, and tests that stand on the fewer degrees of freedom."""

import numpy as np
import pytest

from bench.stats.worst import MethodCells


@pytest.mark.parametrize(("freedom", "rank"), [((1e6, 1e6), 2), ((3.0, 1e6), 1), ((1e6, 3.0), 1)])
def test_worst_cell_uses_the_fewer_degrees_of_freedom(freedom: tuple[float, float], rank: int) -> None:
    """2.5 standard errors are significant at 1.96, and not at 3.18, of t with three degrees."""
    error = 0.01
    value = np.array([0.1, 0.1 + 2.5 * error * np.sqrt(2)])
    draws = np.random.default_rng(0).normal(0, error, (20_000, 2))
    cells = MethodCells("brier", np.array(["good", "bad"]), value, np.eye(2) * error**2, np.array(freedom), draws)
    assert cells.rank_by_worst_cell(["good", "bad"]) == {"good": 1, "bad": rank}


@pytest.mark.parametrize(("decoy", "error"), [(-0.3, 1.0), (-0.5, 3.0)])
def test_worst_cell_decides_rarely_without_a_difference(decoy: float, error: float) -> None:
    """Both methods are 0 at worst; where the noisy cell looks good, the other one's observed worst is below 0."""
    rng, errors = np.random.default_rng(3), np.array([0.05, error, 0.05])
    draws, method = rng.normal(0, errors, (4_000, 3)), np.array(["one", "two", "two"])
    decided = 0
    for _ in range(400):
        value = np.array([0.0, 0.0, decoy]) + rng.normal(0, errors)
        cells = MethodCells("brier", method, value, np.diag(errors**2), np.full(3, 1e6), draws)
        decided += max(cells.rank_by_worst_cell(["one", "two"]).values()) > 1
    assert decided <= 30  # more come with a chance of 0.01 where the level is 0.05
