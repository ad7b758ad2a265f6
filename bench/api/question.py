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
    parts: tuple[tuple[str, str], ...] = ()
    """Named pieces besides the text that the style writes out, e.g. `(("passage", "..."),)`."""
    index_in_subject: int | None = None
    """Number within its subject, by which exemplars are drawn; None: counted in the order of the split."""
    accepted: tuple[str, ...] = ()
    """Further right answers to an open question, e.g. other names of the same; `choices` has one of them alone."""

    @property
    def answer(self) -> str:
        """Text of the right option."""
        return self.choices[self.gold]


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """The words around questions (docs/methods.md §1.4); `{label}`, `{text}`, `{options}` and parts are filled in."""

    header: str
    """Line above the exemplars; `{label}` is the subject in words."""
    footer: str
    """Line between the exemplars and the question."""
    context: str
    """Pattern of a question written out: `{text}`, its parts by their names and, for choice tasks, `{options}`."""
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
    """A conversation that ends where the model is to answer."""

    messages: tuple[Message, ...]


Text = str | tuple[int, ...]
"""Text of a model, or its token ids."""


@dataclass(frozen=True, slots=True)
class Released:
    """An answer that was made elsewhere: one of the authors' release, or of a user's file."""

    prompt: Prompt | None
    """The conversation that it answers; None: the one that the task makes."""
    text: Text
    """The answer, or its final part where it comes after a trace."""
    correct: bool | None
    """None: it is graded here."""
    trace: Text = ""
    """Reasoning before the final part; it is read, but no signal is about it."""
    samples: tuple[Text, ...] | None = None
    """Further answers to the same question."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer that the frozen model generated, graded; the same for every method."""

    text: str
    letter: str | None
    """The option letter it was read as; None for open answers and for text that is no letter."""
    correct: bool
    parsed: bool
    """False where the text could not be read as an answer; such answers count as wrong and are counted."""
