"""The questions of a run: loaded once for each split, checked, and cut to what `--limit` asks for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bench.api import Format, Question, Split, Task, UserError
from bench.api.errors import fenced, require_text
from bench.api.protocol import Protocol
from bench.api.question import Released
from bench.data.answer_files import AnswerFile
from bench.data.question_files import FEWEST, MOST
from bench.data.released import Release
from bench.data.splits import TaskSplit, held_out, spread

_TRAIN_LIMIT = 320
"""Questions of a training split that a run with --limit keeps, at most (or the limit itself, where it is larger)."""
_LEAST = 32
"""Questions of such a split that are left where training is scaled down: fewer are no batch, and teach no method."""


@dataclass(frozen=True)
class LoadedSplit:
    """The questions of one split."""

    questions: list[Question]
    """Questions that take part."""
    whole: Sequence[Question]
    """All of the split: contamination is looked for in these."""
    released: Mapping[str, Released] = field(default_factory=dict)
    """Question id -> answer that was made elsewhere; empty where the model answers."""
    unanswered: int = 0
    """Questions that are left out, since a file of answers lacks them."""


@dataclass(frozen=True)
class Loader:
    """Loads splits."""

    tasks: Mapping[str, Task]
    tests: Collection[TaskSplit]
    """Splits that are predicted."""
    apart: Collection[TaskSplit]
    """Splits of the run that share no question: a validation split among them that is taken out of train is not there
    any more. One on which scores are scaled, and nothing else, leaves train whole."""
    protocol: Protocol
    limit: int | None = None
    """Test questions at most."""
    release: Release | AnswerFile | None = None
    """Source of answers, instead of the model."""
    scaled: Mapping[str, Collection[TaskSplit]] | None = None
    """Task that is learned on -> its tests: training keeps the share of questions that these do; None: as `limit`."""
    _known: dict[TaskSplit, LoadedSplit] = field(default_factory=dict, init=False, repr=False)

    def load(self, where: TaskSplit) -> LoadedSplit:
        """The questions of a split, which are loaded once.

        Raises:
            UserError: the task has no such split, its rows can't be had, or a question is not as it must be.
            UnansweredError: a file of answers has none to it.
        """
        if where in self._known:
            return self._known[where]
        task = self.tasks[where.task]
        released: Mapping[str, Released] = {}
        letters = self.protocol.letters if task.format is Format.CHOICE else None
        if not isinstance(self.release, Release):
            with fenced(f"task {where.task!r}, {where.split} questions"):
                whole = self._split(where)
                check_questions(where, whole, letters)
        else:
            records = self.release.records(task, where.split)
            whole = [question for question, _ in records]
            released = {question.id: record for question, record in records}
            check_questions(where, whole, letters)
        known, unanswered = whole, 0
        if isinstance(self.release, AnswerFile):
            known = self.release.known(where, whole, partial=self.limit is not None)
            unanswered = len(whole) - len(known)
            released = self.release.answers
        if self.limit is not None:
            most = self.limit if where in self.tests else max(self.limit, _TRAIN_LIMIT)
            if where not in self.tests and self.scaled is not None:
                tests = [self.load(test) for test in self.scaled[where.task]]
                asked = sum(len(test.questions) for test in tests)
                most = max(math.ceil(asked / sum(len(t.whole) - t.unanswered for t in tests) * len(known)), _LEAST)
            known = spread(known, most)
        given = {question.id: released[question.id] for question in known} if released else {}
        self._known[where] = LoadedSplit(known, whole, given, unanswered)
        return self._known[where]

    def _split(self, where: TaskSplit) -> list[Question]:
        """All questions of a split; where a task has no validation split, it is taken out of train."""
        task = self.tasks[where.task]
        validation = TaskSplit(where.task, "validation")
        derived = "validation" not in task.card.splits and (where == validation or validation in self.apart)
        source: Split = "train" if derived and where == validation else where.split
        if source not in task.card.splits:
            raise UserError(
                f"Task {where.task!r} has no {source} split (it has {', '.join(task.card.splits)}), which methods were"
                " to learn on. Name another task, or a file: --train-on TASK, --train-on FILE."
            )
        questions = list(task.questions(source))
        if not derived or source != "train":
            return questions
        out = held_out(questions, self.protocol.validation_fraction, self.protocol.split_seed)
        return [question for question, is_out in zip(questions, out, strict=True) if is_out == (where == validation)]


def check_questions(where: TaskSplit, questions: Sequence[Question], letters: str | None) -> None:
    """Check what a task gave before anything is computed from it; `letters` name the options, if they are shown.

    Raises:
        UserError: no question, two with one id, or one with an impossible number of options or gold index.
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
