"""Token sampling by inverse CDF from given random numbers; the samples don't depend on which texts are in the batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch


def uniform_numbers(seed: int, question_id: str, n: int, length: int) -> npt.NDArray[np.float64]:
    """Return random numbers `(n, length)` in [0, 1) for a question, one row for each of its n samples.

    Row j is generated from a hash of (seed, question id, j), so it depends neither on the batch nor on whether a run
    was interrupted (docs/methods.md §0.9).
    """
    rows = []
    for j in range(n):
        digest = hashlib.sha256(f"{seed}\0{question_id}\0{j}".encode()).digest()
        rows.append(np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big"))).random(length))
    return np.stack(rows)


def sample_tokens(
    logits: torch.Tensor, rows: Sequence[int], numbers: Sequence[float] | torch.Tensor, temperature: float, top_p: float
) -> list[int]:
    """Sample one token for each random number: the first token whose cumulative probability exceeds the number.

    Args:
        logits: `(m, v)` float32.
        rows: for each draw, the index of its row of `logits`.
        numbers: random numbers in [0, 1), one for each draw; or as a tensor the table that `pad_by_row` makes of them.
        temperature: positive.
        top_p: cumulative probability of nucleus sampling; 1 for all tokens.
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
        numbers = torch.as_tensor(pad_by_row(rows, numbers, len(logits)), device=logits.device)
    # Scale the numbers rather than the weights, of which there are many more.
    targets = numbers.to(logits.device) * cumulated[:, -1:]
    tokens = torch.searchsorted(cumulated, targets, right=True).cpu()
    tokens = tokens[torch.as_tensor(rows, dtype=torch.long), torch.as_tensor(_occurrence_index(rows))]
    return [int(token) for token in tokens.clamp(max=logits.shape[-1] - 1)]


def pad_by_row(rows: Sequence[int], numbers: Sequence[float], n: int) -> npt.NDArray[np.float64]:
    """Arrange random numbers as a table `(n, most draws of a row)`, one row for each of n rows of logits.

    Rows are padded with zeros. Sampling from the table needs no copy of a row of logits for each draw.
    """
    nth = _occurrence_index(rows)
    table = np.zeros((n, int(nth.max(initial=0)) + 1))
    table[np.asarray(rows, dtype=np.int64), nth] = numbers
    return table


def _occurrence_index(rows: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return for each entry of `rows` how many entries before it are equal to it."""
    seen: Counter[int] = Counter()
    counts = []
    for row in rows:
        counts.append(seen[row])
        seen[row] += 1
    return np.asarray(counts, dtype=np.int64)
