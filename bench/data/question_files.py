"""A file of questions -> a task, without code.

One question a row, as JSON Lines, CSV or Parquet, with the columns

- `question`: its text;
- `choices`: a list of 2 to 26 options; in CSV a JSON list in one cell. Or, in any format, one column for each option:
  `choice_a`, `choice_b` and so on, left empty where a question has fewer. A file without options is asked openly;
- `answer`: the right option's letter, text or index from 0; without options the right answer's text. Where several
  texts are right: `answers`, a list of them (in CSV a JSON list in one cell), beside or instead of it; examples and
  methods are shown the first. Beside an `answer`, anything but a list is passed over;
- `subject` (or else the file's name), `id` (or else `<file's name>:<row>`), and `split`: `test`, `dev` (exemplars),
  `train` or `validation`. A row that doesn't say is for testing, or for learning in a file that is only learned on.

Values are taken as they stand: in CSV every cell is text, so `1.0` and `NA` stay what they are. Other columns are
passed over. Example of a line: `{"question": "What do bees make?", "choices": ["wax, honey", "silk"], "answer": "a"}`.

A file of questions to be scored (`read_asked`) has two differences. Nobody has to know a right answer: `answer` and
`answers` are not read. And `given` may hold the answer that is scored, its text or the option's letter; the model
answers the other questions. Rows whose `split` is `dev` are exemplars and have a right answer; rows of other splits
than `test` are refused.
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
from bench.api.question import Released
from bench.data.tables import file_rows, filled, read_file, require_own_id, require_spelling, typed, wrong

FEWEST, MOST = 2, 26
"""Options a question may have; there are 26 letters to name them."""
_KINDS = frozenset({".jsonl", ".csv", ".parquet"})
_DIGITS = 6
"""Hex digits of a file's SHA-256 in its task's name."""
_LONGEST_NAME = 80 - 1 - _DIGITS
"""Letters of a file's name; that of its task is part of the names of results."""
COLUMNS = [f"choice_{letter}" for letter in string.ascii_lowercase]
"""Columns of a file with one for each option."""
READ = frozenset({"question", "choices", "answer", "answers", "subject", "id", "split", "given", *COLUMNS})
"""The columns that mean something; `given` does in files that are scored (`read_asked`)."""
_LOOKALIKES = frozenset({"options", "option", "choice", "option_a", "option1", "choice1", "opa", "endings", "a"})
"""Columns in which options are, under names that are not read; without a word their questions would be asked openly."""
SPLITS: tuple[Split, ...] = get_args(Split)
STREAM = "-"
"""Stands for standard input, and for standard output."""
GIVEN = "given"
_ASKED = ("question", "choices", "subject", "id", GIVEN)
"""Columns of which a misspelt one would change what is asked without a word."""
_UNREAD = frozenset({"model_answer", "response", "prediction", "completion", "generation", "output", "generated"})
"""Columns in which answers are, under names that are not read; without a word the model would answer again."""

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
"""The words of MMLU (docs/methods.md §1.4)."""


class _FileTask(Task):
    """Questions of a file; `task_of_file` makes a subclass for each."""

    file: ClassVar[str]
    """Its name, without its folder."""
    sha256: ClassVar[str]
    """SHA-256 of the file's bytes."""
    by_split: ClassVar[Mapping[Split, Sequence[Question]]]

    def questions(self, split: Split) -> Iterator[Question]:
        """The questions of a split, in the file's order."""
        if split not in self.by_split:
            raise UserError(f"Expected one of the splits {', '.join(self.by_split)} of {self.file}, got {split!r}")
        yield from self.by_split[split]

    def provenance(self, split: Split) -> dict[str, str]:
        """The file, for the result."""
        del split
        return {f"task file {self.file}": f"sha256 {self.sha256}"}


def is_question_file(name: str) -> bool:
    """Whether a name ends as those of files of questions do; no task's name does."""
    return Path(name).suffix.lower() in _KINDS


def task_of_file(path: Path, purpose: Split = "test", taken: Collection[str] = ()) -> type[Task]:
    """The task that a file of questions makes, e.g. `bees-3fa9c1`: named by the file, in lower case, and its content.

    So neither two files of one name nor two versions of one file share answers or results.

    Args:
        path: of the file.
        purpose: the split that a row is of unless it says otherwise, and of which there must be one.
        taken: names that other tasks have.

    Raises:
        UserError: the file can't be read, or a row is not as it must be; names the file and the row.
    """
    content = read_file(path, "a file of questions", ", given with --task-file or --train-on")
    require_text(str(path), "the name of a file of questions")
    words = "-".join(re.findall(r"[a-z0-9]+", path.stem.casefold()))
    if not words or len(words) > _LONGEST_NAME:
        raise UserError(
            f"{path}: expected a file name of 1 to {_LONGEST_NAME} letters and digits, because it"
            " becomes the task's name; rename the file"
        )
    sha256 = hashlib.sha256(content).hexdigest()
    name = f"{words}-{sha256[:_DIGITS]}"
    while name in taken:
        name += f"-{purpose}"
    splits: dict[Split, list[Question]] = {}
    first: dict[str, str] = {}
    fmt = Format.OPEN
    for row, choices in with_options(question_rows(path, content)):
        fmt = Format.CHOICE if choices else Format.OPEN
        question = question_of(row, choices, path.stem)
        require_own_id(first, question.id, row.where)
        named = not _empty(row.values.get("split"))
        split = typed(row, "split", Split, f"one of {', '.join(SPLITS)}") if named else purpose
        splits.setdefault(split, []).append(question)
    if purpose not in splits:
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
    """The rows of a file by the ending of its name; at least one.

    Raises:
        UserError: it is no such file.
    """
    kind = path.suffix.lower()
    if kind not in _KINDS:
        raise UserError(f"{path}: expected a name that ends in .jsonl, .csv or .parquet, got {path.name!r}")
    for row in file_rows(str(path), kind, content, READ):
        values, cell = dict(row.values), row.values.get("choices")
        for column in ("answers", "choices") if kind == ".csv" else ():  # lists, in a cell each
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
    """Rows with their options, which all of them have, or none.

    Raises:
        UserError: one differs from the rows before it, or its options are not as they must be.
    """
    lettered: bool | None = None
    for row in rows:
        choices = choices_of(row)
        lettered = bool(choices) if lettered is None else lettered
        if lettered != bool(choices):
            raise UserError(
                f"{row.where}: expected {'options' if lettered else 'no options'} as in the rows before it, found"
                f" {len(choices) or 'none'}; put questions with options and open ones into two files"
            )
        yield row, choices


def question_of(row: Row, choices: tuple[str, ...], stem: str) -> Question:
    """The question of a row with these options; `stem`: of the file's name.

    Raises:
        UserError: there is no right answer, or it can be read in two ways; says how to write it.
    """
    question = unanswered(row, choices, stem)
    if not choices:
        listed, single = row.values.get("answers"), row.values.get("answer")
        if not isinstance(listed, list):
            if not _empty(listed) and _empty(single):
                raise wrong(row, "answers", "a list of right answers", listed)
            return replace(question, choices=(filled(row, "answer", _value(row, "answer")),))
        for text in listed:
            filled(row, "answers", text, "texts that are not empty")
        right = dict.fromkeys(([] if _empty(single) else [filled(row, "answer", single)]) + listed)
        if not right:
            raise wrong(row, "answers", "at least one right answer", listed)
        first, *others = right
        return replace(question, choices=(first,), accepted=tuple(others))
    answer = _value(row, "answer")
    letters = string.ascii_lowercase[: len(choices)]
    if isinstance(answer, bool) or not isinstance(answer, str | int) or answer == "":
        raise wrong(row, "answer", "an option's letter, text or index", answer)
    meant = _meant(str(answer), choices)
    if not meant:
        raise UserError(
            f"{row.where}: expected a letter from a to {letters[-1]}, an option's text, or an index from 0 to"
            f" {len(choices) - 1} in column 'answer', got {answer!r:.60}; correct the row"
        )
    if len(meant) > 1:
        named = " and ".join(letters[i] for i in sorted(meant))
        ways = []
        for i in sorted(meant):  # a way to write the option that can mean nothing else
            spellings = (letters[i], letters[i].upper(), str(i))
            plain = (way for way in spellings if _meant(way, choices) == {i})
            ways.append(repr(next(plain, f"{choices[i]} in other words")))
        raise UserError(
            f"{row.where}: the answer {answer!r} can mean options {named}, by letter, text or index; write"
            f" {' or '.join(ways)}"
        )
    return replace(question, gold=meant.pop())


def unanswered(row: Row, choices: tuple[str, ...], stem: str) -> Question:
    """The same without its right answer, which nobody may ask for: the first option, or an empty text, stands there."""
    subject = row.values.get("subject")
    subject = stem if _empty(subject) else filled(row, "subject", subject)
    name = typed(row, "id", str | int, "a text or a whole number")
    name = f"{stem}:{row.index}" if _empty(name) else str(name)
    return Question(name, subject, filled(row, "question", _value(row, "question")), choices or ("",), 0)


def _empty(value: object) -> bool:
    """Whether an optional column says nothing here."""
    return value is None or value == ""


def _value(row: Row, column: str) -> Any:
    if column not in row.values:
        found = ", ".join(map(str, row.values)) or "none"
        raise UserError(f"{row.where}: expected a column {column!r}, found only {found}; add it")
    return row.values[column]


def choices_of(row: Row) -> tuple[str, ...]:
    """The options; none for an open question."""
    listed = row.values.get("choices")
    options: Any = [row.values.get(column) for column in COLUMNS]  # those up to the last that is not empty
    while options and _empty(options[-1]):
        options.pop()
    columns = COLUMNS if options else ["choices"] * MOST
    if not _empty(listed):
        if options:
            raise UserError(f"{row.where}: expected options in column 'choices' or in 'choice_a' and so on, found both")
        if not isinstance(listed, list):
            raise wrong(row, "choices", "a list of options", listed)
        options = listed
    elif not options:
        strange = sorted(str(column) for column in row.values if str(column).casefold() in _LOOKALIKES)
        if strange:
            raise UserError(
                f"{row.where}: found no options, but a column {strange[0]!r}; name the column of the options 'choices',"
                " or the columns of one option each 'choice_a', 'choice_b' and so on"
            )
        return ()
    if not FEWEST <= len(options) <= MOST:
        raise UserError(f"{row.where}: expected {FEWEST} to {MOST} options, got {len(options)}; correct the row")
    for i, option in enumerate(options):
        filled(row, columns[i], option, f"a text that is not empty as option {i}", f"option {i}")
    return tuple(options)


def _meant(answer: str, choices: Sequence[str]) -> set[int]:
    """The options that an answer can mean: by its text, its letter, or its index."""
    meant = {i for i, choice in enumerate(choices) if choice == answer}
    bare = answer.strip()
    letters = string.ascii_lowercase[: len(choices)]
    if len(bare) == 1 and bare.casefold() in letters:
        meant.add(letters.index(bare.casefold()))
    if bare in map(str, range(len(choices))):
        meant.add(int(bare))
    return meant


# --- questions to be scored -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoringFile:
    """Questions to be scored."""

    name: str
    questions: tuple[Question, ...]
    given: Mapping[str, Released]
    """Question id -> the answer in the file."""
    dev: tuple[Question, ...]
    """Exemplars."""
    format: Format


def read_scoring_file(path: Path, subject: str) -> ScoringFile:
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
        rows = list(question_rows(path, read_file(path, "a file of questions")))
    columns = list(dict.fromkeys(str(column) for row in rows for column in row.values))
    require_spelling(name, columns, _ASKED, also_known=READ)
    other = next((column for column in columns if column.casefold() in _UNREAD), None)
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
    for row, choices in with_options(rows):
        fmt = Format.CHOICE if choices else Format.OPEN
        filled = row if row.values.get("subject") else Row(row.index, row.where, {**row.values, "subject": subject})
        split = row.values.get("split") or "test"
        if split not in ("test", "dev"):
            raise UserError(
                f"{row.where}: expected split 'test' (to be scored) or 'dev' (exemplars), got {split!r:.40}; correct it"
            )
        if split == "dev":
            dev.append(question_of(filled, choices, stem))
            continue
        question = unanswered(filled, choices, stem)
        require_own_id(first, question.id, row.where)
        asked.append(question)
        is_empty_cell = path.suffix.lower() == ".csv" and not row.values.get(GIVEN)
        if row.values.get(GIVEN) is not None and not is_empty_cell:
            given[question.id] = Released(None, typed(row, GIVEN, str, "a text").strip(), None)
    if not asked:
        raise UserError(f"{name}: expected at least one question to be scored, found only exemplars (split 'dev')")
    return ScoringFile(name, tuple(asked), given, tuple(dev), fmt)
