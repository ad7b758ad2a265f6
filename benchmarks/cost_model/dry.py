"""Counts of what a dry pass on the meta device would do: operations launched, their arithmetic, bytes, blocking copies.

A pass is cut into sections: each forward pass of the model is one, and what lies between two of them is another.
Everything is affine in the number of blocks, so two short models of the true widths tell what a whole one does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from bench.model.training_memory import use_fused_kernels

SHARED, PREFILL, DECODE, OTHER = "shared", "prefill", "decode", "other"
"""Kinds of sections: beginnings that several packs share, packs and what is given after them, tokens that the model
itself chose, and all between forward passes."""
_PRODUCTS = {"mm": 0, "bmm": 0, "linear": 0, "matmul": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1, "addmv": 1, "mv": 0}
"""Matrix products -> the place of their first factor."""
_PARTS = {"embedding": 0, "index": 0, "gather": 0, "index_select": 0, "select_scatter": 0}
"""Operations that read as much of an argument as they give, whatever its size."""
_UPLOADING = {"index", "index_put", "index_put_", "copy_", "_to_copy", "to"}
"""Operations to which tensors of the host may be given."""
_OVERWRITING = {"zero_", "copy_", "fill_"}
_FREE = {"empty", "empty_like", "empty_strided", "new_empty", "detach_", "lift_fresh", "lift_fresh_copy", "alias"}
_FUSED, _FUSED_BACK = "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"
STOP, LIKELY = 1, 0
"""Ids that the dry model says: the end of an answer, and what it says otherwise."""
AGREEING = 0.7
"""Share of sampled tokens that are what a greedy answer would say; the others are drawn from the whole vocabulary."""


@dataclass
class Section:
    """What a part of a pass does; sums and multiples of it make sense."""

    launches: float = 0
    """Operations that start a kernel."""
    flops: float = 0
    """Of matrix products in half precision."""
    flops32: float = 0
    """Of matrix products in float32."""
    bytes: float = 0
    """Read and written by all operations."""
    down: float = 0
    """Blocking copies from the device to the host."""
    up: float = 0
    """From the host to the device."""

    @property
    def copies(self) -> float:
        return self.down + self.up

    def plus(self, other: Section, times: float = 1.0) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(Section))
        return type(self)(*(a + times * b for a, b in pairs))


@dataclass
class Trace:
    """Sections of some work, in order."""

    kinds: list[str]
    tokens: list[int]
    """Tokens of a forward pass; 0 between passes."""
    sections: list[Section]

    def extended(self, longer: Trace, blocks: int, more: int) -> Trace:
        """The trace of a model of `more` further blocks, from this one and that of `longer`, with `blocks` further."""
        if (self.kinds, self.tokens) != (longer.kinds, longer.tokens):
            raise ValueError("expected the same passes whatever the number of blocks; got others")
        pairs = zip(self.sections, longer.sections, strict=True)
        grown = [a.plus(b.plus(a, -1.0), more / blocks) for a, b in pairs]
        return Trace(self.kinds, self.tokens, grown)

    def of(self, *kinds: str) -> Trace:
        chosen = [i for i, kind in enumerate(self.kinds) if kind in kinds]
        kept = ([part[i] for i in chosen] for part in (self.kinds, self.tokens, self.sections))
        return Trace(*kept)  # type: ignore[arg-type]


class Counter:
    """Counts while it is on; `begin` starts a section."""

    def __init__(self, mean_answer: float = math.inf, vocabulary: int = 1000, device: str = "meta") -> None:
        self.device = device
        self.trace = Trace([OTHER], [0], [Section()])
        self._rng = np.random.default_rng(0)
        self._stop, self._vocabulary = 1 / (mean_answer + 1), vocabulary

    @property
    def section(self) -> Section:
        return self.trace.sections[-1]

    def begin(self, kind: str, tokens: int = 0) -> None:
        self.trace.kinds.append(kind)
        self.trace.tokens.append(tokens)
        self.trace.sections.append(Section())

    @contextmanager
    def on(self) -> Iterator[None]:
        with use_fused_kernels(), _Operations(self), _Uploads(self):
            yield

    def chosen(self, like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Values for a tensor that is copied to the host: zeros, or the ids that a model said.

        One row of ids is greedy: it goes on, or ends. A table of ids is of samples, some of which say something else.
        """
        if dtype != torch.int64 or not like.ndim:
            return torch.zeros(like.shape, dtype=dtype)
        ids = np.full(tuple(like.shape), LIKELY)
        if like.ndim > 1:
            others = self._rng.integers(2, self._vocabulary, ids.shape)
            ids = np.where(self._rng.random(ids.shape) < AGREEING, ids, others)
        return torch.from_numpy(np.where(self._rng.random(ids.shape) < self._stop, STOP, ids))


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, counter: Counter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.__name__.partition(".")[0]
        given = _tensors((*args, *kwargs.values()))
        here = [tensor for tensor in given if tensor.device.type == self.counter.device]
        if self.counter.device == "cpu":  # real numbers: only launches are of interest
            return self._passed_on(func, name, args, kwargs)
        if name == "_local_scalar_dense" and here:
            self.counter.section.down += 1
            return 0.0 if here[0].dtype.is_floating_point else 0
        wanted = _device(name, args, kwargs)
        if wanted == "cpu" and here:
            self.counter.section.down += 1
            return self.counter.chosen(here[0], kwargs.get("dtype") or here[0].dtype)
        return self._passed_on(func, name, args, kwargs)

    def _passed_on(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        made = [tensor for tensor in _tensors([out]) if tensor.device.type == self.counter.device]
        if made or func._schema.is_mutable:
            self._count(func, name, _tensors((*args, *kwargs.values())), made)
        return out

    def _count(self, func: Any, name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        section = self.counter.section
        here = [tensor for tensor in given if tensor.device.type == self.counter.device]
        uploads = sum(tensor.device.type != self.counter.device and tensor.ndim > 0 for tensor in given)
        if name in _UPLOADING and uploads:
            section.up += uploads
            if name not in {"index", "index_put", "index_put_"}:
                return  # a copy is all that it is
        there = {tensor.untyped_storage()._cdata for tensor in here}
        views = not func._schema.is_mutable and all(tensor.untyped_storage()._cdata in there for tensor in made)
        if name in _FREE or views:
            return
        section.launches += 1
        written = sum(tensor.nbytes for tensor in made)
        adds = name.endswith("_") and name not in _OVERWRITING  # what is changed in place is read as well
        same = {id(tensor) for tensor in made}
        read = sum(tensor.nbytes for tensor in here if adds or id(tensor) not in same)
        section.bytes += 2 * written if name in _PARTS else written + read
        flops, single = _flops(name, given, made)
        section.flops32 += flops * single
        section.flops += flops * (not single)


class _Uploads(TorchFunctionMode):
    """Sees what operations don't show: a tensor made from the host's numbers."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        before = self.counter.section.up
        out = func(*args, **kwargs)
        if func in {torch.as_tensor, torch.tensor} and out.device.type == self.counter.device == "meta":
            there = isinstance(args[0], torch.Tensor) and args[0].device.type == "meta"
            self.counter.section.up = before + (not there and out.numel() > 0)  # its own conversion is the same copy
        return out


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found


def _device(name: str, args: Any, kwargs: Any) -> str | None:
    if name not in {"_to_copy", "to"}:
        return None
    places = [kwargs.get("device"), *(one for one in args[1:] if isinstance(one, torch.device))]
    return next((place.type for place in places if place is not None), None)


def _flops(name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> tuple[float, bool]:
    """Floating-point operations of a matrix product or of attention, and whether in float32."""
    if name in {_FUSED, _FUSED_BACK}:
        query, key = (given[0], given[1]) if name == _FUSED else (given[1], given[2])
        scores = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2] * query.shape[3]
        return (4.0 if name == _FUSED else 10.0) * scores, query.dtype == torch.float32
    if name not in _PRODUCTS:
        return 0.0, False
    factor = given[_PRODUCTS[name]]
    return 2.0 * made[0].numel() * factor.shape[-1], factor.dtype == torch.float32


def counted(work: Callable[[], object], counter: Counter) -> Trace:
    with counter.on():
        work()
    return counter.trace
