"""Continuations of a pack's questions: answers, queries, other options, samples, as one tree for each question.

Paths that begin alike share their nodes, so no token is read twice, whatever is asked for. Node 0 ... n-1 are the ends
of the n prompts; every other node is a token after its parent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from bench.backbone.session import Session, Spot, read_alone
from bench.prompts.tails import Ids


class ContinuationTree:
    """Continuations of the questions of one pack: a tree for each prompt, read together."""

    def __init__(
        self, session: Session, starts: Sequence[Spot] | Sequence[Ids], states: dict[int, torch.Tensor]
    ) -> None:
        """Start one tree at the end of each prompt.

        Args:
            session: the model with its cache.
            starts: where each prompt stands in the cache; or, to read every path alone and whole, the prompts' ids.
            states: block -> `(n, d)` states at the prompts' ends.
        """
        self.session = session
        self.starts = starts
        self.blocks = sorted(states)
        n = len(starts)
        self.tokens = [-1] * n
        self.parents = [-1] * n
        self.trees = list(range(n))
        self._children: dict[tuple[int, int], int] = {}
        self._columns = [-1] * n
        """Column of a node's keys in the cache."""
        self._chunks: dict[int, list[torch.Tensor]] = {block: [rows] for block, rows in states.items()}
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
        shared = isinstance(self.starts[0], Spot)
        states = self._read_packed(new) if shared else self._read_whole(new)
        for block, rows in states.items():
            self._chunks[block].append(rows)
        self._read = len(self.tokens)

    def states(self, block: int, nodes: Sequence[int]) -> torch.Tensor:
        """`(len(nodes), d)` states of nodes that were read, in the model's dtype."""
        chunks = self._chunks[block]
        newest = sum(map(len, chunks[:-1]))
        if len(chunks) > 1 and min(nodes, default=0) < newest:  # decoding asks for the newest alone
            chunks[:] = [torch.cat(chunks)]
            newest = 0
        index = torch.as_tensor(nodes, dtype=torch.long, device=chunks[-1].device)
        return chunks[-1][index - newest if newest else index]

    def _path(self, node: int) -> list[int]:
        """The nodes from below the prompt's end down to this one."""
        path = []
        while self.parents[node] >= 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def _read_packed(self, new: range) -> dict[int, torch.Tensor]:
        cached = self.session.length
        self._columns += range(cached, cached + len(new))
        visible = np.zeros((len(new), cached + len(new)), dtype=np.bool_)
        positions = np.zeros(len(new), dtype=np.int64)
        for row, node in enumerate(new):
            start = self.starts[self.trees[node]]
            assert isinstance(start, Spot)  # noqa: S101  # all starts are of one kind
            parent = self.parents[node]
            if parent >= new.start:
                visible[row] = visible[parent - new.start]
                positions[row] = positions[parent - new.start] + 1
            else:
                path = self._path(parent)
                visible[row, : len(start.visible)] = start.visible
                visible[row, [self._columns[p] for p in path]] = True
                positions[row] = start.length + len(path)
            visible[row, cached + row] = True
        ids = np.asarray([self.tokens[node] for node in new], dtype=np.int32)
        everything = np.arange(len(new))
        return self.session.forward(ids, positions, visible, dict.fromkeys(self.blocks, everything))

    def _read_whole(self, new: range) -> dict[int, torch.Tensor]:
        """Each new path as a whole sequence of its own; a node on several paths is taken from the last."""
        inner = {self.parents[node] for node in new}
        found: dict[int, list[torch.Tensor]] = {block: [torch.empty(0)] * len(new) for block in self.blocks}
        for leaf in (node for node in new if node not in inner):
            path = self._path(leaf)
            prompt = self.starts[self.trees[leaf]]
            ids = np.concatenate([prompt, [self.tokens[node] for node in path]]).astype(np.int32)
            fresh = [node for node in path if node >= new.start]
            places: npt.NDArray[np.int64] = np.arange(len(ids) - len(fresh), len(ids))
            for block, rows in read_alone(self.session, ids, dict.fromkeys(self.blocks, places)).items():
                for node, row in zip(fresh, rows, strict=True):
                    found[block][node - new.start] = row
        return {block: torch.stack(rows) for block, rows in found.items()}
