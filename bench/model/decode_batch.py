"""A decode batch, from which signals read hidden states and logits, and the interface of a signal's reader."""

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
    first_row,
    identity_transform,
)
from bench.model.continuation_tree import ContinuationTree
from bench.model.language_model import LanguageModel
from bench.model.upload_buffer import Upload
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings


@dataclass
class Replies:
    """Replies to a user turn; only questions with a non-empty answer have one."""

    answered: list[int]
    """`(k,)` indices of the questions with an answer."""
    tree: ContinuationTree
    """The decode batch's tree, or another one for conversations that don't continue the answering prompts."""
    nodes: list[int]
    """`(k,)` nodes of the turn's last token."""
    texts: list[Ids] = field(default_factory=list)
    """`(k,)` token ids of the generated replies."""


@dataclass
class DecodeBatch:
    """The questions of packs whose continuations are decoded together; those of `items[i]` start at node i of the tree.

    An answer of L tokens has L + 1 hidden states: number 0 at the prompt's end, number j after answer token j.
    `PROMPT_END` is number 0, `ANSWER_PREDICTING` are 0 ... L-1, `ANSWER_END` is L (`bench.api.At`).
    """

    lm: LanguageModel
    asking: PromptSettings
    items: list[list[ModelInput]]
    """Questions of each distinct prompt (and stored answer); they differ in random numbers, right and wrong answers."""
    tree: ContinuationTree
    answers: list[Ids]
    rows: dict[bytes, Upload]
    """Bytes of token ids whose logits are read -> the ids on the device."""
    paths: list[list[int]] = field(default_factory=list)
    """The nodes of each answer's tokens, as far as they are read."""
    replies: dict[UserTurn, Replies] = field(default_factory=dict)
    samples: dict[tuple[Samples, int, int], Sequence[Ids]] = field(default_factory=dict)
    """(sampling settings, prompt, question) -> token ids of its samples."""

    def states(self, depth: float, nodes: Sequence[int]) -> torch.Tensor:
        """Return hidden states `(len(nodes), d)` in the model's dtype, on its device."""
        return self.tree.states(self.lm.block_of(depth), nodes)

    def logits(self, nodes: Sequence[int], rows: Ids | None = None) -> torch.Tensor:
        """Return next-token logits `(len(nodes), v)` float32, of all tokens or those in `rows`, on the device."""
        states = self.tree.states(self.lm.blocks, nodes)
        return self.lm.head.logits(states, None if rows is None else self.ids_of(rows))

    def ids_of(self, rows: Ids) -> torch.Tensor:
        """Return token ids on the device; ids that are already there are not copied again."""
        upload = self.rows.get(rows.tobytes()) or self.tree.session.send(rows)
        return upload.tensor.to(self.lm.head.weight.device)

    def prefetch(self) -> None:
        """Upload ids and nodes of the answers with the next forward pass, for signals that read each token."""
        token_ids = np.concatenate(self.answers)
        self.rows.setdefault(token_ids.tobytes(), self.tree.session.send(token_ids))
        self.tree.prefetch([node for i in range(len(self.items)) for node in self.predicting(i)])

    def pending_states(
        self, depth: float, nodes: Sequence[int], transform: Callable[[torch.Tensor], torch.Tensor] = identity_transform
    ) -> PendingArray:
        """Return hidden states that are copied to the host together with all others."""
        return PendingArray((self.lm.block_of(depth), nodes), transform)

    def turn_end_states(self, turn: UserTurn, depth: float) -> dict[int, torch.Tensor | PendingArray]:
        """Return question index -> `(d,)` hidden state at a turn's end, for questions with an answer."""
        replies = self.replies[turn]
        if replies.tree is not self.tree:
            states = replies.tree.states(self.lm.block_of(depth), replies.nodes)
            return dict(zip(replies.answered, states, strict=True))
        return dict(
            zip(replies.answered, (self.pending_states(depth, [k], first_row) for k in replies.nodes), strict=True)
        )

    def word_logits(self, turn: UserTurn, rows: Ids) -> dict[int, torch.Tensor]:
        """Return question index -> `(len(rows),)` float32 logits of these tokens after a turn, on the device."""
        replies = self.replies[turn]
        if not replies.answered:
            return {}
        states = replies.tree.states(self.lm.blocks, replies.nodes)
        logits = self.lm.head.logits(states, self.ids_of(rows))
        return dict(zip(replies.answered, logits, strict=True))

    def path(self, i: int) -> list[int]:
        """Return the nodes of question i from its prompt's end to its last read answer token."""
        return [i, *self.paths[i]]

    def predicting(self, i: int) -> list[int]:
        """Return the nodes whose states predict the answer's tokens, one for each token."""
        return self.path(i)[: len(self.answers[i])]

    def continuation(self, i: int, options: Iterable[Ids]) -> list[int]:
        """Return the nodes whose states predict the tokens of other answers, one answer after the other."""
        return [node for ids in options if len(ids) for node in [i, *self.tree.grow(i, ids[:-1])]]

    def repeat_per_question(self, values: Iterable[PendingArrays]) -> list[list[PendingArrays]]:
        """Repeat the value of each prompt for all of its questions."""
        return [[value] * len(group) for value, group in zip(values, self.items, strict=True)]


class SignalSpec(Protocol):
    """Reader of one signal, called by the extractor; `bench.signals` has one for each signal."""

    @property
    def continuations(self) -> ContinuationSpec:
        """Continuations that the signal needs."""

    @property
    def depths(self) -> frozenset[float]:
        """Fractions of the depth at which it reads hidden states, besides the last one."""

    @property
    def ragged(self) -> bool:
        """Whether a question has any number of rows; otherwise it has a single value."""

    @property
    def unanswered(self) -> Arrays | None:
        """Value of a question without an answer; None if the model has to be run for it."""

    def take(self, done: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Return the values of each distinct prompt's questions; tensors may stay on the device."""
