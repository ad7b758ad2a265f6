"""Shared beginnings of packs, counted as one undisturbed run would read them (bench/DESIGN.md, 5).

A beginning that an earlier shard left in memory costs the next shard nothing, so what a process fed depends on what it
found stored. Costs are counted by going through the beginnings of all packs in order, with a memory of the same size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_KEPT_BYTES = 64 * 2**20
"""Bytes of shared pieces that are kept for other shards and splits, beside the current path."""

Path = tuple[tuple[str, int], ...]
"""Pieces of a pack's shared beginning, from the first token on: a digest of all tokens so far, the piece's length."""


@dataclass
class Kept:
    """Memory of the beginnings that were read: the current path, and the pieces used last."""

    _path: Path = ()
    _pieces: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def read(self, paths: Sequence[Path], bytes_per_token: int) -> int:
        """Token positions that have to be fed so that each of these stands in the cache in turn."""
        return sum(self._follow(path, bytes_per_token) for path in paths)

    def _follow(self, path: Path, bytes_per_token: int) -> int:
        same = 0
        while same < min(len(path), len(self._path)) and path[same] == self._path[same]:
            same += 1
        self._path, fed = path, 0
        for name, tokens in path[same:]:
            if name in self._pieces:
                self._pieces.move_to_end(name)
                continue
            fed += tokens
            self._pieces[name] = tokens * bytes_per_token
            while len(self._pieces) > 1 and sum(self._pieces.values()) > MOST_KEPT_BYTES:
                self._pieces.popitem(last=False)
        return fed
