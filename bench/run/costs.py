"""Costs of the numbers: token positions per stage against the least possible, and tokens that are written.

See bench/DESIGN.md, Costs belong to the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bench.api import Followup, Samples, Signal
from bench.model.cost import StageCost
from bench.model.prefix_tree import PrefixTree
from bench.results.row import ResultRow
from bench.signals.definition import growth_of, pass_definitions, read_from_model, stored
from bench.signals.followup import FollowupDefinition
from bench.signals.samples import drawn

if TYPE_CHECKING:
    from bench.model.continuation_specs import UserTurn
    from bench.model.token_accounting import KnownInput
    from bench.prompts.front_coding import Ids
    from bench.signals.reader import Reader
    from bench.signals.split_data import SplitData

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


def costs_of(data_by_split: Sequence[SplitData], reader: Reader) -> dict[str, StageCost]:
    """Token positions that one run from nothing feeds to make these readings, and the floor."""
    from bench.model.token_accounting import STAGES

    count = counted(data_by_split, reader)
    stages = (stage for stage in (*STAGES, _ADAPTED) if count.fed[stage] or count.floors[stage])
    return {stage: StageCost(count.fed[stage], count.fed[stage], count.floors[stage]) for stage in stages}


def tokens_alone(
    read: Sequence[tuple[SplitData, frozenset[Signal]]], adapted: Sequence[SplitData], reader: Reader
) -> TokensAlone:
    """Tokens that one method needs by itself.

    Args:
        read: each split with what the method reads of it.
        adapted: splits as they were read through the method's adapter, if it has one.
        reader: of these.
    """
    own: dict[object, SplitData] = {}
    for split_data, signals in read:
        before = own[split_data.where].signals if split_data.where in own else frozenset()
        own[split_data.where] = replace(split_data, signals=before | signals_alone(split_data, signals, reader))
    count = counted([*own.values(), *adapted], reader)
    return TokensAlone(count.floors.total(), sum(count.written.values()))


def signals_alone(split_data: SplitData, signals: frozenset[Signal], reader: Reader) -> frozenset[Signal]:
    """Signals that would be measured of a split for one method, given what it reads."""
    return stored(read_from_model(signals), split_data.task.format, reader.asking(split_data).max_new_tokens)


def counted(data_by_split: Sequence[SplitData], reader: Reader) -> TokenCount:
    """Count the tokens of one run from nothing that makes these readings, without a model.

    Such a run reads everything of a shard in one pass, shard after shard in the order of the readings. What this or an
    earlier run fed, and in how many passes, doesn't enter; nor does memory that ran out. Nothing is padded.
    """
    from bench.model.token_accounting import STAGES, CountingExtractor, CountingModel, CountingSession

    manifests = [entry.manifest for split_data in data_by_split for shard in split_data.bundles for entry in shard]
    sizes = (m["bytes_per_token"] for m in manifests)
    size = max(sizes, default=0)
    sessions = {False: CountingSession(size), True: CountingSession(size)}  # with an adapter, a cache of its own
    trees = {False: PrefixTree(), True: PrefixTree()}
    count = TokenCount()
    for split_data in data_by_split:
        adapted = split_data.adapter is not None
        packed = all(entry.manifest["packed"] for shard in split_data.bundles for entry in shard)
        lm = CountingModel(sessions[adapted], reader.lm.devices, packed=packed)
        measures, stage = pass_definitions(split_data.signals), _ADAPTED if adapted else None
        extractor = CountingExtractor(lm, reader.asking(split_data), measures, stage)
        for items in _known(split_data, reader):
            count.fed += Counter({name: cost.forward_tokens for name, cost in extractor.measure(items).costs.items()})
        for name in (*STAGES, _ADAPTED):
            count.floors[name] += sum(map(trees[adapted].add, extractor.sequences[name]))
        count.written |= extractor.written
    return count


def _known(split_data: SplitData, reader: Reader) -> Iterator[list[KnownInput]]:
    """Questions of each shard with the texts of the model; given answers, and those of an adapter, are read back."""
    from bench.model.token_accounting import KnownInput

    split, growth = reader.stored(split_data), growth_of(split_data.signals)
    generated = not split_data.released and split_data.adapter is None
    texts: dict[UserTurn | Samples, Iterator[Sequence[Ids]]] = {
        sampling: drawn(split, sampling) for sampling in growth.samples
    }
    for turn in growth.turns:
        if turn.say:
            texts[turn] = ([ids] for ids in FollowupDefinition(Followup(turn.wording, say=turn.say)).said(split))
    for shard, answers in zip(split_data.shards, split_data.answer_ids, strict=True):
        items = []
        given_back = None if generated else answers
        for answer, item in zip(answers, reader.items(split_data, shard, growth, given_back), strict=True):
            written: dict[UserTurn | Samples | None, Sequence[Ids]] = {kind: next(own) for kind, own in texts.items()}
            written[None] = [answer]
            given = {} if shard.samples is None else {sampling: written[sampling] for sampling in growth.samples}
            items.append(KnownInput(**vars(item) | {"samples": given, "written": written}))
        yield items
