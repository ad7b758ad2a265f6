"""Texts of questions, options, answers and samples; never the right answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import Format, Of, Ragged, Text
from bench.api.batch import Column
from bench.api.errors import fenced
from bench.prompts.templates import context
from bench.signals.definition import PassDefinition, SignalDefinition
from bench.signals.samples import ids_from, texts_of

if TYPE_CHECKING:
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import World


class TextDefinition(SignalDefinition[Text]):
    """Made of the questions, and of the stored answers and samples."""

    declares = Text

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether it is the answer's text."""
        return self.signal.of is Of.ANSWER

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """The ids of samples."""
        return ids_from(self.signal.samples, max_new_tokens) if self.signal.of is Of.SAMPLES else ()

    def column(self, split: StoredSplit) -> Column:
        """`str` in an array of dtype object: see `Text`.

        Raises:
            UserError: options are asked for, and a question has one alone, which is the right one.
        """
        split_data = split.split_data
        if self.signal.of is Of.ANSWER:
            return strings([split_data.answers[row].text for row in split.rows])
        if self.signal.of is Of.SAMPLES:
            return strings(list(texts_of(self.signal.samples, split)))
        if self.signal.of is Of.OPTIONS:
            pairs = zip(split.questions, split.unlabelled, strict=True)
            return Ragged.of([strings([question.choices[k] for k in order]) for question, order in pairs])
        with fenced(f"task {split_data.task.name!r}, style_of"):
            letters = split.prompts.protocol.letters
            return strings(
                [context(question, split_data.task.style_of(question), letters) for question in split.questions]
            )

    def planted(self, world: World) -> Column:
        """Words with the numbers of the tokens."""
        if self.signal.of is Of.SAMPLES:
            return strings([[_words(ids) for ids, _ in own] for own in world.samples(self.signal.samples)])
        if self.signal.of is Of.OPTIONS:
            return Ragged.of([strings([_words(ids) for ids, _ in options]) for options in world.unlabelled])
        ids = world.prompts if self.signal.of is Of.QUESTION else world.texts[Of.ANSWER].ids
        return strings([_words(ids[i]) for i in range(len(ids))])


def strings(texts: Sequence[str] | Sequence[Sequence[str]]) -> npt.NDArray[np.object_]:
    """Texts as an array of dtype object, `(n,)` or `(n, N)`."""
    return np.asarray(texts, dtype=np.object_)


def _words(ids: npt.NDArray[Any]) -> str:
    return " ".join(f"w{token}" for token in ids.tolist())


DEFINITION = TextDefinition
