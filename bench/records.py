"""The frozen records that travel through the house: Question -> Prompt -> Generation -> Answer."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant"]
Split = Literal["train", "validation", "test", "dev"]


class Format(enum.Enum):
    """How a question is asked: with lettered options, or open-ended."""

    CHOICE = "choice"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Question:
    """One benchmark question as its task read it.

    Example: `Question("mmlu-choice/test/0", "anatomy", "Which bone ...?", ("femur", "tibia"), gold=0)`.
    """

    id: str
    """Stable over runs and machines: the source's own where unique, else `<task>/<split>/<row>`."""
    subject: str
    """The unit over which macro means are taken; exemplars come from the same subject."""
    text: str
    """The question, without options and without instructions."""
    choices: tuple[str, ...]
    """Option texts in data-set order; for an open question the gold answer and the wrong ones, never shown."""
    gold: int
    """Index of the right one in `choices`."""

    @property
    def answer(self) -> str:
        """Text of the right option."""
        return self.choices[self.gold]


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """The words around a task's questions (methods.md §1.4); `{label}`, `{text}`, `{options}` are filled in."""

    header: str
    """Line above the exemplars; `{label}` is the subject in words."""
    footer: str
    """Line between the exemplars and the question."""
    context: str
    """How a question is written out: `{text}` and, for choice tasks, `{options}`."""
    target_prompt: str = "\nAnswer:"
    """What the user message ends with."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that ends where the model is to answer."""

    question_id: str
    template_id: str
    """Name and version of the wording, e.g. `choice/1`."""
    messages: tuple[Message, ...]
    shots: int
    """Exemplars that are in it."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What the frozen model said, as ids and as text; trailing end tokens are removed from the ids."""

    question_id: str
    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A graded generation; the same for every method."""

    question_id: str
    text: str
    letter: str | None
    """The option letter it was read as; None for open answers and for text that is no letter."""
    correct: bool
    parsed: bool
    """False where the text could not be read as an answer; such answers count as wrong and are counted."""

    @property
    def empty(self) -> bool:
        """No answer at all: label 0 and confidence 0.0 for every method, never shown to `fit` or `predict`."""
        return not self.text
