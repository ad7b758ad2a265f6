"""Code that multiple-choice tasks share: the words of their prompts, and the checks that make a row a `Question`."""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.api import PromptStyle, Question, Row, UserError

FEWEST, MOST = 2, 26
"""Options a question may have; there are 26 letters to name them."""

LETTERED = PromptStyle(
    "The following are multiple-choice questions (with answers) about {label}.",
    "Now, answer the next question.",
    "Question:\n{text}\n\nChoices:\n{options}",
)
"""MMLU's words with options (docs/methods.md §1.4)."""
OPEN = PromptStyle(
    "The following are questions (with answers) about {label}.", "Now, answer the next question.", "Question: {text}"
)
"""MMLU's words without options (docs/methods.md §1.4)."""


@dataclass(frozen=True)
class Fields:
    """Names of a row's columns by what they hold."""

    subject: str
    text: str
    choices: str | tuple[str, ...]
    """One column with a list, or one column for each option."""
    gold: str
    subjects: Sequence[str] = ()
    """Names that may stand in the subject's column; empty: any."""
    hidden: str = ""
    """The source's own split whose labels are hidden, i.e. -1."""

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them, to ask the source for."""
        choices = (self.choices,) if isinstance(self.choices, str) else self.choices
        return (self.subject, self.text, *choices, self.gold)


def question(row: Row, fields: Fields, question_id: str) -> Question:
    """The question in a row.

    Raises:
        UserError: a field is null, empty, of another type or out of range, or the subject is unknown; names the file,
            the row and the column.
    """
    if isinstance(fields.choices, str):
        listed = row.values[fields.choices]
        if not isinstance(listed, list | tuple):
            raise wrong(row, fields.choices, "a list of options", listed)
        if not FEWEST <= len(listed) <= MOST:
            raise UserError(
                f"{row.where}: expected {FEWEST} to {MOST} options in column {fields.choices!r}, got {len(listed)};"
                " correct the row"
            )
        for i, option in enumerate(listed):
            if not isinstance(option, str):
                raise wrong(row, fields.choices, f"a text as option {i}", option)
        choices = tuple(listed)
    else:
        choices = tuple(text(row, column) for column in fields.choices)
    gold, expected = row.values[fields.gold], f"an answer index from 0 to {len(choices) - 1}"
    if gold == -1 and fields.hidden:
        raise UserError(
            f"{row.where}: expected {expected} in column {fields.gold!r}, got int -1: the label is hidden, as"
            f" all are in the Hub's split {fields.hidden!r}; take the file of a split with labels"
        )
    if isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold < len(choices):
        raise wrong(row, fields.gold, expected, gold)
    subject = one_of(row, fields.subject, fields.subjects) if fields.subjects else text(row, fields.subject)
    return Question(question_id, subject, text(row, fields.text), choices, gold)


def unique(questions: Iterable[tuple[Row, Question]]) -> Iterator[Question]:
    """Pass questions on, in order.

    Raises:
        UserError: two rows have one id; names both.
    """
    first: dict[str, str] = {}
    for row, read in questions:
        if read.id in first:
            raise UserError(
                f"{row.where}: expected an id of its own, got {read.id!r}, which {first[read.id]} has too;"
                " remove one of the two rows"
            )
        first[read.id] = row.where
        yield read


def key(row: Row, column: str) -> str:
    """The source's own name of a row: a text, or a number as text.

    Raises:
        UserError: it is neither.
    """
    value = row.values[column]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise wrong(row, column, "an id, a whole number or a text", value)
    return value


def one_of(row: Row, column: str, known: Sequence[str]) -> str:
    """A text that is one of a few.

    Raises:
        UserError: it is none of them; names the nearest.
    """
    value = text(row, column)
    if value not in known:
        (nearest,) = difflib.get_close_matches(value, known, n=1, cutoff=0.0)
        raise UserError(
            f"{row.where}: expected one of {len(known)} names in column {column!r}, got {value!r:.60}, which is none of"
            f" them (the nearest is {nearest!r}); correct the row"
        )
    return value


def letter(row: Row, column: str, n_options: int) -> int:
    """The place that a capital letter names.

    Raises:
        UserError: it is no letter of an option.
    """
    value, letters = row.values[column], string.ascii_uppercase[:n_options]
    if not isinstance(value, str) or len(value) != 1 or value not in letters:
        raise wrong(row, column, f"an answer letter from A to {letters[-1]}", value)
    return letters.index(value)


def text(row: Row, column: str) -> str:
    """Text that is not blank.

    Raises:
        UserError: it is something else.
    """
    value = row.values[column]
    if not isinstance(value, str) or not value.strip():
        raise wrong(row, column, "a text that is not empty", value)
    return value


def wrong(row: Row, column: str, expected: str, value: object) -> UserError:
    """The error of a column that holds something else than is expected."""
    shown = "null" if value is None else f"{type(value).__name__} {value!r:.60}"
    return UserError(f"{row.where}: expected {expected} in column {column!r}, got {shown}; correct the row")
