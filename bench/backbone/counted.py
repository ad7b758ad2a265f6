"""Token positions that a pass over a shard feeds to the model, counted from the tokens alone (bench/DESIGN.md, 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.backbone.beginnings import Kept
from bench.backbone.packing import Packing, members
from bench.backbone.prefix import PrefixTree
from bench.backbone.session import Session
from bench.prompts.tails import Ids

STAGES = ("answers", "query", "continuations", "samples")
"""Stages of a pass, in the order in which they grow on the prompts."""


@dataclass(frozen=True, eq=False)
class Path:
    """Tokens that are read after a prompt."""

    ids: Ids
    spoken: int = 0
    """Ids at its end that the model says one after the other; those before them are read in one pass."""


@dataclass(frozen=True, eq=False)
class Followed:
    """All that is read of one question."""

    prompt: Ids
    given: Ids | None
    """The answer that was made before; None where the model answers."""
    paths: Mapping[str, Sequence[Path]]
    """Stage -> what is read after the prompt; an empty path is the prompt alone."""
    apart: Sequence[Path] = ()
    """Conversations that don't continue the prompt: each is read whole, once more for each token that is said."""


@dataclass
class Count:
    """Count of the token positions that passes over shards feed, in the order in which they are made."""

    bytes_per_token: int
    """Size of one position in the cache."""
    packed: bool
    """Whether questions share a cache; else each sequence is read alone."""
    kept: Kept = field(default_factory=Kept)
    """Shared beginnings that are in memory."""

    def shard(self, questions: Sequence[Followed], packing: Packing) -> Counter[str]:
        """Stage -> positions that one pass over a shard feeds."""
        asked = ((i, one.prompt, one.given) for i, one in enumerate(questions) if packing.needs(one.given))
        groups = [[questions[i] for i in group] for group in members(asked)]
        fed: Counter[str] = Counter()
        if groups:
            first = packing.first_stage(generated=groups[0][0].given is None)
            fed[first] += sum(self._prompts(groups, packing))
        for group in groups:
            grown = _grown_together(group) if self.packed else _grown_alone(group)
            for stage, tokens in (*grown, ("query", sum(map(_whole, group[0].apart)))):
                fed[packing.stage or stage] += tokens
        return fed

    def _prompts(self, groups: Sequence[Sequence[Followed]], packing: Packing) -> Iterator[int]:
        prompts = [group[0].prompt for group in groups]
        if not self.packed:
            yield from map(len, prompts)
            return
        for grove in packing.groves(prompts, [group[0].given for group in groups], self.bytes_per_token):
            for planned in grove:
                yield self.kept.read([Session.path(planned.pack)], self.bytes_per_token) + len(planned.pack.tokens)


def _grown_together(group: Sequence[Followed]) -> Iterator[tuple[str, int]]:
    """Tokens that each stage adds to the tree of a prompt."""
    tree = PrefixTree()
    for stage in STAGES:
        yield stage, sum(tree.add(path.ids) for path in _paths(group, stage))


def _grown_alone(group: Sequence[Followed]) -> Iterator[tuple[str, int]]:
    """Tokens of the sequences that each stage reads whole: one for each end of what is new, and for each token said."""
    prompt = len(group[0].prompt)
    known: set[tuple[int, ...]] = {()}
    for stage in STAGES:
        paths = [(tuple(path.ids.tolist()), len(path.ids) - path.spoken) for path in _paths(group, stage)]
        at_once = set(_beginnings(ids[:together] for ids, together in paths)) - known
        inner = {ids[:-1] for ids in at_once}
        said = set(_beginnings(ids for ids, _ in paths)) - known - at_once
        known |= at_once | said
        yield stage, sum(prompt + len(ids) for ids in (at_once - inner) | said)


def _paths(group: Sequence[Followed], stage: str) -> Iterator[Path]:
    yield from (path for one in group for path in one.paths.get(stage, ()))


def _beginnings(paths: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    yield from (ids[:n] for ids in paths for n in range(1, len(ids) + 1))


def _whole(path: Path) -> int:
    """Positions of the passes over a conversation that is read whole as often as a token is said, and once more."""
    shortest = len(path.ids) - path.spoken
    return sum(range(shortest, len(path.ids) + 1))
