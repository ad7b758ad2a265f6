"""Continuations of questions: answers, queries, other options, samples, as one tree for each question.

They grow from the ends of prompts in a row: of one pack, or of several that stand side by side.
Paths that begin alike share their nodes, so no token is read twice, whatever is asked for. Node 0 ... n-1 are the ends
of the n prompts; every other node is a token after its parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bench.api import IntArray
from bench.model.prefix_tree import Pack
from bench.model.session import Session
from bench.model.upload_buffer import Upload
from bench.prompts.front_coding import Ids

_FEW = 4
"""Evenly spaced runs of nodes whose states are cut out one after the other rather than by a list of numbers."""

States = dict[int, torch.Tensor]
"""Block -> `(n, d)` states."""


@dataclass(frozen=True, eq=False)
class PromptEnds:
    """Ends of sequences in a row."""

    seen: torch.Tensor
    """`(n, k)` bool, on the device: the first k positions that the next token of each may see; others are not its."""
    lengths: list[int]
    """Tokens of each sequence so far."""


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """Sight of the tokens of a pack."""

    before: int
    """Positions of the shared beginning, which all see."""
    ends: Upload
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
    session: Session, pack: Pack, chunk: int, depths: Sequence[int], leaves: IntArray | None = None
) -> tuple[PromptEnds, States]:
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
    attention_mask, index = AttentionMask(len(pack.shared), session.send(pack.ends)), session.send(chosen)
    states = session.forward(pack.tokens, pack.positions, attention_mask.all, dict.fromkeys(depths, index))
    return PromptEnds(attention_mask.of(index.tensor), [int(n) + 1 for n in pack.positions[chosen]]), states


@torch.inference_mode()
def read_together(
    session: Session, packs: Sequence[tuple[Pack, IntArray]], chunk: int, depths: Sequence[int]
) -> tuple[PromptEnds, States]:
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
    return PromptEnds(seen, lengths), {block: torch.cat([states[block] for _, _, states in read]) for block in depths}


class ContinuationTree:
    """Continuations of the questions that are followed together: a tree for each prompt, read together."""

    def __init__(self, session: Session, starts: PromptEnds | Sequence[Ids], states: States) -> None:
        """Start one tree at the end of each prompt.

        Args:
            session: the model with its row.
            starts: where the prompts stand in the row; or, to read every path alone and whole, the prompts' ids.
            states: block -> `(n, d)` states at the prompts' ends.
        """
        self.session = session
        self.starts = starts
        self.blocks = sorted(states)
        n = len(next(iter(states.values())))
        self.tokens = [-1] * n
        self.parents = [-1] * n
        self.trees = list(range(n))
        self._children: dict[tuple[int, int], int] = {}
        self._trails: list[tuple[int, ...]] = [()] * n
        """Columns of the row with the keys of a node and of those above it, down from the prompt's end."""
        self._chunks: dict[int, list[torch.Tensor]] = {block: [rows] for block, rows in states.items()}
        self._expected: dict[tuple[int, ...], Upload] = {}
        self._read = n

    def grow(self, node: int, ids: Sequence[int] | Ids) -> list[int]:
        """The nodes of a path of tokens below a node; those that are new wait for `read`."""
        path = []
        for token in map(int, ids):
            child = self._children.get((node, token))
            if child is None:
                child = len(self.tokens)
                self._children[node, token] = child
                self.tokens.append(token)
                self.parents.append(node)
                self.trees.append(self.trees[node])
            path.append(child)
            node = child
        return path

    def expect(self, nodes: Sequence[int]) -> None:
        """Send the numbers of nodes along with the next copy: `states` will be asked for exactly these."""
        self._expected[tuple(nodes)] = self.session.send(np.asarray(nodes, dtype=np.int64))

    def read(self, blocks: Sequence[int] | None = None) -> None:
        """Run the model over all new nodes, in one forward pass.

        Args:
            blocks: those of which states are kept, all by default. A block that was left out once stays left out, as
                its states would no longer stand at their nodes' numbers.
        """
        new = range(self._read, len(self.tokens))
        if not new:
            return
        if blocks is not None:
            self.blocks = [block for block in self.blocks if block in blocks]
        if isinstance(self.starts, PromptEnds):
            states = self._read_packed(new, self.starts)
        else:  # each new path as a whole sequence of its own; a node on several paths is taken from the last
            found: dict[int, list[torch.Tensor]] = {block: [torch.empty(0)] * len(new) for block in self.blocks}
            for path in self.leaves(new.start):
                ids = self._ids(path, self.starts)
                fresh = [node for node in path if node >= new.start]
                places: IntArray = np.arange(len(ids) - len(fresh), len(ids))
                for block, rows in self.session.read_alone(ids, dict.fromkeys(self.blocks, places)).items():
                    for node, row in zip(fresh, rows, strict=True):
                        found[block][node - new.start] = row
            states = {block: torch.stack(rows) for block, rows in found.items()}
        for block, added in states.items():
            self._chunks[block].append(added)
        self._read = len(self.tokens)

    def states(self, block: int, nodes: Sequence[int]) -> torch.Tensor:
        """`(len(nodes), d)` states of nodes that were read, in the model's dtype."""
        chunks = self._chunks[block]
        newest = sum(map(len, chunks[:-1]))
        if len(chunks) > 1 and min(nodes, default=0) < newest:  # decoding asks for the newest alone
            chunks[:] = [torch.cat(chunks)]
            newest = 0
        rows, runs = chunks[-1], _runs(nodes)
        if runs == [range(newest, newest + len(rows))]:
            return rows
        if runs:
            return torch.cat([rows[run.start - newest : run.stop - newest : run.step] for run in runs])
        sent = self._expected.get(tuple(nodes)) or self.session.send(np.asarray(nodes, dtype=np.int64))
        index = sent.tensor.to(rows.device)
        return rows[index - newest if newest else index]

    def leaves(self, first: int) -> Iterator[list[int]]:
        """The nodes down to each end of what has grown, among the nodes from this one on."""
        inner = set(self.parents[first:])
        for node in (node for node in range(first, len(self.tokens)) if node not in inner):
            path, above = [], node
            while self.parents[above] >= 0:
                path.append(above)
                above = self.parents[above]
            yield path[::-1]

    def sequences(self, first: int, prompts: Sequence[Ids]) -> list[Ids]:
        """The ids of prompt and path down to each of these `leaves`; `prompts`: those of the trees."""
        return [self._ids(path, prompts) for path in self.leaves(first)]

    def _ids(self, path: Sequence[int], prompts: Sequence[Ids]) -> Ids:
        return np.concatenate([prompts[self.trees[path[-1]]], [self.tokens[node] for node in path]]).astype(np.int32)

    def _read_packed(self, new: range, starts: PromptEnds) -> States:
        cached = self.session.length
        for row, node in enumerate(new):
            self._trails.append((*self._trails[self.parents[node]], cached + row))
        trails = self._trails[new.start :]
        depth = max(map(len, trails))
        columns = np.asarray([trail + trail[-1:] * (depth - len(trail)) for trail in trails], dtype=np.int64)
        trees = [self.trees[node] for node in new]
        positions = np.asarray(
            [starts.lengths[tree] + len(trail) - 1 for tree, trail in zip(trees, trails, strict=True)], dtype=np.int64
        )
        below, own = self.session.send(trees), self.session.send(columns)

        def visible() -> torch.Tensor:
            seen = starts.seen.new_zeros(len(new), cached + len(new))
            seen[:, : starts.seen.shape[1]] = starts.seen[below.tensor]
            return seen.scatter_(1, own.tensor, value=True)

        ids = np.asarray([self.tokens[node] for node in new], dtype=np.int32)
        return self.session.forward(ids, positions, visible, dict.fromkeys(self.blocks))


def _runs(nodes: Sequence[int]) -> list[range]:
    """Ascending numbers as a few evenly spaced runs, one after the other; empty where they are no such."""
    runs: list[range] = []
    start = 0
    while start < len(nodes):
        step = nodes[start + 1] - nodes[start] if start + 1 < len(nodes) else 1
        if step < 1 or len(runs) == _FEW:
            return []
        stop = start + 1
        while stop < len(nodes) and nodes[stop] - nodes[stop - 1] == step:
            stop += 1
        runs.append(range(nodes[start], nodes[stop - 1] + 1, step))
        start = stop
    return runs
