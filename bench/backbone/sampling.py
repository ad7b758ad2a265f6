"""Drawing tokens by inverse CDF from given random numbers, so that a sample depends on nothing but its own numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch


def uniforms(seed: int, question_id: str, n: int, length: int) -> npt.NDArray[np.float64]:
    """`(n, length)` random numbers in [0, 1) of a question: one counter-based stream for each sample.

    The key of stream j is a hash of (seed, question id, j), so neither batches nor resuming matter (methods.md §0.9).
    """
    rows = []
    for j in range(n):
        digest = hashlib.sha256(f"{seed}\0{question_id}\0{j}".encode()).digest()
        rows.append(np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big"))).random(length))
    return np.stack(rows)


def draw(
    logits: torch.Tensor, rows: Sequence[int], numbers: Sequence[float], temperature: float, top_p: float
) -> list[int]:
    """One token for each number: the first whose cumulated probability exceeds it.

    Args:
        logits: `(m, v)` float32.
        rows: which row of `logits` each draw is from.
        numbers: random numbers in [0, 1), one for each draw.
        temperature: positive; 0 is greedy decoding and no sampling.
        top_p: only the most likely tokens are kept, as few as have this probability together.
    """
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    if top_p < 1.0:
        ordered, index = probabilities.sort(dim=-1, descending=True, stable=True)
        beyond = ordered.cumsum(dim=-1) - ordered >= top_p
        probabilities = torch.zeros_like(probabilities).scatter(-1, index, ordered.masked_fill(beyond, 0.0))
    cumulated = probabilities.cumsum(dim=-1)
    at = torch.as_tensor(rows, dtype=torch.long, device=logits.device)
    # Scaled by the total, which rounding leaves a little off 1; the last token that has any probability is the ceiling.
    targets = torch.as_tensor(numbers, dtype=torch.float64, device=logits.device) * cumulated[at, -1]
    tokens = torch.searchsorted(cumulated[at], targets[:, None], right=True)[:, 0]
    return [int(token) for token in tokens.clamp(max=logits.shape[-1] - 1)]
