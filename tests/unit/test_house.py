"""What `make house` measures, on imports written down by hand."""

from __future__ import annotations

import pytest

from tests.house import circle, code_lines, drawing, floors, layers, room_of, rooms, upward

IMPORTS = {
    "bench": set(),
    "bench.cli.app": {"bench.run", "bench.run.plan", "bench.api"},
    "bench.run": set(),
    "bench.run.plan": {"bench.run", "bench.api.batch"},
    "bench.api": {"bench.api.batch"},
    "bench.api.batch": set(),
    "methods.ccps": {"bench.api"},
}
ROOMS = {"cli": {"run", "api"}, "run": {"api"}, "api": set(), "methods": {"api"}}


@pytest.mark.parametrize(
    ("module", "room"), [("bench", ""), ("bench.store", "store"), ("bench.api.batch", "api"), ("tasks.ct.x", "tasks")]
)
def test_a_room_lies_right_below_the_harness_or_is_a_package_of_plugins(module: str, room: str) -> None:
    assert room_of(module) == room


def test_arrows_lead_to_other_rooms_and_are_counted_once() -> None:
    assert rooms(IMPORTS) == ROOMS


def test_floors_are_counted_along_the_longest_way_down() -> None:
    assert floors(ROOMS) == {"api": 1, "run": 2, "methods": 2, "cli": 3}
    assert [line[0] for line in drawing(ROOMS)] == ["3", "2", "2", "1"]


def test_a_circle_is_found() -> None:
    assert circle(ROOMS) == []
    assert set(circle({**ROOMS, "api": {"cli"}})) >= {"api", "cli"}


def test_arrows_to_the_same_layer_or_a_higher_one_lead_upward() -> None:
    line_of = {"cli": 0, "run": 1, "store": 1, "api": 2}
    assert upward(ROOMS, line_of) == []
    assert upward({"run": {"store", "api"}, "store": set(), "api": {"run"}}, line_of) == ["run -> store", "api -> run"]


def test_the_layers_are_those_of_the_import_contract() -> None:
    line_of = layers()
    assert line_of["cli"] == 0
    assert line_of["api"] == line_of["progress"] == max(line_of.values())


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    source = '"""One."""\n\n# two\nx = 1  # three\n\nclass A:\n    """Four\n    five."""\n    y: int = (\n        2)\n'
    assert code_lines(source) == 4
    assert code_lines('def f():\n    return """not\n    a docstring"""\n') == 3
