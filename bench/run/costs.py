"""Costs of the numbers: token positions per stage against the least possible, and tokens that are written.

See bench/DESIGN.md, 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.api import Followup, Signal
from bench.backbone.cost import StageCost
from bench.backbone.prefix import PrefixTree
from bench.results.row import ResultRow
from bench.run.needed import followed
from bench.signals.definition import growth_of, read_from_model, stored
from bench.signals.followup import FollowupDefinition
from bench.signals.samples import drawn
from bench.store.folders import digest_arrays

if TYPE_CHECKING:
    from bench.backbone.beginnings import Kept
    from bench.backbone.counted import Followed
    from bench.prompts.tails import Ids
    from bench.signals.reader import Reader
    from bench.signals.reading import Reading

_ADAPTED = "adapter_predictions"
"""Stage that is read with other weights, and so on a tree of its own."""


@dataclass(frozen=True)
class TokensAlone:
    """Tokens that a method needs by itself at least."""

    forward: int
    """Token positions fed: `tokens_alone`, and those of adapter training."""
    generated: int
    """Tokens written: `generated_alone`."""

    def put(self, row: ResultRow) -> ResultRow:
        """The row with them."""
        return replace(row, forward_tokens_alone=self.forward, generated_tokens_alone=self.generated)


def costs_of(readings: Sequence[Reading], reader: Reader) -> dict[str, StageCost]:
    """Token positions that one run from nothing feeds to make these readings, and the floor.

    They are counted from the tokens: such a run reads everything of a shard in one pass, shard after shard in the order
    of the readings. What this or an earlier run fed, and in how many passes, doesn't enter; nor does memory that ran
    out. Nothing is padded.
    """
    from bench.backbone.beginnings import Kept
    from bench.backbone.counted import STAGES

    memory = {False: Kept(), True: Kept()}  # weights with an adapter have a cache of their own
    fed: Counter[str] = Counter()
    for reading in readings:
        fed += _fed(reading, reader, memory[reading.adapter is not None])
    floors = floor_of(readings, reader)
    stages = (stage for stage in (*STAGES, _ADAPTED) if fed[stage] or floors[stage])
    return {stage: StageCost(fed[stage], fed[stage], floors[stage]) for stage in stages}


def _fed(reading: Reading, reader: Reader, memory: Kept) -> Counter[str]:
    """Stage -> token positions that are fed for a reading."""
    from bench.backbone.counted import Count

    manifests = [entry.manifest for shard in reading.bundles for entry in shard]
    size = max((manifest["bytes_per_token"] for manifest in manifests), default=0)
    count = Count(size, packed=all(manifest["packed"] for manifest in manifests), kept=memory)
    packing = reader.packing(reading, None if reading.adapter is None else _ADAPTED)
    return sum((count.shard(shard, packing) for shard in followed(reading, reader)), Counter())


def tokens_alone(read: Sequence[tuple[Reading, frozenset[Signal]]], adapted: Sequence[Reading], reader: Reader) -> int:
    """Token positions that one method needs by itself: the distinct prefixes of answers and of its own signals.

    A run reads each once for all its methods, so what it fed says nothing about a single one of them.

    Args:
        read: each split with what the method reads of it.
        adapted: splits as they were read through the method's adapter, if it has one.
        reader: of these.
    """
    own = [replace(reading, signals=signals_alone(reading, signals, reader)) for reading, signals in read]
    return sum(floor_of([*own, *adapted], reader).values())


def generated_alone(read: Sequence[tuple[Reading, frozenset[Signal]]], reader: Reader) -> int:
    """Tokens that the model has to write for one method by itself: answers, replies and samples, each with its end.

    Each waits for the one before, while positions that are read back, such as those of a query, go through the model in
    one pass: latency and the price of output follow this number, not `tokens_alone`. Texts that came with the questions
    are not written. Greedy texts are written once for equal prompts; sampled letters take no step of their own, as all
    are drawn from the state at the prompt's end.

    Args:
        read: each split with what the method reads of it.
        reader: of these.
    """
    written: dict[object, int] = {}
    for reading, signals in read:
        own = replace(reading, signals=signals_alone(reading, signals, reader))
        for texts in (_answers_written, _replies_written, _samples_written):
            written.update(texts(own, reader))
    return sum(written.values())


def _answers_written(reading: Reading, reader: Reader) -> Iterator[tuple[object, int]]:
    """A key for each distinct text, and its tokens; so are the next two."""
    if not reading.released:
        limit = reader.asking(reading).max_new_tokens
        yield from (((digest_arrays([prompt]),), _length(answer, limit)) for prompt, answer in reading.pairs())


def _replies_written(reading: Reading, reader: Reader) -> Iterator[tuple[object, int]]:
    for turn in growth_of(reading.signals).turns:
        if turn.say:
            replies = FollowupDefinition(Followup(turn.wording, say=turn.say)).said(reader.stored(reading))
            for (prompt, answer), reply in zip(reading.pairs(), replies, strict=True):
                if len(answer):
                    yield (turn, digest_arrays([prompt, answer])), _length(reply, turn.say)


def _samples_written(reading: Reading, reader: Reader) -> Iterator[tuple[object, int]]:
    split = reader.stored(reading)
    for sampling in growth_of(reading.signals).samples if reading.samples is None else ():
        for question, samples in zip(split.questions, drawn(split, sampling), strict=True):
            yield (
                (reading.where, sampling, question.id),
                sum(_length(ids, split.asking.max_new_tokens) for ids in samples),
            )


def _length(ids: Ids, limit: int) -> int:
    """Tokens of a text with the one that ends it, which a text as long as the limit has not."""
    return min(len(ids) + 1, limit)


def signals_alone(reading: Reading, signals: frozenset[Signal], reader: Reader) -> frozenset[Signal]:
    """Signals that would be measured of a split for one method, given what it reads."""
    return stored(read_from_model(signals), reading.task.format, reader.asking(reading).max_new_tokens)


def floor_of(readings: Sequence[Reading], reader: Reader) -> dict[str, int]:
    """Stage -> distinct prefixes that it adds to the readings before and to the stages before it in its own reading.

    Their sum must be read whatever the order of work.
    """
    from bench.backbone.counted import STAGES

    trees = {False: PrefixTree(), True: PrefixTree()}
    floors = dict.fromkeys((*STAGES, _ADAPTED), 0)
    for reading in readings:
        tree = trees[reading.adapter is not None]
        packing = reader.packing(reading, None if reading.adapter is None else _ADAPTED)
        questions = [question for shard in followed(reading, reader) for question in shard]
        first = packing.first_stage(generated=all(question.given is None for question in questions))
        for stage in STAGES:
            sequences = (ids for question in questions for ids in _sequences(question, stage, prompts=stage == first))
            floors[packing.stage or stage] += sum(map(tree.add, sequences))
    return floors


def _sequences(question: Followed, stage: str, *, prompts: bool) -> Iterator[Ids]:
    """Sequences that a stage needs of a question; `prompts`: it is the one for which prompts are read."""
    needed = any(question.paths.values()) or bool(question.apart)
    if prompts and needed:
        yield question.prompt
    yield from (np.concatenate([question.prompt, path.ids]) for path in question.paths.get(stage, ()))
    if stage == "query":
        yield from (path.ids for path in question.apart)
