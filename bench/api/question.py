"""A question, the prompt that asks it, and the model's graded answer."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant"]


Split = Literal["train", "validation", "test", "dev"]


class Format(enum.Enum):
    """Format of a question: with lettered options, or open-ended."""

    CHOICE = "choice"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Question:
    """One benchmark question.

    Example: `Question("mmlu-choice/test/0", "anatomy", "Which bone ...?", ("femur", "tibia"), gold=0)`.
    """

    id: str
    """Stable over runs and machines: the data set's id where unique, else `<task>/<split>/<row>`."""
    subject: str
    """Subject of the question, e.g. `anatomy`: macro means are over subjects, and exemplars are of the same subject."""
    text: str
    """The question, without options and without instructions."""
    choices: tuple[str, ...]
    """Option texts in data-set order; for an open question the gold answer and the wrong ones, never shown."""
    gold: int
    """Index of the right option in `choices`."""
    parts: tuple[tuple[str, str], ...] = ()
    """Named texts besides the question that the style includes, e.g. `(("passage", "..."),)`."""
    index_in_subject: int | None = None
    """Index within its subject, which seeds the choice of exemplars; None: counted in the order of the split."""
    accepted: tuple[str, ...] = ()
    """Further right answers to an open question, e.g. aliases; `choices` has only one right answer."""

    @property
    def answer(self) -> str:
        """Text of the right option."""
        return self.choices[self.gold]


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """Prompt template around questions (docs/methods.md §1.4), with `{label}`, `{text}`, `{options}` and parts."""

    header: str
    """Line above the exemplars; `{label}` is the subject in words."""
    footer: str
    """Line between the exemplars and the question."""
    context: str
    """Template of a question: `{text}`, its parts by their names and, for choice tasks, `{options}`."""
    target_prompt: str = "\nAnswer:"
    """End of the user message."""
    gap: str = "\n\n"
    """Text between the footer and the question."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that ends where the model answers."""

    messages: tuple[Message, ...]


Text = str | tuple[int, ...]
"""Text that a model generated, or its token ids."""


@dataclass(frozen=True, slots=True)
class Released:
    """An answer that no run of ours generated: from the authors' release, or from a user's file."""

    prompt: Prompt | None
    """The conversation that was answered; None: the task's prompt."""
    text: Text
    """The answer, or its final part where it follows a reasoning trace."""
    correct: bool | None
    """Whether the answer is right; None: the run grades the answer."""
    trace: Text = ""
    """Reasoning before the final part; the model reads it, but no signal is about it."""
    samples: tuple[Text, ...] | None = None
    """Further answers to the same question."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Graded answer of the frozen model; the same for every method."""

    text: str
    letter: str | None
    """The parsed option letter; None for open answers and for text that is not a letter."""
    correct: bool
    parsed: bool
    """False where the text could not be parsed as an answer; such answers count as wrong and are counted."""
