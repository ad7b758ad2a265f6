"""Numbers on their way to a device: whatever waits goes up in one copy when any of it is needed.

A blocking copy costs about as much as a kernel's launch, whatever its size below a few megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


@dataclass(eq=False)
class Upload:
    """One array of whole numbers or of float64 that is on its way."""

    sending: UploadBuffer
    array: npt.NDArray[Any] | None
    """None once it is there."""
    _tensor: torch.Tensor | None = None

    @property
    def tensor(self) -> torch.Tensor:
        """The array on the device, in int64 or float64; it and all others that wait go up when this is asked first."""
        if self._tensor is None:
            self.sending.copy_all(self)
        assert self._tensor is not None  # noqa: S101  # it was sent
        return self._tensor


@dataclass
class UploadBuffer:
    """Arrays that wait to go up to a device."""

    device: torch.device | str
    _waiting: list[Upload] = field(default_factory=list)

    def add(self, array: npt.ArrayLike) -> Upload:
        """An array that goes up with the next that is needed."""
        sent = Upload(self, np.asarray(array))
        self._waiting.append(sent)
        return sent

    def clear(self) -> None:
        """Forget what waits: each goes up alone if it is asked for."""
        self._waiting.clear()

    def copy_all(self, wanted: Upload) -> None:
        """Send all that waits up in one copy, and this in any case."""
        waiting = self._waiting if wanted in self._waiting else [*self._waiting, wanted]
        arrays = [sent.array for sent in waiting if sent.array is not None]
        whole = [
            np.ascontiguousarray(array).view(np.int64) if array.dtype == np.float64 else array.astype(np.int64)
            for array in arrays
        ]
        flat = torch.as_tensor(np.concatenate([array.reshape(-1) for array in whole]), device=self.device)
        parts = torch.split(flat, [array.size for array in arrays])
        self._waiting = []
        for sent, array, part in zip(waiting, arrays, parts, strict=True):
            typed = part.view(torch.float64) if array.dtype == np.float64 else part
            sent._tensor, sent.array = typed.reshape(array.shape), None  # noqa: SLF001  # of this file


def fetched(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on the host of tensors of one device, made in one go; tensors of the host are given back as they are."""
    away = [tensor for tensor in tensors if tensor.device.type != "cpu"]
    down = iter(in_one_copy(away))
    return [tensor if tensor.device.type == "cpu" else next(down) for tensor in tensors]


def in_one_copy(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors on the host, brought there as one array of bytes."""
    full = [i for i in range(len(tensors)) if tensors[i].numel()]
    full.sort(key=lambda i: -tensors[i].dtype.itemsize)  # so that each begins at a multiple of its items' size
    found = [torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
    if full:
        together = torch.cat([tensors[i].reshape(-1).contiguous().view(torch.uint8) for i in full]).cpu()
        for i, part in zip(full, torch.split(together, [tensors[i].nbytes for i in full]), strict=True):
            found[i] = part.view(tensors[i].dtype).reshape(tensors[i].shape)
    return found
