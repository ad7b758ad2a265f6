"""Every registered method keeps every rule of the contract."""

from __future__ import annotations

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
