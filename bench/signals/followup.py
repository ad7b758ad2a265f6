"""Signal `Followup`: the reply to a user turn after the answer, as logits of its first word or as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import Followup, Format, QueryLogits, Task, UserError
from bench.api.batch import Column
from bench.model.continuation_specs import NOTHING, AnswerSpan, Arrays, Continuations, PendingArrays, UserTurn
from bench.prompts.front_coding import Ids
from bench.servers.readings import Ability
from bench.signals.definition import PassDefinition
from bench.signals.query_logits import QueryLogitsDefinition
from bench.signals.text import object_array
from bench.store.disk_cache import digest_arrays

if TYPE_CHECKING:
    from bench.model.decode_batch import DecodeBatch
    from bench.prompts.prompt_settings import PromptSettings
    from bench.prompts.shards import PromptTokeniser
    from bench.signals.server_extractor import QuestionRequests
    from bench.signals.split_data import SplitData, StoredSplit
    from bench.signals.synthetic import SyntheticQuestions


class FollowupDefinition(PassDefinition[Followup]):
    """Definition of `Followup`, stored as `values`: logits `(n, words)` float32, or token ids with `offsets`."""

    declares = Followup

    @property
    def turn(self) -> UserTurn:
        """The user turn, with the length limit of the reply."""
        return UserTurn(self.signal.wording, self.signal.say)

    @property
    def continuations(self) -> Continuations:
        """What the model reads after the prompt: the whole answer, the user turn and the reply."""
        return Continuations(AnswerSpan.ANSWER_END, turns=frozenset({self.turn}))

    @property
    def ragged(self) -> bool:
        """True if replies are stored as token ids, which differ in number; False for logits of the first word."""
        return bool(self.signal.say)

    @property
    def unanswered(self) -> Arrays:
        """For a question with an empty answer: NaN logits, or an empty reply."""
        import torch

        if self.signal.say:
            return {"values": torch.zeros(0, dtype=torch.long)}
        return {"values": torch.full((len(self.signal.words),), float("nan"))}

    def note(self, split_data: SplitData) -> str:
        """Return a remark that quotes the user turn's wording; empty for the self-check query."""
        return f'it asks after the answer: "{self.signal.wording}"' if self.signal.wording else ""

    @property
    def _is_self_check(self) -> bool:
        return not self.signal.wording and not self.signal.say

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the definition of the stored signal: `QueryLogits` for the self-check query, else this one."""
        return (QueryLogitsDefinition(QueryLogits()) if self._is_self_check else self,)

    def unsupported_reason(self, task: Task, prompts: PromptTokeniser) -> str | None:
        """Return the reason why the signal can't be computed on this model; None if it can.

        It needs a user turn that can follow the answer, and words of one token each.
        """
        if not self.signal.wording:
            return prompts.query_unsupported_reason(task)
        try:
            self._ids(task, prompts)
        except UserError as error:
            return str(error)
        return None

    def _ids(self, task: Task, prompts: PromptTokeniser) -> tuple[Ids, Ids]:
        prompt, chat = prompts.placeholder_prompt(task), prompts.chat
        suffix = chat.followup(prompt, self.signal.wording).ids
        return suffix, NOTHING if self.signal.say else chat.words(prompt, self.signal.words)

    def extend_settings(self, settings: PromptSettings, task: Task, prompts: PromptTokeniser) -> PromptSettings:
        """Return the prompt settings, to which the token ids of the user turn and of the words are added."""
        if not self.signal.wording:
            return settings
        suffix, words = self._ids(task, prompts)
        word_ids = {} if self.signal.say else {self.signal.words: words}
        turns = {**settings.others, self.signal.wording: suffix}
        return replace(settings, others=turns, words={**settings.words, **word_ids})

    def name(self, settings: PromptSettings, seed: int) -> str:
        """Return the signal's name in store keys, with a digest of the token ids of the user turn and of the words."""
        words = [] if self.signal.say else [settings.words[self.signal.words]]
        return f"{super().name(settings, seed)} {digest_arrays([settings.turns[self.signal.wording], *words])}"

    def take(self, batch: DecodeBatch) -> list[list[PendingArrays]]:
        """Return the array `values` of each question: logits `(words,)`, or the token ids `(t,)` of the reply."""
        import torch

        if not self.signal.say:
            ids, missing = batch.settings.words[self.signal.words], self.unanswered["values"]
            logits = batch.word_logits(self.turn, ids)
            return batch.repeat_per_question({"values": logits.get(i, missing)} for i in range(len(batch.items)))
        replies = batch.replies[self.turn]
        reply_by_item = dict(zip(replies.answered, replies.texts, strict=True))
        texts = (reply_by_item.get(i, NOTHING) for i in range(len(batch.items)))
        return batch.repeat_per_question({"values": torch.as_tensor(reply.astype(np.int64))} for reply in texts)

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: text for a reply, else the log-probabilities of the likeliest tokens."""
        return Ability.TEXT if self.signal.say else Ability.TOP

    def prefers(self, fmt: Format) -> Ability:
        """Return what exact values need: text for a reply, else the log-probabilities of chosen tokens."""
        return Ability.TEXT if self.signal.say else Ability.CHOSEN

    def ask(self, requests: QuestionRequests) -> Mapping[str, Any]:
        """Return `values`: log-probabilities of the words less a constant `(words,)`, or the reply's ids `(t,)`."""
        prompt = requests.conversation(self.turn)
        if self.signal.say:
            return {"values": requests.complete(prompt, self.signal.say).ids.astype(np.int64)}
        return {"values": requests.shares(prompt, requests.settings.words[self.signal.words])}

    def generated_reply_ids(self, split: StoredSplit) -> Iterator[Ids]:
        """Yield the token ids of each question's reply."""
        arrays = split.arrays(self.signal)
        yield from (row.astype(np.int32) for row in np.split(arrays["values"], arrays["offsets"][1:-1]))

    def column(self, split: StoredSplit) -> Column:
        """Return logits `(n, words)` float32, or the replies as texts `(n,)`."""
        if self._is_self_check:
            return QueryLogitsDefinition(QueryLogits()).column(split)
        if not self.signal.say:
            return super().column(split)
        return object_array([split.lm.chat.decode(ids.tolist()) for ids in self.generated_reply_ids(split)])

    def synthesize(self, data: SyntheticQuestions) -> Column:
        """Return synthetic logits of the reply's first word, or synthetic replies.

        Where the answer is right, the last of the signal's words has a larger logit, or the reply states a larger
        percentage.
        """
        if self.signal.say:
            percent = 100 / (1 + np.exp(-2 * data.certainty))
            return object_array([f"{value:.0f}%" for value in percent])
        if self.signal.words == ("no", "yes"):
            return QueryLogitsDefinition(QueryLogits()).synthesize(data)
        slopes = np.linspace(-0.75, 0.75, len(self.signal.words) + 1)[1:]
        base = data.rng.standard_normal((len(data.certainty), 1))
        return (base + slopes * data.certainty[:, None]).astype(np.float32)


DEFINITION = FollowupDefinition
