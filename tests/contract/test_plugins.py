"""Every registered method and task keeps every rule of the contract; Hub rows are checked where the data is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import registry
from bench.data.sources import FolderSource
from bench.testing import Check, checks_for

METHODS, TASKS = registry.methods(), registry.tasks()
DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
SOURCE = FolderSource(DATA) if DATA.is_dir() else None
CASES = [
    *(case for name in METHODS.names() for case in checks_for(METHODS.get(name))),
    *(case for name in TASKS.names() for case in checks_for(TASKS.get(name), SOURCE)),
]


def checked(rule: str) -> set[str]:
    """Names of the plugins that were held to a rule."""
    return {make.plugin.name for make, check in CASES if check.__name__ == rule}


def is_part(name: str) -> bool:
    """Whether a task is a part of another, all of which are made alike; one stands for the others."""
    return "-1k" in name and name != "mmlu-1k-choice"


@pytest.mark.parametrize(
    ("make", "check"),
    [pytest.param(*case, marks=pytest.mark.slow if is_part(case[0].plugin.name) else ()) for case in CASES],
)
def test_contract(make: Any, check: Check) -> None:
    check(make)


def test_methods_were_all_checked() -> None:
    assert checked("values") == set(METHODS.names())


@pytest.mark.skipif(SOURCE is None, reason="../shared/data is absent: rows of tasks from the Hub were not checked")
def test_tasks_had_their_rows_checked() -> None:
    assert checked("gold") >= {"mmlu-choice", "mmlu-oe", "mmlu-pro-choice", "atlas-choice", "atlas-oe"}


@pytest.mark.parametrize("name", METHODS.names())
def test_estimator_equals_itself_alone(name: str) -> None:
    """Two estimators with equal hyperparameters may be fitted to different data: both are keys of a dictionary."""
    estimator: Any = METHODS.get(name)
    one, other = estimator(), estimator()
    assert one != other
    assert len({one, other}) == 2
    with pytest.raises(TypeError):
        estimator(1)  # hyperparameters are named
