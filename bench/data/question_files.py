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
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, get_args

from bench.api import Format, PromptStyle, Question, Row, Split, Task, TaskCard, UserError
from bench.api.errors import require_text
from bench.data.tables import file_rows, filled, read_file, require_own_id, typed, wrong

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
"""The columns that mean something; `given` does in files that are scored (`asked_files`)."""
_LOOKALIKES = frozenset({"options", "option", "choice", "option_a", "option1", "choice1", "opa", "endings", "a"})
"""Columns in which options are, under names that are not read; without a word their questions would be asked openly."""
SPLITS: tuple[Split, ...] = get_args(Split)

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


def question_rows(path: Path, content: bytes) -> Iterable[Row]:
    """The rows of a file by the ending of its name; at least one.

    Raises:
        UserError: it is no such file.
    """
    kind = path.suffix.lower()
    if kind not in _KINDS:
        raise UserError(f"{path}: expected a name that ends in .jsonl, .csv or .parquet, got {path.name!r}")
    rows = file_rows(str(path), kind, content, READ)
    return map(_with_lists, rows) if kind == ".csv" else rows


def _with_lists(row: Row) -> Row:
    """A row of a CSV file with its options, and its right answers where they are one, as a list."""
    values, cell = dict(row.values), row.values.get("choices")
    for column in ("answers", "choices"):
        with suppress(ValueError, RecursionError):
            values[column] = json.loads(row.values.get(column) or "")
    if cell and not isinstance(values["choices"], list):
        raise UserError(
            f'{row.where}: expected a JSON list in column \'choices\', such as ["red", "blue"], got {cell[:60]!r};'
            " write one, or a column for each option: choice_a, choice_b, ..."
        )
    return Row(row.index, row.where, values)


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
    """The question of a row with these options; `stem`: of the file's name."""
    question = unanswered(row, choices, stem)
    if not choices:
        answer, *others = _answers(row)
        return replace(question, choices=(answer,), accepted=tuple(others))
    return replace(question, gold=_gold(row, choices))


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


def _answers(row: Row) -> list[str]:
    """The right answers to an open question, each once."""
    listed, single = row.values.get("answers"), row.values.get("answer")
    if not isinstance(listed, list):
        if _empty(listed) or not _empty(single):
            return [filled(row, "answer", _value(row, "answer"))]
        raise wrong(row, "answers", "a list of right answers", listed)
    for answer in listed:
        filled(row, "answers", answer, "texts that are not empty")
    found = list(dict.fromkeys(([] if _empty(single) else [filled(row, "answer", single)]) + listed))
    if not found:
        raise wrong(row, "answers", "at least one right answer", listed)
    return found


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


def _gold(row: Row, choices: Sequence[str]) -> int:
    """Index of the option that the answer means.

    Raises:
        UserError: none, or it can be read in two ways; says how to write it.
    """
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
        ways = " or ".join(repr(_spelling(i, choices)) for i in sorted(meant))
        raise UserError(
            f"{row.where}: the answer {answer!r} can mean options {named}, by letter, text or index; write {ways}"
        )
    return meant.pop()


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


def _spelling(i: int, choices: Sequence[str]) -> str:
    """A way to write option `i` that can mean nothing else."""
    letter = string.ascii_lowercase[i]
    ways = (letter, letter.upper(), str(i))
    return next((way for way in ways if _meant(way, choices) == {i}), f"{choices[i]} in other words")
