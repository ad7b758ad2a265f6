"""Reading of a user's file of questions as a task (`--task-file`), or as questions to be scored.

The file is JSON Lines, CSV or Parquet. Each row has one question, in these columns:

- `question`: the text of the question.
- `choices`: a list of 2 to 26 options; in CSV a JSON list in one cell. Or one column for each option, `choice_a`,
  `choice_b` and so on, empty where a question has fewer options. Without options the questions are open.
- `answer`: the right option's letter, text or index from 0; for an open question the right text.
- `answers`: for an open question, a list of right texts (in CSV a JSON list in one cell), beside or instead of
  `answer`. Exemplars and methods use `answer` or, without it, the first of the list. If the row has an `answer`, a
  value of `answers` that is no list is ignored. For a question with options, `answers` is ignored.
- `subject`: by default the file's name.
- `id`: by default `<file's name>:<row>`.
- `split`: `test`, `dev` (exemplars), `train` or `validation`. The default is `test`, or `train` for a file given with
  --train-on.

Values are not converted: every cell of a CSV file is a text, even `1.0` or `NA`. Other columns are ignored. Example of
a line: `{"question": "What do bees make?", "choices": ["wax, honey", "silk"], "answer": "a"}`.

A file of questions to be scored (`read_scoring_file`) needs no right answers: `answer` and `answers` are not read. Its
column `given` may have the answer to be scored, as a text or as the letter of an option. A question without a given
answer is answered by the model. Rows whose `split` is `dev` are exemplars and need a right answer; `train` and
`validation` are errors.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, get_args

from bench.api import Format, PromptStyle, Question, Row, Split, Task, TaskCard, UserError
from bench.api.errors import require_text
from bench.api.question import Released, Unnamed
from bench.data.tables import file_rows, nonempty, read_file, register_id, require_spelling, row_error, typed_value

FEWEST, MOST = 2, 26
"""Smallest and largest number of options of a question; 26 letters can name options."""
_KINDS = frozenset({".jsonl", ".csv", ".parquet"})
_DIGITS = 6
"""Number of hex digits of the file's SHA-256 at the end of the task's name."""
_LONGEST_NAME = 80 - 1 - _DIGITS
"""Largest length in characters of a file's name. The task's name contains the file's name, and result files are named
after the task."""
COLUMNS = [f"choice_{letter}" for letter in string.ascii_lowercase]
"""Names of the option columns: `choice_a` to `choice_z`."""
READ = frozenset({"question", "choices", "answer", "answers", "subject", "id", "split", "given", *COLUMNS})
"""Names of the columns that are read; `given` is read only from files of questions to be scored."""
_OPTION_LIKE = {*COLUMNS, "choices", "choice", "options", "option", "answer_choices", "alternatives", "endings", "opa",
                "a", "option_a", "option1", "choice1"}  # fmt: skip
"""Column names in lower case that look like options. In a row without options, they are errors if they have a value and
aren't read, because the question would silently become an open one; `Choice_A` and so on are errors in any row."""
SPLITS: tuple[Split, ...] = get_args(Split)
STREAM = "-"
"""Path that stands for standard input and standard output."""
GIVEN = "given"
_QUESTION_COLUMNS = ("question", "choices", "subject", "id", GIVEN)
"""Names of columns whose misspelling is an error in files of questions to be scored, because without them the prompt
would silently be another one. In files of `--task-file` and `--train-on`, misspellings of these are not looked for."""
_ANSWER_LIKE = frozenset({"model_answer", "response", "prediction", "completion", "generation", "output", "generated"})
"""Column names that look like answers to be scored. They are errors in a file without a column `given`, because the
model would silently answer the questions again."""

_STYLES: Mapping[Format, PromptStyle] = {
    Format.CHOICE: PromptStyle(
        header="The following are multiple-choice questions (with answers) about {label}.",
        footer="Now, answer the next question.",
        context="Question:\n{text}\n\nChoices:\n{options}",
    ),
    Format.OPEN: PromptStyle(
        header="The following are questions (with answers) about {label}.",
        footer="Now, answer the next question.",
        context="Question: {text}",
    ),
}
"""Answer format -> prompt style, with the wording that MMLU has (docs/methods.md §1.4)."""


class _FileTask(Task):
    """Base class of tasks made from a user's file of questions; `task_of_file` makes a subclass for each file."""

    file: ClassVar[str]
    """Name of the file, without its folder."""
    sha256: ClassVar[str]
    """SHA-256 of the file's bytes."""
    by_split: ClassVar[Mapping[Split, Sequence[Question]]]

    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of a split, in the file's order."""
        if split not in self.by_split:
            raise UserError(f"Expected one of the splits {', '.join(self.by_split)} of {self.file}, got {split!r}")
        yield from self.by_split[split]

    def provenance(self, split: Split) -> dict[str, str]:
        """Return the file's name and digest, as the origin of the questions."""
        del split
        return {f"task file {self.file}": f"sha256 {self.sha256}"}


def is_question_file(name: str) -> bool:
    """Return whether a name has a suffix of files of questions: `.jsonl`, `.csv` or `.parquet`."""
    return Path(name).suffix.lower() in _KINDS


def task_of_file(path: Path, purpose: Split | None = "test", existing: Collection[str] = ()) -> type[Task]:
    """Create the task class of a file of questions; the task's name has the file's name and digest, e.g. `bees-3fa9c1`.

    The digest keeps answers and results of two versions of a file apart.

    Args:
        path: the file of questions.
        purpose: split of rows that name none; at least one row must be of this split. None for test, or any other.
        existing: names of other tasks; if the new name is among them, `purpose` is appended to it.

    Raises:
        UserError: the file can't be read, its name can't become a task's name, no row is of split `purpose`, or a row
            is invalid; the message names the file and, if a row is invalid, the row.
    """
    content = read_file(path, "a file of questions", ", given with --task-file or --train-on")
    require_text(str(path), "the name of a file of questions")
    slug = "-".join(re.findall(r"[a-z0-9]+", path.stem.casefold()))
    if not slug or len(slug) > _LONGEST_NAME:
        raise UserError(
            f"{path}: expected a file name of 1 to {_LONGEST_NAME} letters and digits, because it"
            " becomes the task's name; rename the file"
        )
    sha256 = hashlib.sha256(content).hexdigest()
    name = f"{slug}-{sha256[:_DIGITS]}"
    while name in existing:
        name += f"-{purpose}"
    splits: dict[Split, list[Question]] = {}
    first: dict[str, str] = {}
    fmt = Format.OPEN
    for row, choices in with_options(question_rows(path, content)):
        fmt = Format.CHOICE if choices else Format.OPEN
        question = question_of(row, choices, path.stem)
        register_id(first, question.id, row.where)
        has_split = not _empty(row.values.get("split"))
        split = typed_value(row, "split", Split, f"one of {', '.join(SPLITS)}") if has_split else purpose or "test"
        splits.setdefault(split, []).append(question)
    if purpose is not None and purpose not in splits:
        raise UserError(
            f"{path}: expected at least one row of split {purpose!r}, found only {', '.join(splits)}; add one, or leave"
            " the column split out"
        )
    sizes = {split: len(questions) for split, questions in splits.items()}
    options = [len(question.choices) for questions in splits.values() for question in questions]
    card = TaskCard(
        license="not stated", version=1, splits={split: split for split in splits}, sizes=sizes,
        options=(min(options), max(options)), why="A file of the user's own.",
    )  # fmt: skip
    fields = {
        "__doc__": f"The questions of the file {path.name}.", "__module__": __name__, "name": name, "format": fmt,
        "card": card, "style": _STYLES[fmt], "train_on": "", "file": path.name, "sha256": sha256, "by_split": splits,
    }  # fmt: skip
    return type("FileTask", (_FileTask,), fields)


# --- the file ---------------------------------------------------------------------------------------------------------


def question_rows(path: Path, content: bytes) -> Iterator[Row]:
    """Read the rows of a file of questions in the format of its suffix; JSON lists in CSV cells are parsed.

    Raises:
        UserError: the file is invalid, or has no row.
    """
    kind = path.suffix.lower()
    if kind not in _KINDS:
        raise UserError(f"{path}: expected a name that ends in .jsonl, .csv or .parquet, got {path.name!r}")
    for row in file_rows(str(path), kind, content, READ | _OPTION_LIKE):
        values, cell = dict(row.values), row.values.get("choices")
        for column in ("answers", "choices") if kind == ".csv" else ():  # a JSON list in one cell
            with suppress(ValueError, RecursionError):
                values[column] = json.loads(row.values.get(column) or "")
        if kind == ".csv" and cell and not isinstance(values["choices"], list):
            raise UserError(
                f'{row.where}: expected a JSON list in column \'choices\', such as ["red", "blue"], got {cell[:60]!r};'
                " write one, or a column for each option: choice_a, choice_b, ..."
            )
        yield Row(row.index, row.where, values)


# --- a row ------------------------------------------------------------------------------------------------------------


def with_options(rows: Iterable[Row]) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """Pair each row with the question's options; either all questions have options, or none has.

    Raises:
        UserError: some rows have options and others don't, a row's options are invalid, or a column `Split` has a
            value.
    """
    lettered: bool | None = None
    for row in rows:
        require_spelling(row.where, (c for c, v in row.values.items() if v and c.casefold() == "split"), ["split"])
        choices = choices_of(row)
        lettered = bool(choices) if lettered is None else lettered
        if lettered != bool(choices):
            raise UserError(
                f"{row.where}: expected {'options' if lettered else 'no options'} as in the rows before it, found"
                f" {len(choices) or 'none'}; put questions with options and open ones into two files"
            )
        yield row, choices


def question_of(row: Row, choices: tuple[str, ...], stem: str) -> Question:
    """Build the question of a row; `choices` are its options, `stem` is the file's name without suffix.

    Raises:
        UserError: the right answer is missing or ambiguous; the message says how to write it.
    """
    question = unanswered(row, choices, stem)
    if not choices:
        listed, single = row.values.get("answers"), row.values.get("answer")
        if not isinstance(listed, list):
            if not _empty(listed) and _empty(single):
                raise row_error(row, "answers", "a list of right answers", listed)
            return replace(question, choices=(nonempty(row, "answer", _value(row, "answer")),))
        for text in listed:
            nonempty(row, "answers", text, "texts that are not empty")
        right = dict.fromkeys(([] if _empty(single) else [nonempty(row, "answer", single)]) + listed)
        if not right:
            raise row_error(row, "answers", "at least one right answer", listed)
        first, *accepted = right
        return replace(question, choices=(first,), accepted=tuple(accepted))
    answer = _value(row, "answer")
    letters = string.ascii_lowercase[: len(choices)]
    if isinstance(answer, bool) or not isinstance(answer, str | int) or answer == "":
        raise row_error(row, "answer", "an option's letter, text or index", answer)
    matches = _matching_options(str(answer), choices)
    if not matches:
        raise UserError(
            f"{row.where}: expected a letter from a to {letters[-1]}, an option's text, or an index from 0 to"
            f" {len(choices) - 1} in column 'answer', got {answer!r:.60}; correct the row"
        )
    if len(matches) > 1:
        names = " and ".join(letters[i] for i in sorted(matches))
        proposals = []
        for i in sorted(matches):  # a spelling of the option that is not ambiguous
            spellings = (letters[i], letters[i].upper(), str(i))
            unambiguous = (way for way in spellings if _matching_options(way, choices) == {i})
            proposals.append(repr(next(unambiguous, f"{choices[i]} in other words")))
        raise UserError(
            f"{row.where}: the answer {answer!r} can mean options {names}, by letter, text or index; write"
            f" {' or '.join(proposals)}"
        )
    return replace(question, gold=matches.pop())


def unanswered(row: Row, choices: tuple[str, ...], stem: str, kind: type[Question] = Question) -> Question:
    """Build a question whose right answer is unknown.

    Since the field `gold` can't be empty, it points to the first option, or has an empty text. Its value means nothing.
    """
    subject = row.values.get("subject")
    subject = stem if _empty(subject) else nonempty(row, "subject", subject)
    name = typed_value(row, "id", str | int, "a text or a whole number")
    name = f"{stem}:{row.index}" if _empty(name) else str(name)
    return kind(name, subject, nonempty(row, "question", _value(row, "question")), choices or ("",), 0)


def _empty(value: object) -> bool:
    """Return whether an optional value is missing: null or an empty text."""
    return value is None or value == ""


def _value(row: Row, column: str) -> Any:
    if column not in row.values:
        columns = ", ".join(map(str, row.values)) or "none"
        raise UserError(f"{row.where}: expected a column {column!r}, found only {columns}; add it")
    return row.values[column]


def choices_of(row: Row) -> tuple[str, ...]:
    """Return the options of a row; empty for an open question.

    Raises:
        UserError: the options are invalid, or a column looks like options but would not be read.
    """
    listed = row.values.get("choices")
    options: Any = [row.values.get(column) for column in COLUMNS]  # up to the last one that is not empty
    while options and _empty(options[-1]):
        options.pop()
    for column, value in row.values.items():
        name = column.casefold()  # alternatives may also be further spellings of the right answer
        aliases = name == "alternatives" and (not isinstance(value, list) or row.values.get("answers"))
        if value and column not in READ and name in (COLUMNS if options or listed else _OPTION_LIKE) and not aliases:
            raise UserError(
                f"{row.where}: column {column!r} looks like options, but is not read; name a column of lists of options"
                " 'choices', or the columns of one option each 'choice_a', 'choice_b' and so on, or take it out"
            )
    columns = COLUMNS if options else ["choices"] * MOST
    if not _empty(listed):
        if options:
            raise UserError(f"{row.where}: expected options in column 'choices' or in 'choice_a' and so on, found both")
        if not isinstance(listed, list):
            raise row_error(row, "choices", "a list of options", listed)
        options = listed
    elif not options:
        return ()
    if not FEWEST <= len(options) <= MOST:
        raise UserError(f"{row.where}: expected {FEWEST} to {MOST} options, got {len(options)}; correct the row")
    for i, option in enumerate(options):
        nonempty(row, columns[i], option, f"a text that is not empty as option {i}", f"option {i}")
    return tuple(options)


def _matching_options(answer: str, choices: Sequence[str]) -> set[int]:
    """Return the indices of all options that an answer may mean: by text, letter or index, else by text in any case."""
    matches = {i for i, choice in enumerate(choices) if choice == answer}
    stripped = answer.strip()
    letters = string.ascii_lowercase[: len(choices)]
    if len(stripped) == 1 and stripped.casefold() in letters:
        matches.add(letters.index(stripped.casefold()))
    if stripped in map(str, range(len(choices))):
        matches.add(int(stripped))
    return matches or {i for i, choice in enumerate(choices) if choice.strip().casefold() == stripped.casefold()}


# --- questions to be scored -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoringFile:
    """Content of a user's file of questions to be scored."""

    name: str
    questions: tuple[Question, ...]
    given: Mapping[str, Released]
    """Question id -> answer to be scored; questions to which the file gives no answer are absent."""
    dev: tuple[Question, ...]
    """Questions with right answers that serve as exemplars."""
    format: Format


def read_scoring_file(path: Path, subject: str) -> ScoringFile:
    """Read a file of questions to be scored; the path `-` stands for standard input (JSON Lines).

    Args:
        path: the file, or `-`.
        subject: subject of the questions that name none.

    Raises:
        UserError: the file can't be read, or a row is invalid; the message names file and row.
    """
    if str(path) == STREAM:
        name, rows = "standard input", list(file_rows("standard input", "", sys.stdin.buffer.read(), ()))
    else:
        name = path.name
        require_text(str(path), "the name of a file of questions")
        rows = list(question_rows(path, read_file(path, "a file of questions")))
    columns = list(dict.fromkeys(str(column) for row in rows for column in row.values))
    require_spelling(name, columns, _QUESTION_COLUMNS, other=READ)
    other = next((column for column in columns if column.casefold() in _ANSWER_LIKE), None)
    if other is not None and GIVEN not in columns:
        raise UserError(
            f"{name}: column {other!r} is not read; name it {GIVEN!r} if it holds the answers to be scored, or"
            " take it out, and the model answers"
        )
    stem = path.stem if str(path) != STREAM else "asked"
    questions, dev = list[Question](), list[Question]()
    given, first = dict[str, Released](), dict[str, str]()
    fmt = Format.OPEN
    for row, choices in with_options(rows):
        fmt = Format.CHOICE if choices else Format.OPEN
        complete = row if row.values.get("subject") else Row(row.index, row.where, {**row.values, "subject": subject})
        split = row.values.get("split") or "test"
        if split not in ("test", "dev"):
            raise UserError(
                f"{row.where}: expected split 'test' (to be scored) or 'dev' (exemplars), got {split!r:.40}; correct"
                " it, or take such rows out"
            )
        if split == "dev":
            dev.append(question_of(complete, choices, stem))
            continue
        kind = Unnamed if _empty(row.values.get("id")) else Question
        question = replace(unanswered(complete, choices, stem, kind), index_in_subject=0)  # as if it were asked alone
        register_id(first, question.id, row.where)
        questions.append(question)
        is_empty_cell = path.suffix.lower() == ".csv" and not row.values.get(GIVEN)
        if row.values.get(GIVEN) is not None and not is_empty_cell:
            given[question.id] = Released(None, typed_value(row, GIVEN, str, "a text").strip(), None)
    if not questions:
        raise UserError(f"{name}: expected at least one question to be scored, found only exemplars (split 'dev')")
    return ScoringFile(name, tuple(questions), given, tuple(dev), fmt)
