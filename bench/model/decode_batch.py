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
    Continuations,
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
    """Replies to a user turn, after each of the k non-empty answers of a decode batch."""

    answered: list[int]
    """Indices in `DecodeBatch.answers` of the k non-empty answers."""
    tree: ContinuationTree
    """The decode batch's tree, or a separate tree if the turn's conversations don't continue the answering prompts."""
    nodes: list[int]
    """Node of the turn's last token after each of the k answers."""
    texts: list[Ids] = field(default_factory=list)
    """Token ids of the k generated replies; empty if the turn asks for none."""


@dataclass
class DecodeBatch:
    """The questions of one or several packs, whose continuations are decoded together.

    The continuations of the questions `items[i]` start at node i of the tree. An answer of L tokens has L + 1 hidden
    states: number 0 at the prompt's end, number j after answer token j. `PROMPT_END` of `bench.api.At` is number 0,
    `ANSWER_PREDICTING` numbers 0 ... L-1, `ANSWER_END` number L.
    """

    lm: LanguageModel
    settings: PromptSettings
    items: list[list[ModelInput]]
    """`items[i]`: the questions with the i-th distinct prompt and stored answer; their right answers may differ."""
    tree: ContinuationTree
    answers: list[Ids]
    """`answers[i]`: the answer to the questions `items[i]`."""
    rows: dict[bytes, Upload]
    """Token ids whose logits are read, as bytes -> the same ids on the device."""
    paths: list[list[int]] = field(default_factory=list)
    """`paths[i]`: nodes of the tokens of `answers[i]`, up to the last one that the model reads."""
    replies: dict[UserTurn, Replies] = field(default_factory=dict)
    samples: dict[tuple[Samples, int, int], Sequence[Ids]] = field(default_factory=dict)
    """(sampling settings, i, j) -> token ids of the samples of question `items[i][j]`."""

    def states(self, depth: float, nodes: Sequence[int]) -> torch.Tensor:
        """Return hidden states `(len(nodes), d)` at a fraction of the depth, in the model's dtype, on the device."""
        return self.tree.states(self.lm.block_of(depth), nodes)

    def logits(self, nodes: Sequence[int], rows: Ids | None = None) -> torch.Tensor:
        """Return float32 next-token logits `(len(nodes), v)` on the device: of all tokens, or of the ids `rows`."""
        states = self.tree.states(self.lm.blocks, nodes)
        return self.lm.head.logits(states, None if rows is None else self.ids_of(rows))

    def ids_of(self, rows: Ids) -> torch.Tensor:
        """Return a tensor of these token ids on the device; ids that are already there are not copied again."""
        upload = self.rows.get(rows.tobytes()) or self.tree.session.send(rows)
        return upload.tensor.to(self.lm.head.weight.device)

    def prefetch(self) -> None:
        """Queue ids and nodes of the answer tokens for upload with the next pass, for signals that read every token."""
        token_ids = np.concatenate(self.answers)
        self.rows.setdefault(token_ids.tobytes(), self.tree.session.send(token_ids))
        self.tree.prefetch([node for i in range(len(self.items)) for node in self.predicting_nodes(i)])

    def pending_states(
        self, depth: float, nodes: Sequence[int], transform: Callable[[torch.Tensor], torch.Tensor] = identity_transform
    ) -> PendingArray:
        """Return the hidden states `(len(nodes), d)` at a fraction of the depth, to be copied to the host later."""
        return PendingArray((self.lm.block_of(depth), nodes), transform)

    def turn_end_states(self, turn: UserTurn, depth: float) -> dict[int, torch.Tensor | PendingArray]:
        """Return i -> hidden state `(d,)` at the end of the user turn after `answers[i]`, for each non-empty answer."""
        replies = self.replies[turn]
        if replies.tree is not self.tree:
            states = replies.tree.states(self.lm.block_of(depth), replies.nodes)
            return dict(zip(replies.answered, states, strict=True))
        return dict(
            zip(replies.answered, (self.pending_states(depth, [k], first_row) for k in replies.nodes), strict=True)
        )

    def word_logits(self, turn: UserTurn, rows: Ids) -> dict[int, torch.Tensor]:
        """Return i -> logits `(len(rows),)` of token ids after the user turn, for each non-empty `answers[i]`.

        The logits are float32, on the device.
        """
        replies = self.replies[turn]
        if not replies.answered:
            return {}
        states = replies.tree.states(self.lm.blocks, replies.nodes)
        logits = self.lm.head.logits(states, self.ids_of(rows))
        return dict(zip(replies.answered, logits, strict=True))

    def answer_path(self, i: int) -> list[int]:
        """Return the nodes from the prompt's end of `items[i]` to the last token of the answer that the model reads."""
        return [i, *self.paths[i]]

    def predicting_nodes(self, i: int) -> list[int]:
        """Return the nodes whose states predict the tokens of `answers[i]`, one for each token."""
        return self.answer_path(i)[: len(self.answers[i])]

    def continuation_nodes(self, i: int, options: Iterable[Ids]) -> list[int]:
        """Return the nodes whose states predict the tokens of other answers to `items[i]`, answer after answer."""
        return [node for ids in options if len(ids) for node in [i, *self.tree.grow(i, ids[:-1])]]

    def repeat_per_question(self, values: Iterable[PendingArrays]) -> list[list[PendingArrays]]:
        """Return for each i a list with `values[i]` once for each question of `items[i]`."""
        return [[value] * len(group) for value, group in zip(values, self.items, strict=True)]


class SignalSpec(Protocol):
    """Reader of one signal, which the extractor calls; `bench.signals` defines a reader for each signal."""

    @property
    def continuations(self) -> Continuations:
        """Continuations that the signal needs."""

    @property
    def depths(self) -> frozenset[float]:
        """Fractions of the depth at which the signal reads hidden states; those of the last block are always there."""

    @property
    def ragged(self) -> bool:
        """Whether the number of rows of the signal's tensors differs between questions; else all have one shape."""

    @property
    def unanswered(self) -> Arrays | None:
        """The signal's tensors for a question with an empty answer; None if the model has to be run for it."""

    def take(self, done: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Return the signal's tensors for each question `done.items[i][j]`; they may stay on the device."""
