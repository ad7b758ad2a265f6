"""Methods by their worst cell: tests that stand on the fewer degrees of freedom."""

import numpy as np
import pytest

from bench.stats.worst import Cells


@pytest.mark.parametrize(("freedom", "rank"), [((1e6, 1e6), 2), ((3.0, 1e6), 1), ((1e6, 3.0), 1)])
def test_a_difference_is_held_to_the_fewer_degrees_of_freedom(freedom: tuple[float, float], rank: int) -> None:
    """2.5 standard errors are significant at 1.96, and not at 3.18, of t with three degrees."""
    error = 0.01
    value = np.array([0.1, 0.1 + 2.5 * error * np.sqrt(2)])
    draws = np.random.default_rng(0).normal(0, error, (20_000, 2))
    cells = Cells("brier", np.array(["good", "bad"]), value, np.eye(2) * error**2, np.array(freedom), draws)
    assert cells.ranks(["good", "bad"]) == {"good": 1, "bad": rank}
