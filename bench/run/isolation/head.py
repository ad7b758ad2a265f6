"""Guard of the model's output head, the one thing that methods get and could write into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.api import UserError

if TYPE_CHECKING:
    import torch

    from bench.backbone.model import Backbone

_ROWS = 64
"""Rows of the sample."""
_TOGETHER = 1024
"""Rows of which sums are taken at once."""


@dataclass
class HeadGuard:
    """Compares the weights of the output head with what they were, and loads them again where they differ."""

    backbone: Backbone | None = None
    _version: int = 0
    _sample: torch.Tensor | None = None
    _sums: torch.Tensor | None = None
    """`(v,)`: one number for each row, in which every bit of the row counts."""
    seen_by: list[str] = field(default_factory=list)
    """Methods of this process that were given the head, in order."""

    def given_to(self, name: str) -> None:
        """Note that a method of this process gets the head; the first time, what it is like."""
        if self.backbone is None:
            return
        if self._sums is None:
            self._remember()
        if name not in self.seen_by:
            self.seen_by.append(name)

    def intact(self, *, whole: bool) -> bool:
        """Whether the weights are what they were; if not, they are loaded again.

        Args:
            whole: compare all of them, else the version that torch counts and a sample of rows.

        Raises:
            UserError: the files on the disk are not what was loaded, either.
        """
        if self.backbone is None or self._sums is None or "head" not in vars(self.backbone):
            return True
        if self._same(whole=whole):
            return True
        self.backbone.release()
        before = self._sums
        self._remember()
        if not _equal(before, self._sums):
            raise UserError("The model's weights were changed by a method, and those on the disk are others: run again")
        return False

    def _same(self, *, whole: bool) -> bool:
        weight = self._weight()
        if not whole and weight._version == self._version and _equal(self._sample, _sampled(weight)):  # noqa: SLF001
            return True
        if not _equal(self._sums, _row_sums(weight)):
            return False
        self._version = weight._version  # noqa: SLF001 - weights that were moved to another device and back
        return True

    def _remember(self) -> None:
        weight = self._weight()
        self._version, self._sample, self._sums = weight._version, _sampled(weight).clone(), _row_sums(weight)  # noqa: SLF001

    def _weight(self) -> torch.Tensor:
        if self.backbone is None:
            raise ValueError("no backbone")
        return self.backbone.head.weight


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    import torch

    return one is not None and other is not None and one.shape == other.shape and torch.equal(one, other)


def _bits(weight: torch.Tensor) -> torch.Tensor:
    """The weights as integers, as wide as their rows allow, so that every bit counts and NaN equals itself."""
    import torch

    length = weight.shape[1] * weight.element_size()
    kind = next(kind for kind in (torch.int64, torch.int32, torch.int16, torch.int8) if length % kind.itemsize == 0)
    return weight.detach().view(kind)


def _sampled(weight: torch.Tensor) -> torch.Tensor:
    """`(at most _ROWS, ...)`: rows that are evenly spread."""
    return _bits(weight)[:: max(1, -(-len(weight) // _ROWS))]


def _row_sums(weight: torch.Tensor) -> torch.Tensor:
    """`(v,)` int64: products of each row with odd numbers, modulo 2^64; one changed number always changes its row's."""
    import torch

    bits = _bits(weight)
    odd = 2 * torch.arange(bits.shape[1], device=bits.device) + 1
    if bits.device.type == "cpu" and bits.dtype == torch.int64:
        return bits @ odd
    return torch.cat([(rows.long() * odd).sum(dim=1) for rows in torch.split(bits, _TOGETHER)])
