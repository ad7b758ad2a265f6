"""What the numbers cost: token positions per stage against the least possible (bench/DESIGN.md, 5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bench.api import At, ChoiceLogits, Hidden, QueryLogits, Signal
from bench.backbone.cost import StageCost
from bench.backbone.prefix import PrefixTree
from bench.prompts.tails import Ids
from bench.run.plan import paid
from bench.signals.batches import Batches
from bench.signals.reader import OPTIONS, stored

if TYPE_CHECKING:
    from bench.signals.reader import Reader, Reading

STAGES = ("answers", "query", "continuations", "samples")
"""In this order each stage adds to the tree of what was read."""


ADAPTED = "adapter_predictions"
"""Read with other weights, and so on a tree of its own."""


def costs_of(readings: Sequence[Reading], reader: Reader) -> dict[str, StageCost]:
    """Token positions that were fed to make these readings, as recorded when each was computed, and the floor.

    The floor of a stage is the number of distinct prefixes, over all readings together, that it adds to the stages
    before it.
    """
    fed = {stage: np.zeros(2, dtype=np.int64) for stage in (*STAGES, ADAPTED)}
    for reading in readings:
        for shard in reading.bundles:
            for entry in shard:
                for stage, cost in entry.manifest["costs"].items():
                    fed[stage] += [cost["forward_tokens"], cost["padded_tokens"]]
    floors = floor_of(readings, reader)
    return {stage: StageCost(int(f), int(p), floors[stage]) for stage, (f, p) in fed.items() if f or floors[stage]}


def tokens_alone(read: Sequence[tuple[Reading, frozenset[Signal]]], adapted: Sequence[Reading], reader: Reader) -> int:
    """Token positions that one method needs by itself: the distinct prefixes of answers and of its own signals.

    A run reads each once for all its methods, so what it fed says nothing about a single one of them.

    Args:
        read: each split with what the method reads of it.
        adapted: splits as they were read through the method's adapter, if it has one.
        reader: of these.
    """
    own = [
        replace(reading, signals=stored(paid(signals), reading.task.format, reader.asking(reading).max_new_tokens))
        for reading, signals in read
    ]
    return sum(floor_of([*own, *adapted], reader).values())


def floor_of(readings: Sequence[Reading], reader: Reader) -> dict[str, int]:
    """Stage -> distinct prefixes that must be read, whatever the order of work."""
    frozen = [reading for reading in readings if reading.adapter is None]
    tree, adapted = PrefixTree(), PrefixTree()
    sequences = {"answers": _generated, "query": _queried, "continuations": _continued, "samples": _sampled}
    floors = {
        stage: sum(tree.add(ids) for reading in frozen for ids in sequences[stage](reading, reader)) for stage in STAGES
    }
    again = (ids for reading in readings if reading.adapter is not None for ids in _queried(reading, reader))
    return {**floors, ADAPTED: sum(map(adapted.add, again))}


def _generated(reading: Reading, reader: Reader) -> Iterator[Ids]:
    """What generating reads: an answer's last token is chosen, not read, where the length limit ended it.

    Answers from a release are not generated: prompts are read for the first signal that needs them, in its stage, and
    nothing is needed of a question that has no answer.
    """
    if reading.released:
        return
    limit = reader.asking(reading).max_new_tokens
    for prompt, answer in reading.pairs():
        yield np.concatenate([prompt, answer if len(answer) < limit else answer[:-1]])


def _queried(reading: Reading, reader: Reader) -> Iterator[Ids]:
    """The answers as far as a signal reads them, and the query."""
    hidden = {s.at for s in reading.signals if isinstance(s, Hidden)}
    to_query = any(isinstance(s, QueryLogits) for s in reading.signals)
    to_end = to_query or At.ANSWER_END in hidden
    to_answer = to_end or At.ANSWER_PREDICTING in hidden
    if not to_answer and not (reading.released and At.PROMPT_END in hidden):
        return
    suffix = reader.asking(reading).suffix if to_query else np.zeros(0, dtype=np.int32)
    for prompt, answer in reading.pairs():
        if len(answer):
            read_back = answer if to_end else answer[:-1] if to_answer else answer[:0]
            yield np.concatenate([prompt, read_back, suffix])


def _continued(reading: Reading, reader: Reader) -> Iterator[Ids]:
    """The options, each up to the state that predicts its last token."""
    hidden = {s.at for s in reading.signals if isinstance(s, Hidden)}
    lettered = any(isinstance(s, ChoiceLogits) for s in reading.signals)
    questions = list(reading.in_shards())
    said = reader.options(reading, questions) if hidden & OPTIONS else [[] for _ in questions]
    for (prompt, answer), question, options in zip(reading.pairs(), questions, said, strict=True):
        if reading.released and lettered and len(answer):
            yield prompt
        for k, ids in enumerate(options):
            if (At.GOLD_PREDICTING if k == question.gold else At.WRONG_PREDICTING) in hidden:
                yield np.concatenate([prompt, ids[:-1]])


def _sampled(reading: Reading, reader: Reader) -> Iterator[Ids]:
    """The samples, read like answers."""
    limit = reader.asking(reading).max_new_tokens
    for prompt, samples in Batches(reader).sampled(reading):
        for ids in samples:
            yield np.concatenate([prompt, ids if len(ids) < limit else ids[:-1]])
