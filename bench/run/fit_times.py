"""Seconds that fits will take: those of fits that were recorded, else of a few steps on synthetic signals.

A step takes what the difference between two fits says, and so does a row. Steps are counted by the `EarlyStopping`s
that a method asks for, adapters by the settings with which it asks for one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bench import registry
from bench.api import (
    AdapterRef,
    Batch,
    ConfidenceMethod,
    Context,
    ContractError,
    Format,
    ModelFacts,
    OutputHead,
    Ragged,
    Unembedding,
    UserError,
)
from bench.api.early_stopping import POINTS, EarlyStopping
from bench.model.devices import kind_of
from bench.model.folder import first_line
from bench.signals.synthetic import labelled

if TYPE_CHECKING:
    from bench.api.protocol import Protocol

_ROWS, _MORE_ROWS = 40, 96
"""Rows of the fits that are timed: more than a batch."""
_STEPS, _MOST_STEPS = 2, 162
_LONG_ENOUGH = 0.03
"""Seconds by which a fit of more steps is longer: then a step is known."""
_WEIGHTS = {"cpu": 1 << 18}
"""Kind of device -> weights of the output head of a timed fit at most; time is linear in them. Others: _MANY."""
_MANY = 1 << 26
_LEAST_WORDS = 128


def recorded(manifests: Iterable[Mapping[str, Any]], wanted: Mapping[str, object], rows: int) -> float | None:
    """Seconds of the stored fit with these properties whose number of rows is nearest; None without one.

    Args:
        manifests: of stored fits.
        wanted: names in a manifest, or among its fields, and the values that they must have.
        rows: answers that will be learned from, or that a step will be chosen by; the time of a smaller fit grows in
            proportion.
    """
    found = [one for one in manifests if "rows" in one and wanted.items() <= {**one, **one["fields"]}.items()]
    if not found:
        return None
    # One that took an adapter from the store was quicker than the others.
    nearest = min(found, key=lambda one: (abs(one["rows"] - rows), -one["seconds"]))
    return float(nearest["seconds"] * max(1.0, rows / max(1, nearest["rows"])))


@dataclass(frozen=True)
class AdapterTraining:
    """An adapter that a method asks for."""

    steps: int
    batch_size: int
    points: int
    """Points at which the loss on validation is taken; 0: nowhere."""
    frozen: bool
    """Whether its loss reads more sequences than the first, so perhaps with the frozen model."""


@dataclass(frozen=True)
class FitTime:
    """Seconds of the parts of a fit."""

    once: float
    """Whatever it learns from."""
    row: float
    """A row that is learned from, or chosen by, and predicted."""
    step: float
    """A step of each of its trainings together."""
    steps: float
    """Steps of each of its trainings at most."""

    def seconds(self, rows: int) -> float:
        """Time to learn from so many rows."""
        return self.once + rows * self.row + self.steps * self.step


class _AskedError(Exception):
    """Ends a fit where an adapter is asked for; has the settings, and the number of columns of sequences."""


def _asks(*, loss: str, examples: Any, settings: Mapping[str, Any], validation: object = None) -> AdapterRef:
    del loss, validation
    raise _AskedError(settings, sum(isinstance(column, Ragged) for column in examples.values()))


@dataclass(frozen=True, eq=False)
class _Few(Context):
    """A context in which every training ends after a few steps."""

    most: int = _STEPS
    asked: list[int] = field(default_factory=list)
    """Steps of each training, as a method asked for them."""

    def early_stopping(self, limit: int, **settings: Any) -> EarlyStopping:
        """The first steps of a training."""
        self.asked.append(limit)
        return super().early_stopping(min(limit, self.most), **settings)


@dataclass(frozen=True)
class Widths:
    """Sizes of a model that fits depend on."""

    hidden: int
    vocabulary: int
    device: str
    dtype: Any


def measured(
    method: ConfidenceMethod, fmt: Format, tokens: tuple[float, float], widths: Widths, protocol: Protocol
) -> FitTime | AdapterTraining | str:
    """Time that a fit of a method takes, or why that can't be said.

    Args:
        method: unfitted.
        fmt: of what it learns from.
        tokens: of an answer and of an option, means.
        widths: of the model.
        protocol: of the run.
    """
    plain = _built_in().get(method.name)
    if plain is None or plain.__module__ != type(method).__module__:
        return "its own code decides it"  # which is not run for a plan
    params = method.params()
    key = (plain, repr(params), fmt, tokens, widths, protocol)
    try:
        if key not in _KNOWN:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers in which little is to be learned
                _KNOWN[key] = _timed(lambda: plain(**params), fmt, tokens, widths, protocol)
        return _KNOWN[key]
    except _AskedError as asked:
        given, ragged = asked.args  # the settings hold a batch no larger than the rows that were given
        batch_size = int(str(params.get("batch_size", given["batch_size"])))
        return AdapterTraining(int(given["steps"]), batch_size, int(given.get("points", POINTS)), frozen=ragged > 1)
    except (UserError, ContractError, ValueError, ArithmeticError, RuntimeError) as error:  # memory among the last
        return f"it refuses random signals, {type(error).__name__}: {first_line(error)[:100]}"


_KNOWN: dict[tuple[object, ...], FitTime] = {}
"""Settings -> time of a fit with them, as this process measured it; seeds and further runs ask again."""


@cache
def _built_in() -> dict[str, type[ConfidenceMethod]]:
    known, _ = registry.built_in()
    return {name: known.get(name) for name in known.names()}


class _Watched(OutputHead):
    """An output head that counts how often its weights are asked for."""

    reads: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "weight":
            _Watched.reads += 1
        return super().__getattribute__(name)


def _timed(
    make: Callable[[], ConfidenceMethod], fmt: Format, tokens: tuple[float, float], widths: Widths, protocol: Protocol
) -> FitTime:
    """Time fits of few and more rows, few and more steps, with a small vocabulary where the output head is read."""
    reads, words = make().reads(), widths.vocabulary
    if Unembedding() in reads.fit | reads.predict:
        words = min(words, max(_LEAST_WORDS, _WEIGHTS.get(kind_of(widths.device), _MANY) // widths.hidden))
    facts = ModelFacts("synthetic", widths.hidden, words, 1)
    answer, option = (max(1, round(2 * mean - 1)) for mean in tokens)

    def batch(rows: int) -> Batch:
        drawn = labelled(reads.fit | reads.predict, rows, 0, fmt, model=facts, longest=answer, longest_option=option)
        columns = {signal: drawn[signal] for signal in drawn.signals}
        for signal, column in columns.items():
            if isinstance(column, OutputHead):
                columns[signal] = _Watched(column.weight.to(widths.device, widths.dtype))
        return Batch(drawn.ids, columns, drawn.correct)

    def fitted(learned: Batch, most: int) -> tuple[list[int], float, int]:
        """Steps that a method asks for, seconds of fit and prediction, and how often it reads the output head."""
        method, ctx = make(), _Few(0, fmt, widths.device, protocol, _asks, most=most)
        before, start = _Watched.reads, time.perf_counter()
        method.fit(learned, ctx)
        method.predict(Batch(learned.ids, {signal: learned[signal] for signal in reads.predict}))
        return ctx.asked, time.perf_counter() - start, _Watched.reads - before

    few, more = batch(_ROWS), batch(_MORE_ROWS)
    fitted(few, _STEPS)  # with imports, perhaps
    asked, base, head_reads = fitted(few, _STEPS)
    row = max(0.0, fitted(more, _STEPS)[1] - base) / (_MORE_ROWS - _ROWS)
    steps, longer, longer_reads = _STEPS, base, head_reads
    while asked and longer - base < _LONG_ENOUGH and steps < _MOST_STEPS:
        steps *= 3
        _, longer, longer_reads = fitted(few, steps)
    step = max(0.0, longer - base) / max(1, steps - _STEPS)
    once = max(0.0, base - _STEPS * step - _ROWS * row)
    if head_reads:  # in every step, or once for all rows
        in_steps, times = longer_reads - head_reads >= steps - _STEPS > 0, widths.vocabulary / words
        row, step = (row, step * times) if in_steps else (row * times, step)
    return FitTime(once, row, step, float(np.mean(asked)) if asked else 0.0)
