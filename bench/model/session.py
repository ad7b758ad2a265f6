"""A session runs forward passes over packs. Its KV cache keeps the prefix that one pack shares with the next."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.checkpoint import checkpoint

from bench.api import IntArray
from bench.model.attention import ATTENTION, AnswerPath, QueryRecorder
from bench.model.kv_cache import CacheRow, Piece
from bench.model.prefix_tree import Pack
from bench.model.upload_buffer import Upload, UploadBuffer
from bench.prompts.front_coding import Ids

MAX_CACHED_BYTES = 64 * 2**20
"""Maximum bytes of keys and values of prefix segments that are kept for later shards and splits."""
Indices = IntArray | Upload | None
"""For one block, the indices of the tokens whose hidden states are wanted; None for all tokens."""


def _segment_key(pack: Pack, cuts: tuple[int, ...]) -> bytes:
    """Return the cache key of the segment of the shared prefix that ends at the last of `cuts`.

    The key consists of the cuts and of the prefix's tokens up to the last cut.
    """
    return np.asarray(cuts, dtype=np.int64).tobytes() + pack.shared[: cuts[-1]].tobytes()


@dataclass
class Session:
    """A loaded model, and the main row of its KV cache with the shared prefix of a pack."""

    model: Any
    """The causal language model."""
    window: int | None = None
    """Width of the sliding attention window; None if no layer has one."""
    tokens: int = 0
    """Number of token positions processed so far."""
    bytes_per_token: int = 0
    """Bytes of the keys and values of one position; 0 until they are known."""

    def __post_init__(self) -> None:
        self.device = self.model.device
        self.dtype = self.model.dtype
        self.sending = UploadBuffer(self.device)
        self.reset()

    def reset(self) -> None:
        """Empty the main row of the KV cache, and forget all cached segments of prefixes."""
        self._segments: OrderedDict[bytes, Piece] = OrderedDict()
        # `row` is the active one, to which forward passes append; `load_prefix` and `use_main_row` set it to this one
        self._main = self.row = self.new_row()
        self._cuts: tuple[int, ...] = ()
        self._shared: Ids = np.zeros(0, dtype=np.int32)
        self.recorder = QueryRecorder()
        self.sending.clear()

    def new_row(self, *least: int) -> CacheRow:
        """Return a new, empty row of the KV cache, with memory for `least` positions if given."""
        return CacheRow(int(self.model.config.get_text_config().num_hidden_layers), *least)

    def send(self, array: npt.ArrayLike) -> Upload:
        """Queue an array for upload with the next forward pass. Reading `Upload.tensor` before that uploads it."""
        return self.sending.add(array)

    # --- shared prefixes ----------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def load_prefix(self, pack: Pack, chunk: int) -> None:
        """Make the main row active, and let it hold exactly the pack's shared prefix; only missing segments are read.

        Every segment is read in the same chunks, whatever was read before. So its keys and values have the same bits in
        every run, also in a resumed one.
        """
        common = 0
        for cached_cut, cut in zip(self._cuts, pack.cuts, strict=False):
            if cached_cut != cut or not np.array_equal(self._shared[common:cached_cut], pack.shared[common:cached_cut]):
                break
            common = cached_cut
        self.row = self._main
        self._main.rewind(common)
        self._cuts, self._shared = tuple(cut for cut in pack.cuts if cut <= common), pack.shared[:common]
        for number, cut in enumerate(pack.cuts):
            if cut <= common:
                continue
            key = _segment_key(pack, pack.cuts[: number + 1])
            if (segment := self._segments.get(key)) is not None:
                self._segments.move_to_end(key)
                self._main.append(segment)
            else:
                for start in range(common, cut, chunk):
                    stop = min(start + chunk, cut)
                    mask = partial(self.causal, start, stop)
                    self.forward(pack.shared[start:stop], np.arange(start, stop), mask, {})
                self._segments[key] = self._main.copy_from(common)
                sizes = [sum(keys.nbytes + values.nbytes for keys, values in part) for part in self._segments.values()]
                while len(sizes) > 1 and sum(sizes) > MAX_CACHED_BYTES:
                    self._segments.popitem(last=False)
                    del sizes[0]
            common = cut
        self._cuts, self._shared = pack.cuts, pack.shared

    @staticmethod
    def prefix_segments(pack: Pack) -> tuple[tuple[str, int], ...]:
        """Return the segments of a pack's shared prefix, in order.

        Each is a pair: digest of all tokens and cuts up to the segment's end, and the segment's length.
        """
        bounds = (0, *pack.cuts)
        keys = (hashlib.sha256(_segment_key(pack, pack.cuts[: k + 1])).hexdigest()[:16] for k in range(len(pack.cuts)))
        return tuple((key, stop - start) for key, start, stop in zip(keys, bounds, pack.cuts, strict=False))

    def causal(self, first: int, last: int) -> torch.Tensor:
        """Return the causal attention mask `(last - first, last)` of the tokens at positions first ... last-1."""
        return torch.ones(last - first, last, dtype=torch.bool, device=self.device).tril(first)

    # --- packs side by side -------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def copy_to(self, pack: Pack, row: CacheRow, segment_slices: dict[bytes, slice]) -> list[slice]:
        """Copy the pack in the main row, with the prefix segments that another row of the KV cache lacks, to that row.

        Args:
            pack: the pack in the main row.
            row: the row to which the copy is appended.
            segment_slices: segment key -> its slice in `row`; the copied segments are added to it.

        Returns:
            Slices in `row` of the prefix segments, then of the pack's tokens.
        """
        slices, start = [], 0
        for number, stop in enumerate(pack.cuts):
            key = _segment_key(pack, pack.cuts[: number + 1])
            if key not in segment_slices:
                segment_slices[key] = row.append_from(self._main, start, stop)
            slices.append(segment_slices[key])
            start = stop
        return [*slices, row.append_from(self._main, start, self._main.length)]

    def use_main_row(self) -> None:
        """Let forward passes append to the main row again, and release the other row."""
        self.row = self._main

    # --- sequences side by side ---------------------------------------------------------------------------------------

    @torch.inference_mode()
    def divide(self, seen: torch.Tensor, more: int) -> torch.Tensor:
        """Copy parts of the active row to a KV cache of b sequences, which becomes the active one; pad on the left.

        Args:
            seen: `(b, k)` bool, which positions of the active row belong to each sequence.
            more: number of positions by which each sequence may grow; memory is allocated for them.

        Returns:
            `(b, longest)` bool: which positions of the sequences are no padding.
        """
        longest = int(seen.sum(dim=1).max())
        columns = seen.byte().argsort(dim=1, stable=True)[:, -longest:]
        divided = self.new_row(longest + more)
        for layer, whole in zip(divided.layers, self.row.layers, strict=True):
            keys, values = (part[0][:, columns.to(part.device)] for part in whole.part(0, whole.length))
            layer.update(keys.transpose(0, 1), values.transpose(0, 1))
        self.row = divided
        return seen.gather(1, columns)

    @torch.inference_mode()
    def forward_each(self, ids: Ids, positions: IntArray, visible: torch.Tensor) -> torch.Tensor:
        """Append one token to each of b active sequences; return the last hidden states `(b, d)` at these tokens.

        Args:
            ids: `(b,)` token ids.
            positions: `(b,)` position of each token in its sequence.
            visible: `(b, k)` bool, which positions of its sequence each token attends to, including its own.
        """
        self.tokens += len(ids)
        inputs, position_ids = self.send(ids), self.send(positions)
        mask, last = self.mask(visible, position_ids.tensor), int(self.model.config.get_text_config().num_hidden_layers)
        return self._run(
            {last: None},
            input_ids=inputs.tensor[:, None],
            position_ids=position_ids.tensor[:, None],
            attention_mask=mask.transpose(0, 2)
            if isinstance(mask, torch.Tensor)
            else {kind: each.transpose(0, 2) for kind, each in mask.items()},
            past_key_values=self.row.cache,
            use_cache=True,
        )[last]

    @torch.inference_mode()
    def measure_bytes_per_token(self) -> int:
        """Return the bytes of the keys and values of one position.

        If they are still unknown, a forward pass over one token measures them. This token does not count in `tokens`.
        """
        if not self.bytes_per_token:
            row, one = self.new_row(1), torch.zeros(1, 1, dtype=torch.long, device=self.device)
            self.model.base_model(input_ids=one, past_key_values=row.cache, use_cache=True)
            self.bytes_per_token = row.bytes_per_token
        return self.bytes_per_token

    # --- forward passes -----------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def forward(
        self, ids: Ids, positions: IntArray, visible: Callable[[], torch.Tensor], read: Mapping[int, Indices]
    ) -> dict[int, torch.Tensor]:
        """Append tokens to the active row of the KV cache, and return hidden states.

        Args:
            ids: `(t,)` token ids.
            positions: `(t,)` position of each token in its sequence.
            visible: function that returns the attention mask `(t, row's length + t)` bool on the device. It is called
                after ids and positions were uploaded. Arrays that it reads are uploaded with them only if they were
                queued before `forward`.
            read: number of a block -> indices of the tokens whose hidden states after this block are returned. For
                the last block, the final norm has been applied to the states. For `ATTENTION` no states are returned:
                the tokens' queries are kept for `attention`.

        Returns:
            Number of the block -> hidden states `(len(indices), d)` in the model's dtype.
        """
        self.tokens += len(ids)
        inputs, position_ids = self.send(ids), self.send(positions)
        states = self._run(
            read,
            input_ids=inputs.tensor[None],
            position_ids=position_ids.tensor[None],
            attention_mask=self.mask(visible(), position_ids.tensor),
            past_key_values=self.row.cache,
            use_cache=True,
        )
        self.bytes_per_token = self.bytes_per_token or self.row.bytes_per_token
        return states

    @torch.inference_mode()
    def read_alone(self, ids: Ids, read: dict[int, IntArray]) -> dict[int, torch.Tensor]:
        """Read a whole sequence without a KV cache; return for each block the states at the positions `read[block]`.

        Positions `read[ATTENTION]` are those whose queries are kept for `attention`.
        """
        self.tokens += len(ids)
        inputs = self.send(ids)
        uploads = {key: self.send(index) for key, index in {id(index): index for index in read.values()}.items()}
        indices = {block: uploads[id(index)] for block, index in read.items()}
        return self._run(indices, input_ids=inputs.tensor[None], use_cache=False)

    def _run(self, read: Mapping[int, Indices], **inputs: Any) -> dict[int, torch.Tensor]:
        # Beside a mask transformers copies keys and values for each head of queries, since CUDA's kernels want it. On a
        # CPU the same bits come without copies, in half the time. The switch is the process's, so it is on here alone;
        # and not for one token of each sequence, which transformers lets attend to keys without copies anyway.
        several = inputs["input_ids"].shape[1] > 1
        grouped = several and self.device.type == "cpu" and self.dtype.itemsize < torch.float32.itemsize
        os.environ["TRANSFORMERS_SDPA_FORCE_GQA"] = str(int(grouped))
        try:
            if ATTENTION not in read:
                return run_blocks(self.model, read, **inputs)
            index, states = read[ATTENTION], {block: rows for block, rows in read.items() if block != ATTENTION}
            rows = index.tensor if isinstance(index, Upload) else None if index is None else torch.as_tensor(index)
            with self.recorder.recording(self.model, rows):
                return run_blocks(self.model, states, **inputs)
        finally:
            os.environ["TRANSFORMERS_SDPA_FORCE_GQA"] = "0"

    @torch.inference_mode()
    def attention(self, paths: Sequence[AnswerPath]) -> list[torch.Tensor]:
        """Return what answers attend to, from the queries kept in forward passes (see `QueryRecorder.take`)."""
        kinds = getattr(self.model.config.get_text_config(), "layer_types", None)
        return self.recorder.take(paths, self.window, kinds)

    def mask(self, visible: torch.Tensor, positions: torch.Tensor) -> Any:
        """Return the additive attention mask of shape `(1, 1, t, k)` in the model's dtype.

        Return a dictionary, layer type -> mask, if the model has several types of attention layers; also if all layers
        are of the type `sliding_attention` and `window` is set.

        Args:
            visible: `(t, k)` bool, whether query token t attends to key k.
            positions: `(t,)` position of each query token in its sequence, for a sliding window.
        """
        full = self._additive(visible)
        kinds = set(getattr(self.model.config.get_text_config(), "layer_types", None) or ())
        if self.window is None:
            return dict.fromkeys(kinds, full) if len(kinds) > 1 else full
        # A token attends to a single path, on which the k-th visible key has position k.
        key_positions = visible.cumsum(dim=1, dtype=torch.int32) - 1
        windowed = self._additive(visible & (positions[:, None] - key_positions < self.window))
        if len(kinds) > 1 or kinds == {"sliding_attention"}:
            return {kind: windowed if kind == "sliding_attention" else full for kind in kinds}
        return windowed

    def _additive(self, allowed: torch.Tensor) -> torch.Tensor:
        lowest = torch.finfo(self.dtype).min
        empty = torch.zeros(allowed.shape, dtype=self.dtype, device=allowed.device)
        return empty.masked_fill_(~allowed, lowest)[None, None]


def run_blocks(model: Any, read: Mapping[int, Indices], **inputs: Any) -> dict[int, torch.Tensor]:
    """Run the model without its output head; return the requested hidden states: number of the block -> `(rows, d)`.

    The tensors are copies, on the device of the output head.
    """
    last = int(model.config.get_text_config().num_hidden_layers)
    out: dict[int, torch.Tensor] = {}
    inner = [block for block in read if block != last]

    def save(block: int, _module: Any, _inputs: Any, output: Any) -> None:
        out[block] = _rows(output[0] if isinstance(output, tuple) else output, read[block]).clone()

    with ExitStack() as stack:
        modules = blocks(model) if inner else ()
        for block in inner:
            stack.callback(modules[block - 1].register_forward_hook(partial(save, block)).remove)
        states = model.base_model(**inputs).last_hidden_state
    if last in read:
        out[last] = _rows(states, read[last])
    device = model.get_output_embeddings().weight.device
    return {block: rows.to(device) for block, rows in out.items()}


def _rows(states: torch.Tensor, index: Indices) -> torch.Tensor:
    rows = states.flatten(0, 1)
    if index is None:
        return rows
    numbers = index.tensor if isinstance(index, Upload) else index
    return rows[torch.as_tensor(numbers, device=states.device)]


def blocks(model: Any) -> torch.nn.ModuleList:
    """Return the model's transformer blocks: the module list that is as long as the configured number of layers.

    Raises:
        ValueError: the model has no such list.
    """
    count = int(model.config.get_text_config().num_hidden_layers)
    for module in model.base_model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise ValueError(f"{type(model).__name__} has no list of {count} blocks")


def checkpoint_blocks(model: Any) -> None:
    """Enable gradient checkpointing: blocks are computed again in the backward pass, with the same dropout masks.

    The switch in transformers is not used: it needs training mode, in which the frozen layers use dropout, and some
    architectures lack the switch.

    Raises:
        ValueError: the model has no list of blocks.
    """
    for block in blocks(model):
        block.forward = partial(_rerun, block.forward, next(block.parameters()).device)


def _rerun(forward: Callable[..., Any], device: torch.device, states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Run a block under gradient checkpointing, on the block's device.

    The hidden states `states` are moved to that device first: torch restores the random generator's state only on the
    device of the input.
    """
    if not torch.is_grad_enabled():
        return forward(states, *args, **kwargs)
    return checkpoint(forward, states.to(device), *args, use_reentrant=False, **kwargs)
