"""What multiple-choice tasks share: a row is checked once, here, before it becomes a `Question`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bench.api import Question, Row, UserError

FEWEST, MOST = 2, 26
"""Options a question may have; there are 26 letters to name them."""


@dataclass(frozen=True)
class Fields:
    """Which columns of a row hold what."""

    subject: str
    text: str
    choices: str
    gold: str

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """All of them, to ask the source for."""
        return (self.subject, self.text, self.choices, self.gold)


def question(row: Row, fields: Fields, question_id: str) -> Question:
    """The question in a row.

    Raises:
        UserError: a field is null, empty, of another type or out of range; names the file, the row and the column.
    """
    choices = _choices(row, fields.choices)
    return Question(
        id=question_id,
        subject=_text(row, fields.subject),
        text=_text(row, fields.text),
        choices=choices,
        gold=_gold(row, fields.gold, len(choices)),
    )


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


def _text(row: Row, column: str) -> str:
    value = row.values[column]
    if not isinstance(value, str) or not value.strip():
        raise _wrong(row, column, "a text that is not empty", value)
    return value


def _choices(row: Row, column: str) -> tuple[str, ...]:
    value = row.values[column]
    if not isinstance(value, list | tuple):
        raise _wrong(row, column, "a list of options", value)
    if not FEWEST <= len(value) <= MOST:
        raise UserError(
            f"{row.where}: expected {FEWEST} to {MOST} options in column {column!r}, got {len(value)}; correct the row"
        )
    for i, option in enumerate(value):
        if not isinstance(option, str):
            raise _wrong(row, column, f"a text as option {i}", option)
    return tuple(value)


def _gold(row: Row, column: str, n_options: int) -> int:
    value = row.values[column]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n_options:
        raise _wrong(row, column, f"an answer index from 0 to {n_options - 1}", value)
    return value


def _wrong(row: Row, column: str, expected: str, value: object) -> UserError:
    shown = "null" if value is None else f"{type(value).__name__} {value!r:.60}"
    return UserError(f"{row.where}: expected {expected} in column {column!r}, got {shown}; correct the row")
