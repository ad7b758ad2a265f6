"""The buffer of a KV cache grows in few steps."""

from __future__ import annotations

import torch

from bench.model.kv_cache import _RewindableLayer


def test_kv_buffer_doubles_where_tokens_come_singly() -> None:
    """Copied for each token, decoding of n tokens would copy n² positions."""
    layer, sizes = _RewindableLayer(4), list[int]()
    for token in range(100):
        states = torch.full((1, 2, 1, 3), float(token))
        keys, _ = layer.update(states, states)
        sizes.append(layer.keys.shape[-2])
    assert sorted(set(sizes)) == [4, 8, 16, 32, 64, 128]
    assert keys[0, 0, :, 0].tolist() == list(range(100))
