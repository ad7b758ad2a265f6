"""Values that measures take from a pass, brought down from the device in one copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from bench.api import Signal
from bench.backbone.items import Measure, Pass
from bench.backbone.measure import Arrays, Awaited
from bench.backbone.sending import fetched

Values = dict[Signal, list[list[Arrays]]]
"""Signal -> its value for each question of each distinct prompt of a pass, on the host."""


def taken(measures: Mapping[Signal, Measure], done: Pass) -> Values:
    """Everything that is wanted of a pass.

    A state that several measures want is copied once.
    """
    found = {signal: measure.take(done) for signal, measure in measures.items()}
    values = {id(value): value for groups in found.values() for group in groups for value in group}
    cells = {key: {name: _awaited(one) for name, one in value.items()} for key, value in values.items()}
    host = _Host(done, [one for cell in cells.values() for one in cell.values()])
    down = {key: {name: host.value(one) for name, one in cell.items()} for key, cell in cells.items()}
    return {signal: [[down[id(value)] for value in group] for group in groups] for signal, groups in found.items()}


class _Host:
    """The host's copies of what a pass left on the device."""

    def __init__(self, done: Pass, asked: Sequence[Awaited]) -> None:
        nodes_of = _nodes_by_block(asked)
        for nodes in nodes_of.values():
            done.tree.expect(nodes)
        rows = [done.tree.states(block, nodes) for block, nodes in nodes_of.items()]
        others = {id(one.rows): one.rows for one in asked if isinstance(one.rows, torch.Tensor)}
        copies = fetched([*rows, *others.values()])
        self._states = dict(zip(nodes_of, copies, strict=False))
        self._nodes = {block: np.asarray(nodes, dtype=np.int64) for block, nodes in nodes_of.items()}
        self._others = dict(zip(others, copies[len(rows) :], strict=True))

    def value(self, one: Awaited) -> torch.Tensor:
        """The value as it is stored."""
        if isinstance(one.rows, torch.Tensor):
            return one.then(self._others[id(one.rows)].clone())  # nothing is kept of the whole copy
        block, nodes = one.rows
        places = np.searchsorted(self._nodes[block], np.asarray(nodes, dtype=np.int64))
        return one.then(self._states[block][torch.as_tensor(places)])


def _awaited(one: torch.Tensor | Awaited) -> Awaited:
    return one if isinstance(one, Awaited) else Awaited(one)


def _nodes_by_block(asked: Sequence[Awaited]) -> dict[int, list[int]]:
    nodes: dict[int, set[int]] = {}
    for one in asked:
        if not isinstance(one.rows, torch.Tensor):
            block, wanted = one.rows
            nodes.setdefault(block, set()).update(wanted)
    return {block: sorted(wanted) for block, wanted in nodes.items()}
