"""Signal `Text`: texts of questions, options, answers and samples, without telling which option is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import Format, Of, Question, Ragged, Task, Text
from bench.api.batch import Column
from bench.api.errors import plugin_errors
from bench.prompts.templates import context
from bench.servers.readings import Ability
from bench.signals.definition import PassDefinition, SignalDefinition
from bench.signals.samples import decode_samples, sample_sources, sampling_needs

if TYPE_CHECKING:
    from bench.signals.split_data import StoredSplit
    from bench.signals.synthetic import SyntheticQuestions


class TextDefinition(SignalDefinition[Text]):
    """Definition of `Text`, which is computed from the questions, the stored answers and the stored samples."""

    declares = Text

    def reads_answer(self, fmt: Format) -> bool:
        """Return whether the text is the model's answer; questions, options and samples don't depend on it."""
        return self.signal.of is Of.ANSWER

    def needs(self, fmt: Format) -> Ability:
        """Return what a server has to give: text."""
        return sampling_needs(fmt) if self.signal.of is Of.SAMPLES else Ability.TEXT

    def sources(self, fmt: Format, max_new_tokens: int) -> tuple[PassDefinition[Any], ...]:
        """Return the definitions of the stored signals that have the samples' token ids; none without samples."""
        return sample_sources(self.signal.samples, max_new_tokens) if self.signal.of is Of.SAMPLES else ()

    def column(self, split: StoredSplit) -> Column:
        """Return the texts as `str` in arrays of dtype object; shapes are in the docstring of `Text`.

        Raises:
            UserError: options are requested, and a question has only one.
        """
        split_data = split.split_data
        if self.signal.of is Of.ANSWER:
            return object_array([split_data.answers[row].text for row in split.rows])
        if self.signal.of is Of.SAMPLES:
            return object_array(list(decode_samples(self.signal.samples, split)))
        if self.signal.of is Of.OPTIONS:
            pairs = zip(split.questions, split.unlabelled, strict=True)
            return Ragged.of([object_array([question.choices[k] for k in order]) for question, order in pairs])
        return object_array(shown_questions(split_data.task, split.questions, split.prompts.protocol.letters))

    def synthesize(self, data: SyntheticQuestions) -> Column:
        """Return synthetic texts. Their words are made of token ids, e.g. `w3 w17`."""
        if self.signal.of is Of.SAMPLES:
            return object_array([[_words(ids) for ids, _ in sampled] for sampled in data.samples(self.signal.samples)])
        if self.signal.of is Of.OPTIONS:
            return Ragged.of([object_array([_words(ids) for ids, _ in options]) for options in data.unlabelled])
        ids = data.prompts if self.signal.of is Of.QUESTION else data.texts[Of.ANSWER].ids
        return object_array([_words(ids[i]) for i in range(len(ids))])


def shown_questions(task: Task, questions: Sequence[Question], letters: str) -> list[str]:
    """Return the text of each question as its prompt shows it, without exemplars."""
    with plugin_errors(f"task {task.name!r}, style_of"):
        return [context(question, task.style_of(question), letters) for question in questions]


def object_array(texts: Sequence[str] | Sequence[Sequence[str]]) -> npt.NDArray[np.object_]:
    """Return texts as an array of dtype object, `(n,)` or `(n, N)`."""
    return np.asarray(texts, dtype=np.object_)


def _words(ids: npt.NDArray[Any]) -> str:
    return " ".join(f"w{token}" for token in ids.tolist())


DEFINITION = TextDefinition
