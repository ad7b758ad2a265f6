"""Every question of a split has a confidence; who can't be asked is skipped, and what went wrong before is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

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
from bench.results.row import LabelsSeen, ResultRow, Training
from bench.results.transfer import SUBJECT
from bench.run.analyses.folds import Folds
from bench.run.fitting import Fitted
from bench.run.inputs import Inputs, StepResults
from bench.run.plan import TrainOn
from bench.run.predicting import Predictor, Skipped
from bench.run.recalibration import Recalibration
from bench.run.rows import ScoredRow
from bench.signals.split_data import SplitData
from tests.fixtures.rivers import Rivers

TEST = TaskSplit("rivers", "test")


class Half(ConfidenceMethod):
    """Says one number of all answers; declines small tasks."""

    name = "half"
    reference = "none"
    needs = Needs()
    says = 0.5

    def skip(self, facts: RunFacts) -> str | None:
        return "nothing to learn from" if facts.n_train == 1 else None

    def predict(self, batch: Batch) -> FloatArray:
        return np.full(len(batch), self.says)


def split_data(*answers: str, split: Any = "test") -> SplitData:
    """A split with these answers; the first is right."""
    questions = [Question(f"q{i}", "s", "?", ("a", "b"), 0) for i in range(len(answers))]
    graded = [Answer(text, None, correct=i == 0, parsed=True) for i, text in enumerate(answers)]
    return SplitData(TaskSplit("rivers", split), Rivers(None), questions, [], answers=graded)  # type: ignore[arg-type]


def pieces(read: SplitData, *_signals: object) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    """Two at a time, the last ones first."""
    usable = np.flatnonzero(read.usable)
    for first in reversed(range(0, len(usable), 2)):
        rows = usable[first : first + 2]
        yield rows, Batch([read.questions[row].id for row in rows], {})


def predictor(method: ConfidenceMethod, protocol: Protocol = FIXED, **infeasible: str) -> Predictor:
    resolved: Any = SimpleNamespace(methods={"half": method}, new_method=lambda _name: method, protocol=protocol)
    lm = SimpleNamespace(facts=None)
    batches: Any = SimpleNamespace(pieces=pieces, reader=SimpleNamespace(lm=lm))
    return Predictor(resolved, {(name, TEST): reason for name, reason in infeasible.items()}, batches, Silent())


def fitted(method: ConfidenceMethod, curve: FloatArray | None = None) -> Fitted:
    return Fitted(method, Training(), LabelsSeen(), curve, 0.0)


@pytest.mark.parametrize(("rule", "expected"), [(EmptyRule.ZERO, 0.0), (EmptyRule.BASE_RATE, 0.25)])
def test_where_there_is_no_answer_the_protocol_says_how_sure_it_is(rule: EmptyRule, expected: float) -> None:
    inputs = Inputs(
        split_data("x", "", "y"), learned=split_data("a", "b", "c", "d", split="train"), fitted=fitted(Half())
    )
    found = predictor(Half(), replace(FIXED, empty_rule=rule)).confidences("half", inputs)
    assert found.confidence.tolist() == [0.5, expected, 0.5]


class ByNumber(Half):
    """Says of question i that it is right with i hundredths."""

    def predict(self, batch: Batch) -> FloatArray:
        return np.asarray([int(name[1:]) / 100 for name in batch.ids])


def test_pieces_come_together_in_the_splits_order() -> None:
    found = predictor(ByNumber()).confidences("half", Inputs(split_data("a", "b", "", "d", "e", "f")))
    assert found.confidence.tolist() == [0.0, 0.01, 0.0, 0.03, 0.04, 0.05]


class Odd(ByNumber):
    """Finds every other answer odd."""

    def oddities(self, batch: Batch) -> dict[str, int]:
        found = sum(int(name[1:]) % 2 for name in batch.ids)
        return {"odd numbers": found} if found else {}


@pytest.mark.parametrize("output", ["probability", "score"])
def test_oddities_of_all_pieces_of_the_test_are_counted(output: str) -> None:
    method, validation = Odd(), split_data("a", "b", "c", "d", split="validation")
    method.output = output  # type: ignore[misc, assignment]
    for answers, counted in ((("a", "b", "", "d", "e", "f"), {"odd numbers": 3}), (("a",), {})):
        found = predictor(method).predict("half", Inputs(split_data(*answers), selection=validation))
        assert not isinstance(found, Skipped)
        assert found.oddities == counted


def test_a_method_that_learns_nothing_has_no_base_rate_to_fall_back_on() -> None:
    found = predictor(Half(), replace(FIXED, empty_rule=EmptyRule.BASE_RATE)).confidences(
        "half", Inputs(split_data(""))
    )
    assert found.confidence.tolist() == [0.0]


@pytest.mark.parametrize("says", [1.5, np.nan])
def test_what_is_no_probability_is_refused(says: float) -> None:
    method = Half()
    method.says = says
    with pytest.raises(ContractError, match=r"^half\.predict: expected"):
        predictor(method).confidences("half", Inputs(split_data("x")))


def test_where_it_cannot_run_or_declines_it_is_skipped_before_anything_is_raised() -> None:
    lost = Inputs(split_data("x"), failure=ValueError("lost"))
    assert predictor(Half(), half="no letters").predict("half", lost) == Skipped("no letters")
    small = Inputs(split_data("x"), learned=split_data("y", split="train"), failure=ValueError("lost"))
    assert predictor(Half()).predict("half", small) == Skipped("nothing to learn from")
    with pytest.raises(ValueError, match="lost"):
        predictor(Half()).predict("half", lost)


def test_a_split_is_read_through_the_adapter_that_fit_left(tmp_path: Path) -> None:
    adapter = AdapterRef(tmp_path, "f")
    method, found = Half(), split_data("x")
    method.adapter_ = adapter
    reads = predictor(method)
    reads.batches.reader.read_adapted = lambda read, through: replace(read, adapter=through)  # type: ignore[method-assign]
    again = reads.read_adapted("half", found, fitted(method))
    assert again is not None
    assert (again.split_data.where, again.split_data.adapter) == (TEST, adapter)
    curve = np.zeros((2, 1))
    assert reads.read_adapted("half", split_data("x", split="validation"), fitted(method, curve)) is None
    assert reads.read_adapted("half", found, fitted(method, curve)) is not None


def test_without_an_adapter_nothing_is_read_again() -> None:
    with pytest.raises(ContractError, match="fit left none in `adapter_`"):
        predictor(Half()).read_adapted("half", split_data("x"), fitted(Half()))
    with pytest.raises(ValueError, match="lost"):
        predictor(Half()).read_adapted("half", split_data("x"), ValueError("lost"))


# --- scores -----------------------------------------------------------------------------------------------------------


class Far(Half):
    """Says numbers of any size: the last digit of a question's id, times its own."""

    output = "score"
    says = -1e300

    def predict(self, batch: Batch) -> FloatArray:
        return np.array([self.says * int(each[-1]) for each in batch.ids])


def held(*right: bool) -> SplitData:
    found = split_data(*["x"] * len(right), split="validation")
    answers = [replace(answer, correct=o) for answer, o in zip(found.answers, right, strict=True)]
    return replace(found, answers=answers)


def test_scores_are_scaled_on_validation_and_no_answer_is_below_all() -> None:
    validation = held(True, True, False, True, False)
    found = predictor(Far()).predict("half", Inputs(split_data("x", "", "y"), selection=validation))
    assert not isinstance(found, Skipped)
    assert found.score is not None
    assert found.score.tolist() == [0.0, -np.inf, -2e300]
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
def test_without_labels_of_both_kinds_scores_stay_scores(validation: SplitData | None, reason: str) -> None:
    found = predictor(Far()).predict("half", Inputs(split_data("x", "y"), selection=validation))
    assert not isinstance(found, Skipped)
    assert np.isnan(found.confidence).all()
    assert found.scaled_by == 0
    assert found.note.startswith(f"{reason}, by which its scores could become probabilities")


def test_scores_are_recalibrated_by_scales_that_did_not_see_the_answer() -> None:
    labels = np.arange(30) % 3 == 0
    method, unknown = Far(), cast("Any", None)
    resolved: Any = SimpleNamespace(methods={"half": method})
    recalibration = Recalibration(resolved, unknown, cast("Any", SimpleNamespace(seed=4)), predictor(method), unknown)
    confidence = recalibration._predict_validation("half", Inputs(held(*labels.tolist())))
    score, fold = -1e300 * (np.arange(30) % 10), stratified_folds(labels, seed=4)
    for k in range(5):
        expected = Scale.fit(score[fold != k], labels[fold != k]).apply(score[fold == k])
        assert confidence[fold == k].tolist() == expected.tolist()
    with pytest.raises(UserError, match="answers are right: its scores have no scale that could be recalibrated"):
        recalibration._predict_validation("half", Inputs(held(True, True)))


def test_a_recalibrated_version_that_fails_has_no_number_of_the_method() -> None:
    def inputs(*_: object, **__: object) -> Inputs:
        raise UserError("rivers has no validation split")

    unknown = cast("Any", None)
    row = ResultRow(
        method="half", model="tiny", task="rivers", preset="demo", seed=0, protocol="0" * 16, task_version=1,
        status="ok", metrics={"brier": 0.2}, per_subject={"bells": {"brier": 0.2}},
    )  # fmt: skip
    resolved: Any = SimpleNamespace(recalibrate=("platt",), scale_training=False)
    recalibration = Recalibration(resolved, cast("Any", SimpleNamespace(inputs=inputs)), unknown, unknown, unknown)
    scored = ScoredRow(row, confidence=np.full(2, 0.5))
    (version,) = (cell.row for cell in recalibration.versions(scored, Inputs(split_data("x", "y"))))
    assert (version.method, version.status, version.metrics, version.per_subject) == ("half+platt", "failed", {}, {})
    assert "rivers has no validation split" in version.reason


@pytest.mark.parametrize(
    ("right", "note"),
    [
        ((True, True, False, False), "scaled subject by subject on the labelled answers of rivers without the subject"),
        ((True, True, False, True), "all 2 labelled validation answers are right, by which"),
    ],
)
def test_scores_by_subject_are_probabilities_only_where_a_scale_is_had_without_each_of_them(
    right: tuple[bool, ...], note: str
) -> None:
    method = Far()
    method.says = -1.0
    tested, validation = split_data("x", "x", "x"), held(*right)
    for each in (tested, validation):
        each.questions[:] = [replace(q, subject=f"s{i % 2}") for i, q in enumerate(each.questions)]
    reads = predictor(method)
    reads.resolved.learn_on = {"rivers": TrainOn("rivers")}  # type: ignore[misc]
    made = StepResults(reads.resolved, frozenset(), {each.where: each for each in (tested, validation)})
    folds = Folds("rivers", made, cast("Any", None), reads, cast("Any", None))
    _, found = folds.predict("half", SUBJECT, TEST, {})
    assert not isinstance(found, Skipped | BaseException)
    assert found.note.startswith(note)
    expected, labels = np.full(3, np.nan), np.asarray(right)
    if not right[3]:
        for row in range(3):
            others = np.arange(4) % 2 != row % 2
            expected[row] = Scale.fit(-np.arange(4.0)[others], labels[others]).apply([-float(row)])[0]
    np.testing.assert_array_equal(found.confidence, expected)
    assert (found.score is not None, found.scaled_by) == (True, 0 if right[3] else 4)


def test_a_score_that_is_not_finite_names_its_question() -> None:
    method = Far()
    method.says = np.inf  # 0 * inf is NaN
    with pytest.raises(ContractError, match=r"got nan for question q0 \(2 of 2 are not finite\)"):
        predictor(method).predict("half", Inputs(split_data("x", "y")))
