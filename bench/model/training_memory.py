"""Memory that a model takes to read and to train an adapter, from its configuration alone, and how it is trained then.

Passes are made on the meta device with the true widths: nothing is computed, and the bytes of all tensors that are
alive are followed. What one block adds is the difference between models of three blocks and of two.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from bench.api import OutputHead, UserError
from bench.model import linear_layers
from bench.model.adapter import with_lora
from bench.model.devices import kind_of
from bench.model.session import Session, checkpoint_blocks, run_blocks

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel

TRAINED_BYTES = 16
"""Bytes that a trained weight takes: itself, its gradient and AdamW's two moments in float32."""
_READ = 32
"""Positions of a pass whose logits a loss reads."""
_RESERVE = 1.5e9
"""Bytes of each device that tensors can't have: its context, libraries' workspaces, fragments."""
_LARGE = 20_000_000_000
"""Parameters from which on blocks are always computed again."""


@dataclass(frozen=True)
class Footprint:
    """Bytes on the device at the peak of one kind of work."""

    weights: int
    """Weights of the model."""
    blocks: int
    """Keys and values of all blocks in reading, saved activations in training: what lives to the end of a pass."""
    rest: int
    """Tensors that are there once: a block's passing tensors, logits."""
    trained: int = 0
    """The adapter, its gradients and AdamW's moments."""

    @property
    def total(self) -> int:
        """All together."""
        return self.weights + self.blocks + self.rest + self.trained


@contextmanager
def accelerated() -> Iterator[None]:
    """Attention and dropout on the meta device as an accelerator takes them, in one kernel each.

    Attention keeps no matrix of scores then, and dropout's mask is a byte for each number. Function modes would not do:
    reading a block again in the backward pass is out of their reach.
    """
    ours = torch.nn.functional
    plain, drop = ours.scaled_dot_product_attention, ours.dropout

    def attention(query: Any, key: Any, value: Any, attn_mask: Any = None, **settings: Any) -> Any:
        if query.device.type != "meta":
            return plain(query, key, value, attn_mask=attn_mask, **settings)
        mask = None if attn_mask is None else attn_mask.expand(*query.shape[:3], key.shape[2])
        grows = torch.is_grad_enabled() and query.requires_grad
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention  # noqa: SLF001 - it has no other name
        return kernel(query, key, value, mask, grows, scale=settings.get("scale"))[0]

    def dropout(values: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: FBT001, FBT002
        if values.device.type != "meta" or not training or inplace:
            return drop(values, p, training, inplace)
        return torch.native_dropout(values, p, train=True)[0]

    ours.scaled_dot_product_attention, ours.dropout = attention, dropout  # type: ignore[assignment]
    try:
        yield
    finally:
        ours.scaled_dot_product_attention, ours.dropout = plain, drop


class _Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The bytes of tensors made in here that are still alive, and the most there were."""

    def __init__(self, model: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        there = [*model.parameters(), *model.buffers()]  # operations give views of these
        self._known: weakref.WeakSet[Any] = weakref.WeakSet(tensor.untyped_storage() for tensor in there)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and note the storages that it made."""
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                storage = tensor.untyped_storage()
                if storage in self._known or not storage.nbytes():
                    continue
                self._known.add(storage)
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self._gone, storage.nbytes()).atexit = False
        return out

    def _gone(self, size: int) -> None:
        self.now -= size


def configuration(settings: Mapping[str, Any]) -> Any:
    """The configuration that these settings mean, `model_type` among them."""
    others = {key: value for key, value in settings.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(settings["model_type"], **others)


def cut(config: Any, blocks: int) -> Any:
    """The same configuration with another number of blocks."""
    fewer = copy.deepcopy(config)
    text = fewer.get_text_config()
    text.num_hidden_layers = blocks
    if getattr(text, "layer_types", None):
        text.layer_types = list(text.layer_types)[:blocks]
    return fewer


def on_meta(config: Any, dtype: torch.dtype) -> Any:
    """The model of a configuration without weights, as it is read: frozen, without dropout."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", trust_remote_code=False
        )
    return model.to(dtype).eval().requires_grad_(requires_grad=False)


def reading(config: Any, dtype: torch.dtype, budget: int) -> Footprint:
    """Memory of reading a pack of `budget` tokens after a shared beginning as long."""

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

    return _footprint(config, dtype, one_pass, lambda model: model)


def training(
    config: Any, dtype: torch.dtype, tokens: int, *, rank: int = 8, named: str = "", checkpointing: bool = False
) -> Footprint:
    """Memory of a training step whose passes have `tokens` tokens.

    Args:
        config: the model's.
        dtype: of the frozen weights; the adapter's are float32.
        tokens: in one pass.
        rank: of the adapter.
        named: layers that get one, as `projections.targets` takes them.
        checkpointing: whether the states between blocks alone are kept, and each block is read again.
    """

    def wrap(model: Any) -> Any:
        with torch.device("meta"):
            wrapped = with_lora(model, linear_layers.targets(linear_layers.locate(model), named), rank=rank)
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
        given = {"input_ids": ids, "position_ids": places, "attention_mask": mask, "use_cache": False}
        logits = _head(model).logits(run_blocks(model, read, **given)[last])
        adapter = [p for p in wrapped.parameters() if p.requires_grad]
        return torch.autograd.grad(logits.log_softmax(dim=-1).sum(), adapter)

    found = _footprint(config, dtype, one_pass, wrap)
    layers = linear_layers.locate(on_meta(config, dtype))
    chosen = set(linear_layers.targets(layers, named))
    sizes = [one.projection.inputs + one.projection.outputs for one in layers if one.path in chosen]
    return Footprint(found.weights, found.blocks, found.rest, TRAINED_BYTES * rank * sum(sizes))


def _footprint(
    config: Any, dtype: torch.dtype, one_pass: Callable[[Any], object], wrap: Callable[[Any], Any]
) -> Footprint:
    # In the first block nothing before the adapter has a gradient, so it saves less than the others.
    peaks = []
    for few in (2, 3):
        model = wrap(on_meta(cut(config, few), dtype))
        with accelerated(), _Alive(model) as alive:
            one_pass(model)
        peaks.append(int(alive.most))
    two, three = peaks
    blocks = int(config.get_text_config().num_hidden_layers)
    weights = sum(p.nbytes for p in on_meta(config, dtype).parameters())
    return Footprint(weights, blocks * (three - two), two - 2 * (three - two))


def _head(model: Any) -> OutputHead:
    return OutputHead(model.get_output_embeddings().weight.detach())


@dataclass(frozen=True)
class TrainingPlan:
    """Way of training an adapter on a device."""

    checkpointing: bool
    """Whether of a pass the states between blocks alone are kept."""
    refusal: str = ""
    """Why it can't be; empty where it fits, or nobody can tell."""

    def check(self) -> None:
        """Refuse what can't fit.

        Raises:
            UserError: it can't.
        """
        if self.refusal:
            raise UserError(self.refusal)


def plan_training(lm: LanguageModel, tokens: int, *, rank: int = 8, named: str = "") -> TrainingPlan:
    """Choose how an adapter is trained: with checkpointing where a card has no room without, or the model is large.

    Only shapes and the card as it was built count, so that one choice is made on every card of a kind.

    Args:
        lm: the model, of which no weights are needed, and its device.
        tokens: in one pass.
        rank: of the adapter.
        named: layers that get one, as `projections.targets` takes them.
    """
    if kind_of(lm.device) == "cpu":
        return TrainingPlan(checkpointing=False)
    try:
        weights = on_meta(lm.config, torch.bfloat16).parameters()
        large = sum(p.numel() for p in weights) > _LARGE
        if not lm.device.startswith("cuda"):  # memory is the computer's own, which can't be told beforehand
            return TrainingPlan(checkpointing=large)
        cards = (torch.cuda.get_device_properties(torch.device(device)) for device in lm.devices)
        available = sum(int(card.total_memory) for card in cards)
        needed = {
            less: training(lm.config, lm.dtype, tokens, rank=rank, named=named, checkpointing=less)
            for less in ((True,) if large else (False, True))
        }
    except Exception:  # noqa: BLE001 - an architecture that can't be followed on the meta device: trying it out tells
        return TrainingPlan(checkpointing=False)
    reserve = _RESERVE * len(lm.devices)
    for less, one in needed.items():
        if one.total + reserve <= available:
            return TrainingPlan(checkpointing=less)
    one = needed[True]
    larger = "a larger device, or several (--devices)"
    smaller = f"fewer tokens a pass (--training-budget) or {larger}"
    fixed = one.weights + one.trained + reserve
    way = smaller if fixed < available else f"a smaller model or {larger}: its weights alone don't fit"
    refusal = (
        f"Training an adapter of {lm.spec.name} takes about {(one.total + reserve) / 1e9:.0f} GB with"
        f" gradient checkpointing and {tokens:,} tokens a pass, and {' + '.join(lm.devices)} has"
        f" {available / 1e9:.0f} GB: use {way}, or leave out the methods that train one."
    )
    return TrainingPlan(checkpointing=True, refusal=refusal)
