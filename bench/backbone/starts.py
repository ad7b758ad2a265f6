"""Ends of prompts in a row, from which their continuations grow: of one pack, or of several that stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from bench.backbone.prefix import Pack
from bench.backbone.sending import Sent
from bench.backbone.session import Session

States = dict[int, torch.Tensor]
"""Block -> `(n, d)` states."""


@dataclass(frozen=True, eq=False)
class Starts:
    """Ends of sequences in a row."""

    seen: torch.Tensor
    """`(n, k)` bool, on the device: the first k positions that the next token of each may see; others are not its."""
    lengths: list[int]
    """Tokens of each sequence so far."""


@dataclass(frozen=True, eq=False)
class Sight:
    """Sight of the tokens of a pack."""

    before: int
    """Positions of the shared beginning, which all see."""
    ends: Sent
    """See `Pack.ends`."""

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        """`(n, before + t)` bool for n tokens of the pack."""
        columns = torch.arange(len(self.ends.tensor), device=tokens.device)
        own = (columns <= tokens[:, None]) & (tokens[:, None] < self.ends.tensor)
        return torch.cat([own.new_ones(len(own), self.before), own], dim=1)

    def all(self) -> torch.Tensor:
        """`(t, before + t)` bool."""
        return self.of(torch.arange(len(self.ends.tensor), device=self.ends.tensor.device))


@torch.inference_mode()
def read_pack(
    session: Session, pack: Pack, chunk: int, depths: Sequence[int], leaves: npt.NDArray[np.int64] | None = None
) -> tuple[Starts, States]:
    """Read a pack on the session's own row.

    Args:
        session: the model.
        pack: what is read.
        chunk: tokens of one pass over a shared beginning.
        depths: blocks whose states are wanted.
        leaves: the tokens at which sequences end, some perhaps several times; by default those of the pack.

    Returns:
        Where each of the sequences stands, and the states of their last tokens.
    """
    session.share(pack, chunk)
    chosen = pack.leaves if leaves is None else leaves
    sight, index = Sight(len(pack.shared), session.send(pack.ends)), session.send(chosen)
    states = session.forward(pack.tokens, pack.positions, sight.all, dict.fromkeys(depths, index))
    return Starts(sight.of(index.tensor), [int(n) + 1 for n in pack.positions[chosen]]), states


@torch.inference_mode()
def read_together(
    session: Session, packs: Sequence[tuple[Pack, npt.NDArray[np.int64]]], chunk: int, depths: Sequence[int]
) -> tuple[Starts, States]:
    """Read packs one after the other, and lay them side by side where there are several.

    Args:
        session: the model; its passes go on behind what is read here.
        packs: each with its leaves, see `read_pack`.
        chunk: tokens of one pass over a shared beginning.
        depths: blocks whose states are wanted.

    Returns:
        As of `read_pack`, pack after pack.
    """
    if len(packs) == 1:
        ((pack, leaves),) = packs
        return read_pack(session, pack, chunk, depths, leaves)
    pieces = dict(piece for pack, _ in packs for piece in session.path(pack))
    row = session.new_row(sum(len(pack.tokens) for pack, _ in packs) + sum(pieces.values()))
    held: dict[bytes, slice] = {}
    read = []
    for pack, leaves in packs:
        starts, states = read_pack(session, pack, chunk, depths, leaves)
        read.append((starts, session.lay(pack, row, held), states))
    session.follow(row)
    lengths = [length for starts, _, _ in read for length in starts.lengths]
    seen = torch.zeros(len(lengths), row.length, dtype=torch.bool, device=session.device)
    at = 0
    for starts, places, _ in read:
        beside = seen[at : at + len(starts.lengths)]
        parts = torch.split(starts.seen, [place.stop - place.start for place in places], dim=1)
        for place, part in zip(places, parts, strict=True):
            beside[:, place] = part
        at += len(beside)
    return Starts(seen, lengths), {block: torch.cat([states[block] for _, _, states in read]) for block in depths}
