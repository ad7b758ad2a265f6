"""Methods against values of LM-Polygraph's estimators for the same statistics, as `make peers` recorded them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bench import registry
from benchmarks.peers import __main__ as peers
from benchmarks.peers.drawn import Statistics, draw
from benchmarks.peers.table import BOUND, COMPARED, NOT_COMPARED, Compared, key, markdown

RECORD: dict[str, Any] = json.loads(peers.RECORD.read_text(encoding="utf-8"))
VALUES = {name: np.asarray(values) for name, values in RECORD["values"].items()}


@pytest.fixture(scope="module")
def few() -> Statistics:
    return draw(*peers.FEW)


@pytest.mark.parametrize("row", COMPARED, ids=key)
def test_method_gives_the_values_of_the_estimator(row: Compared, few: Statistics) -> None:
    assert row.difference(few, VALUES) <= BOUND
    assert RECORD["largest"][key(row)] <= BOUND
    off = {name: values + 0.01 * (np.arange(len(values)) == 0) for name, values in VALUES.items()}
    assert row.difference(few, off) > BOUND


def test_every_built_in_method_is_in_the_table() -> None:
    named = [*(row.method for row in COMPARED), *(name for row in NOT_COMPARED for name in row.methods)]
    built_in = {entry.name for entry in registry.methods().entries() if entry.origin == registry.BUILT_IN}
    assert set(named) == built_in


def test_committed_table_is_that_of_the_record() -> None:
    assert peers.TABLE.read_text(encoding="utf-8") == markdown(RECORD)
    assert list(RECORD["largest"]) == list(map(key, COMPARED))
    assert RECORD["versions"]["lm-polygraph"] == "0.7.0"
