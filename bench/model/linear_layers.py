"""The linear layers of a model's blocks, and which make queries and values, together or apart: by name, or by shape."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import transformers

from bench.api import Projection, UserError
from bench.model.session import blocks

_NAMES: dict[str, Literal["query", "value"]] = {"q_proj": "query", "v_proj": "value"}
"""Names of most architectures."""
_FUSED = frozenset({"qkv_proj", "c_attn", "query_key_value", "Wqkv", "W_pack", "wqkv", "qkv"})
"""Names of layers that make queries, keys and values at once (Phi-3, GPT-2, GPT-NeoX, Falcon, MPT, ...)."""


class NamedLinear(NamedTuple):
    """A linear layer and where it is."""

    path: str
    """Full name in the model, e.g. `model.layers.0.self_attn.q_proj`."""
    projection: Projection


def locate(model: Any) -> list[NamedLinear]:
    """The linear layers of all blocks in order, of a causal language model or of its likeness on the meta device."""
    paths = {module: name for name, module in model.named_modules()}
    found: list[NamedLinear] = []
    try:
        layers = list(blocks(model))
    except (ValueError, AttributeError):
        return found
    for block in layers:
        parts = _by_name(block) or _by_shape(block, int(model.config.get_text_config().hidden_size))
        for name, module in block.named_modules():
            if (shape := _shape(module)) is not None:
                leaf = name.rpartition(".")[2]
                found.append(NamedLinear(paths[module], Projection(leaf, *shape, parts.get(module, ""))))
    return found


def of_config(config: Any, *, trust_remote_code: bool = False) -> tuple[Projection, ...]:
    """The same from a configuration alone, without weights."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    return tuple(located.projection for located in locate(model))


def targets(located: list[NamedLinear], named: str = "") -> list[str]:
    """Paths of the layers that get an adapter.

    Args:
        located: the model's linear layers.
        named: their last names, separated by commas; empty for queries and values.

    Raises:
        UserError: a name is no linear layer, or queries and values can't be told from the rest.
    """
    names = [name.strip() for name in named.split(",") if name.strip()]
    known = list(dict.fromkeys(one.projection.name for one in located))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(
            f"target_modules: {unknown[0]!r} is no linear layer of this model's blocks ({', '.join(known)})."
        )
    if names:
        return [one.path for one in located if one.projection.name in names]
    paths = [one.path for one in located if one.projection.part]
    if not paths:
        raise UserError(
            "The query and value projections of this model can't be told from its other layers, so they get no"
            " adapter. Name the layers to adapt: --set METHOD.target_modules=NAME,NAME,"
            f" of {', '.join(known) or 'none'}."
        )
    return paths


def _shape(module: Any) -> tuple[int, int] | None:
    """(inputs, outputs) of a linear layer; GPT-2's kind stores its weight the other way round."""
    if isinstance(module, torch.nn.Linear):
        return module.in_features, module.out_features
    if isinstance(module, transformers.pytorch_utils.Conv1D):
        inputs, outputs = module.weight.shape
        return int(inputs), int(outputs)
    return None


def _by_name(block: Any) -> dict[Any, Literal["query", "value", "fused"]]:
    """The layers that make queries and values, apart or else at once."""
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
    """The module with four layers of an attention's shapes: query, key, value, in this order, and one back."""
    for module in block.modules():
        layers = [child for child in module.children() if isinstance(child, torch.nn.Linear)]
        if len(layers) != 4:  # noqa: PLR2004
            continue
        query, key, value, back = layers
        same = key.out_features == value.out_features and query.out_features % key.out_features == 0
        if (
            same
            and {layer.in_features for layer in (query, key, value)} == {hidden_size}
            and (back.in_features, back.out_features) == (query.out_features, hidden_size)
        ):
            return {query: "query", value: "value"}
    return {}
