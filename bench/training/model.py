"""Language model for loss functions in training: logits at requested positions.

A forward pass over packed sequences computes their shared prefixes once; the next pass computes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from bench.api import IntArray, Ragged
from bench.model.language_model import LanguageModel
from bench.model.prefix_tree import PrefixTree, Sorted, one_pack
from bench.model.session import run_blocks
from bench.training.job import Job

if TYPE_CHECKING:
    from bench.prompts.front_coding import Ids

ReadRequest = tuple[bytes, int]
"""Request for logits: a sequence's int32 token ids as bytes, and at how many positions at its end logits are
requested."""


@dataclass
class TokensFed:
    """Numbers of token positions that were fed to the model; there is no padding."""

    forward: int = 0
    """Number of positions in all forward passes."""
    floor: int = 0
    """Number of distinct prefixes among the sequences that were fed: the fewest positions possible.

    With the adapter a prefix counts once per step, since each step changes the adapter's weights. Without the adapter
    it counts once per run.
    """


def group_sequences(sequences: Sequence[Ids], budget: int) -> list[list[int]]:
    """Group distinct sequences for forward passes of up to `budget` tokens; return the groups as lists of indices.

    Sequences of one group are neighbours in lexicographic order, so common prefixes are computed once in a pass.
    Without a KV cache each pass computes the prefixes of its sequences again: of all cuts of that order, the one with
    the fewest tokens is taken, then that with the fewest passes. A sequence longer than the budget is a group.
    """
    tree = Sorted(sequences)
    # `new`: how many tokens each sequence adds to the one before it
    order, new = tree.rows.tolist(), (tree.lengths - tree.shared).tolist()
    best = [(0, 0, 0)]  # for the first k sequences: tokens, passes, and where the last pass begins
    for end in range(1, len(order) + 1):
        tokens, found = 0, []
        for start in range(end - 1, -1, -1):
            whole = tokens + len(sequences[order[start]])
            if start == end - 1 or whole <= budget:
                found.append((best[start][0] + whole, best[start][1] + 1, start))
            tokens += new[start]
            if tokens > budget:
                break
        best.append(min(found))
    groups: list[list[int]] = []
    end = len(order)
    while end:
        groups.append(order[best[end][2] : end])
        end = best[end][2]
    return groups[::-1]


class LossProbe:
    """An `AdapterModel` without weights: returns zeros as logits, and records the requests for frozen logits.

    Frozen logits are logits of the model without the adapter.
    """

    def __init__(self, verdict_ids: tuple[int, int], vocabulary: int, device: str) -> None:
        self.verdict_ids = verdict_ids
        self.vocabulary = vocabulary
        self.device = device
        self.requests: set[ReadRequest] = set()

    def logits(self, sequences: Ragged, last: IntArray, *, adapted: bool = True) -> torch.Tensor:
        """Return zeros in the shape of the logits; if `adapted` is False, record the request."""
        if not adapted:
            rows = (np.asarray(sequences[i], dtype=np.int32).tobytes() for i in range(len(sequences)))
            self.requests.update((row, int(end)) for row, end in zip(rows, last, strict=True))
        return torch.zeros(int(last.sum()), self.vocabulary, device=self.device)


def frozen_requests(run: Callable[[LossProbe], object], verdict_ids: tuple[int, int], vocab: int) -> list[ReadRequest]:
    """Return, sorted, the requests that a loss function makes for logits of the frozen model.

    The loss runs on meta tensors, since requests don't depend on the values of logits. A loss that fails on meta
    tensors
    gets zeros on the CPU, which takes longer.

    Args:
        run: function that calls the loss function with a given model on all examples.
        verdict_ids: token ids of (no, yes).
        vocab: size of the model's vocabulary.
    """
    probe = LossProbe(verdict_ids, vocab, "meta")
    try:
        run(probe)
    except Exception:  # noqa: BLE001 - a plugin's loss; its own error is raised again below
        probe = LossProbe(verdict_ids, vocab, "cpu")
        run(probe)
    return sorted(probe.requests)


@dataclass
class ReadableModel:
    """An `AdapterModel` that computes logits with a loaded model and its peft adapter."""

    lm: LanguageModel
    wrapped: Any
    """The model with its adapter, as a `PeftModel` of peft."""
    job: Job

    def __post_init__(self) -> None:
        self._frozen: dict[bytes, torch.Tensor] = {}
        self._frozen_tree = PrefixTree()
        self.start_step()

    def start_step(self) -> None:
        """Reset the token counts, and forget which prefixes the adapter has read, since its weights have changed."""
        self.fed = TokensFed()  # token positions fed to the model since this call
        self._tree = PrefixTree()

    @property
    def verdict_ids(self) -> tuple[int, int]:
        """Token ids of the two verdicts (no, yes) after the self-check query."""
        return self.job.verdict_ids

    def logits(self, sequences: Ragged, last: IntArray, *, adapted: bool = True) -> torch.Tensor:
        """Return next-token logits at the last `last[i]` positions of each sequence i; see `AdapterModel.logits`."""
        rows = [np.asarray(sequences[i], dtype=np.int32) for i in range(len(sequences))]
        ends = [int(k) for k in last]
        if adapted:
            return self.lm.head.logits(self._states(rows, ends, self._tree))
        keys = [row.tobytes() for row in rows]
        self.cache_frozen_states(
            (key, k) for key, k in zip(keys, ends, strict=True) if len(self._frozen.get(key, ())) < k
        )
        states = torch.cat([self._frozen[key][-k:] for key, k in zip(keys, ends, strict=True)])
        return self.lm.head.logits(states.to(self.lm.head.weight.device))

    def cache_frozen_states(self, requests: Iterable[ReadRequest]) -> None:
        """Compute the frozen model's hidden states `(positions, d)` for these requests, and cache them on the CPU."""
        ends: dict[bytes, int] = {}
        for row, end in requests:
            ends[row] = max(end, ends.get(row, 0))
        rows = [np.frombuffer(row, dtype=np.int32).copy() for row in ends]
        for group in group_sequences(rows, self.job.token_budget):
            batch = [rows[i] for i in group]
            lengths = [ends[row.tobytes()] for row in batch]
            with torch.no_grad(), self.wrapped.disable_adapter():
                states = self._states(batch, lengths, self._frozen_tree).cpu()
            keys = (row.tobytes() for row in batch)
            self._frozen.update(zip(keys, torch.split(states, lengths), strict=True))

    def _states(self, rows: list[Ids], ends: list[int], tree: PrefixTree) -> torch.Tensor:
        """Return the last hidden states `(sum of ends, d)` at the last `ends[i]` positions of each `rows[i]`.

        `rows` are sequences of token ids.
        """
        self.fed.floor += sum(tree.add(row) for row in rows)
        if not self.job.packed:
            parts = (self._run(row, np.arange(len(row) - end, len(row))) for row, end in zip(rows, ends, strict=True))
            return torch.cat(list(parts))
        # distinct sequences in one row, in which each token attends to its own sequence alone; a common prefix is
        # computed once, and in training has one dropout mask for all sequences that share it
        distinct = {row.tobytes(): row for row in rows}
        pack = one_pack(list(distinct.values()))
        visible = pack.visible()
        keys = list(distinct)
        # positions of the tokens of each sequence in the row
        row_positions = {keys[i]: np.flatnonzero(visible[leaf]) for i, leaf in zip(pack.rows, pack.leaves, strict=True)}
        index = np.concatenate([row_positions[row.tobytes()][-end:] for row, end in zip(rows, ends, strict=True)])
        positions = self._on_device(pack.positions)
        mask = self.lm.session.mask(torch.as_tensor(visible, device=positions.device), positions[0])
        return self._run(pack.tokens, index, position_ids=positions, attention_mask=mask)

    def _run(self, ids: Ids, index: npt.NDArray[np.int64], **inputs: Any) -> torch.Tensor:
        self.fed.forward += len(ids)
        last = self.lm.blocks
        states = run_blocks(self.lm.model, {last: index}, input_ids=self._on_device(ids), use_cache=False, **inputs)
        return states[last]

    def _on_device(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.long, device=self.lm.device)[None]
