"""Every question of a split has a confidence; who can't be asked is skipped, and what went wrong before is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bench.api import (
    AdapterRef,
    Batch,
    ConfidenceMethod,
    ContractError,
    FloatArray,
    Needs,
    Question,
    RunFacts,
    UserError,
)
from bench.api.protocol import FIXED, EmptyRule, Protocol
from bench.api.question import Answer
from bench.data.splits import TaskSplit
from bench.metrics.recalibration import stratified_folds
from bench.metrics.scaling import Scale
from bench.progress import Silent
from bench.results.row import LabelsSeen, Training
from bench.results.transfer import SUBJECT
from bench.run.analyses.folds import Folds
from bench.run.fitting import Fitted
from bench.run.inputs import Inputs, StepResults
from bench.run.plan import TrainOn
from bench.run.predicting import Prediction, Predictor, Skipped
from bench.run.recalibration import Recalibration
from bench.run.rows import ScoredRow
from bench.signals.split_data import SplitData
from tests.fixtures.rivers import Rivers
from tests.kit.world import result_row

TEST = TaskSplit("rivers", "test")
UNUSED: Any = None


class ByNumber(ConfidenceMethod):
    """Says a number times that of the question; every other answer is odd, and a task with one row is too small."""

    name = "half"
    reference = "none"
    needs = Needs()

    def __init__(self, says: float = 0.01, output: str = "probability") -> None:
        self.says, self.output = says, output  # type: ignore[misc, assignment]

    def skip(self, facts: RunFacts) -> str | None:
        return "nothing to learn from" if facts.n_train == 1 else None

    def predict(self, batch: Batch) -> FloatArray:
        return np.asarray([self.says * int(name[1:]) for name in batch.ids])

    def oddities(self, batch: Batch) -> dict[str, int]:
        found = sum(int(name[1:]) % 2 for name in batch.ids)
        return {"odd numbers": found} if found else {}


def split_data(*answers: str, split: Any = "test", right: tuple[bool, ...] = (True,)) -> SplitData:
    """A split with these answers, of which those are right."""
    questions = [Question(f"q{i}", "s", "?", ("a", "b"), 0) for i in range(len(answers))]
    graded = [Answer(text, None, correct=i < len(right) and right[i], parsed=True) for i, text in enumerate(answers)]
    return SplitData(TaskSplit("rivers", split), Rivers(None), questions, [], answers=graded)  # type: ignore[arg-type]


def held(*right: bool) -> SplitData:
    return split_data(*["x"] * len(right), split="validation", right=right)


def pieces(read: SplitData, *_signals: object) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    """Two at a time, the last ones first."""
    usable = np.flatnonzero(read.usable)
    for first in reversed(range(0, len(usable), 2)):
        rows = usable[first : first + 2]
        yield rows, Batch([read.questions[row].id for row in rows], {})


def predictor(method: ConfidenceMethod, protocol: Protocol = FIXED, **infeasible: str) -> Predictor:
    resolved: Any = SimpleNamespace(methods={"half": method}, new_method=lambda _name: method, protocol=protocol)
    batches: Any = SimpleNamespace(pieces=pieces, reader=SimpleNamespace(lm=SimpleNamespace(facts=None)))
    return Predictor(resolved, {(name, TEST): reason for name, reason in infeasible.items()}, batches, Silent())


def predicted(method: ConfidenceMethod, inputs: Inputs) -> Prediction:
    found = predictor(method).predict("half", inputs)
    assert not isinstance(found, Skipped)
    return found


def fitted(method: ConfidenceMethod, curve: FloatArray | None = None) -> Fitted:
    return Fitted(method, Training(), LabelsSeen(), curve, 0.0)


# --- confidences ------------------------------------------------------------------------------------------------------


def test_pieces_come_together_in_the_splits_order() -> None:
    found = predictor(ByNumber()).confidences("half", Inputs(split_data("a", "b", "", "d", "e", "f")))
    assert found.confidence.tolist() == [0.0, 0.01, 0.0, 0.03, 0.04, 0.05]


@pytest.mark.parametrize(
    ("rule", "learned", "expected"),
    [
        (EmptyRule.ZERO, split_data("a", "b", "c", "d", split="train"), 0.0),
        (EmptyRule.BASE_RATE, split_data("a", "b", "c", "d", split="train"), 0.25),
        (EmptyRule.BASE_RATE, None, 0.0),  # a method that learns nothing has no base rate
    ],
)
def test_empty_answers_are_as_the_protocol_says(rule: EmptyRule, learned: SplitData | None, expected: float) -> None:
    inputs = Inputs(split_data("x", "", "y"), learned=learned, fitted=None if learned is None else fitted(ByNumber()))
    found = predictor(ByNumber(), replace(FIXED, empty_rule=rule)).confidences("half", inputs)
    assert found.confidence.tolist() == [0.0, expected, 0.02]


@pytest.mark.parametrize("output", ["probability", "score"])
@pytest.mark.parametrize(
    ("answers", "counted"), [(("a", "b", "", "d", "e", "f"), {"odd numbers": 3}), (("a",), {})], ids=["six", "one"]
)
def test_oddities_of_all_pieces_are_counted(output: str, answers: tuple[str, ...], counted: dict[str, int]) -> None:
    inputs = Inputs(split_data(*answers), selection=held(True, False, False, False))
    assert predicted(ByNumber(output=output), inputs).oddities == counted


def test_method_is_skipped_before_anything_is_raised() -> None:
    lost = Inputs(split_data("x"), failure=ValueError("lost"))
    assert predictor(ByNumber(), half="no letters").predict("half", lost) == Skipped("no letters")
    small = replace(lost, learned=split_data("y", split="train"))
    assert predictor(ByNumber()).predict("half", small) == Skipped("nothing to learn from")
    with pytest.raises(ValueError, match="lost"):
        predictor(ByNumber()).predict("half", lost)


def test_split_is_read_through_its_adapter(tmp_path: Path) -> None:
    method: Any = ByNumber()
    found, curve = split_data("x"), np.zeros((2, 1))
    reads = predictor(method)
    with pytest.raises(ContractError, match="fit left none in `adapter_`"):
        reads.read_adapted("half", found, fitted(method))
    with pytest.raises(ValueError, match="lost"):
        reads.read_adapted("half", found, ValueError("lost"))
    method.adapter_ = AdapterRef(tmp_path, "f")
    reads.batches.reader.read_adapted = lambda read, through: replace(read, adapter=through)  # type: ignore[method-assign, assignment]
    again = reads.read_adapted("half", found, fitted(method))
    assert again is not None
    assert (again.split_data.where, again.split_data.adapter) == (TEST, method.adapter_)
    assert reads.read_adapted("half", split_data("x", split="validation"), fitted(method, curve)) is None
    assert reads.read_adapted("half", found, fitted(method, curve)) is not None


# --- scores -----------------------------------------------------------------------------------------------------------


class Far(ByNumber):
    """Says scores of any size: the last digit of a question's id, times its own."""

    def __init__(self, says: float = -1e300) -> None:
        super().__init__(says, "score")

    def predict(self, batch: Batch) -> FloatArray:
        return np.array([self.says * int(each[-1]) for each in batch.ids])


def test_scores_are_scaled_on_validation() -> None:
    validation = held(True, True, False, True, False)
    found = predicted(Far(), Inputs(split_data("x", "", "y"), selection=validation))
    assert found.score is not None
    assert found.score.tolist() == [0.0, -np.inf, -2e300]  # no answer is below all
    scale = Scale.fit(-np.arange(5.0), validation.correct)
    assert found.confidence.tolist() == [scale.apply([0.0])[0], 0.0, scale.apply([-2.0])[0]]
    assert found.scaled_by == 5
    assert found.note == "scaled on validation: 5 labelled answers of rivers/validation made its scores probabilities"


@pytest.mark.parametrize(
    ("validation", "reason"),
    [
        (None, "there are no labelled validation answers"),
        (held(), "there are no labelled validation answers"),
        (held(True, True), "all 2 labelled validation answers are right"),
        (held(False), "all 1 labelled validation answers are wrong"),
    ],
)
def test_scores_without_labels_of_both_kinds_stay_scores(validation: SplitData | None, reason: str) -> None:
    found = predicted(Far(), Inputs(split_data("x", "y"), selection=validation))
    assert np.isnan(found.confidence).all()
    assert found.scaled_by == 0
    assert found.note.startswith(f"{reason}, by which its scores could become probabilities")


@pytest.mark.parametrize(
    ("right", "note"),
    [
        ((True, True, False, False), "scaled subject by subject on the labelled answers of rivers without the subject"),
        ((True, True, False, True), "all 2 labelled validation answers are right, by which"),
    ],
)
def test_scores_by_subject_need_a_scale_without_each(right: tuple[bool, ...], note: str) -> None:
    tested, validation = split_data("x", "x", "x"), held(*right)
    for each in (tested, validation):
        each.questions[:] = [replace(q, subject=f"s{i % 2}") for i, q in enumerate(each.questions)]
    reads = predictor(Far(-1.0))
    reads.resolved.learn_on = {"rivers": TrainOn("rivers")}  # type: ignore[misc]
    made = StepResults(reads.resolved, frozenset(), {each.where: each for each in (tested, validation)})
    _, found = Folds("rivers", made, UNUSED, reads, UNUSED).predict("half", SUBJECT, TEST, {})
    assert isinstance(found, Prediction)
    assert found.note.startswith(note)
    expected, labels = np.full(3, np.nan), np.asarray(right)
    if not right[3]:
        for row in range(3):
            others = np.arange(4) % 2 != row % 2
            expected[row] = Scale.fit(-np.arange(4.0)[others], labels[others]).apply([-float(row)])[0]
    np.testing.assert_array_equal(found.confidence, expected)
    assert (found.score is not None, found.scaled_by) == (True, 0 if right[3] else 4)


def test_score_that_is_not_finite_names_its_question() -> None:
    method = Far(np.inf)  # 0 * inf is NaN
    with pytest.raises(ContractError, match=r"got nan for question q0 \(2 of 2 are not finite\)"):
        predictor(method).predict("half", Inputs(split_data("x", "y")))


# --- recalibration ----------------------------------------------------------------------------------------------------


def test_recalibration_scales_without_the_answer() -> None:
    labels, method = np.arange(30) % 3 == 0, Far()
    seeded: Any = SimpleNamespace(seed=4)
    made: Any = SimpleNamespace(resolved=SimpleNamespace(methods={"half": method}))
    recalibration = Recalibration(made, seeded, predictor(method), UNUSED)
    confidence = recalibration._predict_validation("half", Inputs(held(*labels.tolist())))
    score, fold = -1e300 * (np.arange(30) % 10), stratified_folds(labels, seed=4)
    for k in range(5):
        expected = Scale.fit(score[fold != k], labels[fold != k]).apply(score[fold == k])
        assert confidence[fold == k].tolist() == expected.tolist()
    with pytest.raises(UserError, match="answers are right: its scores have no scale that could be recalibrated"):
        recalibration._predict_validation("half", Inputs(held(True, True)))


def test_recalibration_that_fails_has_no_number() -> None:
    def inputs(*_: object, **__: object) -> Inputs:
        raise UserError("rivers has no validation split")

    row = result_row("half", task="rivers", metrics={"brier": 0.2}, per_subject={"bells": {"brier": 0.2}})
    resolved = SimpleNamespace(recalibrate=("platt",), labels_of=lambda task: {"train_on": f"beside {task}"})
    failing: Any = SimpleNamespace(resolved=resolved, inputs=inputs)
    recalibration = Recalibration(failing, UNUSED, UNUSED, UNUSED)
    scored = ScoredRow(row, confidence=np.full(2, 0.5))
    (version,) = (cell.row for cell in recalibration.versions(scored, Inputs(split_data("x", "y"))))
    assert (version.method, version.status, version.metrics, version.per_subject) == ("half+platt", "failed", {}, {})
    assert version.config == {"train_on": "beside rivers"}  # whose labels it would have read
    assert "rivers has no validation split" in str(version.reason)
