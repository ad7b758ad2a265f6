"""Pareto fronts of cost and quality: who can be on one, and who is."""

from __future__ import annotations

import pytest

from bench.report.figures import cost_quality
from bench.report.front import front_candidates, pareto_front
from bench.report.tables.model import Table
from tests.fixtures.readable import artists, note
from tests.kit.tables import planted


def costing(means: dict[str, object], *costs: int, **tests: object) -> Table:
    """A planted table whose methods read so many thousand tokens, and generate none."""
    rows = {
        method: {"forward_tokens_alone": 1000 * cost, "generated_tokens_alone": 0}
        for method, cost in zip(means, costs, strict=True)
    }
    return planted(means, rows=rows, **tests)


OTHERS = {"ptrue": 1, "ct": 1}
BRIER = costing({"ccps": 0.1, "pik": 0.15, "lts": 0.2}, 10, 20, 30)
LABELS = costing({"ccps": 0.1, "pik": 0.15, "lts": 0.2, "ptrue": 0.05, "ct": 0.06}, 20, 10, 30, 1, 1, labels=OTHERS)
_RMSCE: dict[str, object] = {
    name: {"rmsce": value} for name, value in (("pik", -0.01), ("ccps", -0.03), ("ptrue", 0.1))
}
RMSCE = costing({**_RMSCE, "lts": {"rmsce": 0.0, "auroc": 0.5}}, 10, 20, 5, 1)


@pytest.mark.parametrize(
    ("table", "metric", "on", "can"),
    [
        pytest.param(BRIER, "brier", ["ccps"], {"ccps", "pik", "lts"}, id="the best is the cheapest"),
        pytest.param(LABELS, "brier", ["pik", "ccps"], {"ccps", "pik", "lts"}, id="not on other labels"),
        pytest.param(RMSCE, "rmsce", ["ptrue", "pik"], {"ptrue", "pik", "ccps"}, id="less than 0 is 0; no constant"),
    ],
)
def test_front_has_what_nothing_dominates(table: Table, metric: str, on: list[str], can: set[str]) -> None:
    assert [key.method for key in pareto_front(table, metric, "tokens", {""})] == on
    assert {line.method for line in front_candidates(table, metric)} == can
    for line in table.lines:  # whatever is shown
        assert [key.method for key in pareto_front(table.with_lines({line.key}), metric, "tokens", {""})] == on


def test_methods_on_other_labels_are_hollow() -> None:
    figure = cost_quality([LABELS])
    fills = {
        name.split("/")[-2]: each.get_fillstyle()
        for name, each in artists(figure)
        if name.startswith("tokens/brier/") and name.endswith("/mean")
    }
    assert {method for method, fill in fills.items() if fill == "none"} == set(OTHERS)
    assert "hollow and not on the front: ptrue, ct (other answers or labels)." in note(figure)
