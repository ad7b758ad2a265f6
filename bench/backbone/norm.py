"""The last norm of a model as numbers, found by watching a pass and checked against the module itself."""

from __future__ import annotations

import copy
from typing import Any

import torch

from bench.api.batch import Norm
from bench.backbone.session import blocks

_EPSILONS = ("eps", "variance_epsilon", "epsilon", "norm_eps")
"""Names of the smallest variance in the norms of transformers."""
_CLOSE = 1e-4


@torch.inference_mode()
def final_norm(model: Any) -> Norm | None:
    """The norm between a causal language model's last block and its output head; None where it is none of the known.

    Known are those that divide by the root of the mean square or the standard deviation, with weights or without.
    """
    module = _last_module(model)
    eps = next((float(getattr(module, name)) for name in _EPSILONS if hasattr(module, name)), None)
    if module is None or eps is None:
        return None
    exact = copy.deepcopy(module).float()
    states = torch.randn(5, int(model.config.get_text_config().hidden_size), generator=torch.Generator().manual_seed(0))
    states = states.to(next(exact.parameters(), states).device) + 0.5
    ones = torch.ones_like(states[0])
    ones[1::2] = -1.0  # mean 0, mean square 1
    up, down = exact(ones[None])[0], exact(-ones[None])[0]
    gain, shift = (up - down) / 2 * ones * (1.0 + eps) ** 0.5, (up + down) / 2
    found = [Norm(gain, eps, shift if bool(shift.any()) else None, centred) for centred in (False, True)]
    said = exact(states)
    return next((norm for norm in found if torch.allclose(norm(states), said, rtol=_CLOSE, atol=_CLOSE)), None)


def _last_module(model: Any) -> Any:
    """The module that turns the last block's output into the last hidden state; None where no single one does."""
    seen: dict[str, torch.Tensor] = {}
    made: list[tuple[Any, torch.Tensor, torch.Tensor]] = []

    def note(module: Any, inputs: Any, output: Any) -> None:
        if inputs and isinstance(inputs[0], torch.Tensor) and isinstance(output, torch.Tensor):
            made.append((module, inputs[0], output))

    def last(_module: Any, _inputs: Any, output: Any) -> None:
        seen["block"] = output[0] if isinstance(output, tuple) else output

    own = blocks(model)
    inner = {module for block in own for module in block.modules()}
    outer = [module for module in model.base_model.modules() if module not in inner and not list(module.children())]
    handles = [module.register_forward_hook(note) for module in outer] + [own[-1].register_forward_hook(last)]
    try:
        ids = torch.arange(2, 6, device=model.device)[None] % int(model.config.get_text_config().vocab_size)
        states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()
    fitting = (m for m, given, out in made if _same(given, seen["block"]) and _same(out, states))
    return next(fitting, None)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.numel() == other.numel() and bool((one.flatten() == other.to(one.device).flatten()).all())
