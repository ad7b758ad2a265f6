"""The committed seconds of the tests: nothing without a mark takes long, and what takes longer is told."""

from __future__ import annotations

import json

from tests.durations import COMMITTED, LONGEST, compared, summary


def test_no_committed_test_takes_longer_than_allowed() -> None:
    committed = json.loads(COMMITTED.read_text(encoding="utf-8"))
    tests = {name: spent for name, spent in committed["single"].items() if not name.endswith("::setup")}
    assert {name: spent for name, spent in tests.items() if spent > LONGEST} == {}


def test_a_file_that_takes_longer_than_the_speed_of_the_run_explains_is_named() -> None:
    before = summary({f"a.py::test_{i}": 0.5 for i in range(100)} | {"b.py::test_one": 2.0})
    slower = summary({f"a.py::test_{i}": 1.0 for i in range(100)} | {"b.py::test_one": 4.0})
    assert compared(slower, before) == ["101 tests, 104 s in all; committed are 101 tests, 52 s"]
    grown = summary({f"a.py::test_{i}": 0.5 for i in range(100)} | {"b.py::test_one": 9.0})
    assert compared(grown, before)[1:] == ["b.py: 9.0 s, expected 2.3 s", "b.py::test_one: 9.0 s"]
