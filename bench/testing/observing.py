"""Fits a method on planted signals and watches what it does meanwhile; fits are what costs time, so they are shared."""

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
"""Questions to learn from, to measure on, and with one label only."""


# --- batches ----------------------------------------------------------------------------------------------------------


def train_batch(make: MakeMethod, n: int = TRAIN, correct: BoolArray | None = None) -> Batch:
    """Labelled questions with the signals that `fit` reads alone, as a run gives them to `fit`."""
    return planted(make.reads.fit, n, seed=1, fmt=make.format, correct=correct)


def held_out(make: MakeMethod, n: int) -> tuple[Batch, BoolArray]:
    """Unlabelled questions, as `predict` sees them, and their labels (n,)."""
    batch = planted(make.reads.predict, n, seed=2, fmt=make.format)
    return Batch.of_own(batch.ids, {signal: batch[signal] for signal in batch.signals}), batch.correct


class Watched(Batch):
    """A batch that remembers what was asked of it in vain, for methods that swallow the error."""

    def __init__(self, batch: Batch, correct: BoolArray | None = None) -> None:
        super().__init__(batch.ids, {signal: batch[signal] for signal in batch.signals}, correct)
        self.undeclared: list[Signal] = []

    def __getitem__(self, signal: Signal) -> Any:
        if signal not in self.signals:
            self.undeclared.append(signal)
        return super().__getitem__(signal)


def contents(batch: Batch) -> dict[Signal, bytes]:
    """The bytes of each column, to see later whether it was written to."""
    found: dict[Signal, bytes] = {}
    for signal in batch.signals:
        column = batch[signal]
        if isinstance(column, OutputHead):
            column = column.weight.cpu().float().numpy()  # numpy has no bfloat16
        values = column.values if isinstance(column, Ragged) else column
        found[signal] = pickle.dumps(values.tolist()) if values.dtype == object else values.tobytes()
    return found


# --- global random states ---------------------------------------------------------------------------------------------


def global_states() -> dict[str, str]:
    """States of the three global generators, as text that can be compared."""
    import torch

    state: Any = np.random.get_state()  # noqa: NPY002  (it is the global state that is guarded)
    return {
        "numpy": repr((state[1].tolist(), state[2:])),
        "random": repr(random.getstate()),
        "torch": repr(torch.get_rng_state().tolist()),
    }


@contextlib.contextmanager
def global_states_kept() -> Iterator[None]:
    """Put the three global generators back afterwards."""
    import torch

    states = np.random.get_state(), random.getstate(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])
        torch.set_rng_state(states[2])


def seed_globally(seed: int) -> None:
    """Bring the three global generators to a known state."""
    import torch

    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    torch.manual_seed(seed)


def moved_states(before: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the global generators that no longer stand where they stood."""
    after = global_states()
    return tuple(name for name in before if before[name] != after[name])


# --- fits -------------------------------------------------------------------------------------------------------------


def fit(make: MakeMethod, train: Batch, *, right: bool | None = None) -> ConfidenceMethod:
    """A method fitted on this batch; the global generators are as before; `right`: all labels of validation."""
    with global_states_kept():
        return make().fit(train, context(make, right=right))


@dataclass(frozen=True)
class ObservedFit:
    """A fitted method, and what was seen while it was fitted."""

    method: ConfidenceMethod
    returned: object
    train: Watched
    before: Mapping[Signal, bytes]
    """The training columns."""
    arguments: Mapping[str, object]
    """Arguments of `__init__`, before the fit."""
    moved: tuple[str, ...]
    """Global random states that are no longer what they were."""


@functools.lru_cache(maxsize=64)
def observed_fit(make: MakeMethod) -> ObservedFit:
    """Fitted once, under observation, for all checks that only look at it: fits are what costs time."""
    method, labelled = make(), train_batch(make)
    train = Watched(labelled, labelled.correct).own()
    arguments, columns = copy.deepcopy(method.params()), contents(train)
    with global_states_kept():
        seed_globally(13)  # a method that seeds them itself would otherwise find its own leftovers, and seem innocent
        states = global_states()
        returned = method.fit(train, context(make))
        moved = moved_states(states)
    return ObservedFit(method, returned, train, columns, arguments, moved)
