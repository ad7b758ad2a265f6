"""Fit a method on synthetic signals, and record what it reads and changes; fits are cached, as they take most time."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.api import Batch, BoolArray, ConfidenceMethod, OutputHead, Ragged, Signal
from bench.signals.synthetic import planted
from bench.testing.adapters import context
from bench.testing.check import MakeMethod

TRAIN, HELD_OUT, ONE_CLASS = 200, 400, 40
"""Numbers of synthetic questions: to train on, to measure on, and to train on if all labels are equal."""


# --- batches ----------------------------------------------------------------------------------------------------------


def train_batch(make: MakeMethod, n: int = TRAIN, correct: BoolArray | None = None) -> Batch:
    """Return a batch of n labelled synthetic questions, with only the signals that the method declares for `fit`."""
    return planted(make.reads.fit, n, seed=1, fmt=make.format, correct=correct)


def held_out(make: MakeMethod, n: int) -> tuple[Batch, BoolArray]:
    """Return a batch of n synthetic questions without labels, for `predict`, and the labels (n,) separately."""
    batch = planted(make.reads.predict, n, seed=2, fmt=make.format)
    return Batch.of_own(batch.ids, {signal: batch[signal] for signal in batch.signals}), batch.correct


class RecordingBatch(Batch):
    """A batch that records reads of undeclared signals.

    Reading one raises a ContractError, but the method may catch that error.
    """

    def __init__(self, batch: Batch, correct: BoolArray | None = None) -> None:
        super().__init__(batch.ids, {signal: batch[signal] for signal in batch.signals}, correct)
        self.undeclared: list[Signal] = []

    def __getitem__(self, signal: Signal) -> Any:
        if signal not in self.signals:
            self.undeclared.append(signal)
        return super().__getitem__(signal)


def contents(batch: Batch) -> dict[Signal, bytes]:
    """Return the bytes of each column of a batch; a later comparison shows whether a column was changed in place."""
    column_bytes: dict[Signal, bytes] = {}
    for signal in batch.signals:
        column = batch[signal]
        if isinstance(column, OutputHead):
            column = column.weight.cpu().float().numpy()  # numpy has no bfloat16
        values = column.values if isinstance(column, Ragged) else column
        column_bytes[signal] = pickle.dumps(values.tolist()) if values.dtype == object else values.tobytes()
    return column_bytes


# --- global random states ---------------------------------------------------------------------------------------------


def global_states() -> dict[str, str]:
    """Return the states of the global random generators of numpy, `random` and torch, as strings to compare."""
    import torch

    state: Any = np.random.get_state()  # noqa: NPY002  (the global state is what the check guards)
    return {
        "numpy": repr((state[1].tolist(), state[2:])),
        "random": repr(random.getstate()),
        "torch": repr(torch.get_rng_state().tolist()),
    }


@contextlib.contextmanager
def preserve_global_states() -> Iterator[None]:
    """Restore the states of the global random generators of numpy, `random` and torch on exit."""
    import torch

    states = np.random.get_state(), random.getstate(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])
        torch.set_rng_state(states[2])


def seed_globally(seed: int) -> None:
    """Seed the global random generators of numpy, `random` and torch."""
    import torch

    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    torch.manual_seed(seed)


def changed_states(before: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the global random generators whose state is not as in `before`."""
    after = global_states()
    return tuple(name for name in before if before[name] != after[name])


# --- fits -------------------------------------------------------------------------------------------------------------


def fit(make: MakeMethod, train: Batch, *, label: bool | None = None) -> ConfidenceMethod:
    """Return the method, fitted on this batch; the global random generators are restored afterwards.

    With `label`, all validation answers have this label.
    """
    with preserve_global_states():
        return make().fit(train, context(make, label=label))


@dataclass(frozen=True)
class ObservedFit:
    """A fitted method, and what was recorded during its fit."""

    method: ConfidenceMethod
    returned: object
    train: RecordingBatch
    before: Mapping[Signal, bytes]
    """Bytes of the training batch's columns before the fit."""
    arguments: Mapping[str, object]
    """Arguments of the method's `__init__`, copied before the fit."""
    changed: tuple[str, ...]
    """Names of the global random generators that the fit changed."""


@functools.lru_cache(maxsize=64)
def observed_fit(make: MakeMethod) -> ObservedFit:
    """Return a method fitted on synthetic questions, and what it did during the fit.

    The result is cached for all checks, as fits take most of their time.
    """
    method, labelled = make(), train_batch(make)
    train = RecordingBatch(labelled, labelled.correct).own()
    arguments, columns = copy.deepcopy(method.params()), contents(train)
    with preserve_global_states():
        seed_globally(13)  # else a method that seeds them could leave the same state as an earlier fit, and pass
        states = global_states()
        returned = method.fit(train, context(make))
        changed = changed_states(states)
    return ObservedFit(method, returned, train, columns, arguments, changed)
