"""Tests of my-method: the rules that `bench check` knows, and what the method is there for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from my_method import STATE, MyMethod

from bench.api import Batch, Context
from bench.testing import checks_of

RULES = dict(checks_of(Path(__file__).with_name("my_method.py")))


@pytest.mark.parametrize("name", RULES)
def test_it_keeps_the_rules(name: str) -> None:
    result = RULES[name]()
    assert result.ok, result.message


def test_it_learns_which_direction_right_answers_lie_in() -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(200, 4)).astype(np.float32)
    train = Batch([str(i) for i in range(200)], {STATE: states}, correct=states[:, 2] > 0)
    new = Batch(["a", "b"], {STATE: np.array([[0, 0, 2, 0], [0, 0, -2, 0]], dtype=np.float32)})
    sure, unsure = MyMethod().fit(train, Context(seed=0)).predict(new)
    assert sure > 0.5 > unsure
