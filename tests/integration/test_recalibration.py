"""Recalibrated versions are cells of their own, fitted on validation answers that the method was not fitted on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from bench.api import Batch, ConfidenceMethod, Needs
from bench.metrics import nll
from bench.metrics.recalibration import folds_of
from bench.results.files import read_records
from bench.run.out_of_fold import chosen_out_of_fold, out_of_fold
from tests.faults.workload import QUICK, questions_file

Command = Callable[..., "subprocess.CompletedProcess[str]"]

TESTED, LEARNED = 60, 80
"""Questions of the test, and of each split that is learned from."""


@pytest.fixture(scope="module")
def rows(bench: Command, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("recalibrated")
    file = questions_file(folder, sizes={"test": TESTED, "train": LEARNED, "validation": LEARNED})
    result = bench(
        "run", "--method", "ptrue,lts,pik", "--model", "tiny", "--task-file", file, "--recalibrate",
        "isotonic,temperature", "--set", "pik.steps=100", "--set", "lts.steps=200", *QUICK, "--out", folder / "out",
        env={"CONFBENCH_CACHE": str(folder / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    found = {path.name.partition("--")[0]: path for path in (folder / "out").rglob("*.json")}
    return folder, {name: (json.loads(path.read_text()), read_records(path)) for name, path in found.items()}


def test_every_method_has_its_versions_and_they_say_what_they_saw(rows: tuple[Path, dict[str, Any]]) -> None:
    _, found = rows
    assert set(found) == {f"{m}{kind}" for m in ("ptrue", "lts", "pik") for kind in ("", "+isotonic", "+temperature")}
    seen = {name: row["labels_seen"] for name, (row, _) in found.items()}
    assert seen["ptrue"] == {"train": 0, "validation": 0, "gold": 0}
    assert seen["ptrue+isotonic"] == {"train": 0, "validation": LEARNED, "gold": 0}
    assert seen["lts+temperature"] == {"train": 0, "validation": LEARNED, "gold": 0}
    assert seen["pik+isotonic"] == {"train": LEARNED, "validation": LEARNED, "gold": 0}


def test_reading_the_validation_split_is_part_of_the_cost(rows: tuple[Path, dict[str, Any]]) -> None:
    _, found = rows
    alone = {name: row["forward_tokens_alone"] for name, (row, _) in found.items()}
    assert alone["ptrue+isotonic"] == alone["ptrue+temperature"] == alone["lts"] > alone["ptrue"]
    assert alone["lts+isotonic"] == alone["lts"]  # which was fitted there
    assert alone["pik+isotonic"] == alone["pik"]  # whose step was chosen there
    written = {name: row["generated_tokens_alone"] for name, (row, _) in found.items()}
    assert {written[name] for name in written if name.startswith("pik")} == {TESTED + 2 * LEARNED}  # one letter each
    assert {written[name] for name in written if name != "ptrue" and not name.startswith("pik")} == {TESTED + LEARNED}
    assert written["ptrue"] == TESTED


def test_order_is_kept_and_isotonic_gives_steps(rows: tuple[Path, dict[str, Any]]) -> None:
    _, found = rows
    before = found["pik"][1].confidence
    after = found["pik+isotonic"][1].confidence
    order = np.argsort(before, kind="stable")
    assert (np.diff(after[order]) >= 0).all()
    assert len(np.unique(after)) < len(np.unique(before))
    assert found["pik+temperature"][0]["metrics"]["auroc"]["pooled"] == pytest.approx(
        found["pik"][0]["metrics"]["auroc"]["pooled"]
    )


class Memory(ConfidenceMethod):
    """Knows the answers that it was fitted on, and nothing else: the worst case of fitting twice on one split."""

    name = "memory"
    reference = "none"
    needs = Needs()

    def fit(self, train: Batch, ctx: object) -> Memory:
        self.known_ = dict(zip(train.ids, train.correct.tolist(), strict=True))
        return self

    def predict(self, batch: Batch) -> np.ndarray:
        return np.array([float(self.known_.get(name, 0.5)) for name in batch.ids])


def test_a_method_that_learned_the_split_by_heart_is_seen_through() -> None:
    correct = np.random.default_rng(0).random(100) < 0.6
    ids = [f"q{i}" for i in range(100)]
    fits: list[set[str]] = []

    def fitted_anew(batch: Batch) -> ConfidenceMethod:
        fits.append(set(batch.ids))
        return Memory().fit(batch, None)

    confidence = out_of_fold(fitted_anew, Batch(ids, {}, correct), Batch(ids, {}), seed=3)
    assert (confidence == 0.5).all()
    fold = folds_of(correct, seed=3)
    assert [len(fit) for fit in fits] == [int((fold != k).sum()) for k in range(5)]
    flat = IsotonicRegression().fit(confidence, correct).predict(confidence)
    assert flat == pytest.approx(np.full(100, correct.mean()))


def test_what_chose_the_step_does_not_tell_how_sure_it_was_there() -> None:
    """Each answer's confidence is that of the step which the other four fifths of the answers would choose."""
    rng = np.random.default_rng(0)
    correct = rng.random(60) < 0.6
    curve = rng.random((6, 60))
    confidence, fold = chosen_out_of_fold(curve, correct, seed=3), folds_of(correct, seed=3)
    for k in range(5):
        others = [nll(point[fold != k], correct[fold != k]) for point in curve]
        assert np.array_equal(confidence[fold == k], curve[np.argmin(others)][fold == k])


def test_an_unknown_recalibration_is_one_sentence(bench: Command, tmp_path: Path) -> None:
    result = bench("run", "--method", "ptrue", "--model", "tiny", "--recalibrate", "magic", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "unknown recalibration 'magic'; expected one of isotonic, platt, beta, temperature" in result.stderr
