"""Messages that cross the pipe: batches (their output head lies in a file), contexts, trainings, failures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import (
    Batch,
    ContractError,
    EarlyStopping,
    Format,
    OutputHead,
    Ragged,
    Signal,
    UntrainableError,
    UserError,
)
from bench.api.batch import Column, Norm, copied, labels_of
from bench.api.errors import PluginError, reason_of, told
from bench.api.protocol import Protocol

if TYPE_CHECKING:
    import torch

KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (UntrainableError, UserError, ContractError, PluginError)
}
"""Exceptions that keep their type; any other becomes a `PluginError`."""


@dataclass(frozen=True)
class Failure:
    """An exception in words."""

    kind: str
    reason: str
    """One line."""
    trace: str
    """The traceback."""

    @classmethod
    def of(cls, error: BaseException, home: Path) -> Failure:
        """The exception of a plugin that lives in this file."""
        kind = next((name for name, kind in KINDS.items() if isinstance(error, kind)), PluginError.__name__)
        return cls(kind, reason_of(error, home), told(error))

    def error(self) -> Exception:
        """An exception that says the same."""
        return KINDS[self.kind](self.reason)


@dataclass(frozen=True)
class Head:
    """An output head whose weights lie in a file: whoever reads it has pages of its own as soon as it writes there."""

    path: Path
    dtype: str
    shape: tuple[int, int]
    bias: torch.Tensor | None
    scale: float
    softcap: float | None
    norm: Norm | None

    @classmethod
    def written(cls, head: OutputHead, path: Path) -> Head:
        """Put a head's weights into a file, unless they are there already."""
        import torch

        if not path.exists():
            flat = head.weight.detach().contiguous().view(torch.uint8)
            part = path.with_suffix(".part")  # on a full disk a part of it must not pass for the whole
            flat.numpy().tofile(part)
            part.replace(path)
        dtype = str(head.weight.dtype).rpartition(".")[2]
        bias = None if head.bias is None else head.bias.clone()
        rows, columns = head.weight.shape
        return cls(path, dtype, (rows, columns), bias, head.scale, head.softcap, head.norm)

    def read(self) -> OutputHead:
        """The head, with weights that nobody else sees."""
        import torch

        raw = torch.from_numpy(np.memmap(self.path, dtype=np.uint8, mode="c"))
        weight = raw.view(getattr(torch, self.dtype)).view(self.shape)
        return OutputHead(weight, self.bias, self.scale, self.softcap, self.norm)


@dataclass(frozen=True)
class Questions:
    """A batch on its way."""

    ids: tuple[str, ...]
    columns: dict[Signal, npt.NDArray[Any] | Ragged | Head]
    correct: npt.NDArray[np.bool_] | None

    @classmethod
    def of(cls, batch: Batch, head: Path) -> Questions:
        """A batch; its labels go along if they can be read there.

        Args:
            batch: what a method is given.
            head: file of the output head's weights.
        """
        columns = {signal: batch[signal] for signal in batch.signals}
        packed = {
            signal: Head.written(column, head) if isinstance(column, OutputHead) else column
            for signal, column in columns.items()
        }
        return cls(batch.ids, packed, labels_of(batch))

    def batch(self) -> Batch:
        """The batch, with arrays of its own; the columns are taken out, so that no two of each are in memory."""
        columns: dict[Signal, Column] = {}
        while self.columns:
            signal, column = self.columns.popitem()
            columns[signal] = column.read() if isinstance(column, Head) else copied(column)
        return Batch.of_own(self.ids, columns, self.correct)


@dataclass(frozen=True)
class Setting:
    """A `Context` on its way."""

    seed: int
    format: Format
    device: str
    protocol: Protocol
    trains_adapters: bool
    validation: Questions | None


@dataclass(frozen=True)
class Course:
    """One training in steps, as `EarlyStopping` recorded it."""

    limit: int
    name: str
    published: int
    epochs_per_step: float
    state: tuple[Any, ...]
    """Arguments of `resume`."""

    @classmethod
    def of(cls, stopping: EarlyStopping) -> Course:
        """A training without what it kept, which the method has."""
        stage = stopping.stage()
        return cls(
            stopping.limit, stopping.name, stopping.published, stopping.epochs_per_step,
            (stopping.step, stage.steps, stage.losses, [np.asarray(c) for c in stopping.confidences], None),
        )  # fmt: skip


@dataclass(frozen=True)
class Learned:
    """Facts that the harness wants to know after `fit`."""

    labels_read: bool
    validation_labels_read: bool
    courses: list[Course]
