"""Seconds that fits will take: the built-in methods are fitted for a few steps on random signals of the true widths.

A step takes what the difference between two fits says, and so does a row. Steps are counted by the `EarlyStopping`s
that a method asks for, adapters by the settings with which it asks for one.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bench import registry
from bench.api import (
    AdapterRef,
    Batch,
    ConfidenceMethod,
    Context,
    ContractError,
    Format,
    IntArray,
    Of,
    OutputHead,
    Ragged,
    Signal,
    Unembedding,
    UserError,
)
from bench.api.early_stopping import POINTS, EarlyStopping
from bench.backbone.folder import first_line
from bench.signals.definition import definition
from bench.signals.planted import LETTERS, Texts, World

if TYPE_CHECKING:
    from bench.api.protocol import Protocol

_ROWS, _MORE_ROWS = 40, 96
"""Rows of the fits that are timed: more than a batch."""
_STEPS, _MOST_STEPS = 2, 162
_LONG_ENOUGH = 0.03
"""Seconds by which a fit of more steps is longer: then a step is known."""
_WEIGHTS = {"cpu": 1 << 18}
"""Kind of device -> weights of the output head of a timed fit at most; time is linear in them. Others: _MANY."""
_MANY = 1 << 27
_LEAST_WORDS = 128


class _AskedError(Exception):
    """Ends a fit where an adapter is asked for."""

    def __init__(self, settings: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
        super().__init__()
        self.settings = settings
        self.ragged = sum(isinstance(column, Ragged) for column in columns.values())


@dataclass(frozen=True)
class Training:
    """An adapter that a method asks for."""

    steps: int
    batch_size: int
    points: int
    """Points at which the loss on validation is taken; 0: nowhere."""
    frozen: bool
    """Whether its loss reads more sequences than the first, so perhaps with the frozen model."""


@dataclass(frozen=True)
class FitTime:
    """Parts of a fit."""

    once: float
    """Seconds, whatever it learns from."""
    row: float
    step: float
    """A step of each of its trainings together."""
    predicted: float
    """A row that is predicted when it has learned."""
    steps: float
    """Steps of each of its trainings at most."""

    def seconds(self, rows: int, validation: int) -> float:
        """Time to learn from so many rows with so many others to choose a step by."""
        looked_at = rows + validation * (POINTS if validation else 0)
        return self.once + (rows + validation) * self.row + self.steps * self.step + looked_at * self.predicted


@dataclass(frozen=True, eq=False)
class _Few(Context):
    """A context in which every training ends after a few steps."""

    most: int = _STEPS
    asked: list[int] = field(default_factory=list)

    def early_stopping(self, limit: int, **settings: Any) -> EarlyStopping:
        """The first steps of a training."""
        self.asked.append(limit)
        return super().early_stopping(min(limit, self.most), **settings)


@dataclass(frozen=True)
class _Sized(World):
    """A world of a model's widths, in which nothing is true."""

    width: int = 16
    words: int = 64

    @property
    def head(self) -> npt.NDArray[np.float32]:
        """The output head, (v, d)."""
        return self.rng.standard_normal((self.words, self.width), dtype=np.float32) / math.sqrt(self.width)

    def elsewhere(self, place: str, sure: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """States, (m, d)."""
        del place
        return self.rng.standard_normal((len(sure), self.width), dtype=np.float32)


@dataclass(frozen=True)
class Widths:
    """Sizes of a model that fits depend on."""

    hidden: int
    vocabulary: int
    device: str
    dtype: Any


@dataclass(frozen=True)
class Lengths:
    """Mean lengths in tokens."""

    answer: float
    option: float
    options: float
    """Options of a question."""


def measured(
    method: ConfidenceMethod, fmt: Format, lengths: Lengths, widths: Widths, protocol: Protocol
) -> FitTime | Training | str:
    """Time that a fit of a method takes, or why that can't be said.

    Args:
        method: unfitted.
        fmt: of what it learns from.
        lengths: of what it learns from.
        widths: of the model.
        protocol: of the run.
    """
    plain = _built_in().get(method.name)
    if plain is None or plain.__module__ != type(method).__module__:
        return "its own code decides it"  # which is not run for a plan
    key = (plain, repr(method.params()), fmt, lengths, widths, protocol)
    try:
        if key not in _KNOWN:
            _KNOWN[key] = _timed(lambda: plain(**method.params()), fmt, lengths, widths, protocol)
        return _KNOWN[key]
    except _AskedError as asked:
        given = asked.settings
        params = method.params()  # the settings hold a batch no larger than the rows that were given
        batch_size = int(str(params.get("batch_size", given["batch_size"])))
        return Training(int(given["steps"]), batch_size, int(given.get("points", POINTS)), frozen=asked.ragged > 1)
    except (UserError, ContractError, ValueError, ArithmeticError, RuntimeError) as error:  # memory among the last
        return f"it refuses random signals, {type(error).__name__}: {first_line(error)[:100]}"


_KNOWN: dict[tuple[object, ...], FitTime] = {}
"""Settings -> time of a fit with them, as this process measured it; seeds and further runs ask again."""


@cache
def _built_in() -> dict[str, type[ConfidenceMethod]]:
    known, _ = registry.built_in()
    return {name: known.get(name) for name in known.names()}


def _timed(
    make: Callable[[], ConfidenceMethod], fmt: Format, lengths: Lengths, widths: Widths, protocol: Protocol
) -> FitTime:
    """Fits with a whole vocabulary, or with a small one where the output head is read and large."""
    reads = make().reads()
    words = widths.vocabulary
    if Unembedding() in reads.fit | reads.predict:
        words = min(words, max(_LEAST_WORDS, _WEIGHTS.get(widths.device.partition(":")[0], _MANY) // widths.hidden))
    trial = _Trial(make, fmt, lengths, protocol, replace(widths, vocabulary=words), widths.vocabulary / words)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers in which nothing is to be learned
        return trial.measured()


class _Watched(OutputHead):
    """An output head that counts how often its weights are asked for."""

    reads: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "weight":
            _Watched.reads += 1
        return super().__getattribute__(name)


@dataclass(frozen=True)
class _Taken:
    """Outcome of a timed fit."""

    method: ConfidenceMethod
    seconds: float
    asked: list[int]
    """Steps of each of its trainings, as it asked for them."""
    reads: int
    """Number of times that the output head was asked for."""


@dataclass(frozen=True)
class _Trial:
    """Fits of few and more rows, few and more steps."""

    make: Callable[[], ConfidenceMethod]
    fmt: Format
    lengths: Lengths
    protocol: Protocol
    widths: Widths
    """With a vocabulary that may be smaller."""
    times: float
    """Vocabulary of the model over that of the trial."""

    def measured(self) -> FitTime:
        """Seconds of the parts of a fit."""
        reads = self.make().reads()
        few, more = (self._batch(reads.fit | reads.predict, rows) for rows in (_ROWS, _MORE_ROWS))
        self._fitted(few, _STEPS)  # with imports, perhaps
        base, larger = self._fitted(few, _STEPS), self._fitted(more, _STEPS)
        steps, longer = _STEPS, base
        while base.asked and longer.seconds - base.seconds < _LONG_ENOUGH and steps < _MOST_STEPS:
            steps *= 3
            longer = self._fitted(few, steps)
        step = max(0.0, longer.seconds - base.seconds) / max(1, steps - _STEPS)
        row = max(0.0, larger.seconds - base.seconds) / (_MORE_ROWS - _ROWS)
        once = max(0.0, base.seconds - _STEPS * step - _ROWS * row)
        in_steps = longer.reads - base.reads >= steps - _STEPS > 0
        unlabelled = Batch(more.ids, {signal: more[signal] for signal in reads.predict})
        start, before = time.perf_counter(), _Watched.reads
        base.method.predict(unlabelled)
        predicted = (time.perf_counter() - start) / _MORE_ROWS
        return FitTime(
            once,
            row * (self.times if base.reads and not in_steps else 1.0),
            step * (self.times if in_steps else 1.0),
            predicted * (self.times if _Watched.reads > before else 1.0),
            float(np.mean(base.asked)) if base.asked else 0.0,
        )

    def _fitted(self, batch: Batch, most: int) -> _Taken:
        """A fit whose trainings end after so many steps."""
        method = self.make()
        ctx = _Few(0, self.fmt, self.widths.device, self.protocol, _asks, most=most)
        before, start = _Watched.reads, time.perf_counter()
        method.fit(batch, ctx)
        return _Taken(method, time.perf_counter() - start, ctx.asked, _Watched.reads - before)

    def _batch(self, signals: Iterable[Signal], rows: int) -> Batch:
        """Random signals of labelled answers, half of them right."""
        rng, widths = np.random.default_rng(0), self.widths
        letters = min(LETTERS, widths.vocabulary) if self.fmt is Format.CHOICE else widths.vocabulary
        first = rng.standard_normal((rows, widths.hidden), np.float32)

        def texts(each: int, length: float) -> Texts:
            """Texts, so many after each prompt, whose state predicts the first token of all of them."""
            size = max(1, round(length))
            n = rows * each * size
            states = rng.standard_normal((n, widths.hidden), np.float32)
            states[::size] = np.repeat(first, each, axis=0)
            owner = np.tile(np.repeat(np.arange(each), size), rows)
            return Texts(Ragged(rng.integers(0, letters, n), _offsets(rows, each * size), owner), states)

        prompts = Ragged(rng.integers(0, widths.vocabulary, 4 * rows), _offsets(rows, 4))
        option, wrong = self.lengths.option, max(1, round(self.lengths.options) - 1)
        said = {Of.ANSWER: texts(1, self.lengths.answer), Of.GOLD: texts(1, option), Of.WRONG: texts(wrong, option)}
        world = _Sized(
            rng, rng.standard_normal(rows), prompts, np.full(rows, LETTERS), said, width=widths.hidden,
            words=widths.vocabulary,
        )  # fmt: skip
        columns = {signal: self._placed(definition(signal).planted(world)) for signal in sorted(signals, key=repr)}
        return Batch([str(i) for i in range(rows)], columns, np.arange(rows) % 2 == 0)

    def _placed(self, column: Any) -> Any:
        """A column as a run has it: the output head lies on the model's device, in its dtype."""
        if isinstance(column, OutputHead):
            return _Watched(column.weight.to(self.widths.device, self.widths.dtype))
        return column


def _offsets(rows: int, each: int) -> IntArray:
    return np.arange(rows + 1, dtype=np.int64) * each


def _asks(*, loss: str, examples: Any, settings: Mapping[str, Any], validation: object = None) -> AdapterRef:
    del loss, validation
    raise _AskedError(settings, examples)
