"""The contract: ragged rows, batches, what a method saves, what a task card demands."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.api import (
    Batch,
    ChoiceLogits,
    ConfidenceMethod,
    Context,
    ContractError,
    FloatArray,
    Format,
    Hidden,
    ModelFacts,
    Needs,
    OutputHead,
    QueryLogits,
    Ragged,
    RunFacts,
    Signal,
    TaskCard,
    TokenIds,
    Unembedding,
    UntrainableError,
)
from bench.api.batch import Column
from bench.api.methods import refuse_gold, refuse_one_class
from bench.api.protocol import Protocol

# --- signals ----------------------------------------------------------------------------------------------------------


def test_signals_are_equal_by_type_and_fields() -> None:
    assert Hidden() == Hidden(1.0)
    assert Hidden(0.5) != Hidden(0.75)
    assert len({ChoiceLogits(), QueryLogits(), Unembedding(), ChoiceLogits()}) == 3


# --- ragged rows ------------------------------------------------------------------------------------------------------

ROWS = st.lists(st.lists(st.integers(-5, 5), max_size=4), min_size=1, max_size=6)


@given(rows=ROWS, data=st.data())
def test_ragged_take_equals_taking_from_a_list(rows: list[list[int]], data: st.DataObject) -> None:
    ragged = Ragged.of([np.array(row, dtype=np.int64) for row in rows])
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    taken = ragged.take(np.array(chosen, dtype=np.int64))
    assert [taken[i].tolist() for i in range(len(taken))] == [rows[i] for i in chosen]
    assert taken.lengths.tolist() == [len(rows[i]) for i in chosen]
    assert len(ragged) == len(rows)


def test_ragged_rows_keep_their_trailing_shape() -> None:
    ragged = Ragged.of([np.ones((2, 3)), np.zeros((1, 3))])
    assert ragged.values.shape == (3, 3)
    assert ragged.offsets.tolist() == [0, 2, 3]
    assert ragged.take(np.array([1, 0, 1]))[2].tolist() == [[0.0, 0.0, 0.0]]


# --- batch ------------------------------------------------------------------------------------------------------------


def _batch(correct: Any = None) -> Batch:
    columns: dict[Signal, Column] = {
        QueryLogits(): np.arange(6, dtype=np.float32).reshape(3, 2),
        TokenIds(): Ragged.of([np.array([1]), np.array([2, 3]), np.array([4, 5, 6])]),
        Unembedding(): OutputHead(torch.eye(2)),
    }
    return Batch(["a", "b", "c"], columns, correct)


def test_batch_refuses_an_undeclared_signal() -> None:
    with pytest.raises(ContractError, match=r"ChoiceLogits\(\) was read but not declared.*QueryLogits\(\), TokenIds"):
        _batch()[ChoiceLogits()]


def test_batch_labels_exist_only_where_given() -> None:
    assert _batch(np.array([1, 0, 1])).correct.tolist() == [True, False, True]
    with pytest.raises(ContractError, match="labels exist only in fit"):
        _ = _batch().correct


def test_batch_lists_its_fields_where_one_is_unknown() -> None:
    with pytest.raises(AttributeError, match=r"no field 'log_prob'; it has ids, correct .*batch\[QueryLogits\(\)\]"):
        _ = _batch().log_prob  # type: ignore[attr-defined]
    assert not hasattr(_batch().take([0]).own(), "log_prob")


@pytest.mark.parametrize("rows", [[2, 0], np.array([2, 0]), (2, 0)])
def test_batch_take_keeps_rows_labels_and_head(rows: Any) -> None:
    batch = _batch(np.array([True, False, False]))
    taken = batch.take(rows)
    assert taken.ids == ("c", "a")
    assert taken[QueryLogits()].tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert [taken[TokenIds()][i].tolist() for i in range(2)] == [[4, 5, 6], [1]]
    assert taken.correct.tolist() == [False, True]
    assert taken[Unembedding()] is batch[Unembedding()]


def test_batch_take_accepts_masks_and_empty_choices() -> None:
    assert _batch().take(np.array([False, True, False])).ids == ("b",)
    empty = _batch().take(np.array([], dtype=np.int64))
    assert len(empty) == 0
    assert empty[QueryLogits()].shape == (0, 2)


@pytest.mark.parametrize("take", [False, True])
def test_batch_arrays_cannot_be_written(*, take: bool) -> None:
    owned = np.zeros((3, 2), dtype=np.float32)
    batch = Batch(["a", "b", "c"], {QueryLogits(): owned, TokenIds(): Ragged.of([[1], [2], [3]])}, np.ones(3, np.bool_))
    batch = batch.take([0, 1]) if take else batch
    for array in (batch[QueryLogits()], batch[TokenIds()].values, batch[TokenIds()].offsets, batch.correct):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    owned[0] = 7.0


@pytest.mark.parametrize("take", [False, True])
def test_batch_copy_can_be_written_alone(*, take: bool) -> None:
    batch = _batch(np.ones(3, np.bool_))
    own = batch.own().take([0, 1]) if take else batch.own()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's, of an array that can't be written
        for array in (own[QueryLogits()], own[TokenIds()].values, own[TokenIds()].offsets, own.correct):
            torch.from_numpy(array).zero_()
            assert not array.any()
    assert batch[QueryLogits()].any()
    assert batch[TokenIds()].values.all()
    assert batch.correct.all()
    assert own[Unembedding()] is batch[Unembedding()]


def test_batch_copy_counts_labels_as_read() -> None:
    batch = _batch(np.ones(3, np.bool_))
    _ = batch.own().correct
    assert batch.labels_read


@pytest.mark.parametrize("correct", [np.zeros(3, np.bool_), np.ones(3, np.bool_), np.zeros(0, np.bool_)])
def test_answers_of_one_kind_are_refused_in_training(correct: Any) -> None:
    kind = "right" if correct.any() else "wrong"
    told = (
        f"all 3 training answers are {kind}: there is nothing to learn" if len(correct) else "are no training answers"
    )
    with pytest.raises(UntrainableError, match=told):
        refuse_one_class(Learner(), correct, "train")
    method = Learner()
    method.takes_one_class = True  # type: ignore[misc]
    refuse_one_class(method, correct, "train")
    refuse_one_class(Learner(), np.array([True, False]), "train")


# --- what a method saves ----------------------------------------------------------------------------------------------


class Plain(ConfidenceMethod):
    """Has no `__init__` of its own."""

    reference = "arXiv:0000.00000"
    needs = Needs()

    def predict(self, batch: Batch) -> FloatArray:
        return np.full(len(batch), 0.5)


class Learner(Plain):
    """Has arguments and learns."""

    def __init__(self, steps: int = 3, *, wide: bool = False) -> None:
        self.steps = steps
        self.wide = wide

    def fit(self, train: Batch, ctx: Context) -> Learner:
        return self


def test_method_parameters_are_its_arguments() -> None:
    assert Plain().params() == {}
    assert Learner(5, wide=True).params() == {"steps": 5, "wide": True}


def test_method_trains_if_it_defines_fit() -> None:
    assert not Plain.trains()
    assert Learner.trains()
    assert Plain().fit(_batch(), Context(seed=0)).fitted() == {}


def test_method_defaults_skip_and_count_nothing() -> None:
    facts = RunFacts(ModelFacts("m", 2, 3, 4), "t", Format.CHOICE, 10)
    assert Plain().skip(facts) is None
    assert Plain().n_parameters(facts) == 0


def test_method_state_survives_saving(tmp_path: Path) -> None:
    method = Learner()
    learned = {
        "weight_": np.arange(6.0).reshape(2, 3).T,  # not contiguous
        "half_": np.array([1.5], dtype=np.float16),
        "count_": np.int64(3),
        "name_": "x",
        "nothing_": None,
        "nested_": {"layer": {"bias": np.array([True, False])}, "rate": 0.1},
    }
    for key, value in learned.items():
        setattr(method, key, value)
    method.save(tmp_path / "new" / "folder")
    loaded = Learner().load(tmp_path / "new" / "folder").fitted()
    assert set(loaded) == set(learned)
    np.testing.assert_array_equal(loaded["weight_"], learned["weight_"])
    assert loaded["half_"].dtype == np.float16
    assert (loaded["count_"], loaded["name_"], loaded["nothing_"]) == (3, "x", None)
    assert loaded["nested_"]["layer"]["bias"].tolist() == [True, False]
    assert loaded["nested_"]["rate"] == 0.1  # to the last bit


def test_method_without_state_can_be_saved(tmp_path: Path) -> None:
    Plain().save(tmp_path)
    assert Plain().load(tmp_path).fitted() == {}


def test_method_state_that_cannot_be_saved(tmp_path: Path) -> None:
    method = Learner()
    method.model_ = {"net": object()}  # type: ignore[attr-defined]
    with pytest.raises(ContractError, match=r"'model_/net' is a object; only numbers"):
        method.save(tmp_path)


def test_context_rng_is_new_at_each_access() -> None:
    context = Context(seed=5)
    assert context.rng.random() == context.rng.random() == np.random.default_rng(5).random()
    assert context.protocol == Protocol()


# --- task cards -------------------------------------------------------------------------------------------------------

CARD: dict[str, Any] = {
    "license": "MIT", "version": 1, "splits": {"test": "validation"}, "sizes": {"test": 3}, "options": (2, 4),
    "why": "x", "hub": "a/b", "revision": "0" * 40, "folder": "b",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"revision": None}, "revision of 40 hex digits, or None with unpinned_reason; got None"),
        ({"revision": "main"}, "got 'main'"),
        ({"revision": "0" * 39}, "40 hex digits"),
        ({"revision": "G" * 40}, "40 hex digits"),
        ({"folder": ""}, "folder is empty"),
        ({"sizes": {}}, r"sizes name \[\], splits name \['test'\]"),
    ],
)
def test_task_card_that_is_incomplete_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        TaskCard(**(CARD | change))


@pytest.mark.parametrize("change", [{}, {"revision": None, "unpinned_reason": "moves"}, {"hub": None, "folder": ""}])
def test_task_card_that_is_complete(change: dict[str, Any]) -> None:
    assert TaskCard(**(CARD | change)).version == 1


# --- what a method may read -------------------------------------------------------------------------------------------


def test_signal_of_a_plugin_is_refused() -> None:
    class Mine(Signal):
        """A signal that the harness can't measure."""

    with pytest.raises(ContractError, match=r"expected signals of bench.api as they are, got Mine"):
        refuse_gold("mine", Needs(predict=frozenset({Mine()})))
