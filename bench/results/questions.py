"""Questions of a run, kept once per task and version: `results/questions/<task>--v<version>.parquet`.

Result files hold ids, answers and confidences; this file holds the questions to these ids, so that a report can show
them without the data set. Example of a row: id `mmlu-choice/test/0`, subject `anatomy`, text `Which bone ...?` with its
options as shown, choices `["femur", "tibia"]`, gold `a`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from bench.api import Format, PromptStyle, Question, UserError
from bench.data.tables import exact_table, parquet_bytes
from bench.model.specs import NAME
from bench.prompts import templates
from bench.results.files import SEPARATOR
from bench.store.files import write_whole

FOLDER = "questions"
"""Folder of `results/`, reserved in `bench.results.files.RESERVED`."""
SEVERAL = " \N{SYMBOL FOR RECORD SEPARATOR} "
"""Between the right answers to a question that has several."""
_SEAL = b"seal"
"""Key in the file's metadata."""


@dataclass(frozen=True, slots=True)
class QuestionText:
    """One question as a reader of results sees it."""

    id: str
    """Id, as in the records of a result."""
    subject: str
    text: str
    """Text that the model was shown of this question: without exemplars and instructions, with its options."""
    choices: tuple[str, ...]
    """Option texts in the order shown; empty for an open question, which shows none."""
    gold: str
    """Right answer: the letter, or the texts of all that are right, with SEVERAL between them."""


def of(question: Question, style: PromptStyle, fmt: Format, letters: str) -> QuestionText:
    """A question in the words of its prompt.

    Args:
        question: as its task read it.
        style: the task's words around a question.
        fmt: with options or open.
        letters: that name the options, in order (`Protocol.letters`).
    """
    return QuestionText(
        id=question.id,
        subject=question.subject,
        text=templates.context(question, style, letters),
        choices=question.choices if fmt is Format.CHOICE else (),
        gold=SEVERAL.join((templates.target(question, fmt, letters), *question.accepted)),
    )


def digest(questions: Iterable[QuestionText]) -> str:
    """SHA-256 of all fields of the questions, whatever their order."""
    rows = sorted(map(astuple, questions))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def path_of(task: str, version: int, out: Path) -> Path:
    """Path at which the questions of a task belong; nothing is touched.

    Raises:
        UserError: the task's name is no safe part of a file name.
    """
    if not NAME.fullmatch(task):
        raise UserError(f"task name {task!r} can't be part of a file name; rename it to letters, digits and . _ + -")
    return out / FOLDER / f"{task}{SEPARATOR}v{version}.parquet"


def write(task: str, version: int, questions: Sequence[QuestionText], out: Path) -> Path:
    """Keep the questions of a run beside its results; returns the file's path.

    What is there already stays: a run with `--limit` doesn't take questions away that a whole run has written. Where
    all are there as they are now, nothing is written. The file appears whole or not at all.

    Args:
        task: as registered.
        version: `TaskCard.version`.
        questions: of the test split, in the task's order.
        out: folder of results.

    Raises:
        UserError: the folder can't be written, or the file there is damaged.
    """
    path = path_of(task, version, out)
    there = read(out, task, version)
    new = {question.id: question for question in questions}
    if all(there.get(key) == question for key, question in new.items()):
        return path
    import pyarrow as pa

    every, kinds = [*new.values(), *(question for key, question in there.items() if key not in new)], _columns()
    columns = zip(*map(astuple, every), strict=True)
    arrays = [pa.array(list(column), type=kind) for column, kind in zip(columns, kinds.values(), strict=True)]
    table = pa.table(arrays, names=list(kinds)).replace_schema_metadata({_SEAL: _seal(task, version, every)})
    try:
        write_whole(path, parquet_bytes(table))
    except OSError as error:
        raise UserError(
            f"questions of {task} can't be written to {str(path)!r} ({error.strerror or error}); name another folder"
            " with --out"
        ) from error
    return path


def read(folder: Path, task: str, version: int) -> dict[str, QuestionText]:
    """Questions of a task by their ids; empty where no run has written them.

    Args:
        folder: of results.
        task: as registered.
        version: `TaskCard.version`.

    Raises:
        UserError: the file is there and not as it must be; names it.
    """
    path = path_of(task, version, folder)
    if not path.exists():
        return {}
    try:
        table = exact_table(path, _columns())
        rows = zip(*(table[field.name].to_pylist() for field in fields(QuestionText)), strict=True)
        found = [QuestionText(key, subject, text, tuple(choices), gold) for key, subject, text, choices, gold in rows]
        if (table.schema.metadata or {}).get(_SEAL) != _seal(task, version, found):
            raise ValueError("was changed, or is that of another task")
    except ValueError as error:
        raise UserError(f"questions {path} {error}; copy it again, or delete it and run that task again") from error
    return {question.id: question for question in found}


def _seal(task: str, version: int, questions: Iterable[QuestionText]) -> bytes:
    """Digest that stands in the file, so that no question is changed, and no file renamed, without being noticed."""
    return hashlib.sha256(f"{task}{SEPARATOR}v{version} {digest(questions)}".encode()).hexdigest().encode()


def _columns() -> dict[str, Any]:
    import pyarrow as pa

    text = pa.string()
    return {"id": text, "subject": text, "text": text, "choices": pa.list_(text), "gold": text}
