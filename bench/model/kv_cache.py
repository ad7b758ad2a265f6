"""Keys and values of all blocks in one row: rewound rather than copied, and laid together from parts of other rows."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

_LEAST = 256
"""Positions for which there is room at first."""
_MOST_AHEAD = 8192
"""Positions by which a row grows at most."""

Piece = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of some positions, for each block."""


class _RewindableLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """Keys and values of one block in a buffer that grows ahead; rewinding moves a mark and copies nothing."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least = least
        self.length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append `(1, heads, t, head_dim)` states; returns views of everything so far."""
        end = self.length + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        if end > self.keys.shape[-2]:
            self.keys = self._grown(self.keys, end)
            self.values = self._grown(self.values, end)
        self.keys[..., self.length : end, :] = key_states
        self.values[..., self.length : end, :] = value_states
        self.length = end
        return self.keys[..., :end, :], self.values[..., :end, :]

    def _grown(self, old: torch.Tensor, end: int) -> torch.Tensor:
        size = max(self.least, old.shape[-2] + min(old.shape[-2], _MOST_AHEAD), end)
        new = old.new_zeros((*old.shape[:-2], size, old.shape[-1]))
        new[..., : self.length, :] = old[..., : self.length, :]
        return new

    def get_seq_length(self) -> int:
        """Positions that are filled."""
        return self.length

    def part(self, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the keys and values of some positions."""
        return self.keys[..., start:stop, :], self.values[..., start:stop, :]


class CacheRow:
    """A cache of batch size one, with a layer for each block."""

    def __init__(self, blocks: int, least: int = _LEAST) -> None:
        """Make an empty row.

        Args:
            blocks: number of blocks.
            least: positions for which there is room at first.
        """
        self.layers = [_RewindableLayer(least) for _ in range(blocks)]
        self.cache = Cache(layers=self.layers)

    @property
    def length(self) -> int:
        """Positions that are filled."""
        return int(self.layers[0].length)

    @property
    def bytes_per_token(self) -> int:
        """Size of one position; 0 before anything was read."""
        filled = [layer for layer in self.layers if layer.is_initialized]
        return sum(each[0, :, 0].nbytes for layer in filled for each in (layer.keys, layer.values))

    def rewind(self, length: int) -> None:
        """Keep the first `length` positions."""
        for layer in self.layers:
            layer.length = min(layer.length, length)

    def copied(self, start: int) -> Piece:
        """Keys and values from a position on."""
        return [(keys.clone(), values.clone()) for keys, values in (one.part(start, one.length) for one in self.layers)]

    def append(self, piece: Piece) -> None:
        """Add positions at the end."""
        for layer, (keys, values) in zip(self.layers, piece, strict=True):
            layer.update(keys, values)

    def append_from(self, other: CacheRow, start: int, stop: int) -> slice:
        """Add positions of another row at the end; returns where they stand."""
        here = self.length
        self.append([layer.part(start, stop) for layer in other.layers])
        return slice(here, self.length)
