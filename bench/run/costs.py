"""Costs of the numbers: token positions per stage against the least possible, and tokens that are written.

See bench/DESIGN.md, 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.api import Followup, Signal
from bench.backbone.beginnings import Kept
from bench.backbone.cost import StageCost
from bench.backbone.measure import Growth, Upto
from bench.backbone.prefix import PrefixTree
from bench.results.row import ResultRow
from bench.signals.definition import growth_of, pass_definitions, read_from_model, stored
from bench.signals.followup import FollowupDefinition, after_answers
from bench.signals.samples import drawn
from bench.store.folders import digest_arrays

if TYPE_CHECKING:
    from bench.prompts.tails import Ids
    from bench.signals.reader import Reader
    from bench.signals.reading import Reading

_STAGES = ("answers", "query", "continuations", "samples")
"""Stages in the order in which they add to the tree of what was read."""


_ADAPTED = "adapter_predictions"
"""Read with other weights, and so on a tree of its own."""


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

    What each pass fed was recorded then, but for shared beginnings, which it may have found in memory: these are
    counted in the order of the readings, so a run that was killed or had some of them stored says the same.
    The floor of a stage is the number of distinct prefixes, over all readings together, that it adds to the stages
    before it.
    """
    fed = {stage: np.zeros(2, dtype=np.int64) for stage in (*_STAGES, _ADAPTED)}
    kept = {False: Kept(), True: Kept()}  # weights with an adapter have a cache of their own
    for reading in readings:
        for entry in (entry for shard in reading.bundles for entry in shard):
            for stage, cost in entry.manifest["costs"].items():
                fed[stage] += [cost["forward_tokens"], cost["padded_tokens"]]
                fed[stage] -= cost.get("beginnings", 0)
            if begun := entry.manifest.get("beginnings"):
                paths = [tuple((name, int(n)) for name, n in path) for path in begun["paths"]]
                fed[begun["stage"]] += kept[reading.adapter is not None].read(paths, begun["bytes_per_token"])
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
    """Stage -> distinct prefixes that must be read, whatever the order of work."""
    frozen = [reading for reading in readings if reading.adapter is None]
    tree, adapted = PrefixTree(), PrefixTree()
    sequences = {"answers": _generated, "query": _queried, "continuations": _continued, "samples": _sampled}
    floors = {
        stage: sum(tree.add(ids) for reading in frozen for ids in sequences[stage](reading, reader))
        for stage in _STAGES
    }
    again = (ids for reading in readings if reading.adapter is not None for ids in _queried(reading, reader))
    return {**floors, _ADAPTED: sum(map(adapted.add, again))}


def _generated(reading: Reading, reader: Reader) -> Iterator[Ids]:
    """Tokens that generating reads: an answer's last token is chosen, not read, where the length limit ended it.

    Answers from a release are not generated: prompts are read for the first signal that needs them, in its stage, and
    nothing is needed of a question that has no answer.
    """
    if reading.released:
        return
    limit = reader.asking(reading).max_new_tokens
    for prompt, answer in reading.pairs():
        yield np.concatenate([prompt, answer if len(answer) < limit else answer[:-1]])


def _queried(reading: Reading, reader: Reader) -> Iterator[Ids]:
    """The answers as far as a signal reads them, and the user turns after them."""
    growth = growth_of(reading.signals)
    if growth.answer < (Upto.PROMPT_END if reading.released else Upto.ANSWER_PREDICTING):
        return
    after = after_answers(reader.stored(reading), growth.turns)
    for (prompt, answer), followed in zip(reading.pairs(), after, strict=True):
        if len(answer):
            read_back = {Upto.PROMPT_END: answer[:0], Upto.ANSWER_PREDICTING: answer[:-1]}.get(growth.answer, answer)
            yield from (np.concatenate([prompt, read_back, tail]) for tail in (followed or [answer[:0]]))
        elif reading.released and (growth.samples or growth.gold or growth.wrong):
            yield prompt  # later stages grow from it, and it was read with the others


def _continued(reading: Reading, reader: Reader) -> Iterator[Ids]:
    """The options, each up to the state that predicts its last token; prompts of which nothing else is read."""
    growths = [each.growth for each in pass_definitions(reading.signals).values()]
    if reading.released and Growth() in growths:
        yield from (prompt for prompt, answer in reading.pairs() if len(answer))
    growth = Growth.union(growths)
    if not growth.gold and not growth.wrong:
        return
    split = reader.stored(reading)
    for (prompt, _), question, options in zip(reading.pairs(), split.questions, split.options, strict=True):
        for k, ids in enumerate(options):
            if growth.gold if k == question.gold else growth.wrong:
                yield np.concatenate([prompt, ids[:-1]])


def _sampled(reading: Reading, reader: Reader) -> Iterator[Ids]:
    """The samples, read like answers."""
    split = reader.stored(reading)
    limit = split.asking.max_new_tokens
    growth = growth_of(reading.signals)
    for sampling in sorted(growth.samples):
        for (prompt, _), samples in zip(reading.pairs(), drawn(split, sampling), strict=True):
            for ids in samples:
                whole = sampling in growth.sample_ends or len(ids) < limit
                yield np.concatenate([prompt, ids if whole else ids[:-1]])
