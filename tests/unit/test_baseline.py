"""Tables, numbers, fields, options, names and confidences are those that were recorded in `tests/baseline`."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.baseline import HERE, PARTS

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
QUICK = ("options", "names")
"""Parts that neither run methods nor read all committed results."""
ATOL = {"confidences": 1e-4}
"""Sums in another order differ in last digits, which a training enlarges; elsewhere numbers are rounded ones."""


@pytest.mark.parametrize("part", [p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in PARTS])
def test_baseline_is_unchanged(part: str) -> None:
    recorded = (HERE / f"{part}.txt").read_text(encoding="utf-8").splitlines()
    now = list(PARTS[part]())
    assert [NUMBER.sub("#", line) for line in now] == [NUMBER.sub("#", line) for line in recorded]
    numbers = [[float(number) for line in lines for number in NUMBER.findall(line)] for lines in (now, recorded)]
    np.testing.assert_allclose(*numbers, rtol=1e-7, atol=ATOL.get(part, 1e-9))
