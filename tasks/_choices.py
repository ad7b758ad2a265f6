"""Shared parts of multiple-choice tasks: prompt styles, and the conversion of a data set's rows to `Question`s."""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.api import PromptStyle, Question, Row, UserError

FEWEST, MOST = 2, 26
"""Smallest and largest number of options of a question; there are 26 letters for them."""

LETTERED = PromptStyle(
    "The following are multiple-choice questions (with answers) about {label}.",
    "Now, answer the next question.",
    "Question:\n{text}\n\nChoices:\n{options}",
)
"""MMLU's prompt style with options (docs/methods.md §1.4)."""
OPEN = PromptStyle(
    "The following are questions (with answers) about {label}.", "Now, answer the next question.", "Question: {text}"
)
"""MMLU's prompt style without options (docs/methods.md §1.4)."""


@dataclass(frozen=True)
class Fields:
    """Column names of a data set, by the part of a question that each column holds."""

    subject: str
    text: str
    choices: str | tuple[str, ...]
    """Name of one column that holds a list of options, or names of one column per option."""
    gold: str
    subjects: Sequence[str] = ()
    """Allowed values of the subject column; empty if any value is allowed."""
    hidden: str = ""
    """Name on the Hub of a split whose labels are hidden, i.e. are -1 there; empty if there is no such split."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns that are read."""
        choices = (self.choices,) if isinstance(self.choices, str) else self.choices
        return (self.subject, self.text, *choices, self.gold)


def question(row: Row, fields: Fields, question_id: str) -> Question:
    """Convert a row to a question.

    Raises:
        UserError: a field is null, empty, of a wrong type or out of range, or the subject is unknown; the message names
            file, row and column. Options from one column with a list may be empty texts.
    """
    own = fields.choices
    choices = texts(row, own, row.values[own]) if isinstance(own, str) else tuple(text(row, column) for column in own)
    gold, expected = row.values[fields.gold], f"an answer index from 0 to {len(choices) - 1}"
    if gold == -1 and fields.hidden:
        raise UserError(
            f"{row.where}: expected {expected} in column {fields.gold!r}, got int -1: the label is hidden, as"
            f" all are in the Hub's split {fields.hidden!r}; take the file of a split with labels"
        )
    if isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold < len(choices):
        raise column_error(row, fields.gold, expected, gold)
    subject = one_of(row, fields.subject, fields.subjects) if fields.subjects else text(row, fields.subject)
    return Question(question_id, subject, text(row, fields.text), choices, gold)


def require_unique_ids(questions: Iterable[tuple[Row, Question]]) -> Iterator[Question]:
    """Yield the questions of (row, question) pairs in order; each is yielded if no earlier question has its id.

    Raises:
        UserError: two rows have the same id; the message names both rows. The questions before the second of these rows
            have been yielded by then.
    """
    first_rows: dict[str, str] = {}
    for row, question in questions:
        if question.id in first_rows:
            raise UserError(
                f"{row.where}: expected an id of its own, got {question.id!r}, which {first_rows[question.id]} has too;"
                " remove one of the two rows"
            )
        first_rows[question.id] = row.where
        yield question


def row_id(row: Row, column: str) -> str:
    """Return a row's id, read from a column, as text.

    Raises:
        UserError: the value is neither a text nor a whole number, or the text is blank.
    """
    value = row.values[column]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise column_error(row, column, "an id, a whole number or a text", value)
    return value


def one_of(row: Row, column: str, names: Sequence[str]) -> str:
    """Return the text of a column that must be one of `names`.

    Raises:
        UserError: the value is not a text, or blank; or the text is none of `names`, and the message names the nearest.
    """
    value = text(row, column)
    if value not in names:
        (nearest,) = difflib.get_close_matches(value, names, n=1, cutoff=0.0)
        raise UserError(
            f"{row.where}: expected one of {len(names)} names in column {column!r}, got {value!r:.60}, which is none of"
            f" them (the nearest is {nearest!r}); correct the row"
        )
    return value


def letter(row: Row, column: str, n_options: int) -> int:
    """Return the index of the option that the capital letter in a column names.

    Raises:
        UserError: the value is not the letter of an option.
    """
    value, letters = row.values[column], string.ascii_uppercase[:n_options]
    if not isinstance(value, str) or len(value) != 1 or value not in letters:
        raise column_error(row, column, f"an answer letter from A to {letters[-1]}", value)
    return letters.index(value)


def text(row: Row, column: str) -> str:
    """Return the text of a column.

    Raises:
        UserError: the value is not a text, or blank.
    """
    value = row.values[column]
    if not isinstance(value, str) or not value.strip():
        raise column_error(row, column, "a text that is not empty", value)
    return value


def texts(row: Row, column: str, value: object, least: int = FEWEST, most: int = MOST) -> tuple[str, ...]:
    """Return a list of `least` to `most` options as a tuple of texts, which may be empty.

    Raises:
        UserError: the value is no such list; the message names row and column.
    """
    if not isinstance(value, list | tuple):
        raise column_error(row, column, "a list of options", value)
    if not least <= len(value) <= most:
        raise UserError(
            f"{row.where}: expected {least if least == most else f'{least} to {most}'} options in column {column!r},"
            f" got {len(value)}; correct the row"
        )
    for i, option in enumerate(value):
        if not isinstance(option, str):
            raise column_error(row, column, f"a text as option {i}", option)
    return tuple(value)


def column_error(row: Row, column: str, expected: str, value: object) -> UserError:
    """Build the error for a column whose value is not as expected."""
    shown = "null" if value is None else f"{type(value).__name__} {value!r:.60}"
    return UserError(f"{row.where}: expected {expected} in column {column!r}, got {shown}; correct the row")
