"""A KV cache that can be truncated without copies, and extended by positions of another cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

_MIN_CAPACITY = 256
"""Number of positions for which a new row of the KV cache allocates memory."""
_MAX_GROWTH = 8192
"""When a row is full, it gets memory for at most this many further positions, unless one append needs more."""

Piece = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of a range of positions: a pair of tensors for each block."""


class _RewindableLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """Keys and values of one block in a preallocated buffer; truncation only lowers the number of filled positions."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least = least
        self.length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values `(b, heads, t, head_dim)`; return views of keys and values of all filled positions."""
        end = self.length + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        if end > self.keys.shape[-2]:
            self.keys = self._enlarged(self.keys, end)
            self.values = self._enlarged(self.values, end)
        self.keys[..., self.length : end, :] = key_states
        self.values[..., self.length : end, :] = value_states
        self.length = end
        return self.keys[..., :end, :], self.values[..., :end, :]

    def _enlarged(self, old: torch.Tensor, end: int) -> torch.Tensor:
        size = max(self.least, old.shape[-2] + min(old.shape[-2], _MAX_GROWTH), end)
        new = old.new_zeros((*old.shape[:-2], size, old.shape[-1]))
        new[..., : self.length, :] = old[..., : self.length, :]
        return new

    def get_seq_length(self) -> int:
        """Return the number of filled positions of the buffer."""
        return self.length

    def part(self, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of the keys and values at positions start ... stop-1."""
        return self.keys[..., start:stop, :], self.values[..., start:stop, :]


class CacheRow:
    """One row of a KV cache, with a layer for each block; or b rows of equal length, of which each is a sequence."""

    def __init__(self, blocks: int, least: int = _MIN_CAPACITY) -> None:
        """Create an empty row.

        Args:
            blocks: number of the model's blocks.
            least: number of positions for which memory is allocated at first.
        """
        self.layers = [_RewindableLayer(least) for _ in range(blocks)]
        self.cache = Cache(layers=self.layers)

    @property
    def length(self) -> int:
        """Number of filled positions of the row."""
        return int(self.layers[0].length)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the keys and values of one position in all blocks; 0 before the first forward pass."""
        filled = [layer for layer in self.layers if layer.is_initialized]
        return sum(tensor[0, :, 0].nbytes for layer in filled for tensor in (layer.keys, layer.values))

    def rewind(self, length: int) -> None:
        """Truncate the row to its first `length` positions."""
        for layer in self.layers:
            layer.length = min(layer.length, length)

    def keep(self, sequences: Sequence[int]) -> None:
        """Of several sequences keep only those with the given indices, and free the memory of the others."""
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[sequences], layer.values[sequences]

    def copy_from(self, start: int) -> Piece:
        """Return a copy of the row's keys and values from position `start` on."""
        return [(k.clone(), v.clone()) for k, v in (layer.part(start, layer.length) for layer in self.layers)]

    def append(self, piece: Piece) -> None:
        """Append keys and values of a range of positions to the row."""
        for layer, (keys, values) in zip(self.layers, piece, strict=True):
            layer.update(keys, values)

    def append_from(self, other: CacheRow, start: int, stop: int) -> slice:
        """Append positions start ... stop-1 of another row; returns their slice in this row."""
        here = self.length
        self.append([layer.part(start, stop) for layer in other.layers])
        return slice(here, self.length)
