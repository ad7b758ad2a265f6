"""Nothing is computed twice, and what was damaged is told and computed again, to the very same bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.prompts import shards
from bench.results.files import read, read_records
from bench.run.pipeline import RunConfig, RunReport, run
from tests.faults.workload import questions_file
from tests.kit.command import plugins_here

CELLS = ("ptrue", "echo")


def numbers_of(path: Path) -> dict[str, Any]:
    """What a result says, without what may differ: seconds, memory, provenance."""
    row = replace(read(path), timings={}, peak_memory_mb=None, provenance={})
    return {name: getattr(row, name) for name in row.__slots__}


def confidences(out: Path) -> dict[str, bytes]:
    """Method -> its confidences."""
    found = out.rglob("*--s0*.parquet")
    return {path.name.partition("--")[0]: read_records(path).confidence.tobytes() for path in found}


def said(report: RunReport) -> list[object]:
    """All that a run may not say otherwise when it is done again."""
    return [(numbers_of(path), read_records(path).confidence.tobytes()) for path in report.paths]


def configured(model: Path, plugin: Path, folder: Path) -> RunConfig:
    return RunConfig(
        CELLS, str(model), tasks=("rivers",), plugins=(plugin,), limit=40, train_limit="36+31",
        out=folder / "out", cache=folder / "cache",
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def two_shards() -> Iterator[None]:
    """Two shards of each split of a run of 40 questions, whose plugin is run in this process."""
    with plugins_here(), pytest.MonkeyPatch.context() as patch:
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


def test_second_run_reads_everything_and_says_the_same(config: RunConfig, first: RunReport) -> None:
    before = said(first)
    second = run(config)
    assert second.forward_tokens == 0 < first.forward_tokens
    assert said(second) == before
    assert all("all stored" in line for line in second.plan if line.startswith("read"))
    assert [row.timings.get("fit") for row in second.rows] == [row.timings.get("fit") for row in first.rows]


def entries(config: RunConfig, kind: str) -> list[Path]:
    assert config.cache is not None
    return sorted(path.parent for path in (config.cache / kind).rglob("manifest.json"))


def altered(entry: Path) -> None:
    for path in entry.glob("*.safetensors"):
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.usefixtures("trained_here")
def test_damage_of_any_kind_changes_no_field(tmp_path: Path) -> None:
    quick = ("ccps.contrastive_steps=5", "ccps.classifier_steps=5", "it.steps=4", "it.deepspeed=false")
    file = questions_file(tmp_path, sizes={"test": 8, "train": 12, "validation": 8})
    config = RunConfig(
        ("ccps", "it"), "tiny", task_files=(file,), overrides=("protocol.shots=0", *quick), out=tmp_path / "out",
        cache=tmp_path / "cache",
    )  # fmt: skip
    first = run(config)
    before = said(first)
    assert [row.status for row in first.rows] == ["ok", "ok"]
    second = run(config)
    assert second.forward_tokens == 0 < first.forward_tokens
    assert said(second) == before
    damaged = {kind: entries(config, kind) for kind in ("readings", "fits")}
    assert sum(map(len, damaged.values())) >= 4
    for kind, kept in damaged.items():  # readings while fits are whole, and fits while readings are
        for entry in kept:
            altered(entry)
        again = run(config)
        assert len([note for note in again.notes if "was damaged" in note]) == len(kept), kind
        assert said(again) == before, kind


def test_damage_is_told_and_repaired(config: RunConfig, first: RunReport) -> None:
    before = said(first)
    data_by_split, fits = entries(config, "readings"), entries(config, "fits")
    assert (len(data_by_split), len(fits)) == (6, 1)
    for entry in (*data_by_split[1:], fits[0]):
        altered(entry)
    again = run(config)
    assert 0 < again.forward_tokens < first.forward_tokens  # the damaged shards alone
    told = sorted(note.partition("/")[0] for note in again.notes if "was damaged" in note)
    assert told == ["cache entry fits", *["cache entry readings"] * 5]
    assert said(again) == before
    healed = run(config)
    assert healed.forward_tokens == 0
    assert not [note for note in healed.notes if "damaged" in note]


def stages(config: RunConfig) -> dict[Path, set[str]]:
    """Stored reading -> the stages of work that made it."""
    found = {entry: json.loads((entry / "manifest.json").read_text("utf-8")) for entry in entries(config, "readings")}
    return {entry: {stage for stage, c in m["costs"].items() if c["forward_tokens"]} for entry, m in found.items()}


def test_later_method_asks_nothing_again(config: RunConfig) -> None:
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
    assert confidences(config.out)["ptrue"] == before.confidence.tobytes()
    assert run(config).forward_tokens == 0


def test_changed_seed_fits_anew_and_reads_stored_answers(config: RunConfig, first: RunReport) -> None:
    other = run(replace(config, seed=1))
    assert other.forward_tokens == 0
    by_seed = [read_records(report.paths[1]).confidence for report in (first, other)]
    assert by_seed[0].tobytes() != by_seed[1].tobytes()
    assert len(entries(config, "fits")) == 2


def test_changed_prompt_is_another_reading(config: RunConfig) -> None:
    first = run(replace(config, methods=("ptrue",)))
    assert run(replace(config, methods=("ptrue",), overrides=("protocol.shots=1",))).forward_tokens > 0
    assert run(replace(config, methods=("ptrue",), overrides=("protocol.ece_bins=5",))).forward_tokens == 0
    assert first.forward_tokens > 0
