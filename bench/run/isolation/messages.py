"""What crosses the pipe besides plain data: batches whose output head lies in a file, what was learned, failures."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.api import Batch, ContractError, EarlyStopping, OutputHead, UntrainableError, UserError
from bench.api.batch import labels_of
from bench.api.errors import PluginError, reason_of, told


@dataclass(frozen=True)
class Failure:
    """An exception of a plugin in words."""

    kind: type[Exception]
    reason: str
    """One line."""
    trace: str
    """The traceback."""

    @classmethod
    def of(cls, error: BaseException, home: Path | None) -> Failure:
        """The exception of a plugin that lives in this file or folder; its type stays where `bench.api` has it."""
        kinds = (UntrainableError, UserError, ContractError)
        kind = next((kind for kind in kinds if isinstance(error, kind)), PluginError)
        return cls(kind, reason_of(error, home), told(error))

    def error(self) -> Exception:
        """An exception that says the same, without frames."""
        return self.kind(self.reason)


@dataclass(frozen=True, eq=False)
class LentHead(OutputHead):
    """An output head whose weights are not pickled: they lie in a file."""

    path: Path = Path()

    def __reduce__(self) -> tuple[object, ...]:
        """What a process makes of it: a head with weights that nobody else sees."""
        bias = None if self.bias is None else self.bias.clone()
        like = OutputHead(self.weight.to("meta"), bias, self.scale, self.softcap, self.norm)
        return _mapped, (like, self.path)


def _mapped(like: OutputHead, path: Path) -> OutputHead:
    """A head whose weights are pages of a file; whoever writes into one has it for itself."""
    import torch

    raw = torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="c"))
    return replace(like, weight=raw.view(like.weight.dtype).view(like.weight.shape))


def lent_head(head: OutputHead, path: Path) -> LentHead:
    """The head, with its weights in a file, unless they are there already."""
    import torch

    if not path.exists():
        flat = head.weight.detach().contiguous().view(torch.uint8)
        part = path.with_suffix(".part")  # on a full disk a part of it must not pass for the whole
        flat.numpy().tofile(part)
        part.replace(path)
    return LentHead(head.weight, head.bias, head.scale, head.softcap, head.norm, path)


def lent(batch: Batch, path: Path) -> Batch:
    """A batch that can be pickled, with its labels if they can be read there.

    Args:
        batch: what a method is given.
        path: file of the output head's weights.
    """
    columns = {signal: batch[signal] for signal in batch.signals}
    heads = {signal: lent_head(each, path) for signal, each in columns.items() if isinstance(each, OutputHead)}
    return Batch(batch.ids, {**columns, **heads}, labels_of(batch))


@dataclass(frozen=True)
class Learned:
    """Facts that the harness wants to know after `fit`."""

    labels_read: bool
    validation_labels_read: bool
    trainings: list[EarlyStopping]


def without_weights(training: EarlyStopping) -> EarlyStopping:
    """A training without the answers that it was stopped by, and without what it kept, which the method has."""
    made = copy.copy(training)
    vars(made).update(kept=None, _validation=None)
    return made
