"""Check of a result's ids, answers and labels against the stored questions, and of these against the task's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bench.api import Task, UserError
from bench.api.protocol import FIXED, LetterRule, Protocol
from bench.data.sources import FolderSource, HubSource
from bench.grading.grade import parse_letter, same_text, substring_rule
from bench.results import question_texts
from bench.results.files import SEPARATOR
from bench.results.question_texts import QuestionText
from bench.results.submissions.cell import Finding, SkippedCheck, SubmittedCell, protocol_of
from bench.results.submissions.recomputation import differs

FILE = re.compile(rf"(?P<task>.+){SEPARATOR}v(?P<version>[0-9]{{1,9}})\.parquet")


@dataclass(frozen=True)
class Questions:
    """Question texts of one version of a task: those stored in the results folder, and those that the task yields."""

    folder: Path
    """The results folder."""
    task: str
    version: int
    plugin: type[Task] | None
    """Class of the task; None if the task is not built in, or has another version."""
    source: FolderSource | HubSource

    @cached_property
    def stored(self) -> Mapping[str, QuestionText] | str:
        """Stored questions, id -> text, empty if there is no file; or an error message if the file can't be read."""
        try:
            return question_texts.read(self.folder, self.task, self.version)
        except UserError as error:
            return str(error)

    @cached_property
    def official(self) -> Mapping[str, QuestionText] | str:
        """Questions that the task yields, id -> text; or a text that says why there are none.

        There are none if `plugin` is None, if loading them needs network, or if loading them fails.
        """
        if self.plugin is None:
            return f"{self.task} v{self.version} is not built in"
        task = self.plugin(self.source, FIXED)
        try:
            if isinstance(self.source, HubSource) and (task.card.hub is not None or task.origins("test")):
                return "name its data with --data-dir"
            texts = [question_texts.of(q, task.style_of(q), task.format, FIXED.letters) for q in task.questions("test")]
        except UserError as error:
            return str(error)
        return {question.id: question for question in texts}

    @property
    def reference(self) -> Mapping[str, QuestionText]:
        """Questions to check results against: those that the task yields, or else the stored ones; may be empty."""
        return next((texts for texts in (self.official, self.stored) if not isinstance(texts, str)), {})

    @cached_property
    def digest(self) -> str:
        """Digest of the questions in `reference`."""
        return question_texts.digest(self.reference.values())

    def findings(self) -> Iterator[Finding]:
        """Check the stored questions against those that the task yields; yield the problems."""
        if isinstance(self.stored, str):
            yield self.stored
        elif isinstance(self.official, str):
            yield SkippedCheck(f"questions of {self.task} against the task's own: {self.official}")
        elif differing := [key for key, text in self.stored.items() if text != self.official.get(key)]:
            yield (
                f"{len(differing)} of its questions are not those of {self.task}, e.g. {differing[0]}; delete it and"
                " run the task again"
            )


# --- one cell ---------------------------------------------------------------------------------------------------------


def findings(cell: SubmittedCell, questions: Questions) -> Iterator[Finding]:
    """Check a result against the questions: ids, subjects, digest, and labels, for which answers are graded again."""
    row = cell.row
    if "answers" in row.config:
        yield SkippedCheck("its answers and labels are a release's: they are compared with other cells only")
        return
    if row.questions_digest is None:
        yield "it has no digest of its questions (questions_digest); run it again"
    if not questions.reference:
        name = question_texts.path_of(row.task, row.task_version, Path()).name
        yield f"{question_texts.FOLDER}/{name} is not there; copy it too"
        return
    try:
        protocol = protocol_of(row.preset, row.deviations)
    except UserError:
        return  # reported by another check
    if protocol.letters != FIXED.letters:
        yield SkippedCheck("its options have other letters than the questions that are kept")
        return
    if row.limit is None and row.questions_digest not in {None, questions.digest}:
        yield "its digest of the questions is of other questions; delete them and run the task again"
    reference, records = questions.reference, cell.records
    foreign = [key for key in records.id if key not in reference]
    if foreign:
        yield f"{len(foreign)} of its ids are no questions of {row.task}, e.g. {foreign[0]}"
    n = len(records.id) - len(foreign) + (row.n_undecided or 0)
    if row.limit is None and n != len(reference):
        yield f"it has {n} of the {len(reference)} questions of {row.task}"
    pairs = zip(records.id, records.subject, strict=True)
    other_subject = [key for key, subject in pairs if key in reference and reference[key].subject != subject]
    if other_subject:
        yield f"{len(other_subject)} of its questions have another subject, e.g. {other_subject[0]}"
    yield from _label_findings(cell, reference, protocol)


def _label_findings(cell: SubmittedCell, reference: Mapping[str, QuestionText], protocol: Protocol) -> Iterator[str]:
    """Grade answers again and compare the labels. Open answers are graded only if their judge was `match`."""
    answers = [(key, *values) for key, values in cell.answered.items() if key in reference]
    wrong, misread = [], []
    for key, _, correct, answer, parsed in answers:
        question = reference[key]
        if question.choices:
            letter = parse_letter(answer, protocol.letters[: len(question.choices)])
            exact = protocol.letter_rule is LetterRule.EXACT
            label = letter == question.gold if exact else substring_rule(answer, question.gold)
            misread += [key] if (letter is not None) != parsed else []
        else:
            golds = question.gold.split(question_texts.ANSWER_SEPARATOR)
            label = bool(answer.strip()) and any(same_text(answer, gold) for gold in golds)
        checked = question.choices or cell.row.judge == "match"  # else the judge is needed
        wrong += [key] if checked and label != correct else []
    if wrong:
        yield f"{len(wrong)} of its labels are not what the right answers give, e.g. {wrong[0]}"
    if answers and not reference[answers[0][0]].choices and cell.row.judge != "match":
        yield SkippedCheck(f"judge {cell.row.judge} graded its answers: whether it gave its labels")
    if misread:
        yield f"{len(misread)} of its answers are wrongly marked as read or not, e.g. {misread[0]}"
    blank = sum(not answer.strip() for answer in cell.records.answer)
    if (cell.row.n_empty or 0) > blank:
        yield f"n_empty is {cell.row.n_empty}, but {blank} of its answers are empty"
    if n_options := [len(reference[key].choices) for key, *_ in answers]:
        chance = float(np.mean([1 / n for n in n_options])) if all(n_options) else None
        yield from differs("chance_accuracy", cell.row.chance_accuracy, chance)
    if answers and reference[answers[0][0]].choices:
        substring = [substring_rule(answer, reference[key].gold) != correct for key, _, correct, answer, _ in answers]
        yield from differs("letter_rule_disagreement", cell.row.letter_rule_disagreement, float(np.mean(substring)))
