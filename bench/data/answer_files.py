"""Reading of a user's file of answers (`bench run --answers FILE`), as JSON Lines or Parquet.

Each row has one answer, in these columns:

- `id`: the question's id in its task.
- `text`: the model's output; or `tokens`, the list of its token ids. If a row has both, `tokens` is used and `text`
  ignored.
- `final_start`: for an output with a reasoning trace, where the final answer starts: the number of tokens before it in
  `tokens`, or of characters before it in `text`. Or `final`: the final answer itself; its last occurrence in `text`
  counts. The trace becomes part of the prompt, and signals are read on the final answer only. Without these columns the
  whole output is the answer.
- `reasoning` or `reasoning_content`, as servers name it: the trace before `text`, if the output came in two parts.
- `samples`: further answers to the same question, a list of texts or of lists of token ids.
- `grade`: whether the (final) answer is right: true, false, 1 or 0. Either all rows have a grade or none.
- `judge`: name of the grader, equal in all rows; by default the file's name.

Other columns are ignored. But a column name that looks like a misspelling of one of these is an error, since the column
would silently be ignored. Example: `{"id": "mmlu-oe/test/0", "text": "So it is honey. Honey",
"final_start": 16}`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from bench.api import Question, Row, UserError
from bench.api.errors import AbsentError, require_text
from bench.api.question import Released, Text
from bench.data.splits import TaskSplit
from bench.data.tables import file_rows, read_file, require_spelling, row_error, typed_value

_KINDS = frozenset({".jsonl", ".parquet"})
_REASONING = ("reasoning", "reasoning_content")
_COLUMNS = ("id", "text", "tokens", "final", "final_start", "samples", "grade", "judge", "redacted", *_REASONING)
"""Names of the columns that are read from a file of answers."""
_DIGITS = 6
"""Number of hex digits of the file's SHA-256 that results append to the file's name."""
_LONGEST_NAME = 80
"""Largest length in characters of a grader's name."""
_JUDGE = f"a name of 1 to {_LONGEST_NAME} printable characters"
_SAMPLES = Annotated[list[str | list[int]], msgspec.Meta(min_length=1)]
SOURCE = "file:"
"""Beginning of `answers_source` in results whose answers come from a user's file."""
SERVER = "server:"
"""Beginning of `answers_source` in results whose answers a model's server wrote for another engine to read."""


class UnansweredError(AbsentError):
    """A user's file of answers lacks answers to some questions of a split."""


@dataclass(frozen=True)
class AnswerFile:
    """Content of a user's file of answers."""

    name: str
    """The file's name, without its folder."""
    sha256: str
    answers: Mapping[str, Released]
    """Question id -> the answer in the file."""
    judge: str | None
    """Name of the grader of the answers; None if the file has no grades. The run then grades the answers."""

    @property
    def source(self) -> str:
        """Value of `answers_source` in results: the file's name and the first digits of its SHA-256.

        Example: `file:qwen-3fa9c1`.
        """
        return f"{SOURCE}{Path(self.name).stem}-{self.sha256[:_DIGITS]}"

    def answered(self, where: TaskSplit, questions: Sequence[Question], *, partial: bool) -> list[Question]:
        """Return the questions of a split to which the file has an answer.

        Args:
            where: the split.
            questions: all questions of the split.
            partial: whether questions without an answer may be left out.

        Raises:
            UnansweredError: no question has an answer, or one has none and `partial` is False.
        """
        matched = [question for question in questions if question.id in self.answers]
        if not matched:
            raise UnansweredError(
                f"{self.name}: expected answers to questions of {where} such as {questions[0].id!r}, found none, but"
                f" such as {next(iter(self.answers))!r}; add some, or correct the ids if they are meant to be these"
                " (bench show TASK --example 0, or bench show --task-file FILE --example 0)"
            )
        if len(matched) < len(questions) and not partial:
            missing = next(question.id for question in questions if question.id not in self.answers)
            raise UnansweredError(
                f"{self.name}: expected an answer to each of the {len(questions):,} questions of {where}, found"
                f" {len(matched):,}; {missing!r} has none. Add the others, or run with --limit, which leaves them out"
            )
        return matched


def is_answer_file(name: str) -> bool:
    """Return whether a name has a suffix of files of answers: `.jsonl` or `.parquet`."""
    return Path(name).suffix.lower() in _KINDS


def read_answers(path: Path) -> AnswerFile:
    """Read a user's file of answers.

    Raises:
        UserError: the file can't be read, or a row is invalid; the message names file and row.
    """
    content = read_file(path, "a file of answers", ", given with --answers")
    require_text(path.name, "the name of a file of answers")
    answers: dict[str, Released] = {}
    first: dict[str, str] = {}
    judges: set[str] = set()
    rows = list(file_rows(path.name, path.suffix.lower(), content, _COLUMNS))
    require_spelling(path.name, dict.fromkeys(column for row in rows for column in row.values), _COLUMNS)
    for row in rows:
        key = typed_value(row, "id", str | int, "the id of a question")
        if key in {None, ""}:
            raise row_error(row, "id", "the id of a question", key)
        key = str(key)
        if key in first:
            raise UserError(
                f"{row.where}: expected one answer to each question, got a second one to {key!r}, which {first[key]}"
                " has too; take one of them out, or put it into 'samples' of the other"
            )
        first[key] = row.where
        answers[key] = _answer(row)
        judge = typed_value(row, "judge", str, _JUDGE)
        judge = path.stem[:_LONGEST_NAME] if judge is None else judge
        if not judge.strip() or not judge.isprintable() or len(judge) > _LONGEST_NAME:
            raise row_error(row, "judge", _JUDGE, judge)
        judges.add(judge)
    graded = [key for key, answer in answers.items() if answer.correct is not None]
    if graded and len(graded) < len(answers):
        ungraded = next(first[key] for key, answer in answers.items() if answer.correct is None)
        raise UserError(f"{ungraded}: expected a grade as {first[graded[0]]} has one, got none; grade all or none")
    if len(judges) > 1:
        raise UserError(f"{path.name}: expected one judge, got {', '.join(sorted(judges))}; make a file for each")
    sha256 = hashlib.sha256(content).hexdigest()
    return AnswerFile(path.name, sha256, answers, judges.pop() if graded else None)


# --- a row ------------------------------------------------------------------------------------------------------------


def _answer(row: Row) -> Released:
    tokens = typed_value(row, "tokens", list[int], "a list of token ids")
    text = typed_value(row, "text", str, "a text") if tokens is None else None
    start = typed_value(row, "final_start", int, "a whole number")
    final = row.values.get("final")
    parts = [typed_value(row, name, str, "the text before the answer") for name in _REASONING]
    thoughts = set(filter(None, parts))
    if tokens is None and text is None and not thoughts:  # servers give no text if the budget ends within a trace
        raise row_error(row, "text", "a text here, or a list of token ids in 'tokens',", None)
    whole: Text = tuple(tokens) if tokens is not None else text or ""
    divided = start is not None or final is not None or any(part is not None for part in parts)
    if thoughts:
        if start is not None or final is not None or not isinstance(whole, str) or len(thoughts) > 1:
            what = "'final', 'final_start', 'tokens' or other reasoning"
            raise UserError(f"{row.where}: expected reasoning beside 'text' alone, got {what}, too; leave one out")
        trace = thoughts.pop().rstrip()
        whole, start = f"{trace}\n{whole}", len(trace) + 1
    if start is not None and final is not None:
        raise UserError(f"{row.where}: expected 'final' or 'final_start', got both; leave one out")
    if final is not None:
        if not isinstance(whole, str):
            raise row_error(row, "final", "the number of its first token in 'final_start'", final)
        start = whole.rfind(typed_value(row, "final", str, "a text"))
        if start < 0:
            raise row_error(row, "final", "a part of 'text'", final)
        whole = whole[: start + len(final)]
    start = start or 0
    if not 0 <= start <= len(whole):
        raise row_error(row, "final_start", f"a place from 0 to {len(whole)}", start)
    if isinstance(whole, str):
        whole = whole.rstrip()
        start += len(whole[start:]) - len(whole[start:].lstrip())  # leading white space is no part of the answer
    before = whole[:start] if str(whole[:start]).strip() else whole[:0]
    grade = typed_value(row, "grade", bool | int | float, "true or false, 1 or 0")
    if grade not in {None, 0, 1}:
        raise row_error(row, "grade", "true or false, 1 or 0", grade)
    samples = typed_value(row, "samples", _SAMPLES, "a list of texts, or of lists of token ids")
    if samples is not None:
        samples = tuple(sample.strip() if isinstance(sample, str) else tuple(sample) for sample in samples)
    redacted = bool(typed_value(row, "redacted", bool, "true or false"))
    return Released(None, whole[start:], None if grade is None else bool(grade), before, samples, divided, redacted)
