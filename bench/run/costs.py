"""Costs of the numbers: token positions per stage against the least possible, and tokens that are written.

See bench/DESIGN.md, Costs belong to the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bench.api import Followup, Samples, Signal
from bench.backbone.cost import StageCost
from bench.backbone.prefix import PrefixTree
from bench.results.row import ResultRow
from bench.signals.definition import growth_of, pass_definitions, read_from_model, stored
from bench.signals.followup import FollowupDefinition
from bench.signals.samples import drawn

if TYPE_CHECKING:
    from bench.backbone.counting import KnownItem
    from bench.backbone.measure import Turn
    from bench.prompts.tails import Ids
    from bench.signals.reader import Reader
    from bench.signals.reading import Reading

_ADAPTED = "adapter_predictions"
"""Stage that is read with other weights, and so on a tree of its own."""


@dataclass
class TokenCount:
    """Tokens of one run from nothing that makes some readings."""

    fed: Counter[str] = field(default_factory=Counter)
    """Stage -> token positions that go through the model."""
    floors: Counter[str] = field(default_factory=Counter)
    """Stage -> distinct prefixes that it adds to the readings before and to the stages before it in its own reading:
    their sum must be read whatever the order of work."""
    written: dict[Hashable, int] = field(default_factory=dict)
    """A key for each distinct text that the model writes -> its tokens, with the one that ends it."""


@dataclass(frozen=True)
class TokensAlone:
    """Tokens that a method needs by itself at least.

    A run reads each once for all its methods, so what it fed says nothing about a single one of them.
    """

    forward: int
    """Token positions fed: the distinct prefixes of answers and of its own signals, and adapter training."""
    generated: int
    """Tokens that the model has to write: answers, replies and samples, each with its end.

    Each waits for the one before, while positions that are read back, such as those of a query, go through the model in
    one pass: latency and the price of output follow this number. Texts that came with the questions are not written.
    Greedy texts are written once for equal prompts; sampled letters take no step of their own, as all are drawn from
    the state at the prompt's end.
    """

    def put(self, row: ResultRow) -> ResultRow:
        """The row with them."""
        return replace(row, forward_tokens_alone=self.forward, generated_tokens_alone=self.generated)


def costs_of(readings: Sequence[Reading], reader: Reader) -> dict[str, StageCost]:
    """Token positions that one run from nothing feeds to make these readings, and the floor."""
    from bench.backbone.counting import STAGES

    count = counted(readings, reader)
    stages = (stage for stage in (*STAGES, _ADAPTED) if count.fed[stage] or count.floors[stage])
    return {stage: StageCost(count.fed[stage], count.fed[stage], count.floors[stage]) for stage in stages}


def tokens_alone(
    read: Sequence[tuple[Reading, frozenset[Signal]]], adapted: Sequence[Reading], reader: Reader
) -> TokensAlone:
    """Tokens that one method needs by itself.

    Args:
        read: each split with what the method reads of it.
        adapted: splits as they were read through the method's adapter, if it has one.
        reader: of these.
    """
    own: dict[object, Reading] = {}
    for reading, signals in read:
        before = own[reading.where].signals if reading.where in own else frozenset()
        own[reading.where] = replace(reading, signals=before | signals_alone(reading, signals, reader))
    count = counted([*own.values(), *adapted], reader)
    return TokensAlone(count.floors.total(), sum(count.written.values()))


def signals_alone(reading: Reading, signals: frozenset[Signal], reader: Reader) -> frozenset[Signal]:
    """Signals that would be measured of a split for one method, given what it reads."""
    return stored(read_from_model(signals), reading.task.format, reader.asking(reading).max_new_tokens)


def counted(readings: Sequence[Reading], reader: Reader) -> TokenCount:
    """Count the tokens of one run from nothing that makes these readings, without a model.

    Such a run reads everything of a shard in one pass, shard after shard in the order of the readings. What this or an
    earlier run fed, and in how many passes, doesn't enter; nor does memory that ran out. Nothing is padded.
    """
    from bench.backbone.counting import STAGES, CountingBackbone, CountingExtractor, CountingSession

    manifests = [entry.manifest for reading in readings for shard in reading.bundles for entry in shard]
    sizes = (m["bytes_per_token"] for m in manifests)
    size = max(sizes, default=0)
    sessions = {False: CountingSession(size), True: CountingSession(size)}  # with an adapter, a cache of its own
    trees = {False: PrefixTree(), True: PrefixTree()}
    count = TokenCount()
    for reading in readings:
        adapted = reading.adapter is not None
        packed = all(entry.manifest["packed"] for shard in reading.bundles for entry in shard)
        backbone = CountingBackbone(sessions[adapted], reader.backbone.devices, packed=packed)
        measures, stage = pass_definitions(reading.signals), _ADAPTED if adapted else None
        extractor = CountingExtractor(backbone, reader.asking(reading), measures, stage)
        for items in _known(reading, reader):
            count.fed += Counter({name: cost.forward_tokens for name, cost in extractor.measure(items).costs.items()})
        for name in (*STAGES, _ADAPTED):
            count.floors[name] += sum(map(trees[adapted].add, extractor.sequences[name]))
        count.written |= extractor.written
    return count


def _known(reading: Reading, reader: Reader) -> Iterator[list[KnownItem]]:
    """Questions of each shard with the texts of the model; given answers, and those of an adapter, are read back."""
    from bench.backbone.counting import KnownItem

    split, growth = reader.stored(reading), growth_of(reading.signals)
    generated = not reading.released and reading.adapter is None
    texts: dict[Turn | Samples, Iterator[Sequence[Ids]]] = {
        sampling: drawn(split, sampling) for sampling in growth.samples
    }
    for turn in growth.turns:
        if turn.say:
            texts[turn] = ([ids] for ids in FollowupDefinition(Followup(turn.wording, say=turn.say)).said(split))
    for shard, answers in zip(reading.shards, reading.answer_ids, strict=True):
        items = []
        given_back = None if generated else answers
        for answer, item in zip(answers, reader.items(reading, shard, growth, given_back), strict=True):
            written: dict[Turn | Samples | None, Sequence[Ids]] = {kind: next(own) for kind, own in texts.items()}
            written[None] = [answer]
            given = {} if shard.samples is None else {sampling: written[sampling] for sampling in growth.samples}
            items.append(KnownItem(**vars(item) | {"samples": given, "written": written}))
        yield items
