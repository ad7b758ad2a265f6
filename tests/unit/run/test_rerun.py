"""A cell that is run again: the settings that it is run with, and what counts as the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import UserError
from bench.model.folder import find_tokenizer_folder
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import model_label
from bench.model.specs import resolve as resolve_model
from bench.results import files
from bench.results.submissions import ONLY_A_RUN, SubmissionVerdict
from bench.results.submissions.cell import SubmittedCell
from bench.results.submissions.recomputation import recompute_row
from bench.run import rerun
from bench.run.config import RunConfig
from bench.run.pipeline import RunReport
from bench.run.resolve import resolve
from tests.fixtures import models
from tests.kit.gguf import write_gguf
from tests.kit.world import question_records, result_row, write_failure, write_result

N = 200
LABELS = np.random.default_rng(0).random(N) < 0.6
HERE = {"hardware": {"cpu": "this"}, "packages": {"torch": "2"}}


def honest(seed: int = 0) -> Any:
    """What a method with some skill says: close together between seeds."""
    skill = 0.35 * LABELS + 0.3 + 0.15 * np.random.default_rng(1).normal(size=N)
    return np.clip(skill + 0.01 * np.random.default_rng([2, seed]).normal(size=N), 0, 1)


def put(folder: Path, method: str = "ptrue", seed: int = 0, confidence: Any = None, **fields: Any) -> Path:
    said = honest(seed) if confidence is None else confidence
    row = write_result(folder, method, said, LABELS, seed=seed, provenance=HERE, **fields)
    return files.path_of(row, folder)


Fake = Callable[..., list[RunConfig]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Stands in for a run: what it would write, and with which settings it was asked to."""

    def fake(confidence: Any, labels: Any = LABELS, **changes: Any) -> list[RunConfig]:
        asked: list[RunConfig] = []

        def run(config: RunConfig, _progress: object) -> RunReport:
            asked.append(config)
            fields = {"seed": config.seed, "limit": config.limit, "provenance": HERE, **changes}
            methods = [config.methods[0], *(f"{config.methods[0]}+{kind}" for kind in config.recalibrate)]
            if "reason" in fields:
                rows = [write_failure(config.out, method, **fields) for method in methods]
            else:
                rows = [write_result(config.out, method, confidence, labels, **fields) for method in methods]
            return RunReport([], rows, [files.path_of(row, config.out) for row in rows])

        monkeypatch.setattr(rerun, "run", run)
        return asked

    return fake


# --- settings ---------------------------------------------------------------------------------------------------------


SETTINGS: list[dict[str, Any]] = [
    {"seed": 3, "limit": 200, "recalibrate": ("isotonic",)},
    {"dtype": "bfloat16"},
    {"limit": 20, "train_limit": "64+16"},
    {"tune": 3},
    {"overrides": ("pik.steps=7", "protocol.shots=2")},
    {"train_on": "atlas-oe:validation"},
    {"judge": "hf", "judge_model": "m"},
    {"judge": "openai", "judge_model": "m", "judge_url": "http://localhost:1/v1"},
    {"methods": ("semantic-entropy",), "nli": "m"},
    {"methods": ("cocoa",), "similarity": "m"},
    {"methods": ("it",), "training_budget": 64, "token_budget": 32},
    {"answers": "released@ab"},
    {"think_budget": 32},
]
"""Fields of runs of one method on open questions, which its cell keeps."""
NOT_KEPT = {
    "plugins", "task_files", "data_dir", "out", "overwrite", "save_heads", "cache", "dry_run", "max_time",
    "method_timeout", "debug", "device", "devices", "tokenizer", "engine", "workers", "address", "trust_remote_code",
    "served", "parallel",
}  # fmt: skip
"""Files, machines, servers and what changes no number; where a tokenizer is, the result doesn't say."""


@pytest.mark.parametrize("own", SETTINGS, ids=",".join)
def test_settings_of_runs_come_back_from_cells(own: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFBENCH_DATA", raising=False)
    config = RunConfig(**{"methods": ("pik",), "model": "tiny", "tasks": ("atlas-oe",), "preset": "demo", **own})
    resolved = resolve(config)
    (method,), (task,) = config.methods, config.tasks
    by_reader = {} if config.token_budget is None else {"token_budget": config.token_budget}
    row = result_row(
        "+".join((method, *config.recalibrate)), task=task, seed=config.seed, limit=config.limit,
        dtype=config.dtype, answers_source=config.answers, config=resolved.config_of(method, task) | by_reader,
        deviations={**resolved.deviations_of(method), "answer_ids": "retokenised"},
    )  # fmt: skip
    assert rerun._config(row, config.out, None) == config


def test_settings_of_runs_are_kept_or_neutral() -> None:
    kept = {"model", "tasks", "preset", "exemplar_sets"}
    kept |= {name for each in SETTINGS for name in each}
    assert {field.name for field in fields(RunConfig)} - kept == NOT_KEPT


@pytest.mark.parametrize(
    ("own", "told"),
    [
        # it would be sent the key of whoever checks it
        ({"config": {"judge": "openai", "judge_url": "http://x"}}, "judged by a server that it names itself"),
        (
            {"config": {"answers": "file:qwen-3fa9c1"}, "answers_source": "file:qwen-3fa9c1"},
            r"its answers are file:qwen-3fa9c1; run it by hand with --answers",
        ),
        ({"model": "smollm2.served-79d06997"}, "its model was behind a server; run it by hand with --model URL"),
    ],
)
def test_rerun_of_judges_and_files_elsewhere_is_refused(tmp_path: Path, own: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        rerun.rerun(put(tmp_path, **own), tmp_path)


def test_rerun_of_no_cell_is_refused(tmp_path: Path) -> None:
    path, results = put(tmp_path / "results"), tmp_path / "results"
    for cell in (Path("x.json"), path.with_suffix(".parquet"), tmp_path):
        with pytest.raises(UserError, match=r"expected a JSON file below .*, for example tiny/"):
            rerun.rerun(cell, results)
    failed = files.path_of(write_failure(results, "ptrue", "x"), results)
    with pytest.raises(UserError, match="is failed; expected one with numbers"):
        rerun.rerun(failed, results)


# --- what counts as the same ------------------------------------------------------------------------------------------


def test_rerun_tells_the_largest_difference(tmp_path: Path, runs: Fake) -> None:
    path = put(tmp_path, "ptrue+isotonic")
    asked = runs(np.clip(honest() + 5e-5, 0, 1))
    told = rerun.rerun(path.relative_to(tmp_path), tmp_path, tmp_path / "data")
    assert told.reproduced
    assert (asked[0].methods, asked[0].recalibrate) == (("ptrue",), ("isotonic",))
    assert (asked[0].data_dir, asked[0].out.exists()) == (tmp_path / "data", False)
    assert told.reason == "the largest difference of a confidence is 5.0e-05 (1e-04 allowed)"
    assert "correlation 1.0000" in told.notes[0]
    assert told.notes[1] == "answers: 200 of 200 are the same"


@pytest.mark.parametrize(
    ("again", "machine", "reproduced", "said"),
    [
        (honest() + 0.002, HERE, False, "a confidence differs by 2.0e-03 (1e-04 allowed: its method neither learns"),
        (honest() + 0.002, {}, True, "the metrics differ by no more than is allowed (as much as another machine"),
        (honest() * 0.8, {}, False, "allowed: as much as another machine may change"),
    ],
)
def test_rerun_without_chance_agrees_on_one_machine(
    tmp_path: Path, runs: Fake, again: Any, machine: dict[str, Any], reproduced: bool, said: str
) -> None:
    path = put(tmp_path)
    runs(np.clip(again, 0, 1), provenance=machine)
    told = rerun.rerun(path, tmp_path)
    assert (told.reproduced, said in told.reason) == (reproduced, True), told.reason
    assert any("it was made on this with torch 2" in note for note in told.notes) == (machine == {})


def test_rerun_of_a_learner_agrees_within_other_seeds(tmp_path: Path, runs: Fake) -> None:
    for seed in range(3):
        path = put(tmp_path, "ccps", seed=seed)
    put(tmp_path, "pik", seed=1, confidence=np.full(N, 0.5))  # another method's spread is of no account
    runs(np.clip(honest(2) + 0.005 * np.random.default_rng(7).normal(size=N), 0, 1))
    told = rerun.rerun(path, tmp_path)
    assert told.reproduced, told.reason
    assert told.reason == "the metrics differ by no more than is allowed (the spread of 2 other seeds, at most 5.00 %)"


@pytest.mark.parametrize("seeds", [1, 3])
def test_rerun_finds_confidences_mixed_with_the_label(tmp_path: Path, runs: Fake, seeds: int) -> None:
    for seed in range(seeds):
        put(tmp_path, "ccps", seed=seed)
    path = put(tmp_path, "ccps", confidence=0.9 * honest() + 0.1 * LABELS)
    runs(honest())
    told = rerun.rerun(path, tmp_path)
    assert not told.reproduced
    assert "allowed: " in told.reason
    assert ("the spread of 2 other seeds" in told.reason) == (seeds == 3)


@pytest.mark.parametrize(
    ("labels", "changes", "reason"),
    [
        (np.concatenate([~LABELS[:3], LABELS[3:]]), {}, "3 of its answers have another label in the run"),
        (LABELS, {"reason": "no memory"}, "the run failed: no memory"),
    ],
)
def test_rerun_tells_other_labels_and_failures(
    tmp_path: Path, runs: Fake, labels: Any, changes: dict[str, Any], reason: str
) -> None:
    runs(honest(), labels, **changes)
    told = rerun.rerun(put(tmp_path), tmp_path)
    assert (told.reproduced, told.reason) == (False, reason)


def test_verdict_of_a_run_is_settled() -> None:
    verdicts = [
        SubmissionVerdict("a", (f"its confidence is the label; {ONLY_A_RUN}", "dirty")),
        SubmissionVerdict("b", ()),
    ]
    found = rerun.final_verdicts(verdicts, rerun.Rerun("a", reproduced=True, reason="same"))
    assert found == [SubmissionVerdict("a", ("dirty",)), verdicts[1]]
    found = rerun.final_verdicts(verdicts, rerun.Rerun("b", reproduced=False, reason="ece was 1"))
    assert found == [verdicts[0], SubmissionVerdict("b", ("it does not come out again: ece was 1",))]


SCORE, UNKNOWN = 1e6 * honest(), np.full(N, np.nan)


@pytest.mark.parametrize(
    ("confidence", "score", "reproduced", "said"),
    [
        (UNKNOWN, SCORE + 1.0, True, "largest difference of a confidence is"),
        (UNKNOWN, 0.9 * SCORE, False, "a confidence differs by 1.0e-01"),
        (honest(), SCORE, False, "a confidence differs by inf"),
    ],
)
def test_rerun_of_unscaled_scores_compares_scores(
    tmp_path: Path, confidence: Any, score: Any, reproduced: bool, said: str
) -> None:
    def cell(confidence: Any, score: Any) -> SubmittedCell:
        records, row = question_records(confidence, LABELS, score=score), result_row("ptrue", provenance=HERE)
        return SubmittedCell(tmp_path, replace(row, metrics=recompute_row(row, records).metrics), records)

    before, after = cell(UNKNOWN, SCORE), cell(confidence, score)
    told = rerun._verdict(before, after, None, "its method neither learns nor draws")
    assert told[0] is reproduced
    assert said in told[1]
    assert any("brier: undefined" in note for note in rerun._notes(before, after))


def test_rerun_may_differ_by_as_much_as_other_seeds(tmp_path: Path) -> None:
    def cell(brier: float, confidence: Any) -> SubmittedCell:
        row = recompute_row(result_row("pik", provenance=HERE), records := question_records(confidence, LABELS))
        value = replace(row.metrics["brier"], mean=brier, pooled=brier)
        return SubmittedCell(tmp_path, replace(row, metrics={**row.metrics, "brier": value}), records)

    before, allowed = cell(0.25, honest()), dict.fromkeys(rerun._COMPARED, 1.0) | {"brier": 0.25}
    for brier, agrees in ((0.5, True), (0.53125, False)):
        assert rerun._verdict(before, cell(brier, 1 - honest()), allowed, "of seeds")[0] is agrees


# --- where a local model is -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model, beside GGUF files of it: one's tokenizer is unknown here, one's digest is another."""
    folder = models.save(tmp_path_factory.mktemp("rerun") / "llama", models.llama(tie_word_embeddings=False))
    write_gguf(folder.parent / "m.gguf", folder, pre="viking")
    write_gguf(folder.parent / "other.gguf", folder)
    return folder


@pytest.fixture
def cell(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cell that was made from a GGUF file with `--tokenizer FOLDER`."""
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "cache"))
    digest = find_tokenizer_folder(str(llama)).tokenizer_digest()
    label = model_label(str(llama.parent / "m.gguf"))
    return put(tmp_path / "results", model=label, task="atlas-choice", config={"tokenizer": digest})


def test_gguf_cell_runs_again_where_its_files_lie(llama: Path, cell: Path, tmp_path: Path, runs: Fake) -> None:
    asked = runs(honest())
    moved = tmp_path / "moved.gguf"
    shutil.copy(llama.parent / "m.gguf", moved)
    again = rerun.rerun(cell, tmp_path / "results", model=str(moved), tokenizer=str(llama))
    assert again.reproduced, again
    assert [(config.model, config.tokenizer) for config in asked] == [(str(moved), str(llama))]


def test_gguf_cell_runs_with_no_other_files(llama: Path, cell: Path, tmp_path: Path, runs: Fake) -> None:
    asked = runs(honest())
    other = shutil.copytree(llama, tmp_path / "other")
    (other / "chat_template.jinja").write_text("another", encoding="utf-8")
    file, given = str(llama.parent / "m.gguf"), str(llama)
    for model, tokenizer, sentence in (
        (None, given, "was a file or folder, 'm.gguf-.*'; say where it is: --model FILE or FOLDER"),
        (file, None, "made with a tokenizer of its own .* name its folder: --tokenizer FOLDER"),
        (str(llama.parent / "other.gguf"), given, r"expected the model of the result, 'm.gguf-.*', got another \(SHA"),
        (file, str(other), "expected that of the result .*, got another"),
    ):
        with pytest.raises(UserError, match=sentence):
            rerun.rerun(cell, tmp_path / "results", model=model, tokenizer=tokenizer)
    assert asked == []


def test_folder_of_a_cell_is_known_by_content(llama: Path, tmp_path: Path, runs: Fake) -> None:
    label = model_label("/elsewhere/llama")
    fingerprint = LanguageModel(resolve_model(str(llama)), LoadOptions(device="cpu")).fingerprint
    provenance = {**HERE, "revisions": {label: fingerprint}}
    row = write_result(tmp_path, "ptrue", honest(), LABELS, provenance=provenance, model=label, task="atlas-choice")
    asked = runs(honest())
    assert rerun.rerun(files.path_of(row, tmp_path), tmp_path, model=str(llama)).reproduced
    assert [config.model for config in asked] == [str(llama)]
    with pytest.raises(UserError, match=r"expected the model of the result, 'llama-.*', got another \(fingerprint"):
        rerun.rerun(files.path_of(row, tmp_path), tmp_path, model="tiny")
