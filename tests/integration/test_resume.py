"""Nothing is computed twice, and a killed or damaged run ends in the very same bytes as an undisturbed one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.prompts import shards
from bench.results.files import read, read_records
from bench.run.pipeline import RunConfig, RunReport, run
from tests.faults.workload import questions_file

ROOT = Path(__file__).parents[2]
CELLS = ("ptrue", "echo")


def numbers(report: RunReport) -> list[dict[str, Any]]:
    """What a result says, without what may differ: seconds, memory, provenance."""
    return [numbers_of(path) for path in report.paths]


def numbers_of(path: Path) -> dict[str, Any]:
    return vars_of(replace(read(path), timings={}, peak_memory_mb=None, provenance={}))


def vars_of(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def confidences(out: Path, model: Path, methods: tuple[str, ...] = CELLS, task: str = "rivers") -> dict[str, bytes]:
    found = {}
    for method in methods:
        (path,) = out.glob(f"**/{task}/{method}--*.parquet")
        found[method] = read_records(path).confidence.tobytes()
    return found


def sure_of(report: RunReport) -> list[bytes]:
    return [read_records(path).confidence.tobytes() for path in report.paths]


# --- killed -----------------------------------------------------------------------------------------------------------


MANY = ("0", "0.25", "0.5", "0.75", "1", "fit", "worker", "together")


@pytest.fixture(scope="module")
def killed(
    small_model: Path, rivers: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, dict[str, Any]]]:
    """Folder of runs that were killed at the moments of `forked_runs.py`, and what happened."""
    folder = tmp_path_factory.mktemp("killed")
    program = [
        sys.executable,
        str(Path(__file__).with_name("forked_runs.py")),
        str(folder),
        str(small_model),
        str(rivers),
        *MANY,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    told = folder / "stderr"  # a file: a worker that lived on would keep a pipe open
    with told.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            program, stdout=subprocess.PIPE, stderr=file, text=True, check=False, env=environment, timeout=300
        )
    assert done.returncode == 0, told.read_text(encoding="utf-8")
    return folder, json.loads(done.stdout)


def moments(done: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: facts for name, facts in done.items() if name.startswith(("change", "fit", "worker"))}


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_in_the_same_bytes(
    killed: tuple[Path, dict[str, dict[str, Any]]], small_model: Path
) -> None:
    folder, done = killed
    expected = confidences(folder / "undisturbed" / "out", small_model)
    assert len(set(expected.values())) == len(CELLS)
    assert len(moments(done)) >= 5
    for name, facts in moments(done).items():
        assert facts["killed"] == -signal.SIGKILL, name
        assert facts["ended"] == 0, name
        assert facts["statuses"] == ["ok", "ok"], name
        assert confidences(folder / name / "out", small_model) == expected, name
        for path in (folder / "undisturbed" / "out").rglob("*--*.json"):
            told = folder / name / "out" / path.relative_to(folder / "undisturbed" / "out")
            assert numbers_of(told) == numbers_of(path), name  # costs too


@pytest.mark.slow
def test_what_a_killed_run_had_finished_is_not_done_again(killed: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder, done = killed
    first = json.loads((folder / "undisturbed" / "out.json").read_text(encoding="utf-8"))
    changes = sorted((int(n.removeprefix("change")), f["forward_tokens"]) for n, f in done.items() if "change" in n)
    tokens = [count for _, count in changes]
    assert any(0 < count < first["forward_tokens"] for count in tokens)
    assert tokens == sorted(tokens, reverse=True)
    assert (tokens[0], tokens[-1]) == (first["forward_tokens"], 0)  # from the first change to the last
    assert len(set(tokens)) >= 3  # more and more shards were stored
    assert done["fit"]["forward_tokens"] == 0


@pytest.mark.slow
def test_what_a_killed_run_left_half_written_is_swept_and_is_no_damage(
    killed: tuple[Path, dict[str, dict[str, Any]]],
) -> None:
    _, done = killed
    assert any(facts["left"] for facts in moments(done).values())
    for name, facts in moments(done).items():
        assert facts["still left"] == [], name
        assert not [note for note in facts["notes"] if "damaged" in note], name


@pytest.mark.slow
def test_workers_end_with_a_run_that_is_killed_and_what_they_had_read_is_kept(
    killed: tuple[Path, dict[str, dict[str, Any]]],
) -> None:
    folder, done = killed
    pids = (folder / "worker" / "pids").read_text(encoding="utf-8").split()
    assert len(pids) >= 2  # the worker, and the plugin's process
    deadline = time.monotonic() + 20
    while any(Path("/proc", pid).exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first = json.loads((folder / "undisturbed" / "out.json").read_text(encoding="utf-8"))
    assert 0 < done["worker"]["forward_tokens"] < first["forward_tokens"]


@pytest.mark.slow
def test_two_runs_at_once_on_one_cache_both_get_the_same_bytes(
    killed: tuple[Path, dict[str, dict[str, Any]]], small_model: Path
) -> None:
    folder, done = killed
    expected = confidences(folder / "undisturbed" / "out", small_model)
    assert done["together"]["ended"] == [0, 0]
    for out, facts in zip(("first", "second"), done["together"]["facts"], strict=True):
        assert facts["statuses"] == ["ok", "ok"]
        assert not [note for note in facts["notes"] if "damaged" in note]
        assert confidences(folder / "together" / out, small_model) == expected


# --- again ------------------------------------------------------------------------------------------------------------


def configured(model: Path, plugin: Path, folder: Path) -> RunConfig:
    return RunConfig(
        CELLS, str(model), tasks=("rivers",), plugins=(plugin,), limit=40, scale_training=True,
        out=folder / "out", cache=folder / "cache",
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def two_shards() -> Iterator[None]:
    """Two shards of each split of a run of 40 questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_SHARD", 20)
        patch.setattr(shards, "_MOST", 40)
        yield


@pytest.fixture(scope="module")
def ran(small_model: Path, rivers: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunReport]:
    """A run, and the folder with its results and its cache, of which tests take copies."""
    folder = tmp_path_factory.mktemp("ran")
    return folder, run(configured(small_model, rivers, folder))


@pytest.fixture
def first(ran: tuple[Path, RunReport], tmp_path: Path) -> RunReport:
    """A run of `config` that is over: its results and its cache lie where `config` says."""
    folder, report = ran
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return replace(report, paths=[tmp_path / path.relative_to(folder) for path in report.paths])


@pytest.fixture
def config(small_model: Path, rivers: Path, tmp_path: Path) -> RunConfig:
    return configured(small_model, rivers, tmp_path)


def test_a_second_run_reads_everything_and_says_the_same(
    config: RunConfig, first: RunReport, small_model: Path
) -> None:
    said, sure = numbers(first), confidences(config.out, small_model)
    second = run(config)
    assert first.forward_tokens > 0
    assert second.forward_tokens == 0
    assert numbers(second) == said
    assert confidences(config.out, small_model) == sure
    assert all("all stored" in line for line in second.plan if line.startswith("read"))
    assert [row.timings.get("fit") for row in second.rows] == [row.timings.get("fit") for row in first.rows]


def entries(config: RunConfig, kind: str) -> list[Path]:
    assert config.cache is not None
    return sorted(path.parent for path in (config.cache / kind).rglob("manifest.json"))


def cut_short(entry: Path) -> None:
    for path in entry.glob("*.safetensors"):
        os.truncate(path, path.stat().st_size // 2)


def altered(entry: Path) -> None:
    for path in entry.glob("*.safetensors"):
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)


def deleted(entry: Path) -> None:
    for path in entry.glob("*.safetensors"):
        path.unlink()


def manifest_broken(entry: Path) -> None:
    os.truncate(entry / "manifest.json", 40)


def manifest_emptied(entry: Path) -> None:
    manifest = json.loads((entry / "manifest.json").read_text(encoding="utf-8"))
    (entry / "manifest.json").write_text(json.dumps({**manifest, "files": {}}), encoding="utf-8")


@pytest.mark.usefixtures("trained_here")
def test_the_embedded_model_resumes_and_a_damaged_entry_of_any_kind_changes_no_field(tmp_path: Path) -> None:
    quick = ("ccps.contrastive_steps=5", "ccps.classifier_steps=5", "it.steps=4", "it.deepspeed=false")
    overrides = ("protocol.shots=0", *quick)
    file = questions_file(tmp_path, sizes={"test": 8, "train": 12, "validation": 8})
    config = RunConfig(
        ("ccps", "it"), "tiny", task_files=(file,), overrides=overrides, out=tmp_path / "out", cache=tmp_path / "cache"
    )
    first = run(config)
    said, sure = numbers(first), sure_of(first)
    assert [row.status for row in first.rows] == ["ok", "ok"]
    second = run(config)
    assert second.forward_tokens == 0 < first.forward_tokens
    assert (numbers(second), sure_of(second)) == (said, sure)
    damaged = {kind: entries(config, kind) for kind in ("readings", "fits")}
    assert sum(map(len, damaged.values())) >= 4
    for kind, kept in damaged.items():  # readings while fits are whole, and fits while readings are
        for entry in kept:
            altered(entry)
        again = run(config)
        assert len([note for note in again.notes if "was damaged" in note]) == len(kept), kind
        assert (numbers(again), sure_of(again)) == (said, sure), kind


def test_damage_is_told_and_repaired(config: RunConfig, first: RunReport, small_model: Path) -> None:
    said, sure = numbers(first), confidences(config.out, small_model)
    data_by_split, fits = entries(config, "readings"), entries(config, "fits")
    assert (len(data_by_split), len(fits)) == (6, 1)
    damages = (cut_short, altered, deleted, manifest_broken, manifest_emptied)
    for damage, entry in zip(damages, data_by_split[1:], strict=True):
        damage(entry)
    altered(fits[0])
    again = run(config)
    assert 0 < again.forward_tokens < first.forward_tokens  # the damaged shards alone
    assert sorted(note.partition("/")[0] for note in again.notes if "was damaged" in note) == [
        "cache entry fits",
        *["cache entry readings"] * len(damages),
    ]
    assert numbers(again) == said
    assert confidences(config.out, small_model) == sure
    healed = run(config)
    assert healed.forward_tokens == 0
    assert not [note for note in healed.notes if "damaged" in note]


def stages(config: RunConfig) -> dict[Path, set[str]]:
    """Stored reading -> the stages of work that made it."""
    read_back = {
        entry: json.loads((entry / "manifest.json").read_text("utf-8")) for entry in entries(config, "readings")
    }
    return {entry: {stage for stage, c in m["costs"].items() if c["forward_tokens"]} for entry, m in read_back.items()}


def test_another_method_later_asks_nothing_again(config: RunConfig, small_model: Path) -> None:
    (alone,) = run(replace(config, methods=("ptrue",))).paths
    before = read_records(alone)
    old = stages(config)
    assert len(old) == 2
    assert all("answers" in made_by for made_by in old.values())
    both = run(config)
    added = {entry: made_by for entry, made_by in stages(config).items() if entry not in old}
    beside = [made_by for entry, made_by in added.items() if any(entry.parents[1] == e.parents[1] for e in old)]
    assert len(added) == 6  # two shards of the test split once more, two of train and two of validation
    assert len(beside) == 2
    assert all("answers" not in made_by for made_by in beside)  # stored answers were read, none was generated
    for path in both.paths:
        after = read_records(path)
        assert after.answer == before.answer
        assert after.correct.tolist() == before.correct.tolist()
    assert confidences(config.out, small_model, ("ptrue",))["ptrue"] == before.confidence.tobytes()
    assert run(config).forward_tokens == 0


def test_a_changed_fit_is_fitted_anew_and_a_changed_seed_reads_the_same_answers(
    config: RunConfig, first: RunReport
) -> None:
    other = run(replace(config, seed=1))
    assert other.forward_tokens == 0
    by_seed = [read_records(report.paths[1]).confidence for report in (first, other)]
    assert by_seed[0].tobytes() != by_seed[1].tobytes()
    assert len(entries(config, "fits")) == 2


def test_another_prompt_is_another_reading(config: RunConfig) -> None:
    first = run(replace(config, methods=("ptrue",)))
    assert run(replace(config, methods=("ptrue",), overrides=("protocol.shots=1",))).forward_tokens > 0
    assert run(replace(config, methods=("ptrue",), overrides=("protocol.ece_bins=5",))).forward_tokens == 0
    assert first.forward_tokens > 0
