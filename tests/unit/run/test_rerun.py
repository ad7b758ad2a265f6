"""A cell that is run again: the settings that it is run with, and what counts as the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import UserError
from bench.api.protocol import PRESETS
from bench.results import files
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.results.submissions import ONLY_A_RUN, SubmissionVerdict
from bench.results.submissions.cell import SubmittedCell
from bench.results.submissions.recomputation import recompute_row
from bench.run import rerun
from bench.run.config import RunConfig
from bench.run.pipeline import RunReport
from bench.run.resolve import resolve

N = 200
LABELS = np.random.default_rng(0).random(N) < 0.6
HERE = {"hardware": {"cpu": "this"}, "packages": {"torch": "2"}}


def records(confidence: Any, labels: Any = LABELS) -> QuestionRecords:
    return QuestionRecords(
        [f"q{i}" for i in range(N)], ["s"] * N, labels, confidence, ["a"] * N, np.ones(N, dtype=bool)
    )


ROW = ResultRow(
    method="ptrue", model="tiny", task="atlas-choice", preset="demo", seed=0, protocol="x", task_version=1, status="ok",
    provenance=HERE,
)  # fmt: skip


def honest(seed: int) -> Any:
    """What a method with some skill says: close together between seeds."""
    skill = 0.35 * LABELS + 0.3 + 0.15 * np.random.default_rng(1).normal(size=N)
    return np.clip(skill + 0.01 * np.random.default_rng([2, seed]).normal(size=N), 0, 1)


def put(folder: Path, method: str = "ccps", seed: int = 0, confidence: Any = None, **changes: Any) -> Path:
    row = ResultRow(
        method=method, model="tiny", task="atlas-choice", preset="demo", seed=seed, protocol=PRESETS["demo"].digest(),
        task_version=1, status="ok", provenance=HERE,
    )  # fmt: skip
    rows = records(honest(seed) if confidence is None else confidence)
    return files.write(replace(recompute_row(row, rows), **changes), rows, folder)


Fake = Callable[..., list[RunConfig]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Stands in for a run: what it would write, and with which settings it was asked to."""

    def fake(confidence: Any, labels: Any = LABELS, **changes: Any) -> list[RunConfig]:
        asked: list[RunConfig] = []

        def run(config: RunConfig, _progress: object) -> RunReport:
            asked.append(config)
            kinds = [f"+{kind}" for kind in config.recalibrate]
            paths = []
            for method in [config.methods[0], *(f"{config.methods[0]}{kind}" for kind in kinds)]:
                row = ResultRow(
                    method=method, model=config.model, task=config.tasks[0], preset=str(config.preset),
                    seed=config.seed, protocol="x", task_version=1, status="ok", provenance=HERE, limit=config.limit,
                )  # fmt: skip
                rows = records(confidence, labels)
                row = replace(recompute_row(row, rows), **changes)
                paths.append(files.write(row, None if row.status != "ok" else rows, config.out))
            return RunReport([], list(map(files.read, paths)), paths)

        monkeypatch.setattr(rerun, "run", run)
        return asked

    return fake


def test_a_cell_is_run_with_its_own_settings(tmp_path: Path, runs: Fake) -> None:
    config = {
        "dtype": "bfloat16", "token_budget": 64, "training_budget": 32, "judge": "openai", "judge_model": "m",
        "train_on": "t:dev", "ccps.steps": 7, "protocol.drop_contaminated": False, "shots": 0,
    }  # fmt: skip
    deviations = {key: value for key, value in config.items() if "." in key or key == "shots"}
    row = replace(ROW, dtype="float32")
    assert rerun._config(row, tmp_path, None).dtype == "float32"  # whatever is usual on this machine
    path = put(
        tmp_path, "ccps+isotonic", seed=3, config=config, deviations=deviations, limit=200, answers_source="released@ab"
    )
    (asked,) = (runs(honest(3)),)
    told = rerun.rerun(path, tmp_path, tmp_path)
    assert told.reproduced
    assert replace(asked[0], out=Path("results")) == RunConfig(
        methods=("ccps",), model="tiny", tasks=("atlas-choice",), train_on="t:dev", preset="demo", seed=3, limit=200,
        overrides=("ccps.steps=7", "protocol.drop_contaminated=False"), judge="openai", judge_model="m",
        answers="released@ab",
        recalibrate=("isotonic",), data_dir=tmp_path, dtype="bfloat16", token_budget=64, training_budget=32,
    )  # fmt: skip
    assert not asked[0].out.exists()


SETTINGS: list[dict[str, Any]] = [
    {"seed": 3, "limit": 200, "recalibrate": ("isotonic",)},
    {"tokenizer": "org/model"},
    {"limit": 20, "scale_training": True},
    {"tune": 3},
    {"overrides": ("pik.steps=7", "protocol.shots=2")},
    {"train_on": "atlas-oe:validation"},
    {"judge": "hf", "judge_model": "m"},
    {"judge": "openai", "judge_model": "m", "judge_url": "http://localhost:1/v1"},
    {"methods": ("semantic-entropy",), "nli": "m"},
    {"methods": ("cocoa",), "similarity": "m"},
    {"methods": ("it",), "training_budget": 64},
]
"""Fields of runs of one method on open questions, which its cell keeps."""
NOT_KEPT = {
    "plugins", "task_files", "data_dir", "out", "save_heads", "cache", "dry_run", "method_timeout", "debug", "device",
    "devices", "engine", "workers", "address", "trust_remote_code",
}  # fmt: skip
"""Files, machines and what changes no number."""


@pytest.mark.parametrize("fields_of_run", SETTINGS, ids=",".join)
def test_settings_of_runs_come_back_from_cells(fields_of_run: dict[str, Any]) -> None:
    config = RunConfig(
        **{"methods": ("pik",), "model": "tiny", "tasks": ("atlas-oe",), "preset": "demo", **fields_of_run}
    )
    resolved = resolve(config)
    (method,), (task,) = config.methods, config.tasks
    row = replace(
        ROW, method="+".join((method, *config.recalibrate)), task=task, seed=config.seed, limit=config.limit,
        config=resolved.config_of(method, task), deviations=resolved.deviations_of(method),
    )  # fmt: skip
    assert rerun._config(row, config.out, None) == config


def test_settings_of_runs_are_kept_or_neutral() -> None:
    kept = {
        "model",
        "tasks",
        "preset",
        "answers",
        "token_budget",
        "exemplar_sets",
        "dtype",
        *(name for each in SETTINGS for name in each),
    }
    assert {field.name for field in fields(RunConfig)} - kept == NOT_KEPT


def test_what_comes_out_again_is_reproduced(tmp_path: Path, runs: Fake) -> None:
    put(tmp_path, "ptrue")
    runs(np.clip(honest(0) + 5e-5, 0, 1))
    told = rerun.rerun(Path("tiny/atlas-choice/ptrue--demo--s0.json"), tmp_path)
    assert told.reproduced
    assert told.reason == "the largest difference of a confidence is 5.0e-05 (1e-04 allowed)"
    assert "correlation 1.0000" in told.notes[0]
    assert told.notes[1] == "answers: 200 of 200 are the same"


@pytest.mark.parametrize(
    ("again", "machine", "reproduced", "said"),
    [
        (honest(0) + 0.002, HERE, False, "a confidence differs by 2.0e-03 (1e-04 allowed: its method neither learns"),
        (honest(0) + 0.002, {}, True, "the metrics differ by no more than is allowed (as much as another machine"),
        (honest(0) * 0.8, {}, False, "allowed: as much as another machine may change"),
    ],
)
def test_methods_that_neither_learn_nor_draw_agree_exactly_on_one_machine(
    tmp_path: Path, runs: Fake, again: Any, machine: dict[str, Any], reproduced: bool, said: str
) -> None:
    path = put(tmp_path, "ptrue")
    runs(np.clip(again, 0, 1), provenance=machine)
    told = rerun.rerun(path, tmp_path)
    assert (told.reproduced, said in told.reason) == (reproduced, True), told.reason
    assert any("it was made on this with torch 2" in note for note in told.notes) == (machine == {})


def test_a_method_that_learns_agrees_within_the_spread_of_its_other_seeds(tmp_path: Path, runs: Fake) -> None:
    for seed in range(3):
        path = put(tmp_path, seed=seed)
    put(tmp_path, "pik", seed=1, confidence=np.full(N, 0.5))  # another method's spread is of no account
    noise = 0.005 * np.random.default_rng(7).normal(size=N)
    runs(np.clip(honest(2) + noise, 0, 1))
    told = rerun.rerun(path, tmp_path)
    assert told.reproduced, told.reason
    assert told.reason == "the metrics differ by no more than is allowed (the spread of 2 other seeds, at most 5.00 %)"


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_confidence_mixed_with_the_label_does_not_come_out_again(tmp_path: Path, runs: Fake, seeds: int) -> None:
    for seed in range(seeds):
        put(tmp_path, seed=seed)
    path = put(tmp_path, confidence=0.9 * honest(0) + 0.1 * LABELS)
    runs(honest(0))
    told = rerun.rerun(path, tmp_path)
    assert not told.reproduced
    assert "allowed: " in told.reason
    assert ("the spread of 2 other seeds" in told.reason) == (seeds == 3)


def test_other_labels_and_failed_runs_are_said(tmp_path: Path, runs: Fake) -> None:
    path = put(tmp_path, "ptrue")
    runs(honest(0), labels=np.concatenate([~LABELS[:3], LABELS[3:]]))
    assert rerun.rerun(path, tmp_path).reason == "3 of its answers have another label in the run"
    runs(honest(0), status="failed", reason="no memory", metrics={}, per_subject={})
    told = rerun.rerun(path, tmp_path)
    assert (told.reproduced, told.reason) == (False, "the run failed: no memory")


def test_a_cell_that_is_none_is_named(tmp_path: Path, runs: Fake) -> None:
    path = put(tmp_path / "results", "ptrue")
    for cell in (Path("x.json"), path.with_suffix(".parquet"), tmp_path):
        with pytest.raises(UserError, match=r"expected a JSON file below .*, for example tiny/"):
            rerun.rerun(cell, tmp_path / "results")
    failed = files.write(replace(files.read(path), status="failed", reason="x"), None, tmp_path / "results")
    with pytest.raises(UserError, match="is failed; expected one with numbers"):
        rerun.rerun(failed, tmp_path / "results")


def test_a_run_settles_what_only_a_run_can_tell() -> None:
    verdicts = [
        SubmissionVerdict("a", (f"its confidence is the label; {ONLY_A_RUN}", "dirty")),
        SubmissionVerdict("b", ()),
    ]
    found = rerun.final_verdicts(verdicts, rerun.Rerun("a", reproduced=True, reason="same"))
    assert found == [SubmissionVerdict("a", ("dirty",)), verdicts[1]]
    found = rerun.final_verdicts(verdicts, rerun.Rerun("b", reproduced=False, reason="ece was 1"))
    assert found == [verdicts[0], SubmissionVerdict("b", ("it does not come out again: ece was 1",))]


def test_a_cell_that_names_a_judges_server_is_not_run(tmp_path: Path, runs: Fake) -> None:
    """It would be sent the key of whoever checks it."""
    path = put(tmp_path, config={"judge": "openai", "judge_url": "http://x"})
    with pytest.raises(UserError, match="judged by a server that it names itself"):
        rerun.rerun(path, tmp_path)


def test_a_cell_with_answers_of_a_file_is_not_run(tmp_path: Path, runs: Fake) -> None:
    source = "file:qwen-3fa9c1"
    path = put(tmp_path, answers_source=source, config={"answers": source})
    with pytest.raises(UserError, match=r"its answers are file:qwen-3fa9c1; run it by hand with the file"):
        rerun.rerun(path, tmp_path)


def test_scores_that_nothing_could_scale_are_compared_themselves(tmp_path: Path, runs: Fake) -> None:
    def scored(confidence: Any, score: Any) -> QuestionRecords:
        return replace(records(np.asarray(confidence)), score=score)

    unknown, score = np.full(N, np.nan), 1e6 * honest(0)
    for again, reproduced, said in (
        (scored(unknown, score + 1.0), True, "largest difference of a confidence is"),
        (scored(unknown, 0.9 * score), False, "a confidence differs by 1.0e-01"),
        (scored(honest(0), score), False, "a confidence differs by inf"),
    ):
        before, after = (
            SubmittedCell(tmp_path, replace(ROW, metrics=recompute_row(ROW, one).metrics), one)
            for one in (scored(unknown, score), again)
        )
        told = rerun._verdict(before, after, None, "its method neither learns nor draws")
        assert told[0] is reproduced
        assert said in told[1]
        assert any("brier: undefined" in note for note in rerun._notes(before, after))
