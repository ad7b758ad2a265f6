"""A file of questions to be scored, as JSON Lines, CSV or Parquet: those of `question_files`, with two differences.

Nobody has to know a right answer: `answer` and `answers` are not read. And `given` may hold the answer that is scored:
its text, for a question with options the letter; of all questions or of some, the model answers the others. Rows whose
`split` is `dev` are exemplars and have a right answer; rows of other splits than `test` are refused.

Example of a line: `{"question": "What do bees make?", "choices": ["wax, honey", "silk"], "given": "a"}`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.api import Format, Question, Row, UserError
from bench.api.errors import require_text
from bench.api.question import Released
from bench.data import question_files
from bench.data.tables import file_rows, read_file, require_own_id, require_spelling, typed

STREAM = "-"
"""Stands for standard input, and for standard output."""
GIVEN = "given"
_COLUMNS = ("question", "choices", "subject", "id", GIVEN)
"""Columns of which a misspelt one would change what is asked without a word."""
_OTHERS = frozenset({"model_answer", "response", "prediction", "completion", "generation", "output", "generated"})
"""Columns in which answers are, under names that are not read; without a word the model would answer again."""


@dataclass(frozen=True)
class AskedFile:
    """Questions to be scored."""

    name: str
    questions: tuple[Question, ...]
    given: Mapping[str, Released]
    """Question id -> the answer in the file."""
    dev: tuple[Question, ...]
    """Exemplars."""
    format: Format


def read_asked(path: Path, subject: str) -> AskedFile:
    """The questions of a file, or of standard input where the path is `-` (JSON Lines).

    Args:
        path: of the file.
        subject: of a question that names none.

    Raises:
        UserError: the file can't be read, or a row is not as it must be; names the file and the row.
    """
    if str(path) == STREAM:
        name, rows = "standard input", list(file_rows("standard input", "", sys.stdin.buffer.read(), ()))
    else:
        name = path.name
        require_text(str(path), "the name of a file of questions")
        rows = list(question_files.question_rows(path, read_file(path, "a file of questions")))
    columns = list(dict.fromkeys(str(column) for row in rows for column in row.values))
    require_spelling(name, columns, _COLUMNS, also_known=question_files.READ)
    other = next((column for column in columns if column.casefold() in _OTHERS), None)
    if other is not None and GIVEN not in columns:
        raise UserError(
            f"{name}: column {other!r} is not read; name it {GIVEN!r} if it holds the answers to be scored, or"
            " take it out, and the model answers"
        )
    stem = path.stem if str(path) != STREAM else "asked"
    asked: list[Question] = []
    dev: list[Question] = []
    given: dict[str, Released] = {}
    first: dict[str, str] = {}
    fmt = Format.OPEN
    for row, choices in question_files.with_options(rows):
        fmt = Format.CHOICE if choices else Format.OPEN
        filled = row if row.values.get("subject") else Row(row.index, row.where, {**row.values, "subject": subject})
        split = row.values.get("split") or "test"
        if split not in ("test", "dev"):
            raise UserError(
                f"{row.where}: expected split 'test' (to be scored) or 'dev' (exemplars), got {split!r:.40}; correct it"
            )
        if split == "dev":
            dev.append(question_files.question_of(filled, choices, stem))
            continue
        question = question_files.unanswered(filled, choices, stem)
        require_own_id(first, question.id, row.where)
        asked.append(question)
        is_empty_cell = path.suffix.lower() == ".csv" and not row.values.get(GIVEN)
        if row.values.get(GIVEN) is not None and not is_empty_cell:
            given[question.id] = Released(None, typed(row, GIVEN, str, "a text").strip(), None)
    if not asked:
        raise UserError(f"{name}: expected at least one question to be scored, found only exemplars (split 'dev')")
    return AskedFile(name, tuple(asked), given, tuple(dev), fmt)
