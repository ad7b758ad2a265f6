"""Tests of my-method: the rules that `bench check` knows, and what the method is there for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from my_method import MyMethod

from bench.api import Batch, Ragged, TokenScores
from bench.testing import checks_of

RULES = dict(checks_of(Path(__file__).with_name("my_method.py")))


@pytest.mark.parametrize("name", RULES)
def test_it_keeps_the_rules(name: str) -> None:
    result = RULES[name]()
    assert result.ok, result.message


def test_an_answer_that_was_open_scores_lower() -> None:
    tokens = np.zeros(3, dtype=[("log_probability", np.float32), ("entropy", np.float32)])
    tokens["entropy"] = [0.1, 0.3, 2.0]
    batch = Batch(["two tokens", "one token"], {TokenScores(): Ragged.of([tokens[:2], tokens[2:]])})
    assert MyMethod().predict(batch).tolist() == pytest.approx([-0.2, -2.0])
