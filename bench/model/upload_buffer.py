"""Copies between host and device: small arrays are queued, and uploaded together when one of them is needed.

One copy is made of many, because a copy of less than a few megabytes takes the same time whatever its size.
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
    """One array of integers or float64, in the queue of an `UploadBuffer` or already on the device."""

    buffer: UploadBuffer
    array: npt.NDArray[Any] | None
    """The array on the host; None after the upload."""
    _tensor: torch.Tensor | None = None

    @property
    def tensor(self) -> torch.Tensor:
        """The array on the device, in int64 or float64. The first access uploads it together with all queued arrays."""
        if self._tensor is None:
            self.buffer.copy_all(self)
        assert self._tensor is not None  # noqa: S101  # copy_all set it
        return self._tensor


@dataclass
class UploadBuffer:
    """Queue of arrays to upload to a device."""

    device: torch.device | str
    _waiting: list[Upload] = field(default_factory=list)

    def add(self, array: npt.ArrayLike) -> Upload:
        """Queue an array for upload, and return the `Upload` from which its tensor can be read."""
        upload = Upload(self, np.asarray(array))
        self._waiting.append(upload)
        return upload

    def clear(self) -> None:
        """Empty the queue. An array that was in it is uploaded only when its `Upload.tensor` is read."""
        self._waiting.clear()

    def copy_all(self, required: Upload) -> None:
        """Upload `required` and all queued arrays in one copy."""
        waiting = self._waiting if required in self._waiting else [*self._waiting, required]
        arrays = [upload.array for upload in waiting if upload.array is not None]
        whole = [
            np.ascontiguousarray(array).view(np.int64) if array.dtype == np.float64 else array.astype(np.int64)
            for array in arrays
        ]
        flat = torch.as_tensor(np.concatenate([array.reshape(-1) for array in whole]), device=self.device)
        parts = torch.split(flat, [array.size for array in arrays])
        self._waiting = []
        for upload, array, part in zip(waiting, arrays, parts, strict=True):
            typed = part.view(torch.float64) if array.dtype == np.float64 else part
            upload._tensor, upload.array = typed.reshape(array.shape), None  # noqa: SLF001  # of this file


def copy_to_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors of one device on the host, copied all at once; tensors that are on the host already stay there."""
    on_device = [tensor for tensor in tensors if tensor.device.type != "cpu"]
    copies = iter(copy_together(on_device))
    return [tensor if tensor.device.type == "cpu" else next(copies) for tensor in tensors]


def copy_together(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies of tensors on the host; all are transferred together as one array of bytes."""
    non_empty = [i for i in range(len(tensors)) if tensors[i].numel()]
    non_empty.sort(key=lambda i: -tensors[i].dtype.itemsize)  # so that each starts at a multiple of its item size
    copies = [torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
    if non_empty:
        joined = torch.cat([tensors[i].reshape(-1).contiguous().view(torch.uint8) for i in non_empty]).cpu()
        for i, part in zip(non_empty, torch.split(joined, [tensors[i].nbytes for i in non_empty]), strict=True):
            copies[i] = part.view(tensors[i].dtype).reshape(tensors[i].shape)
    return copies
