"""Tables, numbers, fields, options, names and confidences are those that were recorded in `tests/baseline`."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.baseline import HERE, PARTS, called

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
ATOL = {"confidences": 1e-4}
"""Sums in another order differ in last digits, which a training enlarges; elsewhere numbers are rounded ones."""


@pytest.fixture(scope="module", autouse=True)
def intervals() -> None:
    """Fill the cache that all commands share: whichever part came first would wait for all intervals."""
    called("table", "--results", "results")


@pytest.mark.parametrize("part", [pytest.param(p, marks=pytest.mark.slow) if p == "confidences" else p for p in PARTS])
def test_baseline_is_unchanged(part: str) -> None:
    recorded = (HERE / f"{part}.txt").read_text(encoding="utf-8").splitlines()
    now = list(PARTS[part]())
    assert [NUMBER.sub("#", line) for line in now] == [NUMBER.sub("#", line) for line in recorded]
    numbers = [[float(number) for line in lines for number in NUMBER.findall(line)] for lines in (now, recorded)]
    np.testing.assert_allclose(*numbers, rtol=1e-7, atol=ATOL.get(part, 1e-9))
