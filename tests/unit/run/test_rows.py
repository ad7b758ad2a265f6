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
from bench.data.sources import open_source
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
from tasks.thousand import MMLUProThousandChoice, MMLUThousandChoice

TEST, TRAIN = TaskSplit("rivers", "test"), TaskSplit("rivers", "train")


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


@pytest.fixture
def rows(read: tuple[RowBuilder, StepResults]) -> RowBuilder:
    return read[0]


@pytest.fixture
def made(read: tuple[RowBuilder, StepResults]) -> StepResults:
    return read[1]


@pytest.fixture
def ptrue(made: StepResults) -> Inputs:
    return made.inputs("ptrue", TEST)


@pytest.fixture
def echo(made: StepResults) -> Inputs:
    """Of a method that learns."""
    return made.inputs("echo", TEST)


def test_cell_of_a_prediction_has_numbers_and_records(rows: RowBuilder, ptrue: Inputs) -> None:
    confidence = np.linspace(0, 1, 8)
    scored = rows.build_cell("ptrue", ptrue, Prediction(confidence, 0.25))
    row, correct = scored.row, ptrue.predicted.correct
    assert (row.status, row.reason, row.n, row.train_on, row.n_parameters) == ("ok", None, 8, None, 0)
    assert row.metrics["brier"].pooled == pytest.approx(np.mean((confidence - correct) ** 2))
    assert row.timings == {"predict": 0.25}
    assert 0 < row.forward_tokens_alone <= sum(cost.forward_tokens for cost in row.cost.values())  # type: ignore[operator]
    assert scored.records is not None
    assert scored.records.confidence.tolist() == confidence.tolist()
    assert scored.records.id == [question.id for question in ptrue.predicted.questions]


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        (Skipped("no letters"), "skipped", "no letters"),
        (UntrainableError("all wrong"), "skipped", "all wrong"),
        (KeyError("layers"), "failed", "KeyError: 'layers'"),
        (Prediction(np.zeros(3), 0.25), "failed", "IndexError: "),  # fewer confidences than questions
    ],
)
def test_cell_without_numbers_says_why(
    rows: RowBuilder, ptrue: Inputs, outcome: Prediction | Skipped | BaseException, status: Status, reason: str
) -> None:
    scored = rows.build_cell("ptrue", ptrue, outcome)
    assert scored.row.status == status
    assert str(scored.row.reason).startswith(reason)
    assert (scored.row.n, scored.row.metrics, scored.records, scored.confidence) == (8, {}, None, None)


def test_cell_rests_on_splits_that_taught_it(made: StepResults, ptrue: Inputs, echo: Inputs) -> None:
    assert [str(split_data.where) for split_data in ptrue.splits] == ["rivers/test"]
    assert [str(split_data.where) for split_data in echo.splits] == ["rivers/test", "rivers/train", "rivers/validation"]
    validated = made.inputs("echo", TEST, validation=True)
    assert (str(validated.predicted.where), validated.learned) == ("rivers/validation", made.data_by_split[TRAIN])


def test_step_that_raised_fails_its_cells_alone(made: StepResults) -> None:
    lost, memory = ValueError("lost"), MemoryError()
    after = StepResults(made.resolved, made.selecting, made.data_by_split, {Fit("echo", TRAIN): lost})
    after.adapted["echo", TEST] = lost
    assert after.inputs("echo", TEST).failure is lost
    assert after.inputs("ptrue", TEST).failure is None
    after.fits.clear()
    after.adapted["echo", TEST] = memory
    assert after.inputs("echo", TEST).failure is memory
    after.adapted["echo", TEST] = AdaptedSplit(made.data_by_split[TEST], 1.5)
    inputs = after.inputs("echo", TEST)
    assert (inputs.failure, inputs.adapted) == (None, made.data_by_split[TEST])
    assert dict(inputs.seconds) == {"adapter_predictions": 1.5}


# --- notes and counts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "manifest", "note"),
    [
        (
            "share a cache", {"packed": False, "hindrance": "it refuses the mask"},
            "this model can't share a cache between questions (it refuses the mask): each was read alone",
        ),
        ("halved", {"halvings": 2}, "{twice} forward passes did not fit into memory and were halved"),
    ],
)  # fmt: skip
def test_row_notes_how_questions_were_read(
    rows: RowBuilder, echo: Inputs, word: str, manifest: dict[str, Any], note: str
) -> None:
    assert not [each for each in rows.row("echo", echo).notes if word in each]
    manifests = [entry.manifest for split_data in echo.splits for shard in split_data.bundles for entry in shard]
    with pytest.MonkeyPatch.context() as patch:
        for own in manifests:
            for name, value in manifest.items():
                patch.setitem(own, name, value)
        (told,) = [each for each in rows.row("echo", echo).notes if word in each]
    assert told == note.format(twice=2 * len(manifests))


def test_row_notes_a_source_that_overlaps(rows: RowBuilder, echo: Inputs) -> None:
    assert not [note for note in rows.row("echo", echo).notes if "overlaps" in note]
    assert echo.learned is not None
    tasks = (MMLUProThousandChoice, MMLUThousandChoice)
    tested, learned = (
        replace(split_data, task=task(open_source(None)), where=TaskSplit(task.name, split_data.where.split))
        for split_data, task in zip((echo.predicted, echo.learned), tasks, strict=True)
    )
    told = "it learned on mmlu-1k-choice, whose source overlaps with that of mmlu-pro-1k-choice"
    assert told in rows._notes("echo", replace(echo, predicted=tested, learned=learned))


def with_shards(split_data: SplitData | None, change: Callable[[Any], dict[str, Any]]) -> SplitData:
    """The split with other fields in each of its shards."""
    assert split_data is not None
    return replace(split_data, shards=[replace(shard, **change(shard)) for shard in split_data.shards])


def test_row_says_where_a_task_showed_no_exemplars(rows: RowBuilder, echo: Inputs) -> None:
    """Only where its dev split has some; a task without one is never asked for any."""
    bare = with_shards(echo.predicted, lambda _: {"shown": ()})
    own = type(bare.task)
    card = replace(own.card, splits={"test": "test"}, sizes={"test": 310})
    without_dev = replace(bare, task=type("WithoutDev", (own,), {"card": card})(open_source(None)))
    found = (bare, without_dev, echo.predicted)
    assert [rows.cell("echo", each).config.get("shots") for each in found] == [0, None, None]


def test_row_counts_exemplars_dropped_anywhere(rows: RowBuilder, echo: Inputs) -> None:
    """Those of the split that is tested, of that which is learned from, and of that which chooses the step."""
    changed = replace(
        echo,
        predicted=with_shards(echo.predicted, lambda shard: {"dropped": 1}),
        learned=with_shards(echo.learned, lambda shard: {"dropped": 10}),
        selection=with_shards(echo.selection, lambda shard: {"dropped": 100}),
    )
    shards = [len(split_data.shards) for split_data in echo.splits]
    assert rows.row("echo", echo).n_shots_dropped == 0
    assert rows.row("echo", changed).n_shots_dropped == np.dot(shards, [1, 10, 100])


def test_row_counts_odd_prompts_by_split(rows: RowBuilder, echo: Inputs) -> None:
    """Two exemplars of each subject stand where five are asked for; in train each question is also an exemplar."""
    assert echo.learned is not None
    asked = echo.learned.questions
    shown = with_shards(echo.learned, lambda shard: {"shown": [[asked[row]] for row in shard.rows]})
    counts = rows.row("echo", replace(echo, learned=shown)).counts
    short = "questions with fewer than 5 exemplars in their subject"
    sizes = {str(split_data.where): len(split_data.questions) for split_data in echo.splits}
    assert {where: counts[f"{where}: {short}"] for where in sizes} == sizes
    leaks = {key: n for key, n in counts.items() if "among their own exemplars" in key}
    assert leaks == {"rivers/train: questions among their own exemplars": len(asked)}


def test_row_counts_texts_that_are_split_anew(rows: RowBuilder, ptrue: Inputs) -> None:
    """Neither token ids nor an empty text can be split otherwise."""
    texts = ["a", "b", "", (5, 6)]
    released = {str(i): Released(None, text, None) for i, text in enumerate(texts)}
    row = rows.row("ptrue", replace(ptrue, predicted=replace(ptrue.predicted, released=released)))
    assert row.counts["rivers/test: answers given as text, split into tokens anew"] == 2
    assert row.deviations["answer_ids"] == "retokenised"
