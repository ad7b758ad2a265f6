"""Prefix trees over token ids, and their division into packs; each pack is read in one forward pass.

A *pack* is a piece of the tree as one row of tokens, in depth-first order. Each token attends only to its ancestors in
the tree. Sequences that begin alike therefore share their first tokens, no padding is needed, and a KV cache of batch
size one serves all questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bench.api import BoolArray, IntArray
from bench.prompts.front_coding import Ids, common_prefix

_LONG = 64
"""A shared prefix of at least this many tokens gets a forward pass of its own, even if the pack has room for it.

Such a prefix consists of exemplars, and so prompts of other splits begin with it, too.
"""

_CUT = 4
"""Shared prefixes are cut at multiples of this number of tokens. Shards with a common prefix then cache equal
pieces."""


@dataclass(frozen=True, eq=False)
class Pack:
    """Tokens of one forward pass: a piece of the prefix tree, below a prefix that all its sequences share."""

    cuts: tuple[int, ...]
    """Numbers of tokens after which the shared prefix is cut into segments; the last number is the prefix's length.
    Empty without a prefix."""
    shared: Ids
    """Token ids of the prefix that all sequences of the pack share; it is read before `tokens`."""
    tokens: Ids
    """`(t,)` token ids of the pack, in depth-first order of the tree."""
    positions: IntArray
    """`(t,)` position of each token of the pack in its sequence."""
    ends: IntArray
    """`(t,)` for each token k, the index `ends[k]` after the last token of its subtree in the pack. Token q attends to
    token k if and only if k <= q < ends[k]."""
    rows: IntArray
    """`(n,)` indices of the sequences that end in this pack."""
    leaves: IntArray
    """`(n,)` index in `tokens` of the last token of each sequence in `rows`."""

    def path(self, leaf: int) -> IntArray:
        """Return the indices in `tokens` of all tokens on the path to token `leaf`, which is the last of them."""
        return np.flatnonzero(self.ends[: leaf + 1] > leaf)

    def visible(self) -> BoolArray:
        """Return the attention mask `(t, t)` bool: entry (q, k) says whether token q attends to token k."""
        index = np.arange(len(self.tokens))
        return (index[None, :] <= index[:, None]) & (index[:, None] < self.ends[None, :])


class Sorted:
    """Distinct sequences in lexicographic order; with each, the length of its common prefix with the previous one."""

    def __init__(self, sequences: Sequence[Ids], kept: Sequence[int] | None = None) -> None:
        order = sorted(range(len(sequences)), key=lambda i: sequences[i].astype(">i4").tobytes())
        self.rows = np.asarray(order, dtype=np.int64)
        self.ids = [sequences[i] for i in order]
        self.lengths = np.asarray([len(s) for s in self.ids], dtype=np.int64)
        self.kept = np.asarray([1 if kept is None else kept[i] for i in order], dtype=np.int64)
        self.shared = np.asarray([0, *(common_prefix(a, b) for a, b in pairwise(self.ids))], dtype=np.int64)

    def size(self, lo: int, hi: int, depth: int) -> int:
        """Return the number of nodes deeper than `depth` in the prefix tree of sequences lo ... hi-1."""
        beyond = self.lengths[lo:hi] - np.maximum(self.shared[lo:hi], depth)
        return int(beyond.sum() + max(self.shared[lo] - depth, 0))

    def cut_length(self, lo: int, hi: int) -> int:
        """Return the length of the prefix of sequences lo ... hi-1 that is read before the pack.

        It is 0 for a single sequence. The last tokens of each sequence stay in the pack, as many as `kept` says, since
        their hidden states are needed.
        """
        if hi - lo == 1:
            return 0
        return min(int(self.shared[lo + 1 : hi].min()), int((self.lengths - self.kept)[lo:hi].min())) // _CUT * _CUT

    def children(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Divide sequences lo ... hi-1 by the first token after their common prefix; yield the range of each part."""
        least = self.shared[lo + 1 : hi].min()
        cuts = [lo, *(lo + 1 + np.flatnonzero(self.shared[lo + 1 : hi] <= least)), hi]
        yield from ((int(a), int(b)) for a, b in pairwise(cuts))


def plan_packs(sequences: Sequence[Ids], budget: int, kept: Sequence[int] | None = None) -> list[Pack]:
    """Divide the prefix tree of distinct, non-empty sequences into packs of at most `budget` tokens.

    A single sequence longer than the budget gets its own pack. The result depends on the arguments alone.

    Args:
        sequences: token ids.
        budget: maximum number of tokens of a pack.
        kept: number of last tokens of each sequence that must be in the pack itself; None for the last one alone.
    """
    return list(_cover(Sorted(sequences, kept), (0, len(sequences)), (), budget)) if sequences else []


def one_pack(sequences: Sequence[Ids]) -> Pack:
    """Return the whole prefix tree of distinct, non-empty sequences as a single pack without a shared prefix."""
    return _pack(Sorted(sequences), (0, len(sequences)), ())


def _cover(tree: Sorted, span: tuple[int, int], cuts: tuple[int, ...], budget: int) -> Iterator[Pack]:
    lo, hi = span
    depth = cuts[-1] if cuts else 0
    if hi - lo == 1:
        yield _pack(tree, span, cuts)
        return
    fits = tree.size(lo, hi, depth) <= budget
    cut_length = tree.cut_length(lo, hi)
    children = list(tree.children(lo, hi))
    separate = {child for child in children if tree.cut_length(*child) - max(cut_length, depth) >= _LONG}
    if cut_length > depth and (not fits or cut_length - depth >= _LONG):
        cuts = (*cuts, cut_length)
    if fits and not separate:
        yield _pack(tree, span, cuts)
        return
    start = lo
    for a, b in children:
        if start < a and ((a, b) in separate or tree.size(start, b, max(cut_length, depth)) > budget):
            yield from _cover(tree, (start, a), cuts, budget)
            start = a
        if (a, b) in separate:
            yield from _cover(tree, (a, b), cuts, budget)
            start = b
    if start < hi:
        yield from _cover(tree, (start, hi), cuts, budget)


def _pack(tree: Sorted, span: tuple[int, int], cuts: tuple[int, ...]) -> Pack:
    lo, hi = span
    depth = cuts[-1] if cuts else 0
    shared = np.maximum(tree.shared[lo:hi], depth)
    shared[0] = depth
    new_tokens = tree.lengths[lo:hi] - shared
    leaves = np.cumsum(new_tokens) - 1
    positions = np.concatenate([np.arange(s, n) for s, n in zip(shared, tree.lengths[lo:hi], strict=True)])
    tokens = np.concatenate([ids[s:] for ids, s in zip(tree.ids[lo:hi], shared, strict=True)])
    # A token's subtree ends at the first token of the next sequence that does not contain it.
    first_tokens = leaves - new_tokens + 1
    ends = np.full(len(tokens), len(tokens), dtype=np.int64)
    open_tokens: list[int] = []  # indices of the current path's tokens, from depth on
    for start, split, length in zip(first_tokens, shared, new_tokens, strict=True):
        common = int(split) - depth
        ends[open_tokens[common:]] = start
        open_tokens[common:] = range(int(start), int(start + length))
    return Pack(cuts, tree.ids[lo][:depth], tokens, positions, ends, tree.rows[lo:hi], leaves)


@dataclass(eq=False)
class _Edge:
    """Edge of a prefix tree: its token ids, and the edges below it by their first token id."""

    ids: Ids
    children: dict[int, _Edge]


class PrefixTree:
    """Counts the distinct prefixes of all added sequences: the fewest token positions that a run must read."""

    def __init__(self) -> None:
        self.nodes = 0
        self._root: dict[int, _Edge] = {}

    def add(self, ids: Ids) -> int:
        """Add a sequence; return the number of its prefixes that no earlier sequence has."""
        edges, rest = self._root, ids
        while len(rest):
            edge = edges.get(int(rest[0]))
            if edge is None:
                edges[int(rest[0])] = _Edge(rest.copy(), {})
                self.nodes += len(rest)
                return len(rest)
            n = common_prefix(edge.ids, rest)
            if n < len(edge.ids):
                edge.children = {int(edge.ids[n]): _Edge(edge.ids[n:], edge.children)}
                edge.ids = edge.ids[:n]
            edges, rest = edge.children, rest[n:]
        return 0
