"""The pass over many questions from which signals are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from bench.api import Samples
from bench.model.continuation_specs import (
    Arrays,
    ContinuationSpec,
    ModelInput,
    PendingArray,
    PendingArrays,
    UserTurn,
    as_it_is,
    first_row,
)
from bench.model.continuation_tree import ContinuationTree
from bench.model.language_model import LanguageModel
from bench.model.upload_buffer import Upload
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings


@dataclass
class Replies:
    """Replies to a user turn, for the answers that there are."""

    asked: list[int]
    """`(k,)` questions with an answer."""
    tree: ContinuationTree
    """The tree of the pass, or one of conversations that don't continue the answering prompts."""
    nodes: list[int]
    """`(k,)` nodes of the turn's end."""
    said: list[Ids] = field(default_factory=list)
    """`(k,)` generated replies."""


@dataclass
class DecodeBatch:
    """The questions of packs that are followed together: `items[i]` grows from node i of the tree.

    The path of a question has L + 1 states for an answer of L tokens: number 0 at the prompt's end, number j after
    answer token j. `PROMPT_END` is number 0, `ANSWER_PREDICTING` are 0 ... L-1, `ANSWER_END` is L (`bench.api.At`).
    """

    lm: LanguageModel
    asking: PromptSettings
    items: list[list[ModelInput]]
    """Questions of each distinct prompt (and answer); they differ in random numbers and in right and wrong answers."""
    tree: ContinuationTree
    answers: list[Ids]
    rows: dict[bytes, Upload]
    """Ids of tokens whose logits are asked for -> the same on the device."""
    paths: list[list[int]] = field(default_factory=list)
    """The nodes of each answer's tokens, as far as they were read."""
    replies: dict[UserTurn, Replies] = field(default_factory=dict)
    samples: dict[tuple[Samples, int, int], Sequence[Ids]] = field(default_factory=dict)
    """(how they are drawn, prompt, question) -> its samples."""

    def states(self, depth: float, nodes: Sequence[int]) -> torch.Tensor:
        """`(len(nodes), d)` states in the model's dtype, on its device."""
        return self.tree.states(self.lm.block_of(depth), nodes)

    def logits(self, nodes: Sequence[int], rows: Ids | None = None) -> torch.Tensor:
        """`(len(nodes), v)` float32 logits of what follows, of all tokens or those in `rows`, on the model's device."""
        states = self.tree.states(self.lm.blocks, nodes)
        return self.lm.head.logits(states, None if rows is None else self.ids_of(rows))

    def ids_of(self, rows: Ids) -> torch.Tensor:
        """Ids of tokens on the device; those that were sent before cost no copy."""
        sent = self.rows.get(rows.tobytes()) or self.tree.session.send(rows)
        return sent.tensor.to(self.lm.head.weight.device)

    def expect(self) -> None:
        """Send ids and nodes of the answers along with the next pass, for what is taken of each token."""
        said = np.concatenate(self.answers)
        self.rows.setdefault(said.tobytes(), self.tree.session.send(said))
        self.tree.expect([node for i in range(len(self.items)) for node in self.predicting(i)])

    def awaited(
        self, depth: float, nodes: Sequence[int], then: Callable[[torch.Tensor], torch.Tensor] = as_it_is
    ) -> PendingArray:
        """States that come down with all others."""
        return PendingArray((self.lm.block_of(depth), nodes), then)

    def ends(self, turn: UserTurn, depth: float) -> dict[int, torch.Tensor | PendingArray]:
        """Question with an answer -> its `(d,)` state at a turn's end."""
        replies = self.replies[turn]
        if replies.tree is not self.tree:
            states = replies.tree.states(self.lm.block_of(depth), replies.nodes)
            return dict(zip(replies.asked, states, strict=True))
        return {i: self.awaited(depth, [node], first_row) for i, node in zip(replies.asked, replies.nodes, strict=True)}

    def words(self, turn: UserTurn, rows: Ids) -> dict[int, torch.Tensor]:
        """Question with an answer -> `(len(rows),)` float32 logits of some tokens after a turn, on the device."""
        replies = self.replies[turn]
        if not replies.asked:
            return {}
        states = replies.tree.states(self.lm.blocks, replies.nodes)
        logits = self.lm.head.logits(states, self.ids_of(rows))
        return dict(zip(replies.asked, logits, strict=True))

    def path(self, i: int) -> list[int]:
        """The nodes of question i from its prompt's end on, as far as they were read."""
        return [i, *self.paths[i]]

    def predicting(self, i: int) -> list[int]:
        """The nodes whose states predict the answer's tokens, one for each."""
        return self.path(i)[: len(self.answers[i])]

    def continuation(self, i: int, options: Iterable[Ids]) -> list[int]:
        """The nodes whose states predict the tokens of other answers, one answer after the other."""
        return [node for ids in options if len(ids) for node in [i, *self.tree.grow(i, ids[:-1])]]

    def each(self, values: Iterable[PendingArrays]) -> list[list[PendingArrays]]:
        """One value for each prompt, given to all of its questions."""
        return [[value] * len(group) for value, group in zip(values, self.items, strict=True)]


class SignalSpec(Protocol):
    """Demands of one signal on the extractor; `bench.signals` has one for each."""

    @property
    def growth(self) -> ContinuationSpec:
        """Growth that has to be read for it."""

    @property
    def depths(self) -> frozenset[float]:
        """Fractions of the depth at which it reads states, beside the last state."""

    @property
    def ragged(self) -> bool:
        """Whether a question has any number of rows; otherwise it has one value."""

    @property
    def unanswered(self) -> Arrays | None:
        """The value of a question without an answer, where that is known without reading anything; else None."""

    def take(self, done: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Values of the questions of each distinct prompt of a pass; those on the device may stay there."""
