"""`Batch`, questions with their signals as a method gets them; `Ragged` and `OutputHead`, types of signals' values."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from bench.api.errors import ContractError
from bench.api.signals import (
    AttentionRows,
    ChoiceLogits,
    QueryLogits,
    SampleAgreement,
    Samples,
    Signal,
    TokenIds,
    TokenScores,
    Unembedding,
)

if TYPE_CHECKING:
    import torch


FloatArray = npt.NDArray[np.floating[Any]]


IntArray = npt.NDArray[np.integer[Any]]


BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different length in one array: row i is `values[offsets[i]:offsets[i + 1]]`.

    Shapes: values `(sum of t_i, ...)`, offsets `(n + 1,)` int64 starting at 0.
    """

    values: npt.NDArray[Any]
    offsets: IntArray
    owner: IntArray | None = None
    """`(sum of t_i,)`: index of the option or sample to which each value belongs; None if a question has only one
    text."""

    @classmethod
    def of(cls, rows: Sequence[npt.ArrayLike]) -> Ragged:
        """Join a sequence of arrays to one `Ragged`; needs at least one array, all with the same trailing shape."""
        arrays = [np.asarray(row) for row in rows]
        return cls(np.concatenate(arrays), np.cumsum([0, *(len(a) for a in arrays)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[Any]:
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> IntArray:
        """`(n,)` length of each row."""
        return np.diff(self.offsets)

    def take(self, rows: IntArray) -> Ragged:
        """Return a `Ragged` with the selected rows, in the given order."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)  # position inside its row, for each value
        index = np.repeat(self.offsets[rows], lengths) + within
        owner = None if self.owner is None else _read_only(self.owner[index])
        return Ragged(_read_only(self.values[index]), _read_only(offsets), owner)


Rows: TypeAlias = "Sequence[int] | IntArray | torch.Tensor"
"""Type of the token ids whose logits are asked for: each is the index of a row of the output head's weight."""
_FLOAT32_BYTES = 4
_SCRATCH = 16 * 2**20
"""Number of weights of the output head that are converted to float32 at once (64 MiB)."""
_MIXED = ("cuda", "meta")
"""Types of torch devices on which two 16-bit matrices can be multiplied with a float32 result."""


@dataclass(frozen=True, eq=False)
class Norm:
    """A model's final norm: h -> gain * h / sqrt(mean(h^2) + eps) + shift.

    Means are over the d components of h. A centred norm (LayerNorm) subtracts mean(h) from h first; RMSNorm does not.
    """

    gain: torch.Tensor
    """`(d,)` float32 factor of each component."""
    eps: float
    shift: torch.Tensor | None = None
    """`(d,)` float32 addend of each component."""
    centred: bool = False

    @overload
    def __call__(self, hidden: torch.Tensor) -> torch.Tensor: ...
    @overload
    def __call__(self, hidden: FloatArray) -> npt.NDArray[np.float32]: ...
    def __call__(self, hidden: torch.Tensor | FloatArray) -> torch.Tensor | npt.NDArray[np.float32]:
        """Normalise hidden states `(..., d)` to float32, ready for the output head.

        An array gives an array, a tensor a tensor.
        """
        if isinstance(hidden, np.ndarray):
            return _array(self(_tensor(hidden, self.gain)))
        h = hidden.float()
        if self.centred:
            h = h - h.mean(dim=-1, keepdim=True)
        scaled = self.gain * h * (h.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt()
        return scaled if self.shift is None else scaled + self.shift


@dataclass(frozen=True, eq=False)
class OutputHead:
    """Model's last linear layer with its scaling: a final hidden state h gives the logits u = scale * (W h + b).

    If c is set, logits are capped to c * tanh(u / c). W is `weight`, b is `bias` and c is `softcap`.
    """

    weight: torch.Tensor
    """`(v, d)`: weight matrix W, one row for each token of the vocabulary."""
    bias: torch.Tensor | None = None
    """`(v,)`: bias vector b, added to W h."""
    scale: float = 1.0
    softcap: float | None = None
    norm: Norm | None = None
    """The model's final norm, or None if it is not known. `head.logits(head.norm(h))` is for states of inner blocks;
    states of depth 1.0 have passed the norm already."""

    @overload
    def logits(self, hidden: torch.Tensor, rows: Rows | None = None) -> torch.Tensor: ...
    @overload
    def logits(self, hidden: FloatArray, rows: Rows | None = None) -> npt.NDArray[np.float32]: ...
    def logits(
        self, hidden: torch.Tensor | FloatArray, rows: Rows | None = None
    ) -> torch.Tensor | npt.NDArray[np.float32]:
        """Compute float32 logits `(..., v)` from hidden states `(..., d)`; an array gives an array, a tensor a tensor.

        If states and weight are bfloat16 on a CPU that multiplies it natively, logits have 16 significant bits, else
        those of float32.

        Args:
            hidden: the hidden states.
            rows: token ids whose logits are computed, which gives `(..., len(rows))`; by default the whole vocabulary.
                If a tensor, it must be on the device of `hidden`.
        """
        if isinstance(hidden, np.ndarray):
            return _array(self.logits(_tensor(hidden, self.weight), rows))
        if rows is not None and self._is_short:
            index = _indices(rows)
            bias = None if self.bias is None else self.bias[index]
            return replace(self, weight=self.weight[index], bias=bias).logits(hidden)
        states = hidden.reshape(-1, hidden.shape[-1])
        mixed = states.device.type in _MIXED and states.dtype == self.weight.dtype and not self.weight.requires_grad
        if self._is_short and mixed:
            u: torch.Tensor = _mixed_product().apply(states, self.weight)
        elif not self._is_short or hidden.requires_grad:  # autograd would save every piece
            u = hidden.float() @ self.weight.float().T
        elif _are_bfloat16(states, self.weight) and states.device.type == "cpu" and has_native_bfloat16():
            # Sums are float32 and their results bfloat16: the second product is what the rounding of the first left.
            rounded = states @ self.weight.T
            u = rounded.float().add_(rounded.addmm(states, self.weight.T, beta=-1))
        else:  # without a float32 copy of the whole weight
            wide = states.float()
            u = wide.new_empty(len(states), len(self.weight))
            for piece in _pieces(self.weight):
                u[:, piece] = wide @ self.weight[piece].float().T
        u = u.reshape(*hidden.shape[:-1], len(self.weight))
        if self.bias is not None:
            u = u + self.bias.float()
        u = u * self.scale
        u = u if self.softcap is None else self.softcap * (u / self.softcap).tanh()
        return u if rows is None else u[..., _indices(rows)]

    @property
    def _is_short(self) -> bool:
        """Whether the weights have a dtype with fewer bits than float32."""
        return self.weight.dtype.itemsize < _FLOAT32_BYTES


@cache
def has_native_bfloat16() -> bool:
    """Return whether this machine's CPU multiplies bfloat16 in hardware, according to torch."""
    library: Any = sys.modules["torch"]  # as in `_mixed_product`
    return bool(library.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001


def _are_bfloat16(*tensors: torch.Tensor) -> bool:
    return all(str(tensor.dtype) == "torch.bfloat16" for tensor in tensors)


def _indices(rows: Rows) -> list[int] | torch.Tensor:
    return list(rows) if isinstance(rows, Sequence | np.ndarray) else rows


def _tensor(states: FloatArray, like: torch.Tensor) -> torch.Tensor:
    """Copy an array to a new float32 tensor on the device of the tensor `like`."""
    library: Any = sys.modules["torch"]  # as in `_mixed_product`
    tensor: torch.Tensor = library.tensor(np.ascontiguousarray(states, dtype=np.float32), device=like.device)
    return tensor


def _array(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = tensor.detach().cpu().numpy()
    return array


def _pieces(weight: torch.Tensor) -> Iterator[slice]:
    """Return slices that cover the rows of a weight matrix, each small enough to be converted to float32 at once."""
    step = max(1, _SCRATCH // weight.shape[1])
    return (slice(start, start + step) for start in range(0, len(weight), step))


@cache
def _mixed_product() -> Any:
    """Return an autograd function that multiplies 16-bit states `(n, d)` by frozen 16-bit weights `(v, d)`.

    The result `(n, v)` is float32. torch itself has no derivative for a product with more bits than its factors.
    """
    library: Any = sys.modules["torch"]  # not imported here: a caller with a tensor has imported it

    class Product(library.autograd.Function):  # type: ignore[misc]  # base class known at run time only
        @staticmethod
        def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor) -> Any:
            ctx.save_for_backward(weight)
            return library.mm(states, weight.T, out_dtype=library.float32)  # sums in float32

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, None]:
            (weight,) = ctx.saved_tensors
            into = gradient.new_zeros(len(gradient), weight.shape[1])
            for piece in _pieces(weight):
                into.addmm_(gradient[:, piece], weight[piece].float())
            return into.to(weight.dtype), None

    return Product


Column = npt.NDArray[Any] | Ragged | OutputHead


def _with_arrays(column: Column, of: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Column:
    """Apply a function to the arrays of a batch's column; a column that is an output head is returned unchanged."""
    if isinstance(column, Ragged):
        owner = None if column.owner is None else of(column.owner)
        return Ragged(of(column.values), of(column.offsets), owner)
    return column if isinstance(column, OutputHead) else of(column)


def _frozen_view(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def copied(column: Column) -> Column:
    """Return a copy of a batch's column with writable arrays; a column that is an output head is returned unchanged."""
    return _with_arrays(column, lambda array: array.copy())


def _read_only(fresh: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make a new array read-only and return it.

    A read-only view of the array would not be enough: a method could write to the array through the view's `base`.
    """
    fresh.flags.writeable = False
    return fresh


class Batch:
    """Questions with their signals, as a method gets them; the labels can be read in `fit` only.

    Arrays are read-only, except in a batch made by `own` or `of_own`, and in what `take` selects from such a batch.
    """

    def __init__(
        self, ids: Sequence[str], columns: Mapping[Signal, Column], correct: npt.NDArray[np.bool_] | None = None
    ) -> None:
        self.ids = tuple(ids)
        self._columns = {signal: _with_arrays(column, _frozen_view) for signal, column in columns.items()}
        self._correct = None if correct is None else _frozen_view(_read_only(np.array(correct, dtype=np.bool_)))
        self._reads: set[str] = set()
        self.is_own = False
        """Whether the arrays are writable copies that no other batch shares."""

    @classmethod
    def of_own(
        cls, ids: Sequence[str], columns: Mapping[Signal, Column], correct: npt.NDArray[np.bool_] | None = None
    ) -> Self:
        """Build a batch with writable arrays; the caller must not share these arrays with another batch."""
        batch = cls(ids, {})
        batch._columns, batch.is_own = dict(columns), True
        batch._correct = None if correct is None else np.array(correct, dtype=np.bool_)
        return batch

    def own(self) -> Self:
        """Return a copy with writable arrays; the output head is not copied.

        Each call of a plugin gets its own copy, so that torch can wrap the arrays, and writes to them change nothing
        else.
        """
        batch = copy.copy(self)
        vars(batch).update(_columns=dict(self._columns))
        batch._copy_arrays()  # noqa: SLF001 - of this class
        return batch

    def _copy_arrays(self) -> None:
        """Replace the arrays by writable copies, column by column: at most one column is in memory twice."""
        for signal, column in self._columns.items():
            self._columns[signal] = copied(column)
        self._correct = None if self._correct is None else self._correct.copy()
        self.is_own = True

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, signal: Unembedding) -> OutputHead: ...
    @overload
    def __getitem__(self, signal: AttentionRows | Samples | TokenIds | TokenScores) -> Ragged: ...
    @overload
    def __getitem__(self, signal: ChoiceLogits | QueryLogits) -> FloatArray: ...
    @overload
    def __getitem__(self, signal: SampleAgreement) -> BoolArray: ...
    @overload
    def __getitem__(self, signal: Signal) -> Any: ...
    def __getitem__(self, signal: Signal) -> Any:
        """Return the signal's values for the questions of this batch.

        Raises:
            ContractError: the signal was not declared in `needs`.
        """
        if signal not in self._columns:
            declared = ", ".join(sorted(map(repr, self._columns))) or "none"
            raise ContractError(f"{signal!r} was read but not declared in needs (declared: {declared})")
        return self._columns[signal]

    @property
    def correct(self) -> BoolArray:
        """`(n,)` bool: whether the model's answer to each question is right; available in `fit` only.

        Raises:
            ContractError: read in `predict`.
        """
        self._reads.add("correct")
        if self._correct is None:
            raise ContractError("batch.correct was read outside fit; labels exist only in fit")
        return self._correct

    if not TYPE_CHECKING:  # for type checkers an unknown field stays an error

        def __getattr__(self, name: str) -> NoReturn:
            """Raise an AttributeError that lists what methods can read."""
            values = ", ".join(f"batch[{signal!r}]" for signal in self.__dict__.get("_columns", ())) or "no signal"
            raise AttributeError(
                f"Batch has no field {name!r}; it has ids, correct (in fit), signals, take(rows), and of what needs"
                f" declares {values}"
            )

    @property
    def labels_read(self) -> bool:
        """Whether a method read the labels of this batch, or of a batch that `take` or `own` made of it.

        Results record this.
        """
        return bool(self._reads)

    @property
    def signals(self) -> frozenset[Signal]:
        """The signals whose values the batch has."""
        return frozenset(self._columns)

    def take(self, rows: npt.ArrayLike) -> Batch:
        """Return a batch with the questions selected by indices or by a bool mask, in the given order."""
        index = np.asarray(rows)
        index = np.flatnonzero(index) if index.dtype == np.bool_ else index.astype(np.int64)
        columns: dict[Signal, Column] = {}
        for signal, column in self._columns.items():
            if isinstance(column, OutputHead):
                columns[signal] = column
            else:
                columns[signal] = column.take(index) if isinstance(column, Ragged) else _read_only(column[index])
        correct = None if self._correct is None else self._correct[index]
        part = Batch([self.ids[i] for i in index], columns, correct)
        part._reads = self._reads
        return part.own() if self.is_own else part


def labels_of(batch: Batch) -> BoolArray | None:
    """Return the labels of a batch, or None, without recording that they were read; only the harness calls this."""
    return batch._correct  # noqa: SLF001
