"""A Ray cluster of several node processes leaves the bytes of one process, whatever becomes of its nodes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.api import UserError
from bench.engine.cluster import Cluster
from bench.run.pipeline import run
from tests.integration.conftest import ROOT
from tests.integration.engine_runs import Killing, add, config, contents, fed, manifests, run_until_killed

if not os.environ.get("CONFBENCH_REQUIRE_RAY"):
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("small_shards"),
    pytest.mark.filterwarnings("default"),
]  # the latter are Ray's own


def test_node_that_dies_costs_its_shards_alone(
    cluster: Any, alone: Path, small_model: Path, rivers: Path, tmp_path: Path
) -> None:
    nodes = [add(cluster), add(cluster)]
    finished: dict[str, str] = {}

    def remove() -> None:
        finished.update({key: m["digest"] for key, m in manifests(tmp_path).items()})
        cluster.remove_node(nodes[0], allow_graceful=False)

    asked = config(small_model, rivers, tmp_path, engine="ray", address=cluster.address)
    report = run(asked, Killing(4, remove))
    assert [row.status for row in report.rows] == ["ok", "ok"]
    assert contents(tmp_path) == contents(alone)
    assert 0 < report.forward_tokens <= fed(tmp_path)
    after = {key: m["digest"] for key, m in manifests(tmp_path).items()}
    assert 4 <= len(finished) < len(after)
    assert finished.items() <= after.items()  # seconds are in there, so it is the very same pass


def test_missing_cluster_is_told(small_model: Path, rivers: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--engine ray: expected a Ray cluster 127\.0\.0\.1:1, none answers"):
        run(config(small_model, rivers, tmp_path, engine="ray", address="127.0.0.1:1"))


def test_address_for_programs_outside_is_refused(
    small_model: Path, rivers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = r"--address ray://…: expected a run on a machine of the cluster, .+ start bench there, with --address"
    with pytest.raises(UserError, match=sentence):
        run(config(small_model, rivers, tmp_path, engine="ray", address="ray://127.0.0.1:10001"))
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    with pytest.raises(UserError, match=sentence):
        run(config(small_model, rivers, tmp_path, engine="ray"))


@pytest.mark.slow
def test_killed_driver_goes_on(cluster: Any, alone: Path, small_model: Path, rivers: Path, tmp_path: Path) -> None:
    add(cluster), add(cluster)
    run_until_killed(small_model, rivers, tmp_path, engine="ray", address=cluster.address)
    finished = {key: m["digest"] for key, m in manifests(tmp_path).items()}
    report = run(config(small_model, rivers, tmp_path, engine="ray", address=cluster.address))
    assert contents(tmp_path) == contents(alone)
    assert len(finished) >= 4
    assert finished.items() <= {key: m["digest"] for key, m in manifests(tmp_path).items()}.items()
    assert 0 < report.forward_tokens < fed(tmp_path)


@pytest.mark.slow
def test_node_needs_neither_plugin_nor_data(
    cluster: Any, alone: Path, small_model: Path, rivers: Path, tmp_path: Path
) -> None:
    """The file of the task is gone before the first worker is there."""
    plugin = tmp_path / "rivers.py"
    shutil.copy(rivers, plugin)
    add(cluster, CONFBENCH_DATA=str(tmp_path / "none"), CONFBENCH_CACHE=str(tmp_path / "none"))
    hire = Cluster.start_worker

    def hired(self: Cluster) -> int:
        plugin.unlink(missing_ok=True)
        return hire(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "start_worker", hired)
        report = run(config(small_model, plugin, tmp_path, engine="ray", address=cluster.address))
    assert not plugin.exists()
    assert [key for key in contents(tmp_path) if "--" not in key] == [k for k in contents(alone) if "--" not in k]
    assert report.forward_tokens


@pytest.mark.slow
@pytest.mark.parametrize("change", ["version", "package", "cache", "model"])
def test_node_with_something_else_is_told(
    cluster: Any, small_model: Path, rivers: Path, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, model, cache = tmp_path / "other", tmp_path / "model", tmp_path / "shared"
    shutil.copytree(small_model, model)
    monkeypatch.chdir(tmp_path)
    if change in {"version", "package"}:
        (other / "bench").mkdir(parents=True)
        if change == "version":
            shutil.copytree(ROOT / "bench", other / "bench", dirs_exist_ok=True)
            with (other / "bench" / "progress.py").open("a") as file:
                file.write("# another version\n")
        else:
            (other / "bench" / "__init__.py").write_text("")
        add(cluster, PYTHONPATH=str(other))
    else:
        add(cluster)
    hire = Cluster.start_worker

    def hired(self: Cluster) -> int:
        """What this machine has and the other doesn't: it is taken away before the worker looks for it."""
        if change == "cache":
            (self.link.store.root / self.link.store_check_file).unlink(missing_ok=True)
        elif change == "model":
            (model / "config.json").unlink(missing_ok=True)
        return hire(self)

    monkeypatch.setattr(Cluster, "start_worker", hired)
    sentences = {
        "version": r"expected confbench .+, sources \w{8} as where the run was started, found .+\. Make them the same",
        "package": r"expected the confbench of the run, found none or another one \(ModuleNotFoundError",
        "cache": r"expected the cache folder .+ of the run, found another one or none\. Set CONFBENCH_CACHE",
        "model": r"expected config\.json in it, found none",
    }
    with pytest.raises(UserError, match=r"^Worker on .+: .*" + sentences[change]):
        run(config(model, rivers, cache, engine="ray", address=cluster.address))
