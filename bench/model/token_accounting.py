"""Count token positions: the extractor on a session without a model (bench/DESIGN.md, Costs belong to the request)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from bench.api import IntArray, Samples, Signal
from bench.model.continuation_specs import Generation, ModelInput, UserTurn
from bench.model.continuation_tree import ContinuationTree
from bench.model.decode_batch import DecodeBatch, SignalSpec
from bench.model.extractor import Extractor, Values
from bench.model.kv_cache import CacheRow
from bench.model.language_model import LanguageModel
from bench.model.session import Indices, Session
from bench.model.upload_buffer import Upload, UploadBuffer
from bench.prompts.front_coding import Ids
from bench.prompts.prompt_settings import PromptSettings
from bench.store.folders import digest_arrays

STAGES = ("answers", "query", "continuations", "samples")
"""Stages of a pass, in the order in which they grow on the prompts."""
_END = -1
"""Id that ends every known text."""


class CountingSession(Session):
    """Session that computes nothing: states have width 0, and the cache has positions but no numbers."""

    def __init__(self, bytes_per_token: int) -> None:
        self.tokens = 0
        self.bytes_per_token = bytes_per_token
        self.device = "cpu"
        self.sending = UploadBuffer(self.device)
        self.passes = 0
        self.pairs = 0
        """Tokens times the positions of the cache beside them, summed over passes."""
        self.reset()

    def new_row(self, *least: int) -> CacheRow:
        """An empty row with a single block."""
        return CacheRow(1, *least)

    def measure_bytes_per_token(self) -> int:
        """Size of one position, which is given."""
        return self.bytes_per_token

    @torch.inference_mode()
    def forward(
        self,
        ids: Ids,
        positions: IntArray,
        visible: Callable[[], torch.Tensor],
        read: Mapping[int, Indices],
    ) -> dict[int, torch.Tensor]:
        """Append positions to the row; `visible` is not called."""
        del positions, visible
        keys = torch.empty(1, 1, len(ids), self.bytes_per_token, dtype=torch.uint8, device="meta")
        self._current.append([(keys, keys[..., :0])])
        return self._counted(len(ids), self.length, read)

    def read_alone(self, ids: Ids, read: Mapping[int, Indices]) -> dict[int, torch.Tensor]:
        """Count a whole sequence."""
        return self._counted(len(ids), len(ids), read)

    def _counted(self, tokens: int, columns: int, read: Mapping[int, Indices]) -> dict[int, torch.Tensor]:
        self.sending.clear()
        self.tokens += tokens
        self.passes += 1
        self.pairs += tokens * columns
        sizes = ((block, index.tensor if isinstance(index, Upload) else index) for block, index in read.items())
        return {block: torch.empty(tokens if index is None else len(index), 0) for block, index in sizes}


class CountingModel(LanguageModel):
    """All that the extractor asks of a model, without files and weights."""

    def __init__(self, session: CountingSession, devices: Sequence[str], *, packed: bool) -> None:
        self.blocks, self.devices = 1, tuple(devices)
        hindrance = None if packed else "each question is to be read alone"
        vars(self).update(session=session, hindrance=hindrance, stops=frozenset({_END}))

    def block_of(self, depth: float) -> int:
        """The only block."""
        del depth
        return 1


@dataclass(frozen=True, eq=False)
class KnownInput(ModelInput):
    """A question of which is known what the model writes."""

    written: Mapping[UserTurn | Samples | None, Sequence[Ids]] = field(default_factory=dict)
    """None -> its answer alone; a turn -> the reply to it alone; how samples are drawn -> all of them."""


class CountingExtractor(Extractor):
    """Follows shards of `KnownInput`s, pass by pass as they are read, and takes no values."""

    def __init__(
        self, lm: CountingModel, asking: PromptSettings, measures: Mapping[Signal, SignalSpec], stage: str | None = None
    ) -> None:
        super().__init__(lm, asking, measures, stage)
        self.measures = {}
        self.greedy = self.drawn = self.grown = 0
        """Tokens chosen as the likeliest, drawn tokens, and tokens that are read after prompts."""
        self.sequences: dict[str, list[Ids]] = defaultdict(list)
        """Stage -> the sequences that it reads, each from the beginning of its prompt."""
        self.written: dict[Hashable, int] = {}
        """A key for each distinct text that the model writes -> its tokens, with the one that ends it."""

    def _followed(self, items: list[list[ModelInput]], tree: ContinuationTree) -> tuple[list[Ids], Values]:
        # after an empty answer no value of prompt and answer enters a number
        others = self.growth.gold or self.growth.wrong or bool(self.growth.samples)
        firsts = [group[0] for group in items]
        read = [item.prompt for item in firsts if others or item.answer is None or len(item.answer)]
        self.sequences[self._first_stage(firsts[0])] += read
        return super()._followed(items, tree)

    @contextmanager
    def _counted(self, stage: str, done: DecodeBatch | None = None) -> Iterator[None]:
        first = 0 if done is None else len(done.tree.tokens)
        with super()._counted(stage):
            yield
        if done is None:
            return
        read = self.sequences[self.stage or stage]
        self.grown += len(done.tree.tokens) - first
        read += done.tree.sequences(first, [group[0].prompt for group in done.items])
        for replies in done.replies.values() if stage == "query" else ():
            if replies.tree is not done.tree:
                before = [ids for i in replies.asked if (ids := done.items[i][0].query_prompt) is not None]
                read += replies.tree.sequences(len(before), before)

    def _decode(
        self, done: DecodeBatch, starts: Mapping[Generation, int], sampling: Samples | None = None
    ) -> dict[Generation, Ids]:
        found = super()._decode(done, starts, sampling)
        for text, ids in found.items():
            before = [done.items[text.row][0].prompt, done.answers[text.row]]
            once = object() if sampling else digest_arrays(before)  # greedy texts are the same for equal prompts
            self.written[text.kind, once] = min(len(ids) + 1, self.limit(text))
        return found

    def _next_tokens(
        self, done: DecodeBatch, nodes: Mapping[Generation, int], sampling: Samples | None, step: int
    ) -> list[int]:
        self.greedy += len(nodes) if sampling is None else 0
        self.drawn += len(nodes) if sampling is not None else 0
        done.tree.read()
        tokens = []
        for text in nodes:
            item = done.items[text.row][text.question]
            assert isinstance(item, KnownInput)  # noqa: S101  # for the type checker
            ids = item.written[text.kind][text.number]
            tokens.append(int(ids[step]) if step < len(ids) else _END)
        return tokens
