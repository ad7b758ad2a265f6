"""Every registered method keeps every rule of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from bench import registry
from bench.testing import Check, MakeMethod, checks_for

FOUND = registry.methods()
CASES = [case for name in FOUND.names() for case in checks_for(FOUND.get(name))]


@pytest.mark.parametrize(("make", "check"), CASES)
def test_contract(make: MakeMethod, check: Check) -> None:
    check(make)


def test_every_method_was_checked() -> None:
    assert {make.plugin.name for make, check in CASES if check.__name__ == "values"} == set(FOUND.names())


@pytest.mark.parametrize("name", FOUND.names())
def test_estimator_equals_itself_alone_and_names_its_hyperparameters(name: str) -> None:
    """Two estimators with equal hyperparameters may be fitted to different data: both are keys of a dictionary."""
    estimator: Any = FOUND.get(name)
    one, other = estimator(), estimator()
    assert one != other
    assert len({one, other}) == 2
    with pytest.raises(TypeError):
        estimator(1)
