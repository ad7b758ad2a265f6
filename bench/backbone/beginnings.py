"""Shared beginnings of packs, counted as one undisturbed run would read them (bench/DESIGN.md, 5).

A beginning that an earlier shard left in memory costs the next shard nothing, so what a process fed depends on what it
found stored. The account of a shard therefore names the pieces that its packs begin with, and costs are counted by
going through them again in order.
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
class Beginnings:
    """Beginnings of one shard's packs."""

    stage: str
    """Stage that reads them."""
    bytes_per_token: int = 0
    """Size of one position in the cache."""
    paths: list[Path] = field(default_factory=list)
    """One for each pack; packs that follow each other on one path are one."""

    def add(self, path: Path) -> None:
        """Note the beginning of the next pack."""
        if not self.paths or self.paths[-1] != path:
            self.paths.append(path)


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
