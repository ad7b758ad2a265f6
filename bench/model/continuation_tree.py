"""Token trees of what follows each prompt: answers, self-check queries, other options and samples.

The prompts are in one row of the KV cache, which holds one pack or several side by side. Nodes 0 ... n-1 of the trees
are the ends of the n prompts. Every other node is a token, which follows the token of the node's parent. Continuations
that begin with the same tokens share nodes, so no token is read twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bench.api import IntArray
from bench.model.attention import ATTENTION, AnswerPath
from bench.model.prefix_tree import Pack
from bench.model.session import Indices, Session
from bench.model.upload_buffer import Upload
from bench.prompts.front_coding import Ids

_FEW = 4
"""Largest number of ranges of node numbers that are read as slices; each range has a constant step.

If the hidden states of more ranges are wanted, they are read with an index tensor.
"""

States = dict[int, torch.Tensor]
"""Number of a transformer block -> hidden states `(n, d)` that this block returns."""
INNER = -1
"""Key in `States` of the last block's states at tokens inside of prompts; no block has this number."""


@dataclass(frozen=True, eq=False)
class PromptEnds:
    """Where prompts end in one row of the KV cache, and which positions of the row belong to each prompt."""

    seen: torch.Tensor
    """`(n, k)` bool, on the device: entry (i, j) says whether tokens after prompt i attend to position j of the row."""
    lengths: list[int]
    """Number of tokens of each prompt."""


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """Attention mask of a pack: the key positions that each query token may attend to."""

    before: int
    """Number of tokens of the shared prefix, to which all tokens of the pack attend."""
    ends: Upload
    """`(t,)` for each token k, the index `ends[k]` after the last token of its subtree in the pack. Token q attends to
    token k if and only if k <= q < ends[k]."""

    def of(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the mask `(n, before + t)` bool for n of the pack's t tokens; `tokens` `(n,)` holds their indices."""
        columns = torch.arange(len(self.ends.tensor), device=tokens.device)
        visible = (columns <= tokens[:, None]) & (tokens[:, None] < self.ends.tensor)
        return torch.cat([visible.new_ones(len(visible), self.before), visible], dim=1)

    def all(self) -> torch.Tensor:
        """Return the mask `(t, before + t)` bool of all t tokens of the pack."""
        return self.of(torch.arange(len(self.ends.tensor), device=self.ends.tensor.device))


@torch.inference_mode()
def read_pack(
    session: Session,
    pack: Pack,
    chunk: int,
    depths: Sequence[int],
    leaves: IntArray | None = None,
    inner: IntArray | None = None,
) -> tuple[PromptEnds, States]:
    """Run the model over a pack, with its shared prefix, in the main row of the session's KV cache.

    Args:
        session: session of the model.
        pack: the pack with the prompts.
        chunk: maximum tokens of one forward pass over the shared prefix.
        depths: numbers of the blocks whose hidden states are returned; `ATTENTION` keeps the last tokens' queries.
        leaves: index of each prompt's last token in `pack.tokens`, repeats allowed; by default `pack.leaves`.
        inner: indices in `pack.tokens` of further tokens, whose states after the last block are returned under `INNER`.

    Returns:
        A pair: the prompts' ends in the row, and for each block the hidden states at the prompts' last tokens.
    """
    session.load_prefix(pack, chunk)
    last_tokens = pack.leaves if leaves is None else leaves
    attention_mask, index = AttentionMask(len(pack.shared), session.send(pack.ends)), session.send(last_tokens)
    read: dict[int, Indices] = dict.fromkeys(depths, index)
    if inner is not None:
        read[max(depths)] = session.send(np.concatenate([last_tokens, inner]))
    states = session.forward(pack.tokens, pack.positions, attention_mask.all, read)
    if inner is not None:
        rows = states[max(depths)]
        states |= {max(depths): rows[: len(last_tokens)], INNER: rows[len(last_tokens) :]}
    return PromptEnds(attention_mask.of(index.tensor), [int(n) + 1 for n in pack.positions[last_tokens]]), states


@torch.inference_mode()
def read_together(
    session: Session,
    packs: Sequence[tuple[Pack, IntArray]],
    chunk: int,
    depths: Sequence[int],
    inner: Sequence[IntArray] = (),
) -> tuple[PromptEnds, States]:
    """Run the model over packs, one after the other; if there are several, gather them in a new row of the KV cache.

    Args:
        session: session of the model; its next forward passes append to the row that holds the packs.
        packs: pairs of a pack and the indices in `pack.tokens` of its prompts' last tokens.
        chunk: maximum tokens of one forward pass over a shared prefix.
        depths: numbers of the blocks whose hidden states are returned; `ATTENTION` keeps the last tokens' queries.
        inner: for each pack, indices in `pack.tokens` of further tokens, whose states after the last block are returned
            under `INNER`; empty if there are none.

    Returns:
        A pair: the prompts' ends in the row, and for each block the hidden states at the prompts' last tokens. Prompts
        are in the order of the packs.
    """
    within: Sequence[IntArray | None] = inner or [None] * len(packs)
    if len(packs) == 1:
        ((pack, leaves),) = packs
        return read_pack(session, pack, chunk, depths, leaves, within[0])
    segments = dict(segment for pack, _ in packs for segment in session.prefix_segments(pack))
    row = session.new_row(sum(len(pack.tokens) for pack, _ in packs) + sum(segments.values()))
    segment_slices: dict[bytes, slice] = {}
    read = []
    for (pack, leaves), tokens in zip(packs, within, strict=True):
        prompt_ends, states = read_pack(session, pack, chunk, depths, leaves, tokens)
        read.append((prompt_ends, session.copy_to(pack, row, segment_slices), states))
    session.row = row
    lengths = [length for prompt_ends, _, _ in read for length in prompt_ends.lengths]
    seen = torch.zeros(len(lengths), row.length, dtype=torch.bool, device=session.device)
    first = 0
    for prompt_ends, slices, _ in read:
        seen_rows = seen[first : first + len(prompt_ends.lengths)]
        parts = torch.split(prompt_ends.seen, [columns.stop - columns.start for columns in slices], dim=1)
        for columns, part in zip(slices, parts, strict=True):
            seen_rows[:, columns] = part
        first += len(seen_rows)
    return PromptEnds(seen, lengths), {
        block: torch.cat([states[block] for _, _, states in read]) for block in read[0][2]
    }


class ContinuationTree:
    """Continuations of a decode batch's prompts, as one token tree for each prompt.

    New tokens of all trees are read in one forward pass if the prompts are in the KV cache. Without a KV cache, each
    continuation takes a forward pass of its own.
    """

    def __init__(
        self,
        session: Session,
        prompt_ends: PromptEnds | Sequence[Ids],
        states: States,
        queries: Sequence[int] | None = None,
    ) -> None:
        """Start one tree at the end of each prompt.

        Args:
            session: session of the model; its active row of the KV cache holds the prompts.
            prompt_ends: the prompts' ends in this row. Or the prompts' token ids: then each continuation is read
                together with its prompt as one whole sequence, without a KV cache.
            states: number of a block -> hidden states `(n, d)` at the prompts' ends.
            queries: number of the query of each prompt's end among those that the session has kept; more are kept until
                `attention` is called. None if none are kept.
        """
        self.session = session
        self.prompt_ends = prompt_ends
        self.blocks = [block for block in sorted(states) if block != ATTENTION]
        n = len(next(iter(states.values())))
        self.tokens = [-1] * n
        self.parents = [-1] * n
        self.trees = list(range(n))
        self._children: dict[tuple[int, int], int] = {}
        self._columns: list[tuple[int, ...]] = [()] * n
        """For each node, the positions in the row of all nodes on the path to it, without the prompt's end."""
        self._chunks: dict[int, list[torch.Tensor]] = {block: [rows] for block, rows in states.items()}
        self._prefetched: dict[tuple[int, ...], Upload] = {}
        self._read = n
        self._query_rows = None if queries is None else dict(enumerate(queries))
        """Node -> number of its query among those that the session kept; None if none are kept."""

    def grow(self, node: int, ids: Sequence[int] | Ids) -> list[int]:
        """Add a sequence of tokens below a node, and return the nodes of these tokens.

        For tokens that the tree already has at this place, the existing nodes are returned. The next call of `read`
        runs the model over the new nodes.
        """
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

    def prefetch(self, nodes: Sequence[int]) -> None:
        """Upload node numbers with the next forward pass; a later call of `states` with them then needs no upload."""
        self._prefetched[tuple(nodes)] = self.session.send(np.asarray(nodes, dtype=np.int64))

    def read(self, blocks: Sequence[int] | None = None, answers: Collection[int] | None = None) -> None:
        """Run the model over all new nodes: in one forward pass, or without a KV cache in one for each new leaf.

        Args:
            answers: the nodes whose queries are kept for `attention`; by default all.
            blocks: blocks whose hidden states are kept, in this call and later ones; by default the same as in the last
                call. A block that was left out once can't be kept again.
        """
        new = range(self._read, len(self.tokens))
        if not new:
            return
        if blocks is not None:
            self.blocks = [block for block in self.blocks if block in blocks]
        if isinstance(self.prompt_ends, PromptEnds):
            states = self._read_packed(new, self.prompt_ends, answers)
        else:  # each new path is read as a whole sequence; a node on several paths gets the states of the last one
            read_states: dict[int, list[torch.Tensor]] = {block: [torch.empty(0)] * len(new) for block in self.blocks}
            for path in self.leaves(new.start):
                ids = self._ids(path, self.prompt_ends)
                new_nodes = [node for node in path if node >= new.start]
                positions: IntArray = np.arange(len(ids) - len(new_nodes), len(ids))
                for block, rows in self.session.read_alone(ids, dict.fromkeys(self.blocks, positions)).items():
                    for node, row in zip(new_nodes, rows, strict=True):
                        read_states[block][node - new.start] = row
            states = {block: torch.stack(rows) for block, rows in read_states.items()}
        for block, added in states.items():
            self._chunks[block].append(added)
        self._read = len(self.tokens)

    def states(self, block: int, nodes: Sequence[int]) -> torch.Tensor:
        """Return the hidden states `(len(nodes), d)` after a block at nodes that were read, in the model's dtype."""
        chunks = self._chunks[block]
        newest = sum(map(len, chunks[:-1]))
        if len(chunks) > 1 and min(nodes, default=0) < newest:  # decoding needs the newest chunk alone
            chunks[:] = [torch.cat(chunks)]
            newest = 0
        rows, runs = chunks[-1], _runs(nodes)
        if runs == [range(newest, newest + len(rows))]:
            return rows
        if runs:
            return torch.cat([rows[run.start - newest : run.stop - newest : run.step] for run in runs])
        sent = self._prefetched.get(tuple(nodes)) or self.session.send(np.asarray(nodes, dtype=np.int64))
        index = sent.tensor.to(rows.device)
        return rows[index - newest if newest else index]

    def leaves(self, first: int) -> Iterator[list[int]]:
        """Yield for each leaf numbered `first` or higher the nodes on the path to it, without the prompt's end."""
        inner = set(self.parents[first:])
        for node in (node for node in range(first, len(self.tokens)) if node not in inner):
            path, above = [], node
            while self.parents[above] >= 0:
                path.append(above)
                above = self.parents[above]
            yield path[::-1]

    def sequences(self, first: int, prompts: Sequence[Ids]) -> list[Ids]:
        """Return whole sequences: the ids of a prompt followed by the ids on the path from it to a leaf.

        Args:
            first: leaves with smaller node numbers are left out.
            prompts: token ids of each tree's prompt.
        """
        return [self._ids(path, prompts) for path in self.leaves(first)]

    def _ids(self, path: Sequence[int], prompts: Sequence[Ids]) -> Ids:
        return np.concatenate([prompts[self.trees[path[-1]]], [self.tokens[node] for node in path]]).astype(np.int32)

    def attention(self, paths: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Return what the tokens of each prompt's answer attend to (see `QueryRecorder.take`); keep no more queries.

        Args:
            paths: for each of the first prompts the nodes of its answer's tokens, which were read. Without a KV cache,
                each answer is read once more with its prompt.
        """
        kept, self._query_rows = self._query_rows, None
        assert kept is not None  # noqa: S101  # for the type checker
        if isinstance(self.prompt_ends, PromptEnds):
            answer_paths = []
            for i, (seen, path) in enumerate(zip(self.prompt_ends.seen, paths, strict=False)):
                columns = seen.new_zeros(1, dtype=torch.long)
                if path:
                    answer = torch.tensor(self._columns[path[-1]], device=seen.device)
                    columns = torch.cat([seen.nonzero()[:, 0], answer])
                answer_paths.append(AnswerPath(columns, [kept[node] for node in (i, *path)] if path else []))
            return self.session.attention(answer_paths)
        found = []
        for prompt, path in zip(self.prompt_ends, paths, strict=False):
            ids = self._ids(path, self.prompt_ends) if path else prompt
            self.session.read_alone(ids, {ATTENTION: np.arange(len(prompt) - 1, len(ids))})
            columns = torch.arange(len(ids), device=self.session.device)
            found += self.session.attention([AnswerPath(columns, range(len(path) + 1) if path else ())])
        return found

    def _read_packed(self, new: range, prompt_ends: PromptEnds, answers: Collection[int] | None) -> States:
        cached = self.session.row.length
        for row, node in enumerate(new):
            self._columns.append((*self._columns[self.parents[node]], cached + row))
        paths = self._columns[new.start :]
        depth = max(map(len, paths))
        columns = np.asarray([path + path[-1:] * (depth - len(path)) for path in paths], dtype=np.int64)
        trees = [self.trees[node] for node in new]
        positions = np.asarray(
            [prompt_ends.lengths[tree] + len(path) - 1 for tree, path in zip(trees, paths, strict=True)], dtype=np.int64
        )
        tree_rows, path_columns = self.session.send(trees), self.session.send(columns)

        def visible() -> torch.Tensor:
            seen = prompt_ends.seen.new_zeros(len(new), cached + len(new))
            seen[:, : prompt_ends.seen.shape[1]] = prompt_ends.seen[tree_rows.tensor]
            return seen.scatter_(1, path_columns.tensor, value=True)

        ids = np.asarray([self.tokens[node] for node in new], dtype=np.int32)
        read: dict[int, Upload | None] = dict.fromkeys(self.blocks)
        if self._query_rows is not None:
            nodes = [node for node in new if answers is None or node in answers]
            if nodes:
                read[ATTENTION] = None if len(nodes) == len(new) else self.session.send([n - new.start for n in nodes])
            self._query_rows |= zip(
                nodes, range(len(self._query_rows), len(self._query_rows) + len(nodes)), strict=True
            )
        return self.session.forward(ids, positions, visible, read)


def _runs(nodes: Sequence[int]) -> list[range]:
    """Divide ascending node numbers into at most `_FEW` ranges, each with a constant step; empty if more are needed."""
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
