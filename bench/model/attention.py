"""Attention weights at chosen tokens, computed again from the queries and keys of the model's own forward passes.

While `QueryRecorder.recording` is active, attention layers compute what they always do, and the recorder keeps the
queries of the chosen tokens. `QueryRecorder.take` then takes the softmax over the keys of these tokens' own paths, in
float32. So no pass makes a matrix of all tokens with all tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from bench.api import UserError

ATTENTION = 0
"""Stands for the queries of attention layers where a forward pass is told which blocks to read; blocks count from 1."""
_MAX_WEIGHTS = 1 << 24
"""Most attention weights of one layer that are in memory at once, unless those of a single answer are more."""
_TOLERANCE = {torch.float32: 1e-3}
"""Largest difference between a layer's output and that of the weights computed again, relative to the largest output;
`_LOW_TOLERANCE` for other dtypes, whose scores are rounded."""
_LOW_TOLERANCE = 0.1
_RECORDED, _PREFIX = ("sdpa", "eager"), "confbench_"
"""Names of the attention implementations that can be recorded, and what precedes them while they are."""
_IMPLEMENTATION = "_attn_implementation_internal"
"""Attribute of a configuration with this name; setting it changes this configuration alone."""


@dataclass(frozen=True, eq=False)
class AnswerPath:
    """Positions of one prompt and answer in the KV cache, and the recorded queries of the answer."""

    columns: torch.Tensor
    """`(n + L,)` positions of the n tokens of the prompt and the L tokens of the answer, in order; any for an empty
    answer."""
    rows: Sequence[int]
    """Numbers of the L + 1 recorded queries: of the prompt's last token, and of each token of the answer. Empty for an
    empty answer."""


@dataclass(eq=False)
class AttentionLayer:
    """Keys of one attention layer and its queries at chosen tokens, after norms and rotation."""

    number: int
    scaling: float
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    """`(heads,)` logits that take part in the softmax and belong to no token."""
    keys: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    """`(key heads, k, d)`: the cache after the last recorded pass."""
    queries: list[torch.Tensor] = field(default_factory=list)
    """`(heads, r, d)` for each recorded pass, with the r chosen tokens."""

    def weights(self, queries: torch.Tensor, keys: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        """Return attention weights `(heads, b, r, k)` in b sequences, float32.

        Args:
            queries: `(heads, b, r, d)`; consecutive heads share a key head.
            keys: `(key heads, b, k, d)`.
            allowed: `(b, r, k)` bool, whether a query attends to a key.
        """
        heads, b, r, width = queries.shape
        grouped = queries.float().reshape(len(keys), -1, b, r, width).transpose(1, 2)  # (key heads, b, group, r, d)
        scores = grouped.reshape(len(keys), b, -1, width) @ keys.float().mT * self.scaling
        scores = scores.view(len(keys), b, -1, r, keys.shape[2]).transpose(1, 2).reshape(heads, b, r, -1)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        scores = scores.masked_fill(~allowed, -torch.inf)
        total = scores.logsumexp(dim=-1, keepdim=True)
        if self.sinks is not None:
            total = torch.logaddexp(total, self.sinks.float().view(-1, 1, 1, 1))
        return (scores - total).exp()

    def check(
        self, query: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, output: torch.Tensor
    ) -> str | None:
        """Return why the weights are not those that the layer used; None if they give its output at the first tokens.

        Args:
            query: `(heads, t, d)`.
            value: `(key heads, k, d)`.
            mask: `(1, 1, t, k)`, additive or bool; None for a causal one.
            output: `(t, heads, d)`.
        """
        count, k = min(4, query.shape[1]), value.shape[1]
        if mask is None:
            ends = torch.arange(count, device=query.device) + k - query.shape[1]
            allowed = torch.arange(k, device=query.device) <= ends[:, None]
        else:
            allowed = mask[0, 0, :count, :k]
            allowed = allowed if allowed.dtype == torch.bool else allowed > torch.finfo(allowed.dtype).min / 2
        weights = self.weights(query[:, None, :count], self.keys[:, None], allowed[None])[:, 0]
        values = value.float().repeat_interleave(len(query) // len(value), dim=0)
        expected = output[:count].transpose(0, 1).float()
        difference = float((weights @ values - expected).abs().max() / expected.abs().max().clamp_min(1e-30))
        if difference <= _TOLERANCE.get(query.dtype, _LOW_TOLERANCE):
            return None
        return f"layer {self.number + 1} gives something else than softmax attention, by {difference:.2g} of its output"


class QueryRecorder:
    """Records queries at chosen tokens of forward passes, and computes from them what answers attend to."""

    def __init__(self) -> None:
        self.layers: dict[Any, AttentionLayer] = {}
        """Attention module -> its keys and queries."""
        self._configs: list[Any] = []
        self._checked: set[Any] = set()
        self._rows: torch.Tensor | None = None

    @contextmanager
    def recording(self, model: Any, rows: torch.Tensor | None) -> Iterator[None]:
        """Record the forward passes of a model within the context.

        Args:
            model: the causal language model.
            rows: indices of the tokens whose queries are kept; None for all.

        Raises:
            UserError: the model's attention can't be recorded.
        """
        if not self._configs:  # parts of a model may have copies of its configuration
            configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
            self._configs = [each for each in configs.values() if getattr(each, _IMPLEMENTATION, None) in _RECORDED]
        names = [getattr(config, _IMPLEMENTATION) for config in self._configs]
        passes = max((len(layer.queries) for layer in self.layers.values()), default=0)
        token, self._rows = _ACTIVE.set(self), rows
        try:
            for config, name in zip(self._configs, names, strict=True):
                setattr(config, _IMPLEMENTATION, f"{_PREFIX}{name}")
            yield
        finally:
            for config, name in zip(self._configs, names, strict=True):
                setattr(config, _IMPLEMENTATION, name)
            _ACTIVE.reset(token)
        if not self.layers:
            raise _refusal("its layers don't tell their queries and keys")
        if any(len(layer.queries) > passes + 1 for layer in self.layers.values()):
            raise _refusal("a layer computes attention more than once in a pass")

    def keep(self, module: Any, tensors: Sequence[Any], settings: dict[str, Any], output: torch.Tensor) -> None:
        """Keep the keys, and the queries of the chosen tokens, of one attention layer in one pass.

        Args:
            module: the attention module.
            tensors: query `(1, heads, t, d)`, key and value `(1, key heads, k, d)`, and the mask.
            settings: the other arguments of its attention function.
            output: `(1, t, heads, d)`.

        Raises:
            UserError: the layer's output does not follow from queries and keys.
        """
        query, keys, value, mask = tensors[0][0], tensors[1][0], tensors[2][0], tensors[3]
        layer = self.layers.get(module)
        if layer is None:
            number = int(getattr(module, "layer_idx", len(self.layers)))
            scaling = settings.get("scaling") or query.shape[-1] ** -0.5
            layer = AttentionLayer(number, scaling, settings.get("softcap"), settings.get("s_aux"))
            self.layers[module] = layer
        layer.keys = keys
        layer.queries.append(query if self._rows is None else query[:, self._rows.to(query.device)])
        if module not in self._checked:
            self._checked.add(module)
            reason = layer.check(query, value, mask, output[0])
            if reason is not None:
                raise _refusal(reason)

    def take(self, paths: Sequence[AnswerPath], window: int | None, kinds: Sequence[str] | None) -> list[torch.Tensor]:
        """Return what each answer attends to, `(L + 1, 4, layers, heads)` float32, and forget all queries and keys.

        Row 0 is of the prompt's last token, row j of token j of the answer. The four numbers are the weights on the
        token itself, on the token before it, on all of the prompt and on all of the answer.

        Args:
            paths: one for each answer.
            window: width of the sliding window; None without one.
            kinds: the type of each of the model's layers; None if all are alike.
        """
        layers = sorted(self.layers.values(), key=lambda layer: layer.number)
        self.layers = {}
        queries = [torch.cat(layer.queries, dim=1) for layer in layers]
        found: list[torch.Tensor] = []
        while len(found) < len(paths):
            chunk: list[AnswerPath] = []
            for path in paths[len(found) :]:
                n_rows, longest = (max(len(getattr(p, x)) for p in [*chunk, path]) for x in ("rows", "columns"))
                if chunk and (len(chunk) + 1) * n_rows * longest * len(queries[0]) > _MAX_WEIGHTS:
                    break
                chunk.append(path)
            places = _Places(chunk)
            parts = []
            for layer, own in zip(layers, queries, strict=True):
                slides = kinds is None or kinds[layer.number] == "sliding_attention"
                parts.append(places.shares(layer, own, window if slides else None))
            found += [rows[: len(path.rows)] for rows, path in zip(torch.stack(parts, dim=3), chunk, strict=True)]
        return found


class _Places:
    """Places of the queries and keys of some answers, padded to equal lengths."""

    def __init__(self, paths: Sequence[AnswerPath]) -> None:
        n_rows, longest = max(1, *(len(path.rows) for path in paths)), max(len(path.columns) for path in paths)
        device = paths[0].columns.device
        self.rows = torch.tensor([[*path.rows, *[0] * (n_rows - len(path.rows))] for path in paths], device=device)
        pad = torch.nn.functional.pad
        self.columns = torch.stack([pad(path.columns, (0, longest - len(path.columns))) for path in paths])
        """`(b, k)`."""
        ends = torch.tensor([len(path.columns) - max(0, len(path.rows) - 1) for path in paths], device=device)
        keys = torch.arange(longest, device=device)
        self.of_prompt = keys < ends[:, None]
        """`(b, k)` bool."""
        self.age = ends[:, None, None] - 1 + torch.arange(n_rows, device=device)[:, None] - keys
        """`(b, r, k)`: how many tokens before the query each key is. Padding comes after the query of every answer."""

    def shares(self, layer: AttentionLayer, queries: torch.Tensor, window: int | None) -> torch.Tensor:
        """Return the four numbers of `QueryRecorder.take` for one layer, `(b, r, 4, heads)`."""
        device = layer.keys.device
        rows, columns, of_prompt, age = (x.to(device) for x in (self.rows, self.columns, self.of_prompt, self.age))
        allowed = (age >= 0) if window is None else (age >= 0) & (age < window)
        weights = layer.weights(queries[:, rows], layer.keys[:, columns], allowed)  # (heads, b, r, k)
        place = age[:, :, :1]  # of the query: its age at the first key
        own = [
            weights.gather(-1, (place - back).clamp(0, age.shape[2] - 1).expand(*weights.shape[:3], 1))
            for back in (0, 1)
        ]
        texts = torch.stack([of_prompt, ~of_prompt], dim=-1).float()  # (b, k, 2)
        shares = torch.cat([own[0], own[1] * (place > 0), weights @ texts], dim=-1)
        return shares.permute(1, 2, 3, 0).to(self.rows.device)


def unrecorded_reason(config: Any) -> str | None:
    """Return why attention of models with this configuration can't be recorded; None if it can."""
    if not getattr(config.get_text_config(), "num_attention_heads", None):
        return "it reads attention weights, and this architecture has none"
    try:
        known = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]._can_set_attn_implementation()  # noqa: SLF001 - no other way
    except KeyError:
        return "it reads attention weights, which models with code of their own don't tell"
    return None if known else "it reads attention weights, which this architecture's code doesn't tell"


def _refusal(reason: str) -> UserError:
    return UserError(f"Attention weights can't be read: {reason}. Leave out the methods that read AttentionRows().")


_ACTIVE: ContextVar[QueryRecorder] = ContextVar("recorder of the forward pass")


def _attend(
    name: str, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any = None,
    **settings: Any,
) -> Any:  # fmt: skip
    """Run the attention function `name` of a module's architecture; the active recorder keeps what it was given."""
    home = sys.modules[type(module).__module__]
    functions = getattr(home, "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS)
    function = functions.get_interface(name, getattr(home, "eager_attention_forward", None))
    output = function(module, query, key, value, attention_mask, **settings)
    _ACTIVE.get().keep(module, (query, key, value, attention_mask), settings, output[0])
    return output


for _name in _RECORDED:
    AttentionInterface.register(f"{_PREFIX}{_name}", partial(_attend, _name))
    AttentionMaskInterface.register(f"{_PREFIX}{_name}", ALL_MASK_ATTENTION_FUNCTIONS[_name])
