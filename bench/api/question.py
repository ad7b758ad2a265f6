"""Data classes of a question, of the prompt that asks it, and of the model's graded answer."""

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
    """Identifier, the same in all runs and on all machines: the data set's id if it is unique, else
    `<task>/<split>/<row>`."""
    subject: str
    """Subject of the question, e.g. `anatomy`. Macro means are over subjects, and exemplars come from the same
    subject."""
    text: str
    """The question, without options and without instructions."""
    choices: tuple[str, ...]
    """Texts of the options in data-set order. For an open question these are the gold answer and wrong answers; the
    prompt that asks the question shows none of them."""
    gold: int
    """Index of the right option in `choices`."""
    parts: tuple[tuple[str, str], ...] = ()
    """Further texts that the prompt template shows besides the question, by name, e.g. `(("passage", "..."),)`."""
    index_in_subject: int | None = None
    """Index of the question within its subject, which seeds the choice of exemplars. None: questions of the subject are
    counted in the order of the split, among those that `--train-limit` leaves, so that it changes their exemplars."""
    accepted: tuple[str, ...] = ()
    """Further right answers to an open question, e.g. aliases of the gold answer in `choices`."""

    @property
    def answer(self) -> str:
        """Text of the right option."""
        return self.choices[self.gold]


class Unnamed(Question):
    """A question that was asked without an id: its own only says its place."""

    __slots__ = ()


def drawn_by(question: Question) -> str:
    """Return the text from which the random numbers of a question's samples are derived: its id, or else its words."""
    words = (question.subject, question.text, *question.choices)
    return "\n".join(words) if isinstance(question, Unnamed) else question.id


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """Templates of a task's prompts, with the placeholders `{label}`, `{text}`, `{options}` and names of parts.

    See docs/methods.md §1.4.
    """

    header: str
    """Line above the exemplars; `{label}` stands for the subject in words."""
    footer: str
    """Line between the exemplars and the question."""
    context: str
    """Template of one question: `{text}`, further parts by their names and, for choice tasks, `{options}`."""
    target_prompt: str = "\nAnswer:"
    """Text that ends the user message, e.g. "Answer:"."""
    gap: str = "\n\n"
    """Text between the footer and the question, by default a blank line."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that ends where the model's answer is due."""

    messages: tuple[Message, ...]
    lead: str = ""
    """Text with which the model's turn begins, before the answer; empty unless the answer follows a reasoning trace."""


Text = str | tuple[int, ...]
"""Text that a model generated, or its token ids."""


@dataclass(frozen=True, slots=True)
class Released:
    """An answer that was not generated in our own runs: from the authors' release, or from a user's file."""

    prompt: Prompt | None
    """The conversation that the answer replied to; None stands for the prompt that the task would give."""
    text: Text
    """The answer; if the model reasoned first, only the final part after the reasoning."""
    correct: bool | None
    """Whether the answer is right; None if the run has to grade it."""
    trace: Text = ""
    """Reasoning before the answer; it is fed to the model as context, and only signals of the trace are read at its
    tokens."""
    samples: tuple[Text, ...] | None = None
    """Further answers to the same question."""
    divided: bool = False
    """Whether `text` is known to be the answer alone, so that no trace is searched for in it, even if `trace` is
    empty."""
    redacted: bool = False
    """Whether the model reasoned, but its reasoning was withheld or encrypted."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the frozen model with its grade; all methods get the same answers."""

    text: str
    letter: str | None
    """Option letter that was parsed from the text. None for open answers, and if no letter could be parsed."""
    correct: bool
    parsed: bool
    """Whether the text could be parsed as an answer. Unparsed answers count as wrong, and results show their number."""
