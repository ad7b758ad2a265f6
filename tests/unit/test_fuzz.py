"""Parsers under the fuzzer: each takes what the program writes and refuses odd inputs in words; crashes are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from bench.api import UserError
from tests.fuzz.engine import Watch, _mutations
from tests.fuzz.targets import REFUSALS, TARGETS

RUNS = 25


@pytest.fixture(autouse=True)
def _nothing_stays_patched() -> Iterator[None]:
    yield
    mock.patch.stopall()


@pytest.mark.parametrize("name", TARGETS)
def test_parser_takes_valid_inputs_and_refuses_odd_ones(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    watch = Watch(target.prepare(tmp_path), REFUSALS, runs=RUNS)
    seeds = target.seeds()
    for seed in seeds:
        watch(seed)
    assert not target.valid or watch.refused == 0
    _mutations(watch, seeds)
    assert watch.done == RUNS
    assert watch.crashes.keys() <= {"too slow"}  # whatever else this machine does meanwhile


def test_crash_is_told_once_for_each_place() -> None:
    def fragile(data: bytes) -> None:
        if b"x" in data:
            raise UserError("x is refused")
        data.decode("ascii")
        data[4]

    watch = Watch(fragile, REFUSALS, runs=0)
    for data in (b"12345", b"x", b"\xff", b"\xfe", b"1", b"12"):
        watch(data)
    assert (watch.done, watch.refused) == (6, 1)
    assert sorted(kind.partition(" ")[0] for kind in watch.crashes) == ["IndexError", "UnicodeDecodeError"]
