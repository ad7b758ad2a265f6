"""What `bench show METHOD` says of constants: every value in every preset, its source, and who deviates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from bench import registry
from bench.api import Batch, ConfidenceMethod, FloatArray
from bench.api.hyperparameters import constants

METHODS = registry.methods()


@pytest.mark.parametrize("name", METHODS.names())
def test_constants_have_a_source(name: str) -> None:
    cls = METHODS.get(name)
    records = constants(cls)
    assert {record["name"] for record in records} == set(cls().params())
    assert [record["name"] for record in records if not record["source"]] == []


def test_constants_that_deviate_are_named() -> None:
    by_name = {record["name"]: record for record in constants(METHODS.get("ccps"))}
    assert by_name["radius"]["deviates"] == ""
    assert by_name["optimiser"]["deviates"] == "refcode"
    assert by_name["weight_decay"] | {"source": ""} == {
        "name": "weight_decay", "paper": 0.1, "refcode": 0.01, "fixed": 0.1, "demo": 0.1, "deviates": "refcode",
        "source": "",
    }  # fmt: skip


@pytest.mark.parametrize("name", METHODS.names())
def test_constants_of_demo_differ_in_budgets_only(name: str) -> None:
    budgets = ("steps", "learning_rate", "points")
    differing = [r["name"] for r in constants(METHODS.get(name)) if r.get("demo") != r.get("fixed")]
    assert all(any(word in field for word in budgets) for field in differing)


@dataclass(kw_only=True, eq=False)
class Probe(ConfidenceMethod):
    """What two methods share."""

    presets: ClassVar[Any] = {"paper": {"steps": 20}, "fixed": {}}

    steps: int = 10
    """Paper, table 1."""
    rate: float = 0.5
    """Paper, table 2."""


@dataclass(kw_only=True, eq=False)
class Deeper(Probe):
    """Adds a constant and has its own source for another."""

    rate: float = 0.1
    """CHOSEN: deeper probes diverge
    at 0.5."""
    layers: tuple[int, ...] = (8, 4)
    """Paper, figure 3."""

    def predict(self, batch: Batch) -> FloatArray:
        raise NotImplementedError


def test_constants_are_inherited_with_their_sources() -> None:
    assert constants(Deeper) == [
        {"name": "steps", "paper": 20, "fixed": 10, "deviates": "fixed", "source": "Paper, table 1."},
        {"name": "rate", "paper": 0.1, "fixed": 0.1, "deviates": "", "source": "CHOSEN: deeper probes diverge at 0.5."},
        {"name": "layers", "paper": (8, 4), "fixed": (8, 4), "deviates": "", "source": "Paper, figure 3."},
    ]
