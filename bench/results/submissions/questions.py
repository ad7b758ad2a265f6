"""Answers and labels of a result against the questions: those in `questions/`, and the task's own where at hand."""

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
from bench.results import questions as question_texts
from bench.results.files import SEPARATOR
from bench.results.questions import QuestionText
from bench.results.submissions.cell import Finding, SubmittedCell, Unchecked, protocol_of
from bench.results.submissions.numbers import differs

FILE = re.compile(rf"(?P<task>.+){SEPARATOR}v(?P<version>[0-9]{{1,9}})\.parquet")


@dataclass(frozen=True)
class Questions:
    """The questions of one task and version."""

    folder: Path
    """Folder of results."""
    task: str
    version: int
    plugin: type[Task] | None
    """The task, where it is built in and has this version."""
    source: FolderSource | HubSource

    @cached_property
    def kept(self) -> Mapping[str, QuestionText] | str:
        """Questions in the folder, by id; empty where there is no file; a sentence where it can't be read."""
        try:
            return question_texts.read(self.folder, self.task, self.version)
        except UserError as error:
            return str(error)

    @cached_property
    def own(self) -> Mapping[str, QuestionText] | str:
        """Questions of the task itself, by id; a sentence where its rows can't be had without the network."""
        if self.plugin is None:
            return f"{self.task} v{self.version} is not built in"
        task = self.plugin(self.source, FIXED)
        try:
            if isinstance(self.source, HubSource) and (task.card.hub is not None or task.origins("test")):
                return "name its data with --data-dir"
            made = [question_texts.of(q, task.style_of(q), task.format, FIXED.letters) for q in task.questions("test")]
        except UserError as error:
            return str(error)
        return {question.id: question for question in made}

    @property
    def true(self) -> Mapping[str, QuestionText]:
        """Questions that results are checked against: the task's own, else those in the folder; empty without both."""
        return next((found for found in (self.own, self.kept) if not isinstance(found, str)), {})

    @cached_property
    def digest(self) -> str:
        """Digest of the questions that results are checked against."""
        return question_texts.digest(self.true.values())

    def findings(self) -> Iterator[Finding]:
        """Problems of the file in the folder."""
        if isinstance(self.kept, str):
            yield self.kept
        elif isinstance(self.own, str):
            yield Unchecked(f"questions of {self.task} against the task's own: {self.own}")
        elif self.kept != self.own:
            differing = [key for key in {**self.own, **self.kept} if self.kept.get(key) != self.own.get(key)]
            yield (
                f"{len(differing)} of its questions are not those of {self.task}, e.g. {differing[0]}; delete it and"
                " run the task again"
            )


# --- one cell ---------------------------------------------------------------------------------------------------------


def findings(cell: SubmittedCell, questions: Questions) -> Iterator[Finding]:
    """Differences of a cell from its questions, and of its labels from what they give its answers."""
    row = cell.row
    if row.answers_source != "generate":
        yield Unchecked("its answers and labels are a release's: they are compared with other cells only")
        return
    if row.questions_digest is None:
        yield "it has no digest of its questions (questions_digest); run it again"
    if not questions.true:
        name = question_texts.path_of(row.task, row.task_version, Path()).name
        yield f"{question_texts.FOLDER}/{name} is not there; copy it too"
        return
    try:
        protocol = protocol_of(row.preset, row.deviations)
    except UserError:
        return  # another check says so
    if protocol.letters != FIXED.letters:
        yield Unchecked("its options have other letters than the questions that are kept")
        return
    if row.limit is None and row.questions_digest not in {None, questions.digest}:
        yield "its digest of the questions is of other questions; delete them and run the task again"
    true, records = questions.true, cell.records
    foreign = [key for key in records.id if key not in true]
    if foreign:
        yield f"{len(foreign)} of its ids are no questions of {row.task}, e.g. {foreign[0]}"
    n = len(records.id) - len(foreign) + (row.n_undecided or 0)
    if row.limit is None and n != len(true):
        yield f"it has {n} of the {len(true)} questions of {row.task}"
    pairs = zip(records.id, records.subject, strict=True)
    moved = [key for key, subject in pairs if key in true and true[key].subject != subject]
    if moved:
        yield f"{len(moved)} of its questions have another subject, e.g. {moved[0]}"
    yield from _labels(cell, true, protocol)


def _labels(cell: SubmittedCell, true: Mapping[str, QuestionText], protocol: Protocol) -> Iterator[str]:
    """Letters against right letters; open answers against right ones where the judge is the exact one."""
    known = [(key, *values) for key, values in cell.answered.items() if key in true]
    wrong, misread = [], []
    for key, _, correct, answer, parsed in known:
        question = true[key]
        if question.choices:
            letter = parse_letter(answer, protocol.letters[: len(question.choices)])
            exact = protocol.letter_rule is LetterRule.EXACT
            label = letter == question.gold if exact else substring_rule(answer, question.gold)
            misread += [key] if (letter is not None) != parsed else []
        else:
            golds = question.gold.split(question_texts.SEVERAL)
            label = bool(answer.strip()) and any(same_text(answer, gold) for gold in golds)
        checked = question.choices or cell.row.judge == "match"  # else only its judge can tell
        wrong += [key] if checked and label != correct else []
    if wrong:
        yield f"{len(wrong)} of its labels are not what the right answers give, e.g. {wrong[0]}"
    if misread:
        yield f"{len(misread)} of its answers are wrongly marked as read or not, e.g. {misread[0]}"
    blank = sum(not answer.strip() for answer in cell.records.answer)
    if (cell.row.n_empty or 0) > blank:
        yield f"n_empty is {cell.row.n_empty}, but {blank} of its answers are empty"
    if known and true[known[0][0]].choices:
        substring = [substring_rule(answer, true[key].gold) != correct for key, _, correct, answer, _ in known]
        yield from differs("letter_rule_disagreement", cell.row.letter_rule_disagreement, float(np.mean(substring)))
