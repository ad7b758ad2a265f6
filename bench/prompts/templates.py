"""Question -> Prompt: the wording of docs/methods.md §1.4, §1.5 and §2.0; versions: `bench.api.protocol.TEMPLATES`."""

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
"""System messages (paper, appendix on prompts; docs/methods.md §1.5)."""

QUERY_SENTINEL = "\u241e"
"""Stands for the answer while the three-turn conversation is rendered; no data set and no template contains it."""


def query_text(letters: str) -> str:
    """The self-check question (docs/methods.md §2.0), e.g. with options a (no) and b (yes)."""
    no, yes = letters[0], letters[1]
    return f"Is the proposed answer correct?\nChoices:\n{no}) no\n{yes}) yes\nAnswer: "


def subject_label(subject: str) -> str:
    """`us_foreign_policy` -> `Us foreign policy`, as the official headers write it (docs/methods.md §1.4)."""
    return subject.replace("_", " ").capitalize()


def context(question: Question, style: PromptStyle, letters: str) -> str:
    """The question written out, with its options in lines `  (a): text` where the style shows them."""
    options = "\n".join(f"  ({letter}): {text}" for letter, text in zip(letters, question.choices, strict=False))
    return style.context.format(text=question.text, options=options, **dict(question.parts))


def target(question: Question, fmt: Format, letters: str) -> str:
    """Text of a right answer: the letter, or the option's text."""
    return letters[question.gold] if fmt is Format.CHOICE else question.answer


def build(
    question: Question, exemplars: Sequence[Question], style: PromptStyle, fmt: Format, protocol: Protocol
) -> Prompt:
    """The conversation that asks a question: exemplars, question, target prompt, joined (docs/methods.md §1.4)."""
    letters, suffix = protocol.letters, style.target_prompt
    text = context(question, style, letters) + suffix
    if exemplars:
        shown = [(context(e, style, letters) + suffix + " " + target(e, fmt, letters)).strip() for e in exemplars]
        header = style.header.format(label=subject_label(question.subject))
        text = "\n\n".join([header, *shown, style.footer]) + style.gap + text
    return Prompt((Message("system", SYSTEM[fmt]), Message("user", text)))


def query_messages(prompt: Prompt, protocol: Protocol) -> tuple[Message, ...]:
    """The three-turn conversation of the self-check, with `QUERY_SENTINEL` where the answer goes."""
    return followup_messages(prompt, query_text(protocol.query_letters))


def followup_messages(prompt: Prompt, wording: str) -> tuple[Message, ...]:
    """The three-turn conversation in which a user says something after the answer, which is `QUERY_SENTINEL`."""
    return (*prompt.messages, Message("assistant", QUERY_SENTINEL), Message("user", wording))
