"""Drawing tokens by inverse CDF from given random numbers, so that a sample depends on nothing but its own numbers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch


def uniforms(seed: int, question_id: str, n: int, length: int) -> npt.NDArray[np.float64]:
    """`(n, length)` random numbers in [0, 1) of a question: one counter-based stream for each sample.

    The key of stream j is a hash of (seed, question id, j), so neither batches nor resuming matter
    (docs/methods.md §0.9).
    """
    rows = []
    for j in range(n):
        digest = hashlib.sha256(f"{seed}\0{question_id}\0{j}".encode()).digest()
        rows.append(np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big"))).random(length))
    return np.stack(rows)


def draw(
    logits: torch.Tensor,
    rows: Sequence[int],
    numbers: Sequence[float] | torch.Tensor,
    temperature: float,
    top_p: float,
) -> list[int]:
    """One token for each number: the first whose cumulated probability exceeds it.

    Args:
        logits: `(m, v)` float32.
        rows: which row of `logits` each draw is from.
        numbers: random numbers in [0, 1), one for each draw; or all of them on the device, as `beside_rows` lays them.
        temperature: positive; 0 is greedy decoding and no sampling.
        top_p: only the most likely tokens are kept, as few as have this probability together.
    """
    weights = logits.to(torch.float64, copy=True)
    weights.sub_(weights.amax(dim=-1, keepdim=True)).div_(temperature).exp_()
    if top_p < 1.0:
        ordered, index = weights.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(dim=-1) - ordered
        ordered.masked_fill_(before >= top_p * weights.sum(dim=-1, keepdim=True), 0.0)
        weights = torch.zeros_like(weights).scatter(-1, index, ordered)
    cumulated = weights.cumsum_(dim=-1)
    if not isinstance(numbers, torch.Tensor):
        numbers = torch.as_tensor(beside_rows(rows, numbers, len(logits)), device=logits.device)
    # The numbers are scaled rather than the weights, of which there are many more.
    targets = numbers.to(logits.device) * cumulated[:, -1:]
    tokens = torch.searchsorted(cumulated, targets, right=True).cpu()
    tokens = tokens[torch.as_tensor(rows, dtype=torch.long), torch.as_tensor(_times_before(rows))]
    return [int(token) for token in tokens.clamp(max=logits.shape[-1] - 1)]


def beside_rows(rows: Sequence[int], numbers: Sequence[float], n: int) -> npt.NDArray[np.float64]:
    """`(n, most draws of a row)`: all numbers of a row of logits beside it, so that no row has to be copied."""
    nth = _times_before(rows)
    table = np.zeros((n, int(nth.max(initial=0)) + 1))
    table[np.asarray(rows, dtype=np.int64), nth] = numbers
    return table


def _times_before(rows: Sequence[int]) -> npt.NDArray[np.int64]:
    """Number of earlier occurrences of each row."""
    seen: Counter[int] = Counter()
    counts = []
    for row in rows:
        counts.append(seen[row])
        seen[row] += 1
    return np.asarray(counts, dtype=np.int64)
