"""Result files are believed only as far as their own records bear them out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import metrics, results
from bench.errors import UserError
from bench.protocol import PRESETS
from bench.records import ResultRow
from bench.submissions import check_results

CLEAN = {"code": {"git_sha": "0" * 40, "dirty": False, "record_digest": None}}


def write(folder: Path, **changes: Any) -> Path:
    """A true result, as a run would write it, with some fields changed."""
    rng = np.random.default_rng(0)
    confidence = np.round(rng.random(60), 3)
    correct = rng.random(60) < confidence
    subjects = ["art"] * 30 + ["law"] * 30
    scores = metrics.summarise(confidence, correct, subjects, PRESETS["fixed"])
    row = ResultRow(
        method="ghost", model="tiny", task="nowhere", preset="fixed", seed=0, protocol="x", task_version=1, status="ok",
        n=60, n_unparsed=0, llm_accuracy=float(correct.mean()), n_excluded=scores.n_excluded,
        n_clipped=scores.n_clipped, metrics=scores.metrics, per_subject=scores.per_subject, provenance=CLEAN,
    )  # fmt: skip
    records = results.Records(
        [f"q{i}" for i in range(60)], subjects, correct, confidence, ["a"] * 60, np.ones(60, dtype=np.bool_)
    )
    return results.write(replace(row, **changes), records, folder)


def problems(folder: Path) -> str:
    (verdict,) = check_results(folder)
    return "; ".join(verdict.problems)


def test_a_true_result_may_be_submitted_though_nobody_has_its_method(tmp_path: Path) -> None:
    write(tmp_path)
    assert not problems(tmp_path)


def _set(*keys: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_set("metrics", "auroc", "mean", to=0.99), "metrics.auroc.mean is 0.99 in the JSON file, and 0."),
        (_set("metrics", "ece", "std", to=None), "metrics.ece.std is None"),
        (_set("per_subject", "law", "brier", to=0.001), "per_subject.law.brier is 0.001"),
        (_set("per_subject", "art", "n", to=31), "per_subject.art.n is 31"),
        (lambda values: values["per_subject"].pop("law"), "per_subject.law is not in its JSON file"),
        (_set("metrics", "luck", to={"mean": 1.0, "std": 0.0, "pooled": 1.0, "n_undefined": 0}),
         "metrics.luck does not follow"),
        (_set("n", to=61), "n is 61 in the JSON file, and 60"),
        (_set("llm_accuracy", to=0.9), "llm_accuracy is 0.9"),
        (_set("n_unparsed", to=3), "n_unparsed is 3"),
        (_set("method", to="other"), "it says that it is tiny/nowhere/other--fixed--s0.json; don't rename"),
        (_set("provenance", "code", "dirty", to=True), "uncommitted changes"),
        (_set("provenance", to={}), "doesn't say which code made it"),
        (_set("schema_version", to=1), "schema version 1"),
        (_set("surprise", to=1), "unknown key 'surprise'"),
    ],
)  # fmt: skip
def test_what_is_not_true_is_named(tmp_path: Path, change: Callable[[dict[str, Any]], None], complaint: str) -> None:
    path = write(tmp_path)
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")
    assert complaint in problems(tmp_path)


def test_partial_failed_and_orphaned_results_are_refused(tmp_path: Path) -> None:
    write(tmp_path, limit=60)
    assert "it is partial (--limit 60)" in problems(tmp_path)
    other = tmp_path / "other"
    results.write(
        replace(results.read(next(tmp_path.rglob("*.json"))), limit=None, status="failed", reason="no"), None, other
    )
    assert "its cell is failed (no)" in problems(other)
    orphan = tmp_path / "orphan"
    write(orphan).with_suffix(".parquet").unlink()
    assert "has no ghost--fixed--s0.parquet beside it" in problems(orphan)


def test_other_bins_are_respected(tmp_path: Path) -> None:
    path = write(tmp_path, deviations={"protocol.ece_bins": 15})
    assert "metrics.ece.mean" in problems(tmp_path)
    records = results.read_records(path)
    scores = metrics.summarise(
        records.confidence, records.correct, list(records.subject), replace(PRESETS["fixed"], ece_bins=15)
    )
    write(
        tmp_path, deviations={"protocol.ece_bins": 15}, metrics=scores.metrics, per_subject=scores.per_subject,
    )  # fmt: skip
    assert not problems(tmp_path)


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected result files, found none"):
        check_results(tmp_path)
    with pytest.raises(UserError, match="expected a folder"):
        check_results(tmp_path / "nowhere")
