"""Forward passes over packs of a prefix tree, on one cache of batch size one that is rewound rather than copied."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import Cache, DynamicLayer

from bench.backbone.beginnings import MOST_KEPT_BYTES, Path
from bench.backbone.prefix import Pack
from bench.prompts.tails import Ids


def _size(piece: list[tuple[torch.Tensor, torch.Tensor]]) -> int:
    return sum(keys.nbytes + values.nbytes for keys, values in piece)


def _name(pack: Pack, cuts: tuple[int, ...]) -> bytes:
    """Name of the piece that ends at the last of these cuts."""
    return np.asarray(cuts, dtype=np.int64).tobytes() + pack.shared[: cuts[-1]].tobytes()


class _RewindableLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """Keys and values of one block in a buffer that grows by doubling; rewinding moves a mark and copies nothing."""

    def __init__(self) -> None:
        super().__init__()
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
        size = max(256, 2 * old.shape[-2], end)
        new = old.new_zeros((*old.shape[:-2], size, old.shape[-1]))
        new[..., : self.length, :] = old[..., : self.length, :]
        return new

    def get_seq_length(self) -> int:
        """Positions that are filled."""
        return self.length

    def rewind(self, length: int) -> None:
        """Forget everything after the first `length` positions."""
        self.length = min(self.length, length)

    def copied(self, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values from a position on."""
        here = slice(start, self.length)
        return self.keys[..., here, :].clone(), self.values[..., here, :].clone()


@dataclass
class Tokens:
    """Number of token positions that went through the model."""

    forward: int = 0
    """Positions that carry a token."""
    padded: int = 0
    """All positions, padding included."""
    beginnings: int = 0
    """Those of shared beginnings among them."""


@dataclass
class Session:
    """One model with one rewindable cache; knows which shared beginning is in it."""

    model: Any
    """The causal language model."""
    window: int | None = None
    """Width of the sliding window of the layers that have one."""
    tokens: Tokens = field(default_factory=Tokens)

    def __post_init__(self) -> None:
        self.device = self.model.device
        self.dtype = self.model.dtype
        self.reset()

    def reset(self) -> None:
        """Empty the cache, and forget the pieces that were kept."""
        self._pieces: OrderedDict[bytes, list[tuple[torch.Tensor, torch.Tensor]]] = OrderedDict()
        layers = int(self.model.config.get_text_config().num_hidden_layers)
        self._layers = [_RewindableLayer() for _ in range(layers)]
        self._cache = Cache(layers=self._layers)
        self._cuts: tuple[int, ...] = ()
        self._shared: Ids = np.zeros(0, dtype=np.int32)

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return int(self._layers[0].length)

    def rewind(self, length: int) -> None:
        """Keep the first `length` positions of the cache."""
        for layer in self._layers:
            layer.rewind(length)

    def share(self, pack: Pack, chunk: int) -> None:
        """Make the cache hold exactly the pack's shared beginning, reading only the pieces that it lacks.

        A piece ends at a cut and is read in chunks from its start, so that its states don't depend on what was read
        before: a resumed run gets the same bits.
        """
        kept = self._reusable(pack)
        self.rewind(kept)
        self._cuts, self._shared = tuple(cut for cut in pack.cuts if cut <= kept), pack.shared[:kept]
        for number, cut in enumerate(pack.cuts):
            if cut > kept:
                self._piece(pack, pack.cuts[: number + 1], kept, chunk)
                kept = cut
        self._cuts, self._shared = pack.cuts, pack.shared

    @staticmethod
    def path(pack: Pack) -> Path:
        """The pieces of a pack's shared beginning."""
        starts = (0, *pack.cuts)
        names = (hashlib.sha256(_name(pack, pack.cuts[: k + 1])).hexdigest()[:16] for k in range(len(pack.cuts)))
        return tuple((name, stop - start) for name, start, stop in zip(names, starts, pack.cuts, strict=False))

    @property
    def bytes_per_token(self) -> int:
        """Size of one position in the cache; 0 before anything was read."""
        filled = [layer for layer in self._layers if layer.is_initialized]
        return sum(each[0, :, 0].nbytes for layer in filled for each in (layer.keys, layer.values))

    @torch.inference_mode()
    def _piece(self, pack: Pack, cuts: tuple[int, ...], start: int, chunk: int) -> None:
        """The piece that ends at the last of these cuts: read, or taken from those that are kept."""
        stop = cuts[-1]
        name = _name(pack, cuts)
        kept = self._pieces.get(name)
        if kept is not None:
            self._pieces.move_to_end(name)
            for layer, (keys, values) in zip(self._layers, kept, strict=True):
                layer.update(keys, values)
            return
        for first in range(start, stop, chunk):
            last = min(first + chunk, stop)
            ahead = np.tril(np.ones((last - first, last), dtype=np.bool_), k=first)
            self.forward(pack.shared[first:last], np.arange(first, last), ahead, {})
        self.tokens.beginnings += stop - start
        self._pieces[name] = [layer.copied(start) for layer in self._layers]
        while len(self._pieces) > 1 and sum(map(_size, self._pieces.values())) > MOST_KEPT_BYTES:
            self._pieces.popitem(last=False)

    def _reusable(self, pack: Pack) -> int:
        kept = 0
        for ours, theirs in zip(self._cuts, pack.cuts, strict=False):
            if ours != theirs or not np.array_equal(self._shared[kept:ours], pack.shared[kept:ours]):
                break
            kept = ours
        return kept

    @torch.inference_mode()
    def forward(
        self,
        ids: Ids,
        positions: npt.NDArray[np.int64],
        visible: npt.NDArray[np.bool_],
        read: dict[int, npt.NDArray[np.int64]],
    ) -> dict[int, torch.Tensor]:
        """Append tokens to the cache and read hidden states.

        Args:
            ids: `(t,)` token ids.
            positions: `(t,)` position of each in its own sequence.
            visible: `(t, cache length + t)` bool, what each token may see.
            read: block k (its output; the number of blocks: the last state after the final norm) -> indices of the
                tokens to read.

        Returns:
            Block -> `(len(indices), d)` states in the model's dtype.
        """
        self.tokens.forward += len(ids)
        self.tokens.padded += len(ids)
        inputs = torch.as_tensor(ids, dtype=torch.long, device=self.device)[None]
        places = torch.as_tensor(positions, dtype=torch.long, device=self.device)[None]
        return run_blocks(
            self.model,
            read,
            input_ids=inputs,
            position_ids=places,
            attention_mask=self.mask(visible, positions),
            past_key_values=self._cache,
            use_cache=True,
        )

    def mask(self, visible: npt.NDArray[np.bool_], positions: npt.NDArray[np.int64]) -> Any:
        """The additive mask; for models that mix layer types, one for each type."""
        full = self._additive(visible)
        kinds = set(getattr(self.model.config.get_text_config(), "layer_types", None) or ())
        if self.window is None:
            return dict.fromkeys(kinds, full) if len(kinds) > 1 else full
        # Position of a key: a row sees one path, on which the k-th visible key stands at position k.
        place = np.cumsum(visible, axis=1) - 1
        near = self._additive(visible & (positions[:, None] - place < self.window))
        if len(kinds) > 1 or kinds == {"sliding_attention"}:
            return {kind: near if kind == "sliding_attention" else full for kind in kinds}
        return near

    def _additive(self, visible: npt.NDArray[np.bool_]) -> torch.Tensor:
        allowed = torch.as_tensor(visible, device=self.device)
        lowest = torch.finfo(self.dtype).min
        return torch.zeros(allowed.shape, dtype=self.dtype, device=self.device).masked_fill_(~allowed, lowest)[
            None, None
        ]


def run_blocks(model: Any, read: dict[int, npt.NDArray[np.int64]], **inputs: Any) -> dict[int, torch.Tensor]:
    """Run the model without its output head and copy the states that are asked for, `(rows, d)` for each block.

    All come to the device of the output head, wherever their block is.
    """
    last = int(model.config.get_text_config().num_hidden_layers)
    out: dict[int, torch.Tensor] = {}
    inner = {block: index for block, index in read.items() if block != last}
    with ExitStack() as stack:
        modules = blocks(model) if inner else ()
        for block, index in inner.items():
            handle = modules[block - 1].register_forward_hook(partial(_keep, out=out, block=block, index=index))
            stack.callback(handle.remove)
        states = model.base_model(**inputs).last_hidden_state
    if last in read:
        out[last] = states.flatten(0, 1)[torch.as_tensor(read[last], device=states.device)]
    home = model.get_output_embeddings().weight.device
    return {block: rows.to(home) for block, rows in out.items()}


def _keep(
    _module: Any, _inputs: Any, output: Any, *, out: dict[int, torch.Tensor], block: int, index: npt.NDArray[np.int64]
) -> None:
    states = output[0] if isinstance(output, tuple) else output
    out[block] = states.flatten(0, 1)[torch.as_tensor(index, device=states.device)].clone()


def blocks(model: Any) -> torch.nn.ModuleList:
    """The transformer blocks, found by being the module list of the configured length."""
    count = int(model.config.get_text_config().num_hidden_layers)
    for module in model.base_model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise ValueError(f"{type(model).__name__} has no list of {count} blocks")


@dataclass
class Spot:
    """End of a sequence in the cache: the cached positions that its next token may see."""

    visible: npt.NDArray[np.bool_]
    """`(cache length at the time,)`; later positions belong to others."""
    length: int
    """Tokens of the sequence so far."""


def read_pack(
    session: Session, pack: Pack, chunk: int, depths: Sequence[int]
) -> tuple[list[Spot], dict[int, torch.Tensor]]:
    """Read a pack on the session's cache.

    Returns:
        Where each of its sequences stands, and block -> `(n, d)` states of their last tokens.
    """
    session.share(pack, chunk)
    own = pack.visible()
    before = np.ones((len(own), len(pack.shared)), dtype=np.bool_)
    visible = np.concatenate([before, own], axis=1)
    states = session.forward(pack.tokens, pack.positions, visible, dict.fromkeys(depths, pack.leaves))
    spots = [Spot(visible[leaf], int(pack.positions[leaf]) + 1) for leaf in pack.leaves]
    return spots, states


@torch.inference_mode()
def read_alone(session: Session, ids: Ids, read: dict[int, npt.NDArray[np.int64]]) -> dict[int, torch.Tensor]:
    """Read one whole sequence without a cache; returns block -> states at the given positions."""
    session.tokens.forward += len(ids)
    session.tokens.padded += len(ids)
    inputs = torch.as_tensor(ids, dtype=torch.long, device=session.device)[None]
    return run_blocks(session.model, read, input_ids=inputs, use_cache=False)
