"""Search spaces: what is drawn, that four configurations are the first four of eight, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

from bench.api import Choice, ConfidenceMethod, ContractError, FloatArray, Needs, Search, Times, Uniform
from bench.api.configurations import configuration_values, refuse_search, search_fields


@dataclass(kw_only=True, eq=False)
class Learner(ConfidenceMethod):
    """Has a constant of every kind."""

    name = "learner"
    needs = Needs()
    search: ClassVar[Mapping[str, Search]] = {
        "rate": Times(0.1, 10.0), "decay": Uniform(1e-4, 1.0, log=True), "margin": Uniform(-1.0, 1.0),
        "width": Times(0.5, 2.0), "kind": Choice(("adam", "sgd")),
    }  # fmt: skip

    rate: float = 1e-4
    decay: float = 0.01
    margin: float = 0.0
    width: int = 8
    kind: str = "adam"

    def fit(self, train: object, ctx: object) -> Learner:  # type: ignore[override]
        """Learn nothing in particular."""
        del train, ctx
        return self

    def predict(self, batch: object) -> FloatArray:  # type: ignore[override]
        """None."""
        raise NotImplementedError


def drawn(seed: int, n: int, **fixed: object) -> list[dict[str, object]]:
    method = Learner(**fixed)  # type: ignore[arg-type]
    return [configuration_values(method, search_fields(method, fixed), seed, k) for k in range(n)]


def test_search_says_what_is_drawn_from() -> None:
    assert {name: search.words(getattr(Learner(), name)) for name, search in Learner.search.items()} == {
        "rate": "0.1 to 10 times 0.0001", "decay": "0.0001 to 1, log-uniform; 0.01 in the preset",
        "margin": "-1 to 1; 0.0 in the preset", "width": "0.5 to 2 times 8",
        "kind": "one of adam, sgd; adam in the preset",
    }  # fmt: skip


def test_search_begins_with_the_preset() -> None:
    own = {"decay": 0.01, "kind": "adam", "margin": 0.0, "rate": 1e-4, "width": 8}
    assert drawn(0, 1) == drawn(7, 1) == [own]


def test_search_draws_are_nested_and_follow_seeds() -> None:
    assert drawn(0, 8)[:4] == drawn(0, 4)
    assert drawn(0, 8) == drawn(0, 8)
    rates = [each["rate"] for seed in range(3) for each in drawn(seed, 8)[1:]]
    assert len(set(rates)) == len(rates)


def test_search_draws_differ_between_methods() -> None:
    other = type("Other", (Learner,), {"name": "other"})()
    assert configuration_values(other, search_fields(other, {}), 0, 1) != drawn(0, 2)[1]


def test_search_leaves_fields_set_by_hand() -> None:
    whole, without = drawn(0, 5), drawn(0, 5, decay=0.3)
    assert without == [{name: value for name, value in each.items() if name != "decay"} for each in whole]


@pytest.mark.parametrize(
    ("name", "low", "high"), [("rate", 1e-5, 1e-3), ("decay", 1e-4, 1.0), ("width", 4, 16), ("margin", -1.0, 1.0)]
)
def test_search_values_keep_bounds_and_type(name: str, low: float, high: float) -> None:
    values = [each[name] for each in drawn(0, 400)]
    assert all(type(value) is type(getattr(Learner(), name)) for value in values)
    assert low <= min(values) <= max(values) <= high  # type: ignore[type-var, operator]


def test_search_values_have_their_distributions() -> None:
    """Against scipy's: a wrong scale (uniform in the value itself) has a p value of 0."""
    rows = drawn(3, 600)[1:]
    decades = np.log10([float(str(each["rate"])) for each in rows])
    assert stats.kstest(decades, stats.uniform(-5, 2).cdf).pvalue > 0.01
    assert stats.kstest([float(str(each["margin"])) for each in rows], stats.uniform(-1, 2).cdf).pvalue > 0.01
    n_adam = sum(each["kind"] == "adam" for each in rows)
    assert stats.binomtest(n_adam, len(rows), 0.5).pvalue > 0.01
    fields = np.array([[float(str(each[name])) for name in ("rate", "decay", "margin")] for each in rows])
    assert np.abs(stats.spearmanr(fields).statistic - np.eye(3)).max() < 0.15  # fields are drawn apart


def test_search_values_can_be_typed_again() -> None:
    for each in drawn(0, 50)[1:]:
        assert float(str(each["rate"])) == each["rate"]
        assert len(str(each["rate"]).replace(".", "").partition("e")[0].lstrip("0")) <= 3


def test_search_of_zero_and_of_small_counts() -> None:
    assert "rate" not in search_fields(Learner(rate=0.0), {})
    assert "decay" in search_fields(Learner(decay=0.0), {})
    small = Learner(width=1)
    assert {configuration_values(small, {"width": Times(0.5, 2.0)}, 0, k)["width"] for k in range(60)} == {1, 2}


@pytest.mark.parametrize(
    ("search", "own"),
    [
        (Uniform(0.0, 0.9999), 0.5),
        (Uniform(1.0001, 1.004, log=True), 1.002),
        (Uniform(0.0, 3.7), 2),
        (Uniform(1, 4), 9),
    ],
)
def test_search_draws_stay_within_bounds(search: Uniform, own: float) -> None:
    drawn = [search.drawn(np.random.default_rng(k), own) for k in range(3_000)]
    assert search.low <= min(drawn)
    assert max(drawn) <= search.high
    if isinstance(own, int):
        assert set(drawn) == set(range(math.ceil(search.low), math.floor(search.high) + 1))


@pytest.mark.parametrize(
    "made",
    [
        lambda: Times(2.0, 3.0), lambda: Times(0.0, 1.0), lambda: Times(1.0, 1.0), lambda: Times(0.5, float("inf")),
        lambda: Uniform(0.0, 1.0, log=True), lambda: Uniform(1.0, 0.5, log=True), lambda: Uniform(1.0, 1.0),
        lambda: Uniform(0.0, float("nan")), lambda: Choice((1,)), lambda: Choice((1, 1)), lambda: Choice([1, 2]),
        lambda: Choice((1, None)),
    ],
)  # fmt: skip
def test_search_bounds_that_are_none_are_refused(made: object) -> None:
    with pytest.raises(ContractError, match="search: expected"):
        made()  # type: ignore[operator]


class Untrained(Learner):
    """Learns nothing."""

    fit = ConfidenceMethod.fit  # type: ignore[assignment]


class OnValidation(Learner):
    """Learns where configurations would be chosen."""

    fit_on = "validation"


@pytest.mark.parametrize(
    ("plugin", "search", "told"),
    [
        (Learner, {"rat": Times(0.1, 10)}, "search names 'rat', which __init__ does not take"),
        (Learner, {"rate": (0.1, 10)}, "search of 'rate': expected Times, Uniform or Choice, got"),
        (Learner, ["rate"], "expected a mapping"),
        (Untrained, {"rate": Times(0.1, 10)}, "learns nothing"),
        (OnValidation, {"rate": Times(0.1, 10)}, "learns on validation"),
    ],
)
def test_search_of_unsearchable_fields_is_refused(plugin: type, search: object, told: str) -> None:
    with pytest.raises(ContractError, match=told):
        refuse_search("who", type("Made", (plugin,), {"search": search}))


def test_search_that_is_whole_is_accepted() -> None:
    refuse_search("who", Learner)
    refuse_search("who", type("Silent", (Untrained,), {"search": {}}))
