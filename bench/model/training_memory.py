"""Estimate peak memory of reading and of adapter training from a configuration, and choose gradient checkpointing.

The estimate runs forward and backward passes on the meta device with the true widths, and counts the bytes of live
tensors. The memory of one block is the difference between models with three blocks and with two.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from bench.api import OutputHead, UserError
from bench.model import linear_layers
from bench.model.adapter import with_lora
from bench.model.devices import device_kind
from bench.model.folder import LOADING, on_meta
from bench.model.session import Session, checkpoint_blocks, run_blocks

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel

TRAINED_BYTES = 16
"""Bytes per trained weight, all in float32: the weight, its gradient and AdamW's two moments."""
_READ = 32
"""Number of token positions whose logits are computed in a forward pass of an estimate, of reading and of training."""
_RESERVE = 1.5e9
"""Bytes of each device's memory that tensors can't use: context, library workspaces, fragmentation."""
_LARGE = 20_000_000_000
"""On accelerators, models with more parameters than this are trained with gradient checkpointing in any case."""


@dataclass(frozen=True)
class Footprint:
    """Bytes on the device at the peak of reading or training."""

    weights: int
    """Bytes of the model's weights."""
    blocks: int
    """Bytes of the tensors of all blocks that are kept.

    In reading these are keys and values, kept until the forward pass ends. In training they are activations, kept for
    the backward pass.
    """
    rest: int
    """Bytes of the temporary tensors of a single block, and of logits."""
    trained: int = 0
    """Bytes of the adapter's weights, their gradients and AdamW's moments."""

    @property
    def total(self) -> int:
        """Sum of the bytes of `weights`, `blocks`, `rest` and `trained`."""
        return self.weights + self.blocks + self.rest + self.trained


_READING: dict[tuple[str, torch.dtype, int], Footprint] = {}
"""Estimates for reading, by configuration, dtype and token budget."""


@contextmanager
def use_fused_kernels() -> Iterator[None]:
    """Make attention and dropout on the meta device use as little memory as fused kernels do, within the context.

    Attention then stores no score matrix, and a dropout mask takes one byte per element.
    """
    ours = torch.nn.functional
    plain, drop = ours.scaled_dot_product_attention, ours.dropout

    def attention(query: Any, key: Any, value: Any, attn_mask: Any = None, **settings: Any) -> Any:
        if query.device.type != "meta":
            return plain(query, key, value, attn_mask=attn_mask, **settings)
        mask = None if attn_mask is None else attn_mask.expand(*query.shape[:3], key.shape[2])
        needs_grad = torch.is_grad_enabled() and query.requires_grad
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention  # noqa: SLF001 - it has no other name
        return kernel(query, key, value, mask, needs_grad, scale=settings.get("scale"))[0]

    def dropout(values: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: FBT001, FBT002
        if values.device.type != "meta" or not training or inplace:
            return drop(values, p, training, inplace)
        return torch.native_dropout(values, p, train=True)[0]

    ours.scaled_dot_product_attention, ours.dropout = attention, dropout  # type: ignore[assignment]
    try:
        yield
    finally:
        ours.scaled_dot_product_attention, ours.dropout = plain, drop


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts current and peak bytes of live tensors that are created within the context."""

    def __init__(self, model: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current = self.peak = 0
        known = [*model.parameters(), *model.buffers()]  # operations return views of these
        self._storages: weakref.WeakSet[Any] = weakref.WeakSet(tensor.untyped_storage() for tensor in known)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a torch operation, and count the bytes of the memory blocks (storages) that it allocates."""
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                storage = tensor.untyped_storage()
                if storage in self._storages or not storage.nbytes():
                    continue
                self._storages.add(storage)
                self.current += storage.nbytes()
                self.peak = max(self.peak, self.current)
                weakref.finalize(storage, self._freed, storage.nbytes()).atexit = False
        return out

    def _freed(self, size: int) -> None:
        self.current -= size


def config_from_settings(settings: Mapping[str, Any]) -> Any:
    """Return the transformers configuration with these settings, which include `model_type`."""
    fields = {key: value for key, value in settings.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(settings["model_type"], **fields)


def with_n_blocks(config: Any, blocks: int) -> Any:
    """Return a copy of a configuration with this number of blocks."""
    fewer = copy.deepcopy(config)
    text = fewer.get_text_config()
    text.num_hidden_layers = blocks
    if getattr(text, "layer_types", None):
        text.layer_types = list(text.layer_types)[:blocks]
    return fewer


def build_on_meta(config: Any, dtype: torch.dtype) -> Any:
    """Build a model on the meta device, frozen and in eval mode, from its configuration.

    Its attention is sdpa, or eager if the architecture lacks sdpa.
    """
    # None: a name of an earlier call may be in the configuration
    model = on_meta(config, attn_implementation=None, trust_remote_code=False)
    return model.to(dtype).eval().requires_grad_(requires_grad=False)


def reading_footprint(config: Any, dtype: torch.dtype, budget: int) -> Footprint:
    """Estimate the peak memory of reading a pack of `budget` tokens after a shared prefix that is as long.

    Each plan tells it, so an estimate is made once in this process.
    """
    asked = (config.to_json_string(use_diff=False), dtype, budget)

    def one_pass(model: Any) -> object:
        session = Session(model)
        beginning = torch.ones(budget, budget, dtype=torch.bool, device="meta").tril()
        ids = np.zeros(budget, dtype=np.int32)
        session.forward(ids, np.arange(budget), lambda: beginning, {})
        visible = torch.cat([torch.ones_like(beginning), beginning], dim=1)
        last = int(model.config.get_text_config().num_hidden_layers)
        read = {last: np.arange(_READ)}
        states = session.forward(ids, np.arange(budget, 2 * budget), lambda: visible, read)[last]
        return _head(model).logits(states), session

    if asked not in _READING:
        _READING[asked] = _footprint(config, dtype, one_pass, lambda model: model)
    return _READING[asked]


def training_footprint(
    config: Any, dtype: torch.dtype, tokens: int, *, rank: int = 8, named: str = "", checkpointing: bool = False
) -> Footprint:
    """Estimate the peak memory of a step of adapter training.

    Args:
        config: configuration of the model.
        dtype: dtype of the frozen weights; the adapter's is float32.
        tokens: tokens of a forward pass.
        rank: rank of the adapter.
        named: names of the layers to adapt, separated by commas; empty for query and value projections.
        checkpointing: whether gradient checkpointing is used.

    Raises:
        UserError: a name is no linear layer, or the query and value projections can't be recognised.
    """

    def wrap(model: Any) -> Any:
        with LOADING, torch.device("meta"):
            targets = linear_layers.target_paths(linear_layers.find_linear_layers(model), named)
            wrapped = with_lora(model, targets, rank=rank)
        if checkpointing:
            checkpoint_blocks(model)
        return wrapped

    def one_pass(wrapped: Any) -> object:
        model = wrapped.get_base_model()
        session = Session(model)
        ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
        places = torch.zeros_like(ids)
        mask = session.mask(torch.ones(tokens, tokens, dtype=torch.bool, device="meta").tril(), places[0])
        last = int(model.config.get_text_config().num_hidden_layers)
        read = {last: np.arange(_READ)}
        inputs = {"input_ids": ids, "position_ids": places, "attention_mask": mask, "use_cache": False}
        logits = _head(model).logits(run_blocks(model, read, **inputs)[last])
        adapter = [p for p in wrapped.parameters() if p.requires_grad]
        return torch.autograd.grad(logits.log_softmax(dim=-1).sum(), adapter)

    footprint = _footprint(config, dtype, one_pass, wrap)
    layers = linear_layers.find_linear_layers(build_on_meta(config, dtype))
    target_paths = set(linear_layers.target_paths(layers, named))
    sizes = [linear.projection.inputs + linear.projection.outputs for linear in layers if linear.path in target_paths]
    return Footprint(footprint.weights, footprint.blocks, footprint.rest, TRAINED_BYTES * rank * sum(sizes))


def _footprint(
    config: Any, dtype: torch.dtype, one_pass: Callable[[Any], object], wrap: Callable[[Any], Any]
) -> Footprint:
    # The first block saves less than the others, since nothing before its adapter has a gradient.
    peaks = []
    for n_blocks in (2, 3):
        model = wrap(build_on_meta(with_n_blocks(config, n_blocks), dtype))
        with use_fused_kernels(), _LiveBytes(model) as live:
            one_pass(model)
        peaks.append(int(live.peak))
    two, three = peaks
    blocks = int(config.get_text_config().num_hidden_layers)
    weights = sum(p.nbytes for p in build_on_meta(config, dtype).parameters())
    return Footprint(weights, blocks * (three - two), two - 2 * (three - two))


def _head(model: Any) -> OutputHead:
    return OutputHead(model.get_output_embeddings().weight.detach())


@dataclass(frozen=True)
class TrainingPlan:
    """Whether an adapter can be trained on the model's devices, and whether with gradient checkpointing."""

    checkpointing: bool
    """Whether gradient checkpointing is used."""
    refusal: str = ""
    """Message that says why the training does not fit into memory; empty if it fits, or if nobody can tell."""

    def check(self) -> None:
        """Check that the training fits into memory.

        Raises:
            UserError: the training does not fit.
        """
        if self.refusal:
            raise UserError(self.refusal)


def plan_training(lm: LanguageModel, tokens: int, *, rank: int = 8, named: str = "") -> TrainingPlan:
    """Decide whether an adapter's training fits into memory, and whether it uses gradient checkpointing.

    On CUDA large models use checkpointing, and other models use it if memory is too small without. The choice depends
    only on shapes and total memory, so that it is the same on all cards of a kind. On the CPU no model uses
    checkpointing. On other devices only large models use it, and no training is refused. A model that does not run on
    the meta device is trained without checkpointing.

    Args:
        lm: the model, with its devices; its weights are not loaded.
        tokens: tokens of a forward pass.
        rank: rank of the adapter.
        named: names of the layers to adapt, separated by commas; empty for query and value projections.
    """
    if device_kind(lm.device) == "cpu":
        return TrainingPlan(checkpointing=False)
    try:
        weights = build_on_meta(lm.config, torch.bfloat16).parameters()
        large = sum(p.numel() for p in weights) > _LARGE
        if not lm.device.startswith("cuda"):  # memory is shared with the system, so what is free is unknown
            return TrainingPlan(checkpointing=large)
        cards = (torch.cuda.get_device_properties(torch.device(device)) for device in lm.devices)
        available = sum(int(card.total_memory) for card in cards)
        measure = partial(training_footprint, lm.config, lm.dtype, tokens, rank=rank, named=named)
        footprints = {each: measure(checkpointing=each) for each in ((True,) if large else (False, True))}
    except Exception:  # noqa: BLE001 - the architecture does not run on the meta device: training will show
        return TrainingPlan(checkpointing=False)
    reserve = _RESERVE * len(lm.devices)
    for checkpointing, footprint in footprints.items():
        if footprint.total + reserve <= available:
            return TrainingPlan(checkpointing=checkpointing)
    footprint = footprints[True]
    larger = "a larger device, or several (--devices)"
    smaller = f"fewer tokens a pass (--training-budget) or {larger}"
    fixed = footprint.weights + footprint.trained + reserve
    advice = smaller if fixed < available else f"a smaller model or {larger}: its weights alone don't fit"
    refusal = (
        f"Training an adapter of {lm.spec.name} takes about {(footprint.total + reserve) / 1e9:.0f} GB with"
        f" gradient checkpointing and {tokens:,} tokens a pass, and {' + '.join(lm.devices)} has"
        f" {available / 1e9:.0f} GB: use {advice}, or leave out the methods that train one."
    )
    return TrainingPlan(checkpointing=True, refusal=refusal)
