"""The committed seconds of the tests: nothing without a mark takes long."""

from __future__ import annotations

import json

from tests.durations import COMMITTED, LONGEST


def test_durations_committed_are_short() -> None:
    committed = json.loads(COMMITTED.read_text(encoding="utf-8"))
    tests = {name: spent for name, spent in committed["single"].items() if not name.endswith("::setup")}
    assert {name: spent for name, spent in tests.items() if spent > LONGEST} == {}
