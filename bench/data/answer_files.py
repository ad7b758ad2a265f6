"""A file of answers that were made elsewhere (`bench run --answers FILE`), as JSON Lines or Parquet.

One answer a row, with the columns

- `id`: that of the question, as its task names it;
- `text`: all that the model wrote; or `tokens`, a list of its token ids, which is read where both are there;
- after a trace of reasoning, `final_start`: where the final part begins, in tokens where `tokens` are there, else in
  characters; or `final`, the final part itself, which is looked for from the end of `text`. The trace is read as part
  of what the model was asked, so every signal is about the final part. Without both the whole is the answer;
- `samples`: further answers to the same question, a list of texts or of lists of token ids;
- `grade`: whether the (final) answer is right, true, false, 1 or 0; of all answers or of none. `judge`: who says so,
  the same for all, or else the file's name.

Other columns are passed over, but for one whose name is nearly that of a column that is not there: a misspelt `grade`
would otherwise have answers graded again. Example:
`{"id": "mmlu-oe/test/0", "text": "So it is honey. Honey", "final_start": 16}`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from bench.api import Question, Row, UserError
from bench.api.errors import require_text
from bench.api.question import Released, Text
from bench.data.splits import TaskSplit
from bench.data.tables import file_rows, read_file, require_spelling, typed, wrong

_KINDS = frozenset({".jsonl", ".parquet"})
_COLUMNS = ("id", "text", "tokens", "final", "final_start", "samples", "grade", "judge")
"""The columns that mean something."""
_DIGITS = 6
"""Hex digits of the file's SHA-256 in its name in results."""
_LONGEST_NAME = 80
"""Characters of a judge's name."""
_JUDGE = f"a name of 1 to {_LONGEST_NAME} printable characters"
_SAMPLES = Annotated[list[str | list[int]], msgspec.Meta(min_length=1)]
SOURCE = "file:"
"""Begins the source of answers in results where it is a file."""


class UnansweredError(UserError):
    """A file has no answers to questions of a split."""


@dataclass(frozen=True)
class AnswerFile:
    """Answers of a user's own."""

    name: str
    """The file's name, without its folder."""
    sha256: str
    answers: Mapping[str, Released]
    """Question id -> its answer."""
    judge: str | None
    """Who graded them; None: they are graded here."""

    @property
    def source(self) -> str:
        """The answers' source in results, e.g. `file:qwen-3fa9c1`: the file's name and content."""
        return f"{SOURCE}{Path(self.name).stem}-{self.sha256[:_DIGITS]}"

    def known(self, where: TaskSplit, questions: Sequence[Question], *, partial: bool) -> list[Question]:
        """The questions of a split that have an answer.

        Args:
            where: the split.
            questions: of it.
            partial: whether the others may be left out.

        Raises:
            UnansweredError: one has none and may not be left out, or none has one.
        """
        found = [question for question in questions if question.id in self.answers]
        if not found:
            raise UnansweredError(
                f"{self.name}: expected answers to questions of {where} such as {questions[0].id!r}, found none, but"
                f" such as {next(iter(self.answers))!r}; add some, or correct the ids if they are meant to be these"
                " (bench show TASK --example 0)"
            )
        if len(found) < len(questions) and not partial:
            lacking = next(question.id for question in questions if question.id not in self.answers)
            raise UnansweredError(
                f"{self.name}: expected an answer to each of the {len(questions):,} questions of {where}, found"
                f" {len(found):,}; {lacking!r} has none. Add the others, or run with --limit, which leaves them out"
            )
        return found


def is_answer_file(name: str) -> bool:
    """Whether a name ends as those of files of answers do."""
    return Path(name).suffix.lower() in _KINDS


def read_answers(path: Path) -> AnswerFile:
    """The answers of a file.

    Raises:
        UserError: the file can't be read, or a row is not as it must be; names the file and the row.
    """
    content = read_file(path, "a file of answers", ", given with --answers")
    require_text(path.name, "the name of a file of answers")
    answers: dict[str, Released] = {}
    first: dict[str, str] = {}
    judges: set[str] = set()
    rows = list(file_rows(path.name, path.suffix.lower(), content, _COLUMNS))
    require_spelling(path.name, dict.fromkeys(column for row in rows for column in row.values), _COLUMNS)
    for row in rows:
        key = typed(row, "id", str | int, "the id of a question")
        if key in {None, ""}:
            raise wrong(row, "id", "the id of a question", key)
        key = str(key)
        if key in first:
            raise UserError(
                f"{row.where}: expected one answer to each question, got a second one to {key!r}, which {first[key]}"
                " has too; take one of them out, or put it into 'samples' of the other"
            )
        first[key] = row.where
        answers[key] = _answer(row)
        judge = typed(row, "judge", str, _JUDGE)
        judge = path.stem[:_LONGEST_NAME] if judge is None else judge
        if not judge.strip() or not judge.isprintable() or len(judge) > _LONGEST_NAME:
            raise wrong(row, "judge", _JUDGE, judge)
        judges.add(judge)
    graded = [key for key, answer in answers.items() if answer.correct is not None]
    if graded and len(graded) < len(answers):
        lacking = next(first[key] for key, answer in answers.items() if answer.correct is None)
        raise UserError(f"{lacking}: expected a grade as {first[graded[0]]} has one, got none; grade all or none")
    if len(judges) > 1:
        raise UserError(f"{path.name}: expected one judge, got {', '.join(sorted(judges))}; make a file for each")
    sha256 = hashlib.sha256(content).hexdigest()
    return AnswerFile(path.name, sha256, answers, judges.pop() if graded else None)


# --- a row ------------------------------------------------------------------------------------------------------------


def _answer(row: Row) -> Released:
    tokens = typed(row, "tokens", list[int], "a list of token ids")
    text = typed(row, "text", str, "a text") if tokens is None else None
    if tokens is None and text is None:
        raise wrong(row, "text", "a text here, or a list of token ids in 'tokens',", None)
    whole: Text = tuple(tokens) if text is None else text
    start = typed(row, "final_start", int, "a whole number")
    final = row.values.get("final")
    if start is not None and final is not None:
        raise UserError(f"{row.where}: expected 'final' or 'final_start', got both; leave one out")
    if final is not None:
        if not isinstance(whole, str):
            raise wrong(row, "final", "the number of its first token in 'final_start'", final)
        start = whole.rfind(typed(row, "final", str, "a text"))
        if start < 0:
            raise wrong(row, "final", "a part of 'text'", final)
        whole = whole[: start + len(final)]
    start = start or 0
    if not 0 <= start <= len(whole):
        raise wrong(row, "final_start", f"a place from 0 to {len(whole)}", start)
    if isinstance(whole, str):
        whole = whole.rstrip()
        start += len(whole[start:]) - len(whole[start:].lstrip())  # a blank before the answer is no part of it
    trace = whole[:start] if str(whole[:start]).strip() else whole[:0]
    grade = typed(row, "grade", bool | int | float, "true or false, 1 or 0")
    if grade not in {None, 0, 1}:
        raise wrong(row, "grade", "true or false, 1 or 0", grade)
    samples = typed(row, "samples", _SAMPLES, "a list of texts, or of lists of token ids")
    if samples is not None:
        samples = tuple(each.strip() if isinstance(each, str) else tuple(each) for each in samples)
    return Released(None, whole[start:], None if grade is None else bool(grade), trace, samples)
