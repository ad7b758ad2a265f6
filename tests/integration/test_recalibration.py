"""Recalibrated versions are cells of their own, fitted on validation answers that the method was not fitted on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from bench.api import Batch, ConfidenceMethod, Needs
from bench.metrics.recalibration import stratified_folds
from bench.results.files import read_records
from bench.results.question_records import QuestionRecords
from bench.run.recalibration import out_of_fold
from tests.fixtures.whole_run import METHODS, TESTED, TRAINED, VALIDATED, WholeRun

Found = dict[str, tuple[dict[str, Any], QuestionRecords]]


@pytest.fixture(scope="module")
def rows(whole_run: WholeRun) -> Found:
    """Results of one seed by their methods."""
    found = {path.name.partition("--")[0]: path for path in whole_run.cells("--s0").values()}
    return {name: (json.loads(path.read_text()), read_records(path)) for name, path in found.items()}


def test_recalibrated_versions_say_what_they_saw(rows: Found) -> None:
    assert set(rows) == {f"{method}{kind}" for method in METHODS for kind in ("", "+isotonic", "+temperature")}
    seen = {name: row["labels_seen"] for name, (row, _) in rows.items()}
    assert seen["ptrue"] == {"train": 0, "validation": 0, "gold": 0}
    assert seen["ptrue+isotonic"] == {"train": 0, "validation": VALIDATED, "gold": 0}
    assert seen["lts+temperature"] == {"train": 0, "validation": VALIDATED, "gold": 0}
    assert seen["pik+isotonic"] == {"train": TRAINED, "validation": VALIDATED, "gold": 0}


def test_recalibration_costs_reading_the_validation_split(rows: Found) -> None:
    alone = {name: row["forward_tokens_alone"] for name, (row, _) in rows.items()}
    assert alone["ptrue+isotonic"] == alone["ptrue+temperature"] == alone["lts"] > alone["ptrue"]
    assert alone["lts+isotonic"] == alone["lts"]  # which was fitted there
    assert alone["pik+isotonic"] == alone["pik"]  # whose step was chosen there
    written = {name: row["generated_tokens_alone"] for name, (row, _) in rows.items()}
    learned = {name for name in written if name.startswith(("pik", "saplma-m", "logistic-probe"))}
    assert {written[name] for name in learned} == {TESTED + TRAINED + VALIDATED}  # one letter each
    alone_on_tests = {"ptrue", "sequence-probability"}
    assert {written[name] for name in set(written) - learned - alone_on_tests} == {TESTED + VALIDATED}
    assert {written[name] for name in alone_on_tests} == {TESTED}
    tested = {name: (row["test_forward_tokens"], row["test_generated_tokens"]) for name, (row, _) in rows.items()}
    assert {count for _, count in tested.values()} == {TESTED}
    assert tested["ptrue"] == tested["ptrue+isotonic"] == tested["lts"] == (alone["ptrue"], written["ptrue"])
    assert tested["pik+isotonic"] == tested["pik"] < (alone["pik"], 0)


def test_recalibration_keeps_order_and_isotonic_gives_steps(rows: Found) -> None:
    before = rows["pik"][1].confidence
    after = rows["pik+isotonic"][1].confidence
    order = np.argsort(before, kind="stable")
    assert (np.diff(after[order]) >= 0).all()
    assert len(np.unique(after)) < len(np.unique(before))
    assert rows["pik+temperature"][0]["metrics"]["auroc"]["pooled"] == pytest.approx(
        rows["pik"][0]["metrics"]["auroc"]["pooled"]
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


def test_out_of_fold_sees_through_rote_learning() -> None:
    correct = np.random.default_rng(0).random(100) < 0.6
    ids = [f"q{i}" for i in range(100)]
    fits: list[set[str]] = []

    def fitted_anew(batch: Batch) -> ConfidenceMethod:
        fits.append(set(batch.ids))
        return Memory().fit(batch, None)

    confidence = out_of_fold(fitted_anew, Batch(ids, {}, correct), Batch(ids, {}), seed=3)
    assert (confidence == 0.5).all()
    fold = stratified_folds(correct, seed=3)
    assert [len(fit) for fit in fits] == [int((fold != k).sum()) for k in range(5)]
    flat = IsotonicRegression().fit(confidence, correct).predict(confidence)
    assert flat == pytest.approx(np.full(100, correct.mean()))
