"""Prompt templates (docs/methods.md §1.4, §1.5 and §2.0); their versions are `bench.api.protocol.TEMPLATES`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.api import Format, PromptStyle, Question
from bench.api.question import Message, Prompt

if TYPE_CHECKING:
    from bench.api.protocol import Protocol

SYSTEM: Mapping[Format, str] = {
    Format.CHOICE: (
        "You are an expert who responds with concise, correct answers. For multiple-choice questions, respond only"
        " with the letter of the correct option (e.g., a, b, c, d, ...). Do not include any explanation or"
        " additional text."
    ),
    Format.OPEN: (
        "You are an expert who responds with concise, correct answers. Directly state the answer without phrases"
        " like 'the correct answer is'."
    ),
}
"""System message for each answer format (paper, appendix on prompts; docs/methods.md §1.5)."""

THINKING_SYSTEM = "You are an expert who reasons step by step before giving a concise, correct answer."
"""System message for models that are instructed to reason; its version is that of `Thinking.kind`."""
THINKING_PROMPT = (
    "\n\nThink step by step, briefly. Then end with one line of the form 'Answer: X', where X is the {what}."
)
"""Text that ends the user message for models that are instructed to reason, in the place of `target_prompt`."""
_WHAT: Mapping[Format, str] = {Format.CHOICE: "letter of the correct option", Format.OPEN: "answer alone"}

QUERY_SENTINEL = "\u241e"
"""Placeholder for the answer, in a conversation that goes on after it; no data set or chat template has this text."""


def query_text(letters: str) -> str:
    """Return the self-check query (docs/methods.md §2.0); the two `letters` stand for no and yes."""
    no, yes = letters[0], letters[1]
    return f"Is the proposed answer correct?\nChoices:\n{no}) no\n{yes}) yes\nAnswer: "


def subject_label(subject: str) -> str:
    """Return a subject's name in headers, `Us foreign policy` for `us_foreign_policy` (docs/methods.md §1.4)."""
    return subject.replace("_", " ").capitalize()


def context(question: Question, style: PromptStyle, letters: str) -> str:
    """Return the question's text, with its options in lines `  (a): text` if the prompt style shows options."""
    options = "\n".join(f"  ({letter}): {text}" for letter, text in zip(letters, question.choices, strict=False))
    return style.context.format(text=question.text, options=options, **dict(question.parts))


def target(question: Question, fmt: Format, letters: str) -> str:
    """Return the right answer as an exemplar shows it: the letter of a choice task, the text of an open task."""
    return letters[question.gold] if fmt is Format.CHOICE else question.answer


def build(
    question: Question,
    exemplars: Sequence[Question],
    style: PromptStyle,
    fmt: Format,
    protocol: Protocol,
    *,
    instructed: bool = False,
) -> Prompt:
    """Build the prompt of a question (docs/methods.md §1.4).

    The prompt has a system message, then the exemplars with their answers, then the question. If `instructed`, the
    model is told to reason before its answer.
    """
    letters, suffix = protocol.letters, style.target_prompt
    text = context(question, style, letters) + (THINKING_PROMPT.format(what=_WHAT[fmt]) if instructed else suffix)
    if exemplars:
        examples = [(context(e, style, letters) + suffix + " " + target(e, fmt, letters)).strip() for e in exemplars]
        header = style.header.format(label=subject_label(question.subject))
        text = "\n\n".join([header, *examples, style.footer]) + style.gap + text
    return Prompt((Message("system", THINKING_SYSTEM if instructed else SYSTEM[fmt]), Message("user", text)))


def query_messages(prompt: Prompt, protocol: Protocol) -> tuple[Message, ...]:
    """Return the conversation of the self-check: prompt, `QUERY_SENTINEL` in place of the answer, and the query."""
    return followup_messages(prompt, query_text(protocol.query_letters))


def followup_messages(prompt: Prompt, wording: str) -> tuple[Message, ...]:
    """Return a conversation: the prompt, `QUERY_SENTINEL` in place of the answer, and a user turn with this wording."""
    return (*prompt.messages, Message("assistant", QUERY_SENTINEL), Message("user", wording))
