"""Forecast of the seconds that the model's forward passes over a split will take.

The forward passes over some shards are counted without running them, and multiplied by the times measured for this
model. The length of open answers is not known in advance. A small model generates a few, and their length is taken. A
large model is not loaded for this: its answers are assumed to be as long as the geometric mean of the length of an
option and the length limit.
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
from bench.model.devices import ALONE, default_batch_limits
from bench.prompts.traces import TraceEnd
from bench.signals.definition import PassDefinition, continuations_of, pass_definitions
from bench.signals.samples import split_samples

if TYPE_CHECKING:
    from bench.model.continuation_specs import UserTurn
    from bench.model.language_model import LanguageModel
    from bench.model.speed import Speed
    from bench.prompts.front_coding import Ids
    from bench.prompts.prompt_settings import PromptSettings
    from bench.signals.reader import Reader
    from bench.signals.split_data import SplitData

    Texts = Mapping[UserTurn | Samples | None, Sequence[Ids]]
    """Token ids of all texts that the model generates for one question: None -> its answer, a user turn -> the reply to
    it, a signal `Samples` -> its samples."""

_SHARDS, _QUESTIONS = 3, 1024
"""Passes are counted for at most this many shards with at most so many questions in all, but for at least one shard."""
_OPTIONS = 64
"""Number of questions whose options are tokenised to estimate the length of an option."""
_DISTINCT_SHARE = 0.5
"""Assumed share of a sample's tokens that none of the question's other texts has at the same position."""
_ALONE = 8
"""Assumed number of prompts of a pack, whose traces are generated side by side, where every pack is decoded alone."""
_NODE_SECONDS = 1.5e-5
"""Seconds that Python needs to add one token of an answer, sample or option to the prefix tree."""
_PROMPTS = 4
"""Number of prompts for which a small model generates answers."""
_SMALL_MODEL_BYTES = 1 << 27
"""Largest size in bytes of the weight files of a model that counts as small."""


@dataclass(eq=False)
class PassForecast:
    """Forecast of the forward passes that compute the signals of a split."""

    reader: Reader
    split_data: SplitData
    """Split whose prompts are tokenised; it need not have answers or signals."""
    signals: frozenset[Signal]
    adapted: bool = False
    """Whether the split's answers are stored already, and the split is read a second time with an adapter."""

    @cached_property
    def prompt_settings(self) -> PromptSettings:
        """Prompt settings that all questions share."""
        return self.reader.prompt_settings(self.split_data, self.signals)

    @cached_property
    def _definitions(self) -> Mapping[Signal, PassDefinition[Any]]:
        return pass_definitions(self.reader.stored_signals(self.signals, self.split_data))

    @cached_property
    def _choice_lengths(self) -> list[int]:
        """Length in tokens of each option of some questions, as the model would generate it."""
        rows = self.split_data.shards[0].rows
        some = [self.split_data.questions[row] for row in rows[:: math.ceil(len(rows) / _OPTIONS)]]
        return [len(ids) for options in self.reader.prompts.options(self.split_data.task, some) for ids in options]

    @property
    def option_tokens(self) -> float:
        """Mean number of tokens of an option."""
        return float(np.mean(self._choice_lengths))

    @property
    def answer_tokens(self) -> float:
        """Mean number of tokens of an answer."""
        return float(np.mean([len(ids) for texts in self._texts for ids in texts[None]]))

    @cached_property
    def _texts(self) -> Sequence[Texts]:
        """Texts that the model is assumed to generate for some questions.

        Other questions are assumed to have the same texts in turn.
        """
        continuations, limit = continuations_of(self._definitions), self.prompt_settings.max_new_tokens
        replies: Texts = {turn: [np.zeros(turn.say, dtype=np.int32)] for turn in continuations.turns}
        if self.split_data.task.format is Format.OPEN and not self.split_data.released:
            generated = self.reader.probe_texts(self.split_data, self.prompt_settings, continuations.samples)
            if generated:
                return [{**texts, **replies} for texts in generated]
        assumed = []
        for size in self._choice_lengths:
            answer = np.zeros(round(min(limit, max(1.0, math.sqrt(size * limit)))), dtype=np.int32)
            is_distinct = np.arange(len(answer)) >= len(answer) - (len(answer) - 1) * _DISTINCT_SHARE
            texts: dict[UserTurn | Samples | None, Sequence[Ids]] = {None: [answer], **replies}
            texts |= {each: [is_distinct * np.int32(j) for j in range(1, each.n + 1)] for each in continuations.samples}
            assumed.append(texts)
        return assumed

    def seconds(self, speed: Speed) -> float:
        """Return the seconds that one process needs for the split if nothing is stored."""
        from bench.model.token_accounting import CountingExtractor, CountingModel, CountingSession, InputWithGenerations

        shards, session = self.split_data.shards, CountingSession(speed.kv_bytes)
        lm = CountingModel(session, self.reader.lm.devices, self.reader.lm.dtype, packed=True)
        extractor = CountingExtractor(lm, self.prompt_settings, self._definitions)
        continuations = continuations_of(self._definitions)
        count = max(1, min(_SHARDS, len(shards), _QUESTIONS * len(shards) // max(1, len(self.split_data.rows))))
        counted = [shards[i * len(shards) // count] for i in range(count)]
        thinking = self.reader.prompts.thinking
        generated = thinking is not None and self.reader.generates_traces(self.split_data) and not self.adapted
        if thinking is not None and generated:
            longest = [np.zeros(thinking.budget, dtype=np.int32)]  # as long as they may be
            counted = [
                shard.with_traces(thinking, longest * len(shard.rows), [TraceEnd.BUDGET] * len(shard.rows))
                for shard in counted
            ]
        lengths = list[int]()
        for shard in counted:
            items, samples = self.reader.items(self.split_data, shard, continuations), shard.samples
            inputs = []
            for k, item in enumerate(items):
                texts = self._texts[k % len(self._texts)]
                answer = shard.given[k] if shard.given is not None else texts[None][0] if self.adapted else None
                sampled = {} if samples is None else {each: samples[k][: each.n] for each in continuations.samples}
                inputs.append(
                    InputWithGenerations(**vars(item) | {"answer": answer, "samples": sampled, "written": texts})
                )
            extractor.extract(inputs)
            lengths += [len(item.prompt) for item in items]
        choices = extractor.greedy * speed.greedy + extractor.sampled * speed.sampled + extractor.grown * _NODE_SECONDS
        seconds = speed.seconds(session.passes, session.tokens, session.pairs) + choices
        reasoning = self._trace_seconds(speed, thinking.budget, max(lengths)) if thinking and generated else 0.0
        return reasoning + seconds * len(self.split_data.questions) / max(1, sum(len(shard.rows) for shard in counted))

    def _trace_seconds(self, speed: Speed, budget: int, length: int) -> float:
        """Return the seconds in which traces of the whole budget are generated, many side by side.

        Args:
            speed: the model's speed.
            budget: number of tokens of each trace.
            length: number of tokens of the longest prompt, with its trace.
        """
        from bench.model.trace_decoder import LEAST_BYTES

        lm = self.reader.lm
        limits = default_batch_limits(*lm.devices, dtype=lm.dtype)
        fitting = max(limits.bytes, LEAST_BYTES) // max(1, speed.kv_bytes * length)
        rooms = max(1, min(_ALONE if limits == ALONE else limits.sequences, fitting))
        n = len(self.split_data.questions) * (1 + sum(each.n for each in self.reader.sampled_traces(self.signals)))
        passes, tokens = math.ceil(n / rooms) * budget, n * budget
        return speed.seconds(passes, tokens, tokens * (length - budget // 2)) + tokens * speed.greedy


def generate_texts(
    lm: LanguageModel, prompts: Sequence[Ids], settings: PromptSettings, samplings: frozenset[Samples]
) -> list[Texts]:
    """Generate answers and samples for a few prompts with a small model.

    Return an empty list if the model is large or can't be run.
    """
    from bench.model.extractor import Extractor
    from bench.model.forward_checks import ARCHITECTURE_ERRORS
    from bench.model.token_sampling import uniform_numbers

    if lm.spec.is_server or sum(file.stat().st_size for file in lm.folder.glob("*.safetensors")) > _SMALL_MODEL_BYTES:
        return []
    n, count = max((sampling.n for sampling in samplings), default=0), min(_PROMPTS, len(prompts))
    draws = (uniform_numbers(0, str(i), n, settings.max_new_tokens) if n else None for i in range(count))
    items = [ModelInput(prompts[i * len(prompts) // count], 0, uniforms=row) for i, row in enumerate(draws)]
    try:
        output = Extractor(lm, settings, pass_definitions(samplings)).extract(items)
        lm.session.reset()  # else the run reuses cached prefixes, and its costs lack their tokens
        lm.session.tokens = 0
    except (*ARCHITECTURE_ERRORS, UserError):  # the run itself reports what is wrong with the model
        return []
    samples = {
        each: list(split_samples({key: values.cpu().numpy() for key, values in output.columns[each].items()}))
        for each in samplings
    }
    return [
        {None: [answer], **{sampling: row[i] for sampling, row in samples.items()}}
        for i, answer in enumerate(output.answers)
    ]
