"""Guard of the model's output head, the one thing that methods get and could write into."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.api import UserError

if TYPE_CHECKING:
    import torch

    from bench.backbone.model import Backbone

_TOGETHER = 8192
"""Rows that are copied to the host at once."""


@dataclass
class HeadGuard:
    """Compares the weights of the output head with what they were, and loads them again where they differ."""

    backbone: Backbone | None = None
    _version: int = 0
    _digest: bytes = b""
    """Of all weights; empty as long as no method of this process was given them."""
    seen_by: list[str] = field(default_factory=list)
    """Methods of this process that were given the head, in order."""

    def given_to(self, name: str) -> None:
        """Note that a method of this process gets the head; the first time, what it is like."""
        if self.backbone is None:
            return
        if not self._digest:
            weight = self.backbone.head.weight
            self._version, self._digest = weight._version, _digest(weight)  # noqa: SLF001
        if name not in self.seen_by:
            self.seen_by.append(name)

    def intact(self, *, whole: bool) -> bool:
        """Whether the weights are what they were; if not, they are loaded again.

        Args:
            whole: compare all of them, else only the version that torch counts, which views of numpy don't raise.

        Raises:
            UserError: the files on the disk are not what was loaded, either.
        """
        if self.backbone is None or not self._digest or "head" not in vars(self.backbone):
            return True
        weight = self.backbone.head.weight
        if not whole and weight._version == self._version:  # noqa: SLF001
            return True
        if _digest(weight) == self._digest:
            self._version = weight._version  # noqa: SLF001 - weights that were moved to another device and back
            return True
        self.backbone.release()
        weight = self.backbone.head.weight
        self._version = weight._version  # noqa: SLF001
        if _digest(weight) != self._digest:
            raise UserError("The model's weights were changed by a method, and those on the disk are others: run again")
        return False


def _digest(weight: torch.Tensor) -> bytes:
    """Digest of a matrix; a part of it at a time is on the host."""
    import torch

    found = hashlib.blake2b()
    for start in range(0, len(weight), _TOGETHER):
        found.update(weight[start : start + _TOGETHER].detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return found.digest()
