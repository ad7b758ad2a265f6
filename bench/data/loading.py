"""Loading of a run's questions: each split is loaded once, validated, and cut to `--limit` or `--train-limit`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from bench.api import Format, Question, Split, Task, UserError
from bench.api.errors import AbsentError, plugin_errors, require_text
from bench.api.protocol import Protocol
from bench.api.question import Released
from bench.data.answer_files import AnswerFile, UnansweredError
from bench.data.question_files import FEWEST, MOST
from bench.data.released import Release
from bench.data.splits import TaskSplit, TrainLimit, held_out, limit_by_subject, spread_sample


@dataclass(frozen=True)
class LoadedSplit:
    """The questions of one split of a task, loaded and cut to `--limit` or `--train-limit`."""

    questions: list[Question]
    """Questions of the split that the run uses, after `--limit` or `--train-limit`."""
    whole: Sequence[Question]
    """All questions of the split before that, for the check of contamination."""
    released: Mapping[str, Released]
    """Question id -> answer from a release or a user's file; empty if the model itself answers."""
    unanswered: int = 0
    """Number of questions left out because a user's file of answers lacks them."""


@dataclass(frozen=True)
class Loader:
    """Loader of the questions of splits; each split is loaded once and cached.

    A task without a validation split gets one from its train split. Its questions are never in train, even if the run
    doesn't read them, so that a method learns on the same rows beside any other methods.
    """

    tasks: Mapping[str, Task]
    tests: Collection[TaskSplit]
    """Splits on which methods are tested."""
    protocol: Protocol
    limit: int | None = None
    """Largest number of questions of a test split; None for no limit."""
    release: Release | AnswerFile | None = None
    """Source of answers from a release or a user's file; None if the model itself answers."""
    train_limit: TrainLimit | None = None
    """Largest numbers of questions of training and validation splits; None for no limit."""
    learned: Mapping[str, TaskSplit] = field(default_factory=dict)
    """Training task -> its split that takes the place of the train split."""
    _cache: dict[TaskSplit, LoadedSplit] = field(default_factory=dict, init=False, repr=False)

    def load(self, where: TaskSplit) -> LoadedSplit:
        """Load the questions of a split and cut them to the limit.

        Raises:
            UserError: the task has no such split, its rows can't be loaded, or a question is invalid.
            UnansweredError: the user's file of answers lacks answers to questions of the split.
        """
        loaded = self._load_uncut(where)
        if where in self.tests:
            kept = loaded.questions if self.limit is None else limit_by_subject(loaded.questions, self.limit)
        elif self.train_limit is not None:
            n = self._labels(where, self.train_limit)
            kept = spread_sample(loaded.questions, n, where, self.protocol.split_seed)
        else:
            kept = loaded.questions
        released = {question.id: loaded.released[question.id] for question in kept} if loaded.released else {}
        return replace(loaded, questions=kept, released=released)

    def _labels(self, where: TaskSplit, limit: TrainLimit) -> int:
        """Return how many questions of a training or validation split are kept.

        The number does not depend on which splits the run reads, so that a cell has the same labels in any company.
        """
        train, validation = self.learned[where.task], TaskSplit(where.task, "validation")
        if train == validation:
            return limit.train
        n_train = n_validation = 0
        if limit.validation is None:
            splits = self.tasks[where.task].card.splits
            with suppress(UnansweredError):  # then validation gets all
                n_train = len(self._load_uncut(train).questions) if train.split in splits else 0
            with suppress(AbsentError):  # without a validation split training gets all
                n_validation = len(self._load_uncut(validation).questions)
        return limit.shares(n_train, n_validation)[where == validation]

    def _load_uncut(self, where: TaskSplit) -> LoadedSplit:
        """Load all questions of a split that have answers, or return them from the cache.

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
            limited = self.limit is not None or (self.train_limit is not None and where not in self.tests)
            answered = self.release.answered(where, whole, partial=limited)
            unanswered = len(whole) - len(answered)
            released = self.release.answers
        self._cache[where] = LoadedSplit(answered, whole, released, unanswered)
        return self._cache[where]

    def _split(self, where: TaskSplit) -> list[Question]:
        """Return all questions of a split.

        If the task has no validation split, a part of its train split serves as one, and is left out of train. If the
        split of a benchmark from the Hub has another size than its card says, `task.counts` has the size.
        """
        task, is_validation = self.tasks[where.task], where.split == "validation"
        derived = "validation" not in task.card.splits
        source: Split = "train" if derived and is_validation else where.split
        if source not in task.card.splits:
            raise AbsentError(
                f"Task {where.task!r} has no {source} split (it has {', '.join(task.card.splits)}), which methods were"
                " to learn on. Name another task, or a file: --train-on TASK, --train-on FILE."
            )
        questions = list(task.questions(source))
        if task.card.hub is not None and len(questions) != task.card.sizes[source]:  # a file that was cut, or a mirror
            task.counts[f"questions in {source}, instead of {task.card.sizes[source]:,}"] = len(questions)
        if not derived or source != "train":
            return questions
        mask = held_out(questions, self.protocol.validation_fraction, self.protocol.split_seed)
        return [question for question, is_out in zip(questions, mask, strict=True) if is_out == is_validation]


def check_questions(where: TaskSplit, questions: Sequence[Question], letters: str | None) -> None:
    """Validate the questions of a split; `letters` are the option letters, None for open questions.

    Raises:
        UserError: the split has no question, or two with the same id; or a question has a text that UTF-8 can't encode,
            or no option with its gold index; or a choice question has too few or too many options, or more than
            `letters` has letters.
    """
    if not questions:
        raise AbsentError(f"{where}: expected at least one question, got none; check the task's data.")
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
