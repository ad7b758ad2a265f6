"""A split whose answers and signals lie in the store, as the definitions of signals see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import Format, Question, Signal, UserError
from bench.prompts.shards import PromptTokeniser
from bench.prompts.tails import Ids
from bench.signals.files import load_rows
from bench.signals.reading import Reading

if TYPE_CHECKING:
    from bench.backbone.model import Backbone
    from bench.prompts.asking import Asking


@dataclass(frozen=True, eq=False)
class StoredSplit:
    """Stored signals of a split, or of some of its questions, with all that makes columns of them."""

    reading: Reading
    backbone: Backbone
    prompts: PromptTokeniser
    asking: Asking
    seed: int
    """Seed of samples."""
    chosen: npt.NDArray[np.int64] | None = None
    """`(m,)` rows of the questions that are seen, in this order; None: all, in the order of the shards."""

    def of(self, rows: npt.NDArray[np.int64]) -> StoredSplit:
        """The split with these questions alone, in this order."""
        return replace(self, chosen=rows)

    def arrays(self, signal: Signal) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a signal that was measured, as the store has them, the shards joined."""
        names = [own[signal] for own in self.reading.names]
        return load_rows(self.reading.bundles, names, self.places)

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """`(m,)` rows of the questions."""
        return self.reading.rows if self.chosen is None else self.chosen

    @cached_property
    def questions(self) -> list[Question]:
        """The questions."""
        return [self.reading.questions[row] for row in self.rows]

    def pairs(self) -> Iterator[tuple[Ids, Ids]]:
        """Prompt and answer ids of every question."""
        if self.places is None:
            yield from self.reading.pairs()
            return
        starts = np.cumsum([0, *(len(shard.rows) for shard in self.reading.shards)])
        shards = np.searchsorted(starts, self.places, side="right") - 1
        for i, k in zip(shards.tolist(), (self.places - starts[shards]).tolist(), strict=True):
            yield self.reading.shards[i].prompts[k], self.reading.answer_ids[i][k]

    @cached_property
    def places(self) -> npt.NDArray[np.int64] | None:
        """Places of the questions in the joined shards; None: all."""
        return None if self.chosen is None else self.reading.order[self.chosen]

    @cached_property
    def samples(self) -> list[list[Ids]] | None:
        """Ids of each question's samples that were made elsewhere; None where they are drawn."""
        samples = self.reading.samples
        return samples if samples is None or self.places is None else [samples[place] for place in self.places]

    @cached_property
    def options(self) -> list[list[Ids]]:
        """Ids of each question's options as the model would have to say them: letters, or texts."""
        return self.prompts.options(self.reading.task, self.questions)

    @cached_property
    def unlabelled(self) -> list[list[int]]:
        """Numbers of each question's options in an order that does not tell the right one: see `Of.OPTIONS`.

        Raises:
            UserError: a question has one option alone.
        """
        for question in self.questions:
            if len(question.choices) == 1:
                raise UserError(
                    f"it reads the options without labels, and question {question.id!r} of {self.reading.where} has the"
                    " right one alone"
                )
        if self.reading.task.format is Format.CHOICE:
            return [list(range(len(question.choices))) for question in self.questions]
        return [sorted(range(len(q.choices)), key=q.choices.__getitem__) for q in self.questions]
