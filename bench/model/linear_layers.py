"""The linear layers of a model's blocks; query and value projections are recognised by name or by shape."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import transformers

from bench.api import Projection, UserError
from bench.model.folder import on_meta
from bench.model.session import blocks

_NAMES: dict[str, Literal["query", "value"]] = {"q_proj": "query", "v_proj": "value"}
"""Usual names of the query and value projections, with the kind of each."""
_FUSED = frozenset({"qkv_proj", "c_attn", "query_key_value", "Wqkv", "W_pack", "wqkv", "qkv"})
"""Names of fused query-key-value projections (Phi-3, GPT-2, GPT-NeoX, Falcon, MPT, ...)."""


class NamedLinear(NamedTuple):
    """A linear layer and its path in the model."""

    path: str
    """Full name in the model, e.g. `model.layers.0.self_attn.q_proj`."""
    projection: Projection


def find_linear_layers(model: Any) -> list[NamedLinear]:
    """Return the linear layers of all blocks in order; empty if the model has no list of blocks.

    The model may be on the meta device.
    """
    paths = {module: name for name, module in model.named_modules()}
    linears: list[NamedLinear] = []
    try:
        layers = list(blocks(model))
    except (ValueError, AttributeError):
        return linears
    for block in layers:
        parts = _by_name(block) or _by_shape(block, int(model.config.get_text_config().hidden_size))
        for name, module in block.named_modules():
            if (shape := _shape(module)) is not None:
                leaf = name.rpartition(".")[2]
                linears.append(NamedLinear(paths[module], Projection(leaf, *shape, parts.get(module, ""))))
    return linears


def of_config(config: Any, *, trust_remote_code: bool = False) -> tuple[Projection, ...]:
    """Return the linear layers of the blocks of a model with this configuration; no weights are loaded."""
    linears = find_linear_layers(on_meta(config, trust_remote_code=trust_remote_code))
    return tuple(linear.projection for linear in linears)


def target_paths(linears: list[NamedLinear], named: str = "") -> list[str]:
    """Return the paths of the layers that LoRA adapts.

    Args:
        linears: the model's linear layers.
        named: names of layers, separated by commas; a name is the last part of a layer's path. Empty for query and
            value projections; in blocks that have none of their own, for the fused query-key-value layers.

    Raises:
        UserError: a name is no linear layer, or the query and value projections can't be recognised.
    """
    names = [name.strip() for name in named.split(",") if name.strip()]
    available = list(dict.fromkeys(linear.projection.name for linear in linears))
    unknown = [name for name in names if name not in available]
    if unknown:
        raise UserError(
            f"target_modules: {unknown[0]!r} is no linear layer of this model's blocks ({', '.join(available)})."
        )
    if names:
        return [linear.path for linear in linears if linear.projection.name in names]
    paths = [linear.path for linear in linears if linear.projection.part]
    if not paths:
        raise UserError(
            "The query and value projections of this model can't be told from its other layers, so they get no"
            " adapter. Name the layers to adapt: --set METHOD.target_modules=NAME,NAME,"
            f" of {', '.join(available) or 'none'}."
        )
    return paths


def _shape(module: Any) -> tuple[int, int] | None:
    """Return (inputs, outputs) of a linear layer; None for other modules.

    GPT-2's Conv1D is a linear layer with a transposed weight.
    """
    if isinstance(module, torch.nn.Linear):
        return module.in_features, module.out_features
    if isinstance(module, transformers.pytorch_utils.Conv1D):
        inputs, outputs = module.weight.shape
        return int(inputs), int(outputs)
    return None


def _by_name(block: Any) -> dict[Any, Literal["query", "value", "fused"]]:
    """Return a block's query and value projections by name; if it has none, its fused query-key-value layers."""
    linear = {module: name.rpartition(".")[2] for name, module in block.named_modules() if _shape(module) is not None}
    parts: dict[Any, Literal["query", "value", "fused"]] = {
        module: _NAMES[leaf]
        for module, leaf in linear.items()
        if isinstance(module, torch.nn.Linear) and leaf in _NAMES
    }
    if set(parts.values()) == {"query", "value"}:
        return parts
    return {module: "fused" for module, leaf in linear.items() if leaf in _FUSED}


def _by_shape(block: Any, hidden_size: int) -> dict[Any, Literal["query", "value"]]:
    """Return a block's query and value projections, recognised by shape; empty if no module looks like attention.

    Attention is a module with four linear layers q, k, v and o of fitting shapes.
    """
    for module in block.modules():
        layers = [child for child in module.children() if isinstance(child, torch.nn.Linear)]
        if len(layers) != 4:
            continue
        query, key, value, output = layers
        is_attention = key.out_features == value.out_features and query.out_features % key.out_features == 0
        if (
            is_attention
            and {layer.in_features for layer in (query, key, value)} == {hidden_size}
            and (output.in_features, output.out_features) == (query.out_features, hidden_size)
        ):
            return {query: "query", value: "value"}
    return {}
