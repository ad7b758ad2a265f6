"""Prefix trees over token ids: what has to be read once, and how it is packed into forward passes.

A *pack* is one forward pass over a piece of the tree, written as a single row: its tokens stand in depth-first order,
and a token sees exactly its ancestors. So siblings share what is before them, nothing is padded, and a cache of batch
size one serves every question below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bench.api import BoolArray, IntArray
from bench.prompts.front_coding import Ids, common_prefix

_LONG = 64
"""A beginning as long as this is read on its own even where all that follows would fit beside it: exemplars, which
other splits have too."""

_CUT = 4
"""Shared beginnings are cut at multiples of this: shards that agree up to there then agree on the cut, and reuse it."""


@dataclass(frozen=True, eq=False)
class Pack:
    """One forward pass: a piece of the tree below a shared beginning."""

    cuts: tuple[int, ...]
    """Lengths at which the shared beginning was cut; the last one is its whole length. Empty: nothing is shared."""
    shared: Ids
    """The beginning that all rows share, read before this pack."""
    tokens: Ids
    """`(t,)` ids in depth-first order."""
    positions: IntArray
    """`(t,)` position of each token in its sequence."""
    ends: IntArray
    """`(t,)` index after the last token below: token q sees token k if and only if k <= q < ends[k]."""
    rows: IntArray
    """`(n,)` which of the given sequences end here."""
    leaves: IntArray
    """`(n,)` index into `tokens` of each sequence's last token."""

    def visible(self) -> BoolArray:
        """`(t, t)`: may the row's token see the column's token."""
        index = np.arange(len(self.tokens))
        return (index[None, :] <= index[:, None]) & (index[:, None] < self.ends[None, :])


class _Sorted:
    """Distinct sequences in lexicographic order with the length that each shares with the one before it."""

    def __init__(self, sequences: Sequence[Ids]) -> None:
        order = sorted(range(len(sequences)), key=lambda i: sequences[i].astype(">i4").tobytes())
        self.rows = np.asarray(order, dtype=np.int64)
        self.ids = [sequences[i] for i in order]
        self.lengths = np.asarray([len(s) for s in self.ids], dtype=np.int64)
        self.shared = np.asarray([0, *(common_prefix(a, b) for a, b in pairwise(self.ids))], dtype=np.int64)

    def size(self, lo: int, hi: int, depth: int) -> int:
        """Tokens of the tree of sequences lo ... hi-1 beyond their first `depth` ones."""
        beyond = self.lengths[lo:hi] - np.maximum(self.shared[lo:hi], depth)
        return int(beyond.sum() + max(self.shared[lo] - depth, 0))

    def agreed(self, lo: int, hi: int) -> int:
        """Length at which the beginning that a range shares is cut; 0 for a single sequence, which shares nothing.

        The last id of a sequence stays out of what is shared: its state is read, so it must be in the pack.
        """
        if hi - lo == 1:
            return 0
        return min(int(self.shared[lo + 1 : hi].min()), int(self.lengths[lo:hi].min()) - 1) // _CUT * _CUT

    def children(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """The ranges of sequences that agree on more than all of them do."""
        least = self.shared[lo + 1 : hi].min()
        cuts = [lo, *(lo + 1 + np.flatnonzero(self.shared[lo + 1 : hi] <= least)), hi]
        yield from ((int(a), int(b)) for a, b in pairwise(cuts))


def plan_packs(sequences: Sequence[Ids], budget: int) -> list[Pack]:
    """Cover the prefix tree of distinct, non-empty sequences with packs of at most `budget` tokens.

    A single sequence longer than the budget is a pack of its own. The result depends on the arguments alone.
    """
    return list(_cover(_Sorted(sequences), (0, len(sequences)), (), budget)) if sequences else []


def one_pack(sequences: Sequence[Ids]) -> Pack:
    """The whole prefix tree of distinct, non-empty sequences as a single pack that shares nothing with others."""
    return _pack(_Sorted(sequences), (0, len(sequences)), ())


def _cover(tree: _Sorted, span: tuple[int, int], cuts: tuple[int, ...], budget: int) -> Iterator[Pack]:
    lo, hi = span
    depth = cuts[-1] if cuts else 0
    if hi - lo == 1:
        yield _pack(tree, span, cuts)
        return
    fits = tree.size(lo, hi, depth) <= budget
    agreed = tree.agreed(lo, hi)
    children = list(tree.children(lo, hi))
    alone = {child for child in children if tree.agreed(*child) - max(agreed, depth) >= _LONG}
    if agreed > depth and (not fits or agreed - depth >= _LONG):
        cuts = (*cuts, agreed)
    if fits and not alone:
        yield _pack(tree, span, cuts)
        return
    start = lo
    for a, b in children:
        if start < a and ((a, b) in alone or tree.size(start, b, max(agreed, depth)) > budget):
            yield from _cover(tree, (start, a), cuts, budget)
            start = a
        if (a, b) in alone:
            yield from _cover(tree, (a, b), cuts, budget)
            start = b
    if start < hi:
        yield from _cover(tree, (start, hi), cuts, budget)


def _pack(tree: _Sorted, span: tuple[int, int], cuts: tuple[int, ...]) -> Pack:
    lo, hi = span
    depth = cuts[-1] if cuts else 0
    shared = np.maximum(tree.shared[lo:hi], depth)
    shared[0] = depth
    own = tree.lengths[lo:hi] - shared
    leaves = np.cumsum(own) - 1
    positions = np.concatenate([np.arange(s, n) for s, n in zip(shared, tree.lengths[lo:hi], strict=True)])
    tokens = np.concatenate([ids[s:] for ids, s in zip(tree.ids[lo:hi], shared, strict=True)])
    # A token's subtree ends where the next sequence starts that does not share it.
    starts = leaves - own + 1
    ends = np.full(len(tokens), len(tokens), dtype=np.int64)
    open_tokens: list[int] = []  # indices of the current path, one for each position from depth on
    for start, split, length in zip(starts, shared, own, strict=True):
        kept = int(split) - depth
        ends[open_tokens[kept:]] = start
        open_tokens[kept:] = range(int(start), int(start + length))
    return Pack(cuts, tree.ids[lo][:depth], tokens, positions, ends, tree.rows[lo:hi], leaves)


@dataclass(eq=False)
class _Edge:
    """Ids on the way to a node, and the node's own edges by their first id."""

    ids: Ids
    below: dict[int, _Edge]


class PrefixTree:
    """Counts the distinct prefixes of all sequences that were added: the least number of tokens a run can read."""

    def __init__(self) -> None:
        self.nodes = 0
        self._root: dict[int, _Edge] = {}

    def add(self, ids: Ids) -> int:
        """Add a sequence; returns how many of its prefixes were new."""
        edges, rest = self._root, ids
        while len(rest):
            edge = edges.get(int(rest[0]))
            if edge is None:
                edges[int(rest[0])] = _Edge(rest.copy(), {})
                self.nodes += len(rest)
                return len(rest)
            n = common_prefix(edge.ids, rest)
            if n < len(edge.ids):
                edge.below = {int(edge.ids[n]): _Edge(edge.ids[n:], edge.below)}
                edge.ids = edge.ids[:n]
            edges, rest = edge.below, rest[n:]
        return 0
