"""A cell is a number, or skipped or failed with the reason; it says what it rests on and what it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import UntrainableError
from bench.api.question import Released
from bench.data.splits import TaskSplit
from bench.progress import Silent
from bench.results.row import Status
from bench.run.config import RunConfig
from bench.run.inputs import AdaptedSplit, Inputs, StepResults
from bench.run.plan import Fit, Read
from bench.run.predicting import Prediction, Skipped
from bench.run.preparation import open_resources, prepare
from bench.run.resolve import resolve
from bench.run.rows import RowBuilder
from bench.signals.split_data import SplitData

TEST = TaskSplit("rivers", "test")
TRAIN = TaskSplit("rivers", "train")


@pytest.fixture(scope="module")
def read(small_model: Path, rivers: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RowBuilder, StepResults]:
    """A run that has read a few rivers and fitted nothing."""
    config = RunConfig(
        ("ptrue", "echo"), str(small_model), tasks=("rivers",), plugins=(rivers,), limit=8, device="cpu",
        out=tmp_path_factory.mktemp("out"), cache=tmp_path_factory.mktemp("cache"),
    )  # fmt: skip
    resolved = resolve(config)
    resources = open_resources(config, resolved, Silent())
    prepared = prepare(resolved, resources, (), config.limit)
    for step in prepared.steps:
        if isinstance(step, Read):
            read_whole = resources.reader.read(prepared.data_by_split[step.where], step.signals)
            prepared.data_by_split[step.where] = resources.grader.grade(read_whole)
    rows = RowBuilder(config, resolved, resources.reader, prepared.origins, resources.grader.judge)
    return rows, StepResults(resolved, prepared.selecting, prepared.data_by_split)


def test_a_prediction_becomes_numbers_and_records(read: tuple[RowBuilder, StepResults]) -> None:
    rows, made = read
    inputs = made.inputs("ptrue", TEST)
    confidence = np.linspace(0, 1, 8)
    scored = rows.build_cell("ptrue", inputs, Prediction(confidence, 0.25))
    row, correct = scored.row, inputs.predicted.correct
    assert (row.status, row.reason, row.n, row.train_on, row.n_parameters) == ("ok", None, 8, None, 0)
    assert row.metrics["brier"].pooled == pytest.approx(np.mean((confidence - correct) ** 2))
    assert row.timings == {"predict": 0.25}
    assert 0 < row.forward_tokens_alone <= sum(cost.forward_tokens for cost in row.cost.values())  # type: ignore[operator]
    assert scored.records is not None
    assert scored.records.confidence.tolist() == confidence.tolist()
    assert scored.records.id == [question.id for question in inputs.predicted.questions]


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        (Skipped("no letters"), "skipped", "no letters"),
        (UntrainableError("all wrong"), "skipped", "all wrong"),
        (KeyError("layers"), "failed", "KeyError: 'layers'"),
        (Prediction(np.zeros(3), 0.25), "failed", "IndexError: "),  # fewer confidences than questions
    ],
)
def test_without_numbers_it_says_why(
    read: tuple[RowBuilder, StepResults], outcome: Prediction | Skipped | BaseException, status: Status, reason: str
) -> None:
    rows, made = read
    scored = rows.build_cell("ptrue", made.inputs("ptrue", TEST), outcome)
    assert scored.row.status == status
    assert str(scored.row.reason).startswith(reason)
    assert (scored.row.n, scored.row.metrics, scored.records, scored.confidence) == (8, {}, None, None)


def test_a_cell_rests_on_what_was_learned_from_and_what_chose_the_step(read: tuple[RowBuilder, StepResults]) -> None:
    _, made = read
    assert [str(split_data.where) for split_data in made.inputs("ptrue", TEST).splits] == ["rivers/test"]
    splits = [str(split_data.where) for split_data in made.inputs("echo", TEST).splits]
    assert splits == ["rivers/test", "rivers/train", "rivers/validation"]
    validated = made.inputs("echo", TEST, validation=True)
    assert (str(validated.predicted.where), validated.learned) == ("rivers/validation", made.data_by_split[TRAIN])


def test_what_a_step_raised_is_the_failure_of_its_cells_alone(read: tuple[RowBuilder, StepResults]) -> None:
    _, before = read
    lost, memory = ValueError("lost"), MemoryError()
    made = StepResults(before.resolved, before.selecting, before.data_by_split, {Fit("echo", TRAIN): lost})
    made.adapted["echo", TEST] = lost
    assert made.inputs("echo", TEST).failure is lost
    assert made.inputs("ptrue", TEST).failure is None
    made.fits.clear()
    made.adapted["echo", TEST] = memory
    assert made.inputs("echo", TEST).failure is memory
    made.adapted["echo", TEST] = AdaptedSplit(before.data_by_split[TEST], 1.5)
    inputs: Inputs = made.inputs("echo", TEST)
    assert (inputs.failure, inputs.adapted, dict(inputs.seconds)) == (
        None, before.data_by_split[TEST], {"adapter_predictions": 1.5},
    )  # fmt: skip


def test_a_row_says_why_each_question_was_read_alone(read: tuple[RowBuilder, StepResults]) -> None:
    rows, made = read
    inputs = made.inputs("ptrue", TEST)
    assert not [note for note in rows.row("ptrue", inputs).notes if "share a cache" in note]
    manifests = [entry.manifest for shard in inputs.predicted.bundles for entry in shard]
    with pytest.MonkeyPatch.context() as patch:
        for manifest in manifests:
            patch.setitem(manifest, "packed", False)
            patch.setitem(manifest, "hindrance", "it refuses the mask")
        (note,) = [note for note in rows.row("ptrue", inputs).notes if "share a cache" in note]
    assert note == "this model can't share a cache between questions (it refuses the mask): each was read alone"


def with_shards(split_data: SplitData | None, change: Callable[[Any], dict[str, Any]]) -> SplitData:
    """The split with other fields in each of its shards."""
    assert split_data is not None
    return replace(split_data, shards=[replace(shard, **change(shard)) for shard in split_data.shards])


def test_a_row_counts_exemplars_dropped_anywhere(read: tuple[RowBuilder, StepResults]) -> None:
    """Those of the split that is tested, of that which is learned from, and of that which chooses the step."""
    rows, made = read
    inputs = made.inputs("echo", TEST)
    changed = replace(
        inputs,
        predicted=with_shards(inputs.predicted, lambda shard: {"dropped": 1}),
        learned=with_shards(inputs.learned, lambda shard: {"dropped": 10}),
        selection=with_shards(inputs.selection, lambda shard: {"dropped": 100}),
    )
    shards = [len(split_data.shards) for split_data in inputs.splits]
    assert rows.row("echo", inputs).n_shots_dropped == 0
    assert rows.row("echo", changed).n_shots_dropped == np.dot(shards, [1, 10, 100])


def test_a_row_counts_odd_prompts_by_split(read: tuple[RowBuilder, StepResults]) -> None:
    """Two exemplars of each subject stand where five are asked for; in train each question is also an exemplar."""
    rows, made = read
    inputs = made.inputs("echo", TEST)
    assert inputs.learned is not None
    asked = inputs.learned.questions
    shown = with_shards(inputs.learned, lambda shard: {"shown": [[asked[row]] for row in shard.rows]})
    counts = rows.row("echo", replace(inputs, learned=shown)).counts
    short = "questions with fewer than 5 exemplars in their subject"
    sizes = {str(split_data.where): len(split_data.questions) for split_data in inputs.splits}
    assert {where: counts[f"{where}: {short}"] for where in sizes} == sizes
    leaks = {key: n for key, n in counts.items() if "among their own exemplars" in key}
    assert leaks == {"rivers/train: questions among their own exemplars": len(asked)}


def test_a_row_counts_texts_that_are_split_anew(read: tuple[RowBuilder, StepResults]) -> None:
    """Neither token ids nor an empty text can be split otherwise."""
    rows, made = read
    inputs = made.inputs("ptrue", TEST)
    texts = ["a", "b", "", (5, 6)]
    released = {str(i): Released(None, text, None) for i, text in enumerate(texts)}
    row = rows.row("ptrue", replace(inputs, predicted=replace(inputs.predicted, released=released)))
    assert row.counts["rivers/test: answers given as text, split into tokens anew"] == 2
    assert row.deviations["answer_ids"] == "retokenised"


def test_a_row_notes_passes_that_were_halved(read: tuple[RowBuilder, StepResults]) -> None:
    rows, made = read
    inputs = made.inputs("echo", TEST)
    manifests = [entry.manifest for split_data in inputs.splits for shard in split_data.bundles for entry in shard]
    assert not [note for note in rows.row("echo", inputs).notes if "halved" in note]
    with pytest.MonkeyPatch.context() as patch:
        for manifest in manifests:
            patch.setitem(manifest, "halvings", 2)
        (note,) = [note for note in rows.row("echo", inputs).notes if "halved" in note]
    assert note == f"{2 * len(manifests)} forward passes did not fit into memory and were halved"
