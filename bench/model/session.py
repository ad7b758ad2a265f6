"""Forward passes over packs of a prefix tree, on a row that is rewound rather than copied, or on packs side by side."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.checkpoint import checkpoint

from bench.api import IntArray
from bench.model.kv_cache import CacheRow, Piece
from bench.model.prefix_tree import Pack
from bench.model.upload_buffer import Upload, UploadBuffer
from bench.prompts.front_coding import Ids

MOST_KEPT_BYTES = 64 * 2**20
"""Bytes of shared pieces that are kept for other shards and splits, beside the current path."""
Path = tuple[tuple[str, int], ...]
"""Pieces of a pack's shared beginning, from the first token on: a digest of all tokens so far, the piece's length."""
Indices = IntArray | Upload | None
"""Which tokens of a pass; None: all."""


def _name(pack: Pack, cuts: tuple[int, ...]) -> bytes:
    """Name of the piece that ends at the last of these cuts."""
    return np.asarray(cuts, dtype=np.int64).tobytes() + pack.shared[: cuts[-1]].tobytes()


@dataclass
class Session:
    """One model with one row of keys and values; knows which shared beginning is in it."""

    model: Any
    """The causal language model."""
    window: int | None = None
    """Width of the sliding window of the layers that have one."""
    tokens: int = 0
    """Token positions that went through the model."""
    bytes_per_token: int = 0
    """Size of one position in a row; 0 before anything was read."""

    def __post_init__(self) -> None:
        self.device = self.model.device
        self.dtype = self.model.dtype
        self.sending = UploadBuffer(self.device)
        self.reset()

    def reset(self) -> None:
        """Empty the row, and forget the pieces that were kept."""
        self._pieces: OrderedDict[bytes, Piece] = OrderedDict()
        self._own = self._current = self.new_row()
        self._cuts: tuple[int, ...] = ()
        self._shared: Ids = np.zeros(0, dtype=np.int32)
        self.sending.clear()

    def new_row(self, *least: int) -> CacheRow:
        """An empty row for this model."""
        return CacheRow(int(self.model.config.get_text_config().num_hidden_layers), *least)

    @property
    def length(self) -> int:
        """Positions in the row on which passes are made."""
        return self._current.length

    def rewind(self, length: int) -> None:
        """Keep the first `length` positions of the row on which passes are made."""
        self._current.rewind(length)

    def send(self, array: npt.ArrayLike) -> Upload:
        """Numbers that go up to the device with the next pass, or alone if they are needed before."""
        return self.sending.add(array)

    # --- beginnings ---------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def share(self, pack: Pack, chunk: int) -> None:
        """Make the session's own row hold exactly the pack's shared beginning, reading only the pieces that it lacks.

        A piece ends at a cut and is read in chunks from its start, so that its states don't depend on what was read
        before: a resumed run gets the same bits.
        """
        kept = 0
        for ours, theirs in zip(self._cuts, pack.cuts, strict=False):
            if ours != theirs or not np.array_equal(self._shared[kept:ours], pack.shared[kept:ours]):
                break
            kept = ours
        self._current = self._own
        self._own.rewind(kept)
        self._cuts, self._shared = tuple(cut for cut in pack.cuts if cut <= kept), pack.shared[:kept]
        for number, cut in enumerate(pack.cuts):
            if cut <= kept:
                continue
            name = _name(pack, pack.cuts[: number + 1])
            if (piece := self._pieces.get(name)) is not None:
                self._pieces.move_to_end(name)
                self._own.append(piece)
            else:
                for first in range(kept, cut, chunk):
                    last = min(first + chunk, cut)
                    ahead = partial(self.causal, first, last)
                    self.forward(pack.shared[first:last], np.arange(first, last), ahead, {})
                self._pieces[name] = self._own.copied(kept)
                sizes = [sum(keys.nbytes + values.nbytes for keys, values in each) for each in self._pieces.values()]
                while len(sizes) > 1 and sum(sizes) > MOST_KEPT_BYTES:
                    self._pieces.popitem(last=False)
                    del sizes[0]
            kept = cut
        self._cuts, self._shared = pack.cuts, pack.shared

    @staticmethod
    def path(pack: Pack) -> Path:
        """The pieces of a pack's shared beginning."""
        starts = (0, *pack.cuts)
        names = (hashlib.sha256(_name(pack, pack.cuts[: k + 1])).hexdigest()[:16] for k in range(len(pack.cuts)))
        return tuple((name, stop - start) for name, start, stop in zip(names, starts, pack.cuts, strict=False))

    def causal(self, first: int, last: int) -> torch.Tensor:
        """`(last - first, last)`: each sees all before itself."""
        return torch.ones(last - first, last, dtype=torch.bool, device=self.device).tril(first)

    # --- packs side by side -------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def lay(self, pack: Pack, row: CacheRow, held: dict[bytes, slice]) -> list[slice]:
        """Copy the pack that was just read to the end of another row; beginnings that it holds are not copied again.

        Args:
            pack: what stands in the session's own row.
            row: the other one.
            held: where the row holds which pieces of shared beginnings; those that are copied are added.

        Returns:
            Where the beginning's pieces and then the pack stand.
        """
        found, start = [], 0
        for number, stop in enumerate(pack.cuts):
            name = _name(pack, pack.cuts[: number + 1])
            if name not in held:
                held[name] = row.append_from(self._own, start, stop)
            found.append(held[name])
            start = stop
        return [*found, row.append_from(self._own, start, self._own.length)]

    def follow(self, row: CacheRow) -> None:
        """Make passes on another row, until it is left or the next beginning is shared."""
        self._current = row

    def leave(self) -> None:
        """Go back to the session's own row; the other one's memory is free when nobody else has it."""
        self._current = self._own

    @torch.inference_mode()
    def measured_bytes(self) -> int:
        """Size of one position in a row; where nothing was read yet, by a pass over one token that is not counted."""
        if not self.bytes_per_token:
            row, one = self.new_row(1), torch.zeros(1, 1, dtype=torch.long, device=self.device)
            self.model.base_model(input_ids=one, past_key_values=row.cache, use_cache=True)
            self.bytes_per_token = row.bytes_per_token
        return self.bytes_per_token

    # --- passes -------------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def forward(
        self,
        ids: Ids,
        positions: IntArray,
        visible: Callable[[], torch.Tensor],
        read: Mapping[int, Indices],
    ) -> dict[int, torch.Tensor]:
        """Append tokens to the row and read hidden states.

        Args:
            ids: `(t,)` token ids.
            positions: `(t,)` position of each in its own sequence.
            visible: gives `(t, row's length + t)` bool on the device, what each token may see; called once everything
                that was sent before has gone up, together with ids and positions.
            read: block k (its output; the number of blocks: the last state after the final norm) -> indices of the
                tokens to read.

        Returns:
            Block -> `(len(indices), d)` states in the model's dtype.
        """
        self.tokens += len(ids)
        inputs, places = self.send(ids), self.send(positions)
        states = run_blocks(
            self.model,
            read,
            input_ids=inputs.tensor[None],
            position_ids=places.tensor[None],
            attention_mask=self.mask(visible(), places.tensor),
            past_key_values=self._current.cache,
            use_cache=True,
        )
        self.bytes_per_token = self.bytes_per_token or self._current.bytes_per_token
        return states

    @torch.inference_mode()
    def read_alone(self, ids: Ids, read: dict[int, IntArray]) -> dict[int, torch.Tensor]:
        """Read one whole sequence without a cache; returns block -> states at the given positions."""
        self.tokens += len(ids)
        inputs = self.send(ids)
        sent = {key: self.send(index) for key, index in {id(index): index for index in read.values()}.items()}
        indices = {block: sent[id(index)] for block, index in read.items()}
        return run_blocks(self.model, indices, input_ids=inputs.tensor[None], use_cache=False)

    def mask(self, visible: torch.Tensor, positions: torch.Tensor) -> Any:
        """The additive mask of `(t, k)` bool and `(t,)` positions; for models that mix layer types, one for each."""
        full = self._additive(visible)
        kinds = set(getattr(self.model.config.get_text_config(), "layer_types", None) or ())
        if self.window is None:
            return dict.fromkeys(kinds, full) if len(kinds) > 1 else full
        # Position of a key: a row sees one path, on which the k-th visible key stands at position k.
        place = visible.cumsum(dim=1, dtype=torch.int32) - 1
        near = self._additive(visible & (positions[:, None] - place < self.window))
        if len(kinds) > 1 or kinds == {"sliding_attention"}:
            return {kind: near if kind == "sliding_attention" else full for kind in kinds}
        return near

    def _additive(self, allowed: torch.Tensor) -> torch.Tensor:
        lowest = torch.finfo(self.dtype).min
        empty = torch.zeros(allowed.shape, dtype=self.dtype, device=allowed.device)
        return empty.masked_fill_(~allowed, lowest)[None, None]


def run_blocks(model: Any, read: Mapping[int, Indices], **inputs: Any) -> dict[int, torch.Tensor]:
    """Run the model without its output head and copy the states that are asked for, `(rows, d)` for each block.

    All come to the device of the output head, wherever their block is.
    """
    last = int(model.config.get_text_config().num_hidden_layers)
    out: dict[int, torch.Tensor] = {}
    inner = [block for block in read if block != last]

    def keep(block: int, _module: Any, _inputs: Any, output: Any) -> None:
        out[block] = _rows(output[0] if isinstance(output, tuple) else output, read[block]).clone()

    with ExitStack() as stack:
        modules = blocks(model) if inner else ()
        for block in inner:
            stack.callback(modules[block - 1].register_forward_hook(partial(keep, block)).remove)
        states = model.base_model(**inputs).last_hidden_state
    if last in read:
        out[last] = _rows(states, read[last])
    home = model.get_output_embeddings().weight.device
    return {block: rows.to(home) for block, rows in out.items()}


def _rows(states: torch.Tensor, index: Indices) -> torch.Tensor:
    rows = states.flatten(0, 1)
    if index is None:
        return rows
    numbers = index.tensor if isinstance(index, Upload) else index
    return rows[torch.as_tensor(numbers, device=states.device)]


def blocks(model: Any) -> torch.nn.ModuleList:
    """The transformer blocks, found by being the module list of the configured length."""
    count = int(model.config.get_text_config().num_hidden_layers)
    for module in model.base_model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise ValueError(f"{type(model).__name__} has no list of {count} blocks")


def checkpoint_blocks(model: Any) -> None:
    """Let each block of a model be computed again on the way back, with the same dropout masks.

    Not by transformers' own switch: that needs a model in training mode, which turns on the dropout of the frozen
    layers, and some architectures lack it.

    Raises:
        ValueError: the model has no list of blocks.
    """
    for block in blocks(model):
        block.forward = partial(_again, block.forward, next(block.parameters()).device)


def _again(forward: Callable[..., Any], device: torch.device, states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Run a block. States are named and on its device: by them it is told whose random numbers are drawn again."""
    if not torch.is_grad_enabled():
        return forward(states, *args, **kwargs)
    return checkpoint(forward, states.to(device), *args, use_reentrant=False, **kwargs)
