"""Seconds that reading a split will take: its packs, what grows on them, and the measured speed of the model.

How long open answers will be is heard from a small model, which says a few. From a large one it is not: its answers are
taken to be between the options and the length limit, in the geometric middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import Question, UserError
from bench.backbone.devices import Together
from bench.backbone.measure import Growth, Upto
from bench.backbone.prefix import Pack, PrefixTree
from bench.prompts.asking import Asking
from bench.prompts.shards import Shard
from bench.prompts.tails import Ids, common_prefix

if TYPE_CHECKING:
    from bench.backbone.model import Backbone
    from bench.backbone.speed import Speed
    from bench.signals.definition import PassDefinition

_SHARDS = 3
"""Shards of a split whose packs are planned."""
_WRITTEN = 64
"""Questions of a shard whose options are written; others are taken to be like these."""
_DISTINCT = 0.5
"""Share of sampled tokens that no other sample of the question has in the same place."""
_NODE = 1.5e-5
"""Seconds of Python for a token that grows after a prompt."""
_ASKED = 4
"""Questions that a small model is asked."""
_SMALL = 1 << 27
"""Bytes of the weights' files of one."""


@dataclass(frozen=True)
class Said:
    """Lengths of what a model says to an open question."""

    answer: float
    """Mean tokens of an answer, its end not counted."""
    longest: float
    """Tokens of the longest answer or sample of a pack."""
    sampled: float
    """Tokens that are read for all samples of a question; those that begin alike are read once."""
    drawn: float
    """Tokens that are drawn for all samples of a question."""


def heard(backbone: Backbone, shard: Shard, asking: Asking, samples: dict[Any, PassDefinition[Any]]) -> Said | None:
    """Lengths of the answers and samples of a small model to a few questions; None from a large or a broken one."""
    from bench.backbone.agreement import REFUSALS
    from bench.backbone.extract import Extractor
    from bench.backbone.items import Item
    from bench.backbone.sampling import uniforms

    if sum(file.stat().st_size for file in backbone.folder.glob("*.safetensors")) > _SMALL:
        return None
    n = max((sampling.n for each in samples.values() for sampling in each.growth.samples), default=0)
    chosen = [shard.prompts[i * len(shard.prompts) // _ASKED] for i in range(min(_ASKED, len(shard.prompts)))]
    numbers = (uniforms(0, str(i), n, asking.max_new_tokens) if n else None for i in range(len(chosen)))
    try:
        items = [Item(ids, 0, uniforms=own) for ids, own in zip(chosen, numbers, strict=True)]
        done = Extractor(backbone, asking, samples).measure(items)
        backbone.session.reset()  # what is kept there would make the run's own passes fewer than they are
        backbone.session.tokens.forward = backbone.session.tokens.padded = 0
    except (*REFUSALS, UserError):  # whatever is wrong with it is told when it is read
        return None
    values = [column["values"].cpu().numpy() for column in done.columns.values()]
    ends = [np.diff(np.flatnonzero(column < 0), prepend=-1) for column in values]
    sizes = [len(answer) for answer in done.answers]
    read = done.costs["samples"].forward_tokens if "samples" in done.costs else 0
    longest = max([*sizes, *(int(end.max()) - 1 for end in ends)])
    return Said(float(np.mean(sizes)), longest, read / len(items), sum(map(len, values)) / len(items))


@dataclass
class Work:
    """Work that the model is given."""

    passes: float = 0.0
    tokens: float = 0.0
    pairs: float = 0.0
    """Tokens times the columns of the cache beside them, summed over passes."""
    grown: float = 0.0
    """Tokens after prompts."""
    greedy: float = 0.0
    """Tokens chosen as the likeliest."""
    drawn: float = 0.0

    def seconds(self, speed: Speed) -> float:
        """Time of all of it."""
        choices = self.greedy * speed.greedy + self.drawn * speed.drawn
        return speed.seconds(self.passes, self.tokens, self.pairs) + choices + self.grown * _NODE

    def join(self, other: Work) -> None:
        """Add other work."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def add(self, tokens: float, columns: float, passes: float = 1.0) -> None:
        """Add tokens that are read in so many passes, each beside so many columns."""
        self.passes += passes
        self.tokens += tokens
        self.pairs += tokens * columns


@dataclass(frozen=True)
class Plan:
    """Parts of a split that are read."""

    asking: Asking
    growth: Growth
    options: Callable[[Sequence[Question]], list[list[Ids]]]
    """Ids of the options of questions as the model would have to say them."""
    generated: bool
    """Whether the model answers; else its answers are there."""
    continues: bool
    """Whether the self-check query continues the answering prompt."""
    together: Together
    """Which packs are continued side by side."""
    said: Said | None = None
    """Lengths of what the model says, where that is known."""

    def seconds(self, shards: Sequence[Shard], questions: Sequence[Question], speed: Speed) -> float:
        """Time of reading these shards of a split from nothing; that of some of them is scaled to all."""
        chosen = [shards[i * len(shards) // _SHARDS] for i in range(_SHARDS)] if len(shards) > _SHARDS else shards
        work = Work()
        for shard in chosen:
            self._shard(shard, [questions[row] for row in shard.rows], work, speed.held)
        written = sum(len(shard.rows) for shard in chosen)
        return work.seconds(speed) * sum(len(shard.rows) for shard in shards) / max(1, written)

    def says(self, options: Sequence[int]) -> Said:
        """Lengths of what the model says to questions with options of these lengths."""
        if self.said is not None:
            return self.said
        limit = self.asking.max_new_tokens
        mean, longest = (
            min(limit, max(1.0, math.sqrt(one * limit))) for one in (float(np.mean(options)), max(options) + 1)
        )
        n = sum(sampling.n for sampling in self.growth.samples)
        return Said(mean, longest, n * (mean - 1) * _DISTINCT, n * mean)

    def _shard(self, shard: Shard, questions: Sequence[Question], work: Work, held: int) -> None:
        from bench.backbone.groves import Groves

        step = math.ceil(len(questions) / _WRITTEN)
        written = questions[::step]
        lengths = [[len(ids) for ids in options] for options in self.options(written)]
        before = np.zeros(0, dtype=np.int32)
        for grove in Groves(shard.prompts, self.asking.budget, self.together, held):
            continued = Work()
            for planned in grove:
                pack = planned.pack
                self._beginning(pack, common_prefix(before, pack.shared), work)
                before, columns = pack.shared, len(pack.shared) + len(pack.tokens)
                work.add(len(pack.tokens), columns)
                like = [row // step for row in planned.rows]
                gold = [written[i].gold for i in like]
                self._grow([lengths[i] for i in like], gold, columns, len(pack.tokens), continued)
            continued.passes /= len(grove)  # the packs of a grove take each step in one pass
            work.join(continued)

    def _beginning(self, pack: Pack, agreed: int, work: Work) -> None:
        """The pieces of a shared beginning that the pack before did not have."""
        kept = max((cut for cut in pack.cuts if cut <= agreed), default=0)
        for start in range(kept, len(pack.shared), self.asking.budget):
            stop = min(start + self.asking.budget, len(pack.shared))
            work.add(stop - start, stop)

    def _grow(self, lengths: Sequence[Sequence[int]], gold: Sequence[int], columns: int, own: int, work: Work) -> None:
        """Add what follows the prompts of one pack."""
        n, limit, grows = len(lengths), self.asking.max_new_tokens, self.growth
        said = self.says([one for options in lengths for one in options] or [limit])
        mean, steps = said.answer, min(limit - 1.0, said.longest)
        parts: list[tuple[float, float]] = []
        work.greedy += n
        if self.generated:
            fed = n * min(mean, limit - 1)
            work.greedy += fed
            parts.append((fed, steps))
        if grows.answer > Upto.PROMPT_END and not self.generated:
            parts.append((n * mean, 1))
        if grows.turns:
            asked = sum(len(self.asking.turns[turn.wording]) + turn.say for turn in grows.turns)
            spoken = max(turn.say for turn in grows.turns)
            again = own + n * mean
            parts.append(
                (n * (1 + asked), 1 + spoken)
                if self.continues
                else (len(grows.turns) * again + n * asked, n * len(grows.turns) * (1 + spoken))
            )
        told = [[one - 1 for k, one in enumerate(options) if (grows.gold if k == right else grows.wrong)]
                for options, right in zip(lengths, gold, strict=True)]  # fmt: skip
        others = sum(map(sum, told))
        parts += [(others, 1)] * (others > 0)
        if grows.samples:
            work.drawn += n * said.drawn
            parts.append((n * said.sampled, steps))
        for tokens, passes in parts:
            if tokens > 0:
                work.add(tokens, columns + tokens / 2, max(1, passes))
                work.grown += tokens
                columns += round(tokens)


def batches(prompts: Sequence[Ids], size: int, count: int) -> Iterator[list[Ids]]:
    """Some batches of prompts, drawn always alike."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield [prompts[i] for i in rng.choice(len(prompts), min(size, len(prompts)), replace=False)]


def pass_over(prompts: Sequence[Ids], own: float, budget: int) -> Work:
    """The forward passes over a batch that is read whole, with so many tokens of its own after each prompt."""
    tree = PrefixTree()
    for prompt in prompts:
        tree.add(prompt)
    tokens, work = tree.nodes + own * len(prompts), Work()
    passes = math.ceil(tokens / budget)
    work.add(tokens, tokens / passes, passes)
    return work
