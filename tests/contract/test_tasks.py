"""Every registered task keeps every rule of the contract; rows of Hub tasks are checked where the data is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import registry
from bench.data.sources import FolderSource
from bench.testing import Check, MakeTask, checks_for

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
SOURCE = FolderSource(DATA) if DATA.is_dir() else None
FOUND = registry.tasks()
CASES = [case for name in FOUND.names() for case in checks_for(FOUND.get(name), SOURCE)]


@pytest.mark.parametrize(("make", "check"), CASES)
def test_contract(make: MakeTask, check: Check) -> None:
    check(make)


@pytest.mark.skipif(SOURCE is None, reason="../shared/data is absent: rows of tasks from the Hub were not checked")
def test_rows_of_every_task_were_checked() -> None:
    checked = {make.plugin.name for make, check in CASES if check.__name__ == "gold"}
    assert checked >= {"mmlu-choice", "mmlu-oe", "mmlu-pro-choice", "atlas-choice", "atlas-oe"}
