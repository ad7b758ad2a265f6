"""Passes of a shard: which questions are read together and under which stage; shared by reading and by counting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from bench.backbone.devices import Together
from bench.backbone.groves import Groves
from bench.backbone.measure import Growth, Upto
from bench.prompts.asking import Asking
from bench.prompts.tails import Ids

if TYPE_CHECKING:
    from bench.backbone.items import Measure

_LONG = 2
"""Budgets that the answers of a pack may take together, where there are several."""


_FULL = 1024
"""Tokens from which on a pass is no longer bound by its launches."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Rules by which the questions of a shard are put into passes; they follow from tokens and measures alone."""

    asking: Asking
    measures: Sequence[Measure]
    """Demands of all that is taken from the passes."""
    together: Together
    """Which packs are followed side by side."""
    stage: str | None = None
    """Stage under which everything is counted; None: each part under its own."""

    @cached_property
    def growth(self) -> Growth:
        """Growth that all measures need together."""
        return Growth.union(measure.growth for measure in self.measures)

    def needs(self, answer: Ids | None) -> bool:
        """Whether anything has to be read for a question: not if it has no answer and all is known without one.

        Args:
            answer: the one that was given; None where the model answers.
        """
        return answer is None or any(len(answer) or measure.unanswered is None for measure in self.measures)

    def first_stage(self, *, generated: bool) -> str:
        """The stage for which prompts are read: before given answers, that of what comes next."""
        if self.stage is not None or generated:
            return self.stage or "answers"
        if self.growth.answer > Upto.NOTHING:
            return "query"
        return "samples" if all(measure.growth.samples for measure in self.measures) else "continuations"

    def groves(self, prompts: Sequence[Ids], answers: Sequence[Ids | None], bytes_per_token: int) -> Groves:
        """Packs of distinct prompts and given answers, and which of them are followed side by side.

        Args:
            prompts: what is read; those that are the same are read once.
            answers: as `needs`, of each prompt.
            bytes_per_token: size of the keys and values of a token.
        """
        limits = self._limits(generated=any(answer is None for answer in answers))
        usual = max(_LONG * self.asking.budget, limits.sequences * self.asking.max_new_tokens)

        def too_long(rows: Sequence[int]) -> bool:
            """Whether answers that are read back have more tokens together than generated ones can have."""
            return sum(len(answer) for row in rows if (answer := answers[row]) is not None) > usual

        return Groves(prompts, self.asking.budget, limits, bytes_per_token, too_long)

    def _limits(self, *, generated: bool) -> Together:
        """Fewer sequences where nothing is decoded: then a pass has the query of each, and need not be larger."""
        if (generated or self.growth.samples) and self.asking.max_new_tokens > 1:
            return self.together
        queries = -(-_FULL // (1 + len(self.asking.suffix)))
        return replace(self.together, sequences=min(queries, self.together.sequences))


def members(asked: Iterable[tuple[int, Ids, Ids | None]]) -> list[list[int]]:
    """Questions that have one prompt and one given answer: what they share is read once.

    Args:
        asked: a question's number, its prompt and its given answer, if there is one.
    """
    found: dict[tuple[bytes, bytes], list[int]] = {}
    for i, prompt, answer in asked:
        found.setdefault((prompt.tobytes(), b"" if answer is None else answer.tobytes()), []).append(i)
    return list(found.values())
