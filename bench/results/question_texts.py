"""Texts of a run's questions, stored once per task and version: `results/questions/<task>--v<version>.parquet`.

Result files have only ids, answers and confidences. With the texts, a report can show questions without the data set.
Example of a row: id `mmlu-choice/test/0`, subject `anatomy`, text `Which bone ...?` with its options as shown, choices
`["femur", "tibia"]`, gold `a`.
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
from bench.store.files import named_errors, write_atomic
from bench.store.locks import folder_lock

FOLDER = "questions"
"""Name of the folder of question texts in `results/`; no model may use this name (`bench.results.files.RESERVED`)."""
ANSWER_SEPARATOR = " \N{SYMBOL FOR RECORD SEPARATOR} "
"""Separator of the right answers to an open question that has several."""
_SEAL = b"seal"
"""Key in the Parquet file's metadata under which a digest of the questions is stored."""


@dataclass(frozen=True, slots=True)
class QuestionText:
    """Text, options and right answer of one question, for reports."""

    id: str
    """Question id, equal to that in a result's records."""
    subject: str
    text: str
    """The question as in the prompt, with options, but without exemplars and instructions."""
    choices: tuple[str, ...]
    """Option texts in the order of the prompt; empty for an open question."""
    gold: str
    """Right answer: the option letter or, for an open question, all right texts, joined by ANSWER_SEPARATOR."""


def of(question: Question, style: PromptStyle, fmt: Format, letters: str) -> QuestionText:
    """Return the text of a question as its prompt shows it, with options and right answer, to be stored.

    Args:
        question: a question of a task.
        style: prompt style of the task.
        fmt: choice or open.
        letters: option letters, in order (`Protocol.letters`).
    """
    return QuestionText(
        id=question.id,
        subject=question.subject,
        text=templates.context(question, style, letters),
        choices=question.choices if fmt is Format.CHOICE else (),
        gold=ANSWER_SEPARATOR.join((templates.target(question, fmt, letters), *question.accepted)),
    )


def digest(questions: Iterable[QuestionText]) -> str:
    """Return the SHA-256 over all fields of the questions; their order doesn't matter."""
    rows = sorted(map(astuple, questions))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def path_of(task: str, version: int, out: Path) -> Path:
    """Return the path of the file with a task's question texts; nothing is written.

    Raises:
        UserError: the task's name can't be part of a file name.
    """
    if not NAME.fullmatch(task):
        raise UserError(f"task name {task!r} can't be part of a file name; rename it to letters, digits and . _ + -")
    return out / FOLDER / f"{task}{SEPARATOR}v{version}.parquet"


def write(task: str, version: int, questions: Sequence[QuestionText], out: Path) -> Path:
    """Write the questions of a run beside its results; return the file's path.

    Questions that are in the file already stay there, so that a run with `--limit` deletes none. If all are there,
    nothing is written. The write is atomic.

    Args:
        task: registered name of the task.
        version: `TaskCard.version`.
        questions: questions of the test split, in the task's order.
        out: the results folder.

    Raises:
        UserError: the folder can't be written, or the file there is damaged.
    """
    import pyarrow as pa

    path, types = path_of(task, version, out), _column_types()
    new = {question.id: question for question in questions}
    with named_errors(f"questions of {task} can't be written to {str(path)!r}", "; name another folder with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(path.parent):  # another run may add questions, too
            stored = read(out, task, version)
            if all(stored.get(key) == question for key, question in new.items()):
                return path
            merged = [*new.values(), *(question for key, question in stored.items() if key not in new)]
            columns = zip(*map(astuple, merged), strict=True)
            arrays = [pa.array(list(column), type=type_) for column, type_ in zip(columns, types.values(), strict=True)]
            table = pa.table(arrays, names=list(types)).replace_schema_metadata({_SEAL: _seal(task, version, merged)})
            write_atomic(path, parquet_bytes(table))
    return path


def would_change(task: str, version: int, questions: Iterable[QuestionText], out: Path) -> bool:
    """Return whether `write` with the same arguments would write anything.

    Raises:
        UserError: the file there is damaged.
    """
    stored = read(out, task, version)
    return any(stored.get(question.id) != question for question in questions)


def read(folder: Path, task: str, version: int) -> dict[str, QuestionText]:
    """Read the stored questions of a task, id -> question; empty if no run has written any.

    Args:
        folder: the results folder.
        task: registered name of the task.
        version: `TaskCard.version`.

    Raises:
        UserError: the file is invalid; the message names it.
    """
    path = path_of(task, version, folder)
    if not path.exists():
        return {}
    try:
        table = exact_table(path, _column_types())
        rows = zip(*(table[field.name].to_pylist() for field in fields(QuestionText)), strict=True)
        texts = [QuestionText(key, subject, text, tuple(choices), gold) for key, subject, text, choices, gold in rows]
        if (table.schema.metadata or {}).get(_SEAL) != _seal(task, version, texts):
            raise ValueError("was changed, or is that of another task")
    except ValueError as error:
        raise UserError(f"questions {path} {error}; copy it again, or delete it and run that task again") from error
    return {question.id: question for question in texts}


def _seal(task: str, version: int, questions: Iterable[QuestionText]) -> bytes:
    """Return a digest of task, version and questions, to store in the file.

    The digest reveals changed questions and renamed files.
    """
    return hashlib.sha256(f"{task}{SEPARATOR}v{version} {digest(questions)}".encode()).hexdigest().encode()


def _column_types() -> dict[str, Any]:
    import pyarrow as pa

    text = pa.string()
    return {"id": text, "subject": text, "text": text, "choices": pa.list_(text), "gold": text}
