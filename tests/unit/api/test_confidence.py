"""What a method gives is refused where it is no real number for each answer."""

from __future__ import annotations

import numpy as np
import pytest

from bench.api.confidence import checked, checked_scores
from bench.api.errors import ContractError


def test_complex_numbers_do_not_lose_their_imaginary_part_without_a_word() -> None:
    values = np.array([0.5 + 0.5j, 0.1])
    with pytest.raises(ContractError, match="x: expected real numbers, got complex128"):
        checked("x", values, 2)
    with pytest.raises(ContractError, match="x: expected real numbers, got complex128"):
        checked_scores("x", values, ["a", "b"])
