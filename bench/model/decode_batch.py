"""A decode batch: questions whose answers are decoded side by side. Signals take hidden states and logits from it."""

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
    """A user turn after each of the k non-empty answers of a decode batch, and the model's replies to this turn."""

    answered: list[int]
    """Indices in `DecodeBatch.answers` of the k non-empty answers."""
    tree: ContinuationTree
    """Token tree that holds the turn: the decode batch's own, or a separate one.

    A separate tree is needed if the conversation with the turn begins with other tokens than the prompt.
    """
    nodes: list[int]
    """For each of the k answers, the tree node of the user turn's last token."""
    texts: list[Ids] = field(default_factory=list)
    """Token ids of the k generated replies; empty if the turn asks for none."""


@dataclass
class DecodeBatch:
    """The questions of one or several packs, whose continuations are decoded side by side.

    Node i of the token tree is the end of the prompt that the questions `items[i]` share. An answer of L tokens has L +
    1 hidden states: number 0 at the prompt's end, number j after answer token j. The positions in `bench.api.At` are:
    `PROMPT_END` number 0, `ANSWER_PREDICTING` numbers 0 ... L-1, `ANSWER_END` number L.
    """

    lm: LanguageModel
    settings: PromptSettings
    items: list[list[ModelInput]]
    """`items[i]`: questions with equal prompts and equal stored answers; their right answers may differ."""
    tree: ContinuationTree
    answers: list[Ids]
    """`answers[i]`: token ids of the answer to the questions `items[i]`."""
    rows: dict[bytes, Upload]
    """Token ids as bytes -> the same ids on the device; the logits of these tokens are read."""
    paths: list[list[int]] = field(default_factory=list)
    """`paths[i]`: tree nodes of the tokens of `answers[i]`, up to the last token that the model reads."""
    attention: list[torch.Tensor] = field(default_factory=list)
    """`attention[i]`: what the tokens of `answers[i]` attend to (see `QueryRecorder.take`); empty if no signal asks."""
    replies: dict[UserTurn, Replies] = field(default_factory=dict)
    samples: dict[tuple[Samples, int, int], Sequence[Ids]] = field(default_factory=dict)
    """(sampling settings, i, j) -> token ids of the samples of question `items[i][j]`."""
    trace_states: torch.Tensor | None = None
    """Last hidden states that predict the tokens of the traces in the prompts, one trace after the other; None if no
    signal reads them."""
    cuts: list[dict[float, int]] = field(default_factory=list)
    """`cuts[i]`: share of the tokens of the trace in prompt i -> tree node after which an answer is forced."""
    steps: list[range] = field(default_factory=list)
    """`steps[i]`: tree nodes at the ends of the steps of the trace in prompt i."""

    def states(self, depth: float, nodes: Sequence[int]) -> torch.Tensor:
        """Return the hidden states `(len(nodes), d)` at tree nodes, at a fraction of the model's depth.

        The tensor is on the device, in the model's dtype.
        """
        return self.tree.states(self.lm.block_of(depth), nodes)

    def logits(self, nodes: Sequence[int], rows: Ids | None = None) -> torch.Tensor:
        """Return float32 next-token logits `(len(nodes), v)` at these tree nodes, on the device.

        The v columns are the logits of the token ids `rows`; without `rows`, those of the whole vocabulary.
        """
        states = self.tree.states(self.lm.blocks, nodes)
        return self.lm.head.logits(states, None if rows is None else self.ids_of(rows))

    def ids_of(self, rows: Ids) -> torch.Tensor:
        """Return the token ids `rows` as a tensor on the device; each call uploads them unless `self.rows` has them."""
        upload = self.rows.get(rows.tobytes()) or self.tree.session.send(rows)
        return upload.tensor.to(self.lm.head.weight.device)

    def prefetch(self) -> None:
        """Queue the token ids of all answers, and the nodes that predict them, for upload with the next forward pass.

        Signals that read every answer token need these two arrays.
        """
        token_ids = np.concatenate(self.answers)
        self.rows.setdefault(token_ids.tobytes(), self.tree.session.send(token_ids))
        self.tree.prefetch([node for i in range(len(self.items)) for node in self.predicting_nodes(i)])

    def pending_states(
        self, depth: float, nodes: Sequence[int], transform: Callable[[torch.Tensor], torch.Tensor] = identity_transform
    ) -> PendingArray:
        """Return hidden states `(len(nodes), d)` at a fraction of the model's depth, to be copied to the host later."""
        return PendingArray((self.lm.block_of(depth), nodes), transform)

    def turn_end_states(self, turn: UserTurn, depth: float) -> dict[int, torch.Tensor | PendingArray]:
        """Return the hidden states at the end of a user turn: i -> `(d,)`, for each non-empty `answers[i]`."""
        replies = self.replies[turn]
        if replies.tree is not self.tree:
            states = replies.tree.states(self.lm.block_of(depth), replies.nodes)
            return dict(zip(replies.answered, states, strict=True))
        return dict(
            zip(replies.answered, (self.pending_states(depth, [k], first_row) for k in replies.nodes), strict=True)
        )

    def word_logits(self, turn: UserTurn, rows: Ids) -> dict[int, torch.Tensor]:
        """Return logits of token ids at the end of a user turn: i -> `(len(rows),)`, for each non-empty `answers[i]`.

        The logits are float32, on the device.
        """
        replies = self.replies[turn]
        if not replies.answered:
            return {}
        states = replies.tree.states(self.lm.blocks, replies.nodes)
        logits = self.lm.head.logits(states, self.ids_of(rows))
        return dict(zip(replies.answered, logits, strict=True))

    def answer_path(self, i: int) -> list[int]:
        """Return the tree nodes of `answers[i]`, from the end of its prompt to the last token that the model reads."""
        return [i, *self.paths[i]]

    def predicting_nodes(self, i: int) -> list[int]:
        """Return for each token of `answers[i]` the tree node whose hidden state predicts it."""
        return self.answer_path(i)[: len(self.answers[i])]

    def continuation_nodes(self, i: int, options: Iterable[Ids]) -> list[int]:
        """Return for each token of the answers `options` to prompt i the tree node whose hidden state predicts it.

        The nodes of one answer come after those of the answer before it. Tokens that the tree lacks are added to it.
        """
        return [node for ids in options if len(ids) for node in [i, *self.tree.grow(i, ids[:-1])]]

    def repeat_per_question(self, values: Iterable[PendingArrays]) -> list[list[PendingArrays]]:
        """Return for each i a list that repeats `values[i]` for each question in `items[i]`."""
        return [[value] * len(group) for value, group in zip(values, self.items, strict=True)]


class SignalSpec(Protocol):
    """Reader of one signal: says what the model has to read for the signal, and takes the signal's tensors.

    See `bench.signals`.
    """

    @property
    def continuations(self) -> Continuations:
        """Spec of the continuations of a prompt that the signal needs."""

    @property
    def depths(self) -> frozenset[float]:
        """Fractions of the model's depth at which the signal reads hidden states.

        Hidden states after the last block are always available.
        """

    @property
    def ragged(self) -> bool:
        """Whether different questions may have tensors with different numbers of rows; if not, all have one shape."""

    @property
    def unanswered(self) -> Arrays | None:
        """The signal's tensors for a question with an empty answer; None if they must be computed by the model."""

    def take(self, done: DecodeBatch) -> Sequence[Sequence[PendingArrays]]:
        """Return the signal's tensors for each question `done.items[i][j]`; they may stay on the device."""
