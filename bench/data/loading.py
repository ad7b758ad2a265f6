"""Loading of a run's questions: each split is loaded once, validated, and cut to `--limit`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bench.api import Format, Question, Split, Task, UserError
from bench.api.errors import plugin_errors, require_text
from bench.api.protocol import Protocol
from bench.api.question import Released
from bench.data.answer_files import AnswerFile
from bench.data.question_files import FEWEST, MOST
from bench.data.released import Release
from bench.data.splits import TaskSplit, held_out, limit_by_subject

_TRAIN_LIMIT = 320
"""A run with `--limit` keeps at most this many training questions, or as many as the limit if it is larger. With
`Loader.scaled_by` it keeps a share of them instead."""
_MIN_TRAIN = 32
"""When the number of training questions is scaled down, at least this many are kept, enough to fill a batch."""


@dataclass(frozen=True)
class LoadedSplit:
    """The questions of one split of a task, loaded and cut to `--limit`."""

    questions: list[Question]
    """Questions of the split that the run uses, after `--limit`."""
    whole: Sequence[Question]
    """All questions of the split before `--limit`, for the check of contamination."""
    released: Mapping[str, Released] = field(default_factory=dict)
    """Question id -> answer from a release or a user's file; empty if the model itself answers."""
    unanswered: int = 0
    """Number of questions left out because a user's file of answers lacks them."""


@dataclass(frozen=True)
class Loader:
    """Loader of the questions of splits; each split is loaded once and cached."""

    tasks: Mapping[str, Task]
    tests: Collection[TaskSplit]
    """Splits on which methods are tested."""
    disjoint: Collection[TaskSplit]
    """Splits of the run that must not share questions. A task without a validation split gets one from its train split.
    If that validation split is listed here, its questions are removed from train. If it is not listed, because it only
    serves to scale scores, train stays whole."""
    protocol: Protocol
    limit: int | None = None
    """Largest number of questions of a test split; None for no limit."""
    release: Release | AnswerFile | None = None
    """Source of answers from a release or a user's file; None if the model itself answers."""
    scaled_by: Mapping[str, Collection[TaskSplit]] | None = None
    """Training task -> test splits. If `limit` keeps some share of the questions of these splits, the same share of the
    training questions is kept, but at least 32. None: a fixed number of training questions is kept, `limit` but at
    least 320."""
    _cache: dict[TaskSplit, LoadedSplit] = field(default_factory=dict, init=False, repr=False)

    def load(self, where: TaskSplit) -> LoadedSplit:
        """Load the questions of a split, or return them from the cache.

        Raises:
            UserError: the task has no such split, its rows can't be loaded, or a question is invalid.
            UnansweredError: the user's file of answers lacks answers to questions of the split.
        """
        if where in self._cache:
            return self._cache[where]
        task = self.tasks[where.task]
        released: Mapping[str, Released] = {}
        letters = self.protocol.letters if task.format is Format.CHOICE else None
        if not isinstance(self.release, Release):
            with plugin_errors(f"task {where.task!r}, {where.split} questions"):
                whole = self._split(where)
                check_questions(where, whole, letters)
        else:
            records = self.release.records(task, where.split)
            whole = [question for question, _ in records]
            released = {question.id: record for question, record in records}
            check_questions(where, whole, letters)
        answered, unanswered = whole, 0
        if isinstance(self.release, AnswerFile):
            answered = self.release.answered(where, whole, partial=self.limit is not None)
            unanswered = len(whole) - len(answered)
            released = self.release.answers
        if self.limit is not None:
            n = self.limit if where in self.tests else max(self.limit, _TRAIN_LIMIT)
            if where not in self.tests and self.scaled_by is not None:
                tests = [self.load(test) for test in self.scaled_by[where.task]]
                share = sum(len(t.questions) for t in tests) / sum(len(t.whole) - t.unanswered for t in tests)
                n = max(math.ceil(share * len(answered)), _MIN_TRAIN)
            answered = limit_by_subject(answered, n)
        split_answers = {question.id: released[question.id] for question in answered} if released else {}
        self._cache[where] = LoadedSplit(answered, whole, split_answers, unanswered)
        return self._cache[where]

    def _split(self, where: TaskSplit) -> list[Question]:
        """Return all questions of a split.

        If the task has no validation split, a part of its train split serves as one.
        """
        task = self.tasks[where.task]
        validation = TaskSplit(where.task, "validation")
        derived = "validation" not in task.card.splits and (where == validation or validation in self.disjoint)
        source: Split = "train" if derived and where == validation else where.split
        if source not in task.card.splits:
            raise UserError(
                f"Task {where.task!r} has no {source} split (it has {', '.join(task.card.splits)}), which methods were"
                " to learn on. Name another task, or a file: --train-on TASK, --train-on FILE."
            )
        questions = list(task.questions(source))
        if not derived or source != "train":
            return questions
        mask = held_out(questions, self.protocol.validation_fraction, self.protocol.split_seed)
        return [question for question, is_out in zip(questions, mask, strict=True) if is_out == (where == validation)]


def check_questions(where: TaskSplit, questions: Sequence[Question], letters: str | None) -> None:
    """Validate the questions of a split; `letters` are the option letters, None for open questions.

    Raises:
        UserError: the split has no question, or two with the same id; or a question has a text that UTF-8 can't encode,
            or no option with its gold index; or a choice question has too few or too many options, or more than
            `letters` has letters.
    """
    if not questions:
        raise UserError(f"{where}: expected at least one question, got none; check the task's data.")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(f"{where}: expected ids of their own, got two questions {question.id!r}; rename one.")
        seen.add(question.id)
        texts = (question.id, question.subject, question.text, *question.choices, *(text for _, text in question.parts))
        require_text("\n".join((*texts, *question.accepted)), f"{where}, question {question.id!a}")
        n = len(question.choices)
        if letters is not None and not FEWEST <= n <= MOST:
            raise UserError(
                f"{where}: expected {FEWEST} to {MOST} options, got {n} in question {question.id!r}; correct it."
            )
        if letters is not None and n > len(letters):
            raise UserError(
                f"{where}: expected a letter for each of the {n} options of question {question.id!r}, got only"
                f" {letters!r}; give more with --set protocol.letters=LETTERS."
            )
        if not 0 <= question.gold < n:
            raise UserError(
                f"{where}: expected an answer index from 0 to {n - 1}, got {question.gold} in"
                f" question {question.id!r}; correct it."
            )
