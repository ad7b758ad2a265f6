"""Count the token costs of a result: positions fed to the model in each stage, the fewest possible, tokens generated.

Stages are the parts of reading: traces, answers, query, continuations and samples. bench/DESIGN.md, section "Costs
belong to the request", says why a cost does not depend on what the store has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bench.api import Followup, Samples, Signal
from bench.model import token_accounting as accounting
from bench.model.continuation_specs import UserTurn
from bench.model.cost import StageTokens
from bench.model.prefix_tree import PrefixTree
from bench.model.trace_decoder import STAGE, Traces
from bench.prompts.front_coding import Ids
from bench.results.row import ResultRow
from bench.signals.definition import continuations_of, pass_definitions, read_from_model
from bench.signals.followup import FollowupDefinition
from bench.signals.reader import Reader
from bench.signals.samples import sampled_ids
from bench.signals.split_data import SplitData

_ADAPTED = "adapter_predictions"
"""Stage that reads questions through a method's adapter; it shares no prefixes with stages of the frozen model."""


@dataclass
class TokenCount:
    """Token counts of a run that begins with an empty store and reads some splits."""

    fed: Counter[str] = field(default_factory=Counter)
    """Stage of reading (such as answers or samples) -> token positions fed to the model."""
    floors: Counter[str] = field(default_factory=Counter)
    """Stage of reading (such as answers or samples) -> number of distinct token prefixes that are new in this stage: no
    earlier split has them, nor an earlier stage of the same split. The sum over all stages is the fewest positions that
    any run can feed."""
    written: dict[Hashable, int] = field(default_factory=dict)
    """Identity of each distinct text that the model generates -> number of its tokens, stop token included."""


@dataclass(frozen=True)
class TokensAlone:
    """Fewest tokens that a method needs when it is the only method of a run.

    A run with several methods feeds each token once for all of them, so its count says nothing about a single method.
    """

    forward: int
    """Token positions fed to the model: the distinct prefixes that the answers and the method's signals need, and all
    positions that the training of its adapter fed. `tokens_alone` omits the training; `RowBuilder.tokens_alone` adds
    it."""
    generated: int
    """Tokens that the model generates: traces, answers, replies to further user turns, and samples, each with its stop
    token.

    Latency and the price of output grow with this number. Each generated token takes a decoding step, while known
    tokens, such as those of a query, take one forward pass together. Texts that came with the questions are not
    counted. Equal prompts share one greedy text. Sampled letters take no decoding step, as all are drawn from the
    logits at the end of the prompt.
    """
    test_forward: int = 0
    """Of `forward`, those of the test split alone."""
    test_generated: int = 0
    """Of `generated`, those of the test split alone."""

    def fill_in(self, row: ResultRow) -> ResultRow:
        """Return a copy of a result row with all counts filled in."""
        return replace(
            row, forward_tokens_alone=self.forward, generated_tokens_alone=self.generated,
            test_forward_tokens=self.test_forward, test_generated_tokens=self.test_generated,
        )  # fmt: skip


def compute_costs(data_by_split: Sequence[SplitData], reader: Reader) -> dict[str, StageTokens]:
    """Return stage of reading -> tokens with an empty store: positions fed to the model, and the fewest possible."""
    count = count_tokens(data_by_split, reader)
    stages = (stage for stage in (*accounting.STAGES, _ADAPTED) if count.fed[stage] or count.floors[stage])
    return {stage: StageTokens(count.fed[stage], count.fed[stage], count.floors[stage]) for stage in stages}


def tokens_alone(
    read: Sequence[tuple[SplitData, frozenset[Signal]]], adapted: Sequence[SplitData], reader: Reader
) -> TokensAlone:
    """Count the tokens that a method needs when it is the only method of a run, without the training of its adapter.

    Args:
        read: pairs of a split and the signals that the method reads there.
        adapted: splits as the model read them with the method's adapter; empty if there is no adapter.
        reader: the reader that has read these splits.
    """
    splits: dict[object, SplitData] = {}
    for split_data, signals in read:
        before = splits.get(split_data.where, replace(split_data, signals=frozenset(), requested=frozenset()))
        stored = before.signals | signals_alone(split_data, signals, reader)
        splits[split_data.where] = replace(before, signals=stored, requested=before.requested | signals)
    count = count_tokens([*splits.values(), *adapted], reader)
    return TokensAlone(count.floors.total(), sum(count.written.values()))


def signals_alone(split_data: SplitData, signals: frozenset[Signal], reader: Reader) -> frozenset[Signal]:
    """Return the signals that a run of a single method would store for a split.

    Args:
        split_data: the split.
        signals: signals that the method reads in this split.
        reader: the reader of the split.
    """
    return reader.stored_signals(read_from_model(signals), split_data)


def count_tokens(data_by_split: Sequence[SplitData], reader: Reader) -> TokenCount:
    """Count, without running the model, the tokens of a run that reads these splits with an empty store.

    Such a run reads the splits in order, shard by shard, and all signals of a shard at once. The count is computed from
    the texts. It depends neither on the forward passes that were really made, nor on padding, nor on batches that were
    halved for lack of memory.
    """
    manifests = [entry.manifest for split_data in data_by_split for shard in split_data.bundles for entry in shard]
    sizes = (m["bytes_per_token"] for m in manifests)
    bytes_per_token = max(sizes, default=0)
    # nothing computed with an adapter can be reused without it: a session and a tree for each
    sessions = {adapted: accounting.CountingSession(bytes_per_token) for adapted in (False, True)}
    trees = {False: PrefixTree(), True: PrefixTree()}
    count = TokenCount()
    for split_data in data_by_split:
        adapted = split_data.adapter is not None
        packed = all(entry.manifest["packed"] for shard in split_data.bundles for entry in shard)
        lm = accounting.CountingModel(sessions[adapted], reader.lm.devices, reader.lm.dtype, packed=packed)
        specs, stage = pass_definitions(split_data.signals), _ADAPTED if adapted else None
        if split_data.generated and not adapted:
            _count_traces(split_data, reader, lm, count, trees[False])
        extractor = accounting.CountingExtractor(lm, reader.prompt_settings(split_data), specs, stage)
        for items in _model_inputs(split_data, reader):
            count.fed += Counter({name: cost.forward_tokens for name, cost in extractor.extract(items).costs.items()})
        for name in (*accounting.STAGES, _ADAPTED):
            count.floors[name] += sum(map(trees[adapted].add, extractor.sequences[name]))
        count.written |= extractor.written
    return count


def _count_traces(
    split_data: SplitData, reader: Reader, lm: accounting.CountingModel, count: TokenCount, tree: PrefixTree
) -> None:
    """Add to `count` the tokens of the reasoning traces that the split's requested signals need."""
    thinking, settings = reader.prompts.thinking, reader.prompt_settings(split_data)
    assert thinking is not None  # noqa: S101  # as traces were generated
    texts = {sampling: iter(questions) for sampling, questions in split_data.generated.items()}
    for piece in reader.trace_pieces(split_data, split_data.requested):
        decoder = accounting.CountingTraceDecoder(lm, settings, thinking, Traces(piece.sampling))
        decoder.texts = {item.id: next(texts[piece.sampling]) for item in piece.items}
        count.fed[STAGE] += sum(cost.forward_tokens for cost in decoder.extract(piece.items).costs.values())
        count.floors[STAGE] += sum(map(tree.add, decoder.sequences))
        count.written |= decoder.written


def _model_inputs(split_data: SplitData, reader: Reader) -> Iterator[list[accounting.InputWithGenerations]]:
    """Yield, for each shard, the model inputs of its questions, with the texts that the model generates for them.

    Two kinds of answers count as fed instead of generated: answers that came with the questions, and answers that are
    read again through an adapter.
    """
    split, continuations = reader.stored(split_data), continuations_of(split_data.signals)
    generated = split_data.shards[0].given is None and split_data.adapter is None
    texts: dict[UserTurn | Samples, Iterator[Sequence[Ids]]] = {
        sampling: sampled_ids(split, sampling) for sampling in continuations.samples
    }
    for turn in continuations.turns:
        if turn.say:
            texts[turn] = (
                [ids] for ids in FollowupDefinition(Followup(turn.wording, say=turn.say)).generated_reply_ids(split)
            )
    for shard, answers in zip(split_data.shards, split_data.answer_ids, strict=True):
        items = []
        read_back = None if generated else answers
        for answer, item in zip(answers, reader.items(split_data, shard, continuations, read_back), strict=True):
            written: dict[UserTurn | Samples | None, Sequence[Ids]] = {kind: next(text) for kind, text in texts.items()}
            written[None] = [answer]
            provided = (
                {} if shard.samples is None else {sampling: written[sampling] for sampling in continuations.samples}
            )
            items.append(accounting.InputWithGenerations(**vars(item) | {"samples": provided, "written": written}))
        yield items
