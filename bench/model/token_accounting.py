"""Count the token positions of a run without running a model (bench/DESIGN.md, Costs belong to the request).

The extractor runs with a session that counts but computes nothing. The texts that a model would generate are given as
input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from bench.api import IntArray, Samples, Signal
from bench.model.attention import AnswerPath
from bench.model.continuation_specs import NOTHING, Generation, ModelInput, UserTurn
from bench.model.continuation_tree import ContinuationTree
from bench.model.decode_batch import DecodeBatch, SignalSpec
from bench.model.extractor import Extractor, ShardOutput, Values
from bench.model.kv_cache import CacheRow
from bench.model.language_model import LanguageModel
from bench.model.session import Indices, Session
from bench.model.trace_decoder import STAGE, TraceDecoder, TraceText
from bench.model.upload_buffer import Upload, UploadBuffer
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings
from bench.store.disk_cache import digest_arrays

STAGES = (STAGE, "answers", "query", "continuations", "samples")
"""Names of the stages in which a split is read, in order; traces are generated before anything else."""
_END = -1
"""Made-up id of a stop token, put at the end of each text of an `InputWithGenerations`."""


class CountingSession(Session):
    """Session that counts tokens and computes nothing.

    Hidden states have width 0, and positions of the KV cache have no data.
    """

    def __init__(self, bytes_per_token: int) -> None:
        self.tokens = 0
        self.bytes_per_token = bytes_per_token
        self.device = "cpu"
        self.sending = UploadBuffer(self.device)
        self.passes = 0
        self.pairs = 0
        """Number of query tokens times number of KV cache positions, summed over forward passes."""
        self.reset()

    def new_row(self, *least: int) -> CacheRow:
        """Return an empty row of the KV cache; its single layer stands for all blocks."""
        return CacheRow(1, *least)

    def measure_bytes_per_token(self) -> int:
        """Return the bytes of one KV cache position that the constructor was given."""
        return self.bytes_per_token

    @torch.inference_mode()
    def forward(
        self, ids: Ids, positions: IntArray, visible: Callable[[], torch.Tensor], read: Mapping[int, Indices]
    ) -> dict[int, torch.Tensor]:
        """Count positions, and append them without data to the active row of the KV cache; `visible` is not called."""
        del positions, visible
        keys = torch.empty(1, 1, len(ids), self.bytes_per_token, dtype=torch.uint8, device="meta")
        self.row.append([(keys, keys[..., :0])])
        return self._counted(len(ids), self.row.length, read)

    def read_alone(self, ids: Ids, read: Mapping[int, Indices]) -> dict[int, torch.Tensor]:
        """Count the tokens of a whole sequence, and return hidden states of width 0."""
        return self._counted(len(ids), len(ids), read)

    def attention(self, paths: Sequence[AnswerPath]) -> list[torch.Tensor]:
        """Return nothing: what answers attend to is not counted."""
        return [torch.empty(0)] * len(paths)

    def _counted(self, tokens: int, columns: int, read: Mapping[int, Indices]) -> dict[int, torch.Tensor]:
        self.sending.clear()
        self.tokens += tokens
        self.passes += 1
        self.pairs += tokens * columns
        sizes = ((block, index.tensor if isinstance(index, Upload) else index) for block, index in read.items())
        return {block: torch.empty(tokens if index is None else len(index), 0) for block, index in sizes}


class CountingModel(LanguageModel):
    """Stand-in for a language model in the extractor; it has neither files nor weights."""

    def __init__(self, session: CountingSession, devices: Sequence[str], dtype: torch.dtype, *, packed: bool) -> None:
        self.blocks, self.devices, self.dtype = 1, tuple(devices), dtype
        no_packs_reason = None if packed else "each question is to be read alone"
        vars(self).update(session=session, no_packs_reason=no_packs_reason, stops=frozenset({_END}))

    def block_of(self, depth: float) -> int:
        """Return 1 for every depth: the stand-in model has a single transformer block."""
        del depth
        return 1


@dataclass(frozen=True, eq=False)
class InputWithGenerations(ModelInput):
    """A question together with the texts that the model would generate."""

    written: Mapping[UserTurn | Samples | None, Sequence[Ids]] = field(default_factory=dict)
    """Generated texts: key None -> [the answer], a user turn -> [the reply to it], sampling settings -> the samples."""


class CountingExtractor(Extractor):
    """Extractor that makes the forward passes of a run on shards of `InputWithGenerations`s, but computes no values."""

    def __init__(
        self, lm: CountingModel, settings: PromptSettings, specs: Mapping[Signal, SignalSpec], stage: str | None = None
    ) -> None:
        super().__init__(lm, settings, specs, stage)
        self.specs = {}
        self.greedy = self.sampled = self.grown = 0
        """Number of tokens chosen greedily; `sampled` of those that were sampled, `grown` of those added to the token
        trees of decode batches, without separate trees of user turns."""
        self.sequences: dict[str, list[Ids]] = defaultdict(list)
        """Stage -> token ids of the sequences that the stage reads, each from the start of its prompt."""
        self.written: dict[Hashable, int] = {}
        """Number of tokens of each distinct generated text; the keys identify the texts.

        The stop token counts, unless the text has the maximum length, at which no stop token is generated.
        """

    def _run_batch(
        self, items: list[list[ModelInput]], tree: ContinuationTree, inner: torch.Tensor | None = None
    ) -> tuple[list[Ids], Values]:
        # an empty answer has no states to read
        others = self.continuations.gold or self.continuations.wrong or bool(self.continuations.samples)
        firsts = [group[0] for group in items]
        read = [item.prompt for item in firsts if others or item.answer is None or len(item.answer)]
        self.sequences[self._first_stage(firsts[0])] += read
        return super()._run_batch(items, tree, inner)

    @contextmanager
    def _counted(self, stage: str, batch: DecodeBatch | None = None) -> Iterator[None]:
        first = 0 if batch is None else len(batch.tree.tokens)
        with super()._counted(stage):
            yield
        if batch is None:
            return
        read = self.sequences[self.stage or stage]
        self.grown += len(batch.tree.tokens) - first
        firsts = [group[0] for group in batch.items]
        inside = [item.prompt[: mark + 1] for item in firsts for mark in self.marks(item)]
        read += batch.tree.sequences(first, [*(item.prompt for item in firsts), *inside])
        for replies in batch.replies.values() if stage == "query" else ():
            if replies.tree is not batch.tree:
                before = [ids for i in replies.answered if (ids := batch.items[i][0].query_prompt) is not None]
                read += replies.tree.sequences(len(before), before)

    def _decode(
        self, batch: DecodeBatch, parents: Mapping[Generation, int], sampling: Samples | None = None
    ) -> dict[Generation, Ids]:
        texts = super()._decode(batch, parents, sampling)
        for text, ids in texts.items():
            before = [batch.items[text.row][0].prompt, batch.answers[text.row]]
            once = object() if sampling else digest_arrays(before)  # equal prompts have equal greedy texts
            self.written[text.kind, once] = min(len(ids) + 1, self.token_limit(text))
        return texts

    def _next_tokens(
        self, batch: DecodeBatch, nodes: Mapping[Generation, int], sampling: Samples | None, step: int
    ) -> list[int]:
        self.greedy += len(nodes) if sampling is None else 0
        self.sampled += len(nodes) if sampling is not None else 0
        batch.tree.read()
        tokens = []
        for text in nodes:
            item = batch.items[text.row][text.question]
            assert isinstance(item, InputWithGenerations)  # noqa: S101  # for the type checker
            ids = item.written[text.kind][text.number]
            tokens.append(int(ids[step]) if step < len(ids) else _END)
        return tokens


class CountingTraceDecoder(TraceDecoder):
    """Trace decoder that makes the forward passes over prompts, and counts those of traces that are given."""

    texts: Mapping[str, Sequence[TraceText]]
    """Question id -> its traces; set before the decoder is used."""

    def extract(self, items: Sequence[ModelInput]) -> ShardOutput:
        """Count the tokens of a shard's traces; nothing else is returned."""
        self.sequences: list[Ids] = []
        """Token ids that the stage reads, each from the start of its prompt."""
        self.written: dict[Hashable, int] = {}
        """Number of tokens of each distinct generated text, with the token that ends it."""
        return super().extract(items)

    def _run_batch(
        self, items: list[list[ModelInput]], tree: ContinuationTree, _inner: torch.Tensor | None = None
    ) -> tuple[list[Ids], Values]:
        greedy, budget, limit = self.traces.sampling is None, self.thinking.budget, self.answer_limit
        with self._counted(self.stage or ""):
            for item in (item for group in items for item in (group[:1] if greedy else group)):
                for j, text in enumerate(self.texts[item.id]):
                    tree.session.tokens += text.fed
                    closing = [] if greedy else [self.thinking.closing(text.end), text.answer]
                    read = np.concatenate([text.trace, *closing])[: text.fed].astype(np.int32)
                    self.sequences.append(np.concatenate([item.prompt, read]))
                    once = digest_arrays([item.prompt]) if greedy else (item.id, j)
                    # greedily, all tokens but the last one are fed, also those of the line that ends a trace
                    drawn = min(len(text.trace) + 1, budget) + min(len(text.answer) + 1, limit)
                    self.written[self.traces, once] = text.fed + 1 if greedy else drawn
        return [NOTHING] * len(items), {self.traces: [[{"values": torch.zeros(0)}] * len(group) for group in items]}
