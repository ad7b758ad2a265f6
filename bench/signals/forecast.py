"""Seconds that reading a split will take: the extractor's passes over some of its shards, times the model's speed.

How long open answers will be is learned from a small model, which answers a few questions. A large one is not loaded
for that: its texts are taken to be between the options and the length limit, in the geometric middle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import Format, Samples, Signal, UserError
from bench.model.continuation_specs import ModelInput
from bench.signals.definition import PassDefinition, growth_of, pass_definitions, stored
from bench.signals.samples import parted

if TYPE_CHECKING:
    from bench.model.continuation_specs import UserTurn
    from bench.model.language_model import LanguageModel
    from bench.model.speed import Speed
    from bench.prompts.front_coding import Ids
    from bench.prompts.prompt_settings import PromptSettings
    from bench.signals.reader import Reader
    from bench.signals.split_data import SplitData

    Texts = Mapping[UserTurn | Samples | None, Sequence[Ids]]
    """All that the model writes about a question: see `KnownInput.written`."""

_SHARDS, _QUESTIONS = 3, 1024
"""Shards of a split that are counted at most; fewer where these have so many questions."""
_OPTIONS = 64
"""Questions whose options are written, for their lengths."""
_DISTINCT = 0.5
"""Share of the tokens of an assumed sample that no other text of the question has in the same place."""
_NODE = 1.5e-5
"""Seconds of Python for a token that grows after a prompt."""
_ANSWERED = 4
"""Questions that a small model answers."""
_SMALL = 1 << 27
"""Bytes of the weights' files of one."""


@dataclass(eq=False)
class PassForecast:
    """Forecast of the passes that read signals of a split."""

    reader: Reader
    split_data: SplitData
    """An opened split."""
    signals: frozenset[Signal]
    adapted: bool = False
    """Whether it is read again, through an adapter."""

    @cached_property
    def asking(self) -> PromptSettings:
        """Settings that are the same for all questions."""
        return self.reader.asking(self.split_data, self.signals)

    @cached_property
    def _measures(self) -> Mapping[Signal, PassDefinition[Any]]:
        return pass_definitions(stored(self.signals, self.split_data.task.format, self.asking.max_new_tokens))

    @cached_property
    def _options(self) -> list[int]:
        """Tokens of the options of some questions, as the model would have to say them."""
        rows = self.split_data.shards[0].rows
        some = [self.split_data.questions[row] for row in rows[:: math.ceil(len(rows) / _OPTIONS)]]
        return [len(ids) for options in self.reader.prompts.options(self.split_data.task, some) for ids in options]

    @property
    def option_tokens(self) -> float:
        """Tokens of an option, mean."""
        return float(np.mean(self._options))

    @property
    def answer_tokens(self) -> float:
        """Tokens of an answer, mean."""
        return float(np.mean([len(ids) for texts in self._texts for ids in texts[None]]))

    @cached_property
    def _texts(self) -> Sequence[Texts]:
        """Texts of some questions; those of others are expected to be like these, in turn."""
        growth, limit = growth_of(self._measures), self.asking.max_new_tokens
        replies: Texts = {turn: [np.zeros(turn.say, dtype=np.int32)] for turn in growth.turns}
        if self.split_data.task.format is Format.OPEN and not self.split_data.released:
            known = self.reader.heard(self.split_data, self.asking, growth.samples)
            if known:
                return [{**texts, **replies} for texts in known]
        assumed = []
        for size in self._options:
            answer = np.zeros(round(min(limit, max(1.0, math.sqrt(size * limit)))), dtype=np.int32)
            own = np.arange(len(answer)) >= len(answer) - (len(answer) - 1) * _DISTINCT
            texts: dict[UserTurn | Samples | None, Sequence[Ids]] = {None: [answer], **replies}
            texts |= {each: [own * np.int32(j) for j in range(1, each.n + 1)] for each in growth.samples}
            assumed.append(texts)
        return assumed

    def seconds(self, speed: Speed) -> float:
        """Time in which one process reads the split from nothing."""
        from bench.model.token_accounting import CountingExtractor, CountingModel, CountingSession, KnownInput

        shards, session = self.split_data.shards, CountingSession(speed.held)
        lm = CountingModel(session, self.reader.lm.devices, packed=True)
        extractor, growth = CountingExtractor(lm, self.asking, self._measures), growth_of(self._measures)
        count = max(1, min(_SHARDS, len(shards), _QUESTIONS * len(shards) // max(1, len(self.split_data.rows))))
        chosen = [shards[i * len(shards) // count] for i in range(count)]
        for shard in chosen:
            items, samples = self.reader.items(self.split_data, shard, growth), shard.samples
            known = []
            for k, item in enumerate(items):
                texts = self._texts[k % len(self._texts)]
                answer = shard.given[k] if shard.given is not None else texts[None][0] if self.adapted else None
                given = {} if samples is None else {each: samples[k][: each.n] for each in growth.samples}
                known.append(KnownInput(**vars(item) | {"answer": answer, "samples": given, "written": texts}))
            extractor.measure(known)
        choices = extractor.greedy * speed.greedy + extractor.drawn * speed.drawn + extractor.grown * _NODE
        seconds = speed.seconds(session.passes, session.tokens, session.pairs) + choices
        return seconds * len(self.split_data.questions) / max(1, sum(len(shard.rows) for shard in chosen))


def heard(
    lm: LanguageModel, prompts: Sequence[Ids], asking: PromptSettings, samplings: frozenset[Samples]
) -> list[Texts]:
    """Answers and samples of a small model to a few prompts; nothing from a large or a broken one."""
    from bench.model.extractor import Extractor
    from bench.model.forward_checks import REFUSALS
    from bench.model.sampling import uniforms

    if sum(file.stat().st_size for file in lm.folder.glob("*.safetensors")) > _SMALL:
        return []
    n, count = max((sampling.n for sampling in samplings), default=0), min(_ANSWERED, len(prompts))
    numbers = (uniforms(0, str(i), n, asking.max_new_tokens) if n else None for i in range(count))
    items = [ModelInput(prompts[i * len(prompts) // count], 0, uniforms=own) for i, own in enumerate(numbers)]
    try:
        done = Extractor(lm, asking, pass_definitions(samplings)).measure(items)
        lm.session.reset()  # what is kept there would make the run's own passes fewer than they are
        lm.session.tokens = 0
    except (*REFUSALS, UserError):  # whatever is wrong with it is told when it is read
        return []
    samples = {
        each: list(parted({key: values.cpu().numpy() for key, values in done.columns[each].items()}))
        for each in samplings
    }
    return [
        {None: [answer], **{sampling: own[i] for sampling, own in samples.items()}}
        for i, answer in enumerate(done.answers)
    ]
