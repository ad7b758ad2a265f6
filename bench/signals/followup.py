"""Replies to a user's turn after the answer: logits of its first word, or text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import Followup, Format, QueryLogits, Task, UserError
from bench.api.batch import Column
from bench.model.continuation_specs import AnswerSpan, Arrays, ContinuationSpec, PendingArrays, UserTurn
from bench.prompts.front_coding import Ids
from bench.signals.definition import PassDefinition
from bench.signals.query_logits import QueryLogitsDefinition
from bench.store.folders import digest_arrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.split_data import SplitData, StoredSplit
    from bench.signals.synthetic import World


class FollowupDefinition(PassDefinition[Followup]):
    """Stored as `values`: `(n, words)` float32, NaN where there is no answer; or a reply's ids with `offsets`."""

    declares = Followup

    @property
    def turn(self) -> UserTurn:
        """The turn and the longest reply."""
        return UserTurn(self.signal.wording, self.signal.say)

    @property
    def growth(self) -> ContinuationSpec:
        """The whole answer, the turn and the reply."""
        return ContinuationSpec(AnswerSpan.ANSWER_END, turns=frozenset({self.turn}))

    @property
    def ragged(self) -> bool:
        """Replies differ in length."""
        return bool(self.signal.say)

    @property
    def unanswered(self) -> Arrays:
        """NaN, or no reply."""
        import torch

        if self.signal.say:
            return {"values": torch.zeros(0, dtype=torch.long)}
        return {"values": torch.full((len(self.signal.words),), float("nan"))}

    def note(self, split_data: SplitData) -> str:
        """The wording, unless it is the self-check's."""
        return f'it asks after the answer: "{self.signal.wording}"' if self.signal.wording else ""

    @property
    def _letters(self) -> bool:
        return not self.signal.wording and not self.signal.say

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Itself; the self-check query is read for another signal."""
        return (QueryLogitsDefinition(QueryLogits()) if self._letters else self,)

    def hindrance(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Some models can't be asked, or have no such words."""
        if not self.signal.wording:
            return prompts.query_hindrance(task)
        try:
            self._ids(task, prompts)
        except UserError as error:
            return str(error)
        return None

    def _ids(self, task: Task, prompts: PromptTokeniser) -> tuple[Ids, Ids]:
        prompt, chat = prompts.stand_in(task), prompts.chat
        suffix = chat.followup(prompt, self.signal.wording).ids
        return suffix, np.zeros(0, dtype=np.int32) if self.signal.say else chat.words(prompt, self.signal.words)

    def asked(self, asking: PromptSettings, task: Task, prompts: PromptTokeniser) -> PromptSettings:
        """With the ids of its turn and of its words."""
        if not self.signal.wording:
            return asking
        suffix, words = self._ids(task, prompts)
        read = {} if self.signal.say else {self.signal.words: words}
        others = {**asking.others, self.signal.wording: suffix}
        return replace(asking, others=others, words={**asking.words, **read})

    def name(self, asking: PromptSettings, seed: int) -> str:
        """Name with the ids of the turn and of the words."""
        words = [] if self.signal.say else [asking.words[self.signal.words]]
        return f"{super().name(asking, seed)} {digest_arrays([asking.turns[self.signal.wording], *words])}"

    def take(self, done: DecodeBatch) -> list[list[PendingArrays]]:
        """`values`: `(words,)` logits, or `(t,)` ids of the reply."""
        import torch

        if not self.signal.say:
            found, nothing = done.words(self.turn, done.asking.words[self.signal.words]), self.unanswered["values"]
            return done.each({"values": found.get(i, nothing)} for i in range(len(done.items)))
        replies = done.replies[self.turn]
        said = dict(zip(replies.asked, replies.said, strict=True))
        silent = np.zeros(0, dtype=np.int32)
        ids = (said.get(i, silent) for i in range(len(done.items)))
        return done.each({"values": torch.as_tensor(reply.astype(np.int64))} for reply in ids)

    def said(self, split: StoredSplit) -> Iterator[Ids]:
        """The ids of each question's reply."""
        arrays = split.arrays(self.signal)
        yield from (row.astype(np.int32) for row in np.split(arrays["values"], arrays["offsets"][1:-1]))

    def column(self, split: StoredSplit) -> Column:
        """`(n, words)` float32, or `(n,)` texts."""
        if self._letters:
            return QueryLogitsDefinition(QueryLogits()).column(split)
        if not self.signal.say:
            return super().column(split)
        return np.asarray([split.lm.chat.decode(ids.tolist()) for ids in self.said(split)], dtype=np.object_)

    def planted(self, world: World) -> Column:
        """The last word is likelier, and the percentage larger, after surer answers."""
        if self.signal.say:
            percent = 100 / (1 + np.exp(-2 * world.sure))
            return np.asarray([f"{value:.0f}%" for value in percent], dtype=np.object_)
        if self.signal.words == ("no", "yes"):
            return QueryLogitsDefinition(QueryLogits()).planted(world)
        leaning = np.linspace(-0.75, 0.75, len(self.signal.words) + 1)[1:]
        base = world.rng.standard_normal((len(world.sure), 1))
        return (base + leaning * world.sure[:, None]).astype(np.float32)


DEFINITION = FollowupDefinition
