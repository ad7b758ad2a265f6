"""Estimate the seconds of a fit: from recorded fits, else from a few training steps on synthetic signals.

The time of a training step is the difference between two timed fits with different numbers of steps, that of a row (a
training answer) between two with different numbers of rows; the prediction of a row is timed by itself. The
`EarlyStopping` objects that a method creates show how many steps it requests. An adapter is not trained for the
estimate: the settings that its method passes to the trainer give the number of steps.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, ClassVar

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
from bench.api.errors import first_line
from bench.api.protocol import Protocol
from bench.model.devices import device_kind
from bench.signals.synthetic import make_batch

_ROWS, _MORE_ROWS = 40, 96
"""Training rows of the smaller and of the larger timed fit; both exceed the usual batch size of training, 32."""
_TIMES = 2
"""Times that a timed fit is made, of which the quickest counts: other work on the machine slows one down."""
_STEPS, _MOST_STEPS = 2, 162
_LONG_ENOUGH = 0.03
"""Seconds by which additional steps must lengthen a fit, so that the time of one step can be derived from the
difference."""
_WEIGHTS = {"cpu": 1 << 18}
"""Kind of device -> largest number of weights of the output head in a timed fit; `_MANY` for other kinds. A larger head
is timed with fewer rows of the vocabulary, and the time is scaled up."""
_MANY = 1 << 26
_LEAST_WORDS = 128


def recorded_seconds(manifests: Iterable[Mapping[str, Any]], required: Mapping[str, object], rows: int) -> float | None:
    """Return the seconds of a stored fit that has the required properties; None if there is no such fit.

    If several fits match, the fit with the nearest number of rows (training and validation answers) is used.

    Args:
        manifests: manifests (recorded properties) of the stored fits.
        required: property -> value, as it must be in a manifest or in the manifest's dict `fields`.
        rows: number of rows of the planned fit; the time of a stored fit with fewer rows is scaled up in proportion.
    """
    matching = [fit for fit in manifests if "rows" in fit and required.items() <= {**fit, **fit["fields"]}.items()]
    if not matching:
        return None
    # A fit that loaded its adapter from the store is quicker than the others.
    nearest = min(matching, key=lambda fit: (abs(fit["rows"] - rows), -fit["seconds"]))
    return float(nearest["seconds"] * max(1.0, rows / max(1, nearest["rows"])))


@dataclass(frozen=True)
class AdapterTraining:
    """Training settings of the adapter that a method trains."""

    steps: int
    batch_size: int
    points: int
    """Number of checkpoints at which the validation loss is computed; 0 if it is never computed."""
    frozen: bool
    """Whether each example has several token sequences: the loss may then also run the frozen model."""


@dataclass(frozen=True)
class FitTime:
    """Time of a fit as a linear function of training answers, predicted validation answers, and optimiser steps."""

    once: float
    """Seconds that depend neither on the number of rows nor on the number of steps."""
    row: float
    """Seconds per training answer."""
    prediction: float
    """Seconds per answer of which the confidence is predicted."""
    step: float
    """Seconds per optimiser step. If a fit consists of several trainings, the sum of their seconds per step."""
    steps: float
    """Largest possible number of optimiser steps. If a fit consists of several trainings, the mean over these."""

    def seconds(self, rows: int, validation: int) -> float:
        """Return the seconds of a fit on `rows` training answers; those of validation are predicted at each point."""
        return self.once + rows * self.row + POINTS * validation * self.prediction + self.steps * self.step


class _AdapterRequestedError(Exception):
    """Raised when a method asks to train an adapter; holds the settings and the number of sequences per example."""


def _request_adapter(*, loss: str, examples: Any, settings: Mapping[str, Any], validation: object = None) -> AdapterRef:
    del loss, validation
    raise _AdapterRequestedError(settings, sum(isinstance(column, Ragged) for column in examples.values()))


@dataclass(frozen=True, eq=False)
class _ShortTraining(Context):
    """Context of a fit that ends every training after at most `most` steps."""

    most: int = _STEPS
    requested: list[int] = field(default_factory=list)
    """Number of steps that the method requested, for each of its trainings."""

    def early_stopping(self, limit: int, **settings: Any) -> EarlyStopping:
        """Return an early stopping of at most `most` steps; append the requested number of steps to `requested`."""
        self.requested.append(limit)
        return super().early_stopping(min(limit, self.most), **settings)


@dataclass(frozen=True)
class Widths:
    """Model sizes, device and dtype that the time of a fit depends on."""

    hidden: int
    vocabulary: int
    device: str
    dtype: Any


def measure_fit(
    method: ConfidenceMethod, fmt: Format, tokens: tuple[float, float], widths: Widths, protocol: Protocol
) -> FitTime | AdapterTraining | str:
    """Return the time of a method's fit; or, without a time, training settings or a reason.

    If the method trains an adapter, the settings of this training are returned. If the time is unknown, the reason is
    returned as a text.

    Args:
        method: the unfitted method.
        fmt: format of the training questions.
        tokens: mean number of tokens of an answer, and of an option.
        widths: sizes of the model.
        protocol: protocol of the run.
    """
    plain = registry.built_in()[0].find(method.name)
    if plain is None or plain.__module__ != type(method).__module__:
        return "its own code decides it"  # plugin code is not timed for a plan
    params = method.params()
    key = (plain, repr(params), fmt, tokens, widths, protocol)
    try:
        if key not in _KNOWN:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # random signals predict nothing
                _KNOWN[key] = _time_fit(lambda: plain(**params), fmt, tokens, widths, protocol)
        return _KNOWN[key]
    except _AdapterRequestedError as request:
        config, ragged = request.args  # the requested batch size is capped by the few rows of the timed fit
        batch_size = int(str(params.get("batch_size", config["batch_size"])))
        return AdapterTraining(int(config["steps"]), batch_size, int(config.get("points", POINTS)), frozen=ragged > 1)
    except (UserError, ContractError, ValueError, ArithmeticError, RuntimeError) as error:  # out of memory included
        return f"it refuses random signals, {type(error).__name__}: {first_line(error)[:100]}"


_KNOWN: dict[tuple[object, ...], FitTime] = {}
"""Cache for further seeds and runs of this process: arguments of `measure_fit` -> time of the fit."""


class _CountingHead(OutputHead):
    """Output head that counts how often its weights are accessed; one counter for all instances."""

    reads: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "weight":
            _CountingHead.reads += 1
        return super().__getattribute__(name)


def _time_fit(
    make: Callable[[], ConfidenceMethod], fmt: Format, tokens: tuple[float, float], widths: Widths, protocol: Protocol
) -> FitTime:
    """Time fits that differ in rows or in steps; derive the constant, the time per row and the time per step.

    If the method reads the output head, the fits use a head with a smaller vocabulary. The part of the time that
    depends on the head is then scaled up to the model's vocabulary.
    """
    reads, words = make().reads(), widths.vocabulary
    if Unembedding() in reads.fit | reads.predict:
        words = min(words, max(_LEAST_WORDS, _WEIGHTS.get(device_kind(widths.device), _MANY) // widths.hidden))
    facts = ModelFacts("synthetic", widths.hidden, words, 1)
    answer, option = (max(1, round(2 * mean - 1)) for mean in tokens)

    def batch(rows: int) -> Batch:
        data = make_batch(reads.fit | reads.predict, rows, 0, fmt, model=facts, longest=answer, longest_option=option)
        columns = {signal: data[signal] for signal in data.signals}
        for signal, column in columns.items():
            if isinstance(column, OutputHead):
                columns[signal] = _CountingHead(column.weight.to(widths.device, widths.dtype))
        return Batch(data.ids, columns, data.correct)

    def fitted(learned: Batch, most: int) -> tuple[list[int], float, float, int]:
        """Fit a method on `learned` and predict; count what the fit requested.

        Returns:
            The requested number of steps of each training, the seconds of the fit and of the prediction, and the number
                of accesses to the weights of the output head in the fit.
        """
        method, ctx = make(), _ShortTraining(0, fmt, widths.device, protocol, _request_adapter, most=most)
        before, start = _CountingHead.reads, time.perf_counter()
        method.fit(learned, ctx)
        after, fitted_at = _CountingHead.reads, time.perf_counter()
        method.predict(Batch(learned.ids, {signal: learned[signal] for signal in reads.predict}))
        return ctx.requested, fitted_at - start, time.perf_counter() - fitted_at, after - before

    few, more = batch(_ROWS), batch(_MORE_ROWS)
    fitted(few, _STEPS)  # warm-up: imports
    requested, base, _, head_reads = min((fitted(few, _STEPS) for _ in range(_TIMES)), key=itemgetter(1))
    _, larger, predicted, _ = min((fitted(more, _STEPS) for _ in range(_TIMES)), key=itemgetter(1))
    row, prediction = max(0.0, larger - base) / (_MORE_ROWS - _ROWS), predicted / _MORE_ROWS
    steps, longer, longer_reads = _STEPS, base, head_reads
    while requested and longer - base < _LONG_ENOUGH and steps < _MOST_STEPS:
        steps *= 3
        _, longer, _, longer_reads = fitted(few, steps)
    step = max(0.0, longer - base) / max(1, steps - _STEPS)
    once = max(0.0, base - _STEPS * step - _ROWS * row)
    if head_reads:  # the time grows with the vocabulary per step if every step reads the head, else per row
        in_steps, times = longer_reads - head_reads >= steps - _STEPS > 0, widths.vocabulary / words
        row, step = (row, step * times) if in_steps else (row * times, step)
    prediction *= widths.vocabulary / words
    return FitTime(once, row, prediction, step, float(np.mean(requested)) if requested else 0.0)
