"""What the tests of whole runs share: a place for them, the run that others must be like, a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.run.pipeline import run
from tests.integration.engine_runs import config, cut_small
from tests.kit.place import Place

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"


@pytest.fixture(scope="module", autouse=True)
def _checked_once(checked_once: None) -> None:
    """What is checked where a model is loaded is proven in `unit/model/`."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty folder in which commands are run."""
    return Place(tmp_path)


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 15 questions."""
    cut_small(monkeypatch.setattr)


@pytest.fixture(scope="session")
def alone(small_model: Path, rivers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run in one process: what every other must be like."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch.setattr)
        run(config(small_model, rivers, folder))
    return folder


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster whose head computes nothing; nodes are added by those who need them."""
    import ray
    from ray import cluster_utils

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 10**8}
    found = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        yield found
    finally:
        ray.shutdown()
        found.shutdown()
