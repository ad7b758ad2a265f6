"""The rule by which every training ends: points, patience, what is kept, and what is told of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import metrics
from bench.api import Batch, Context, ContractError, EarlyStopping, QueryLogits, UserError
from bench.api.early_stopping import TrainingStage, points_of, validation_loss

CORRECT = np.array([True, False, True, True])


def labelled() -> Batch:
    return Batch(["a", "b", "c", "d"], {}, CORRECT)


def followed(stopping: EarlyStopping, losses: dict[int, float]) -> list[int]:
    """The steps taken where validation gives these losses."""
    steps = []
    for step in stopping:
        steps.append(step)
        if stopping.due:
            stopping.record_loss(lambda _: losses[stopping.step], keep=lambda: f"weights {stopping.step}")
    return steps


def test_early_stopping_points_double_to_the_limit() -> None:
    assert points_of(10_000) == (78, 156, 312, 625, 1250, 2500, 5000, 10_000)
    assert points_of(5) == (1, 2, 5)
    assert points_of(1) == (1,)


def test_early_stopping_ends_after_two_useless_points() -> None:
    stopping = EarlyStopping(128, labelled(), name="stage", epochs_per_step=0.5)
    steps = followed(stopping, {1: 0.6, 2: 0.5, 4: 0.55, 8: 0.45, 16: 0.46, 32: 0.45, 64: 0.1})
    assert steps == list(range(1, 33))
    assert stopping.kept == "weights 8"
    stage = stopping.stage()
    assert (stage.name, stage.limit, stage.taken, stage.kept, stage.epochs) == ("stage", 128, 32, 8, 4.0)
    assert (stage.steps, stage.losses) == ((1, 2, 4, 8, 16, 32), (0.6, 0.5, 0.55, 0.45, 0.46, 0.45))


def test_early_stopping_without_validation_keeps_the_last() -> None:
    stopping = EarlyStopping(7)
    seen = []
    for step in stopping:
        if stopping.due:
            seen.append(step)
            stopping.record(lambda _: pytest.fail("there is nothing to predict"), keep=lambda: stopping.step)
    assert (seen, stopping.kept) == ([7], 7)
    assert stopping.stage() == TrainingStage("", 7, 7, 7, 0.0)


@pytest.mark.parametrize(
    ("limit", "published", "losses", "cut_short"),
    [
        (4, 100, {1: 0.3, 2: 0.2, 4: 0.1}, True),
        (4, 100, {1: 0.3, 2: 0.1, 4: 0.2}, False),
        (4, 4, {1: 0.3, 2: 0.2, 4: 0.1}, False),
        (4, 0, {1: 0.3, 2: 0.2, 4: 0.1}, False),
    ],
)
def test_training_is_cut_short_while_loss_falls(
    limit: int, published: int, losses: dict[int, float], *, cut_short: bool
) -> None:
    stopping = EarlyStopping(limit, labelled(), published=published)
    followed(stopping, losses)
    assert stopping.stage().cut_short is cut_short


def test_loss_that_is_nan_is_never_best() -> None:
    stopping = EarlyStopping(4, labelled())
    followed(stopping, {1: 0.3, 2: float("nan"), 4: 0.2})
    assert stopping.kept == "weights 4"


def test_early_stopping_keeps_confidences_of_every_point() -> None:
    batch = labelled()
    ctx = Context(seed=0, validation=batch)
    stopping = ctx.early_stopping(2)
    assert not batch.labels_read
    for _ in stopping:
        if stopping.due:
            stopping.record(lambda some: np.full(len(some), 0.25 * stopping.step), keep=lambda: stopping.step)
    assert [c.tolist() for c in stopping.confidences] == [[0.25] * 4, [0.5] * 4]
    assert stopping.kept == 2
    assert batch.labels_read
    assert ctx.trainings == [stopping]


@pytest.mark.parametrize(
    ("confidence", "complaint"),
    [(np.full((4, 1), 0.5), "expected shape"), (np.full(4, -1.5), "within"), (np.full(3, 0.5), "expected shape")],
)
def test_early_stopping_records_only_confidences(confidence: np.ndarray, complaint: str) -> None:
    """A column would be broadcast, and logits give a loss as well: a wrong step would be kept without a word."""
    stopping = EarlyStopping(1, labelled())
    for _ in stopping:
        with pytest.raises(ContractError, match=complaint):
            stopping.record(lambda _: confidence, keep=lambda: None)


@pytest.mark.parametrize(("limit", "points"), [(0, 8), (-1, 8), (10, 0)])
def test_early_stopping_needs_a_step(limit: int, points: int) -> None:
    with pytest.raises(UserError, match="at least 1 step"):
        EarlyStopping(limit, points=points)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1))
def test_early_stopping_loss_is_the_nll(rows: list[tuple[float, bool]]) -> None:
    confidence, correct = np.array([p for p, _ in rows]), np.array([o for _, o in rows])
    assert validation_loss(confidence, correct) == pytest.approx(metrics.nll(confidence, correct), rel=1e-12)


def test_early_stopping_resumed_goes_on() -> None:
    losses = {1: 0.6, 2: 0.5, 4: 0.55, 8: 0.45, 16: 0.46, 32: 0.45}
    whole = EarlyStopping(128, labelled())
    followed(whole, losses)
    broken, again = EarlyStopping(128, labelled()), EarlyStopping(128, labelled())
    for step in broken:
        if broken.due:
            broken.record_loss(lambda _: losses[broken.step], keep=lambda: f"weights {broken.step}")
        if step == 11:
            break
    stage = broken.stage()
    again.resume(11, stage.steps, stage.losses, broken.confidences, broken.kept)
    assert followed(again, losses) == list(range(12, 33))
    assert (again.stage(), again.kept) == (whole.stage(), whole.kept)


def test_validation_batch_is_fresh_at_each_point() -> None:
    held = Batch(["a", "b", "c", "d"], {QueryLogits(): np.full((4, 2), 0.25)}, CORRECT).own()

    def predict(batch: Batch) -> np.ndarray:
        logits = batch[QueryLogits()]
        logits *= 2
        return logits[:, 0]

    stopping = EarlyStopping(8, held)
    for _ in stopping:
        if stopping.due:
            stopping.record(predict, keep=lambda: None)
    assert [confidence.tolist() for confidence in stopping.confidences] == [[0.5] * 4] * len(stopping.confidences)
