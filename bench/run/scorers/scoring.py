"""`bench score`: a file of questions, and answers where there are any -> a line of JSON with a confidence for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.api import Format, UserError
from bench.api.question import Released
from bench.data.answer_files import read_answers
from bench.data.question_files import read_scoring_file
from bench.model.specs import label_of
from bench.progress import Progress
from bench.run.scorers.card import GuardCard, read_card
from bench.run.scorers.scorer import HeadSetting, Scored, Scorer, open_head, with_equal_options
from bench.run.scorers.scoring_input import read_words
from bench.store.folders import cache_folder
from bench.store.locks import in_use


@dataclass
class ScoreReport:
    """Scored questions, and what is to be known of them."""

    lines: list[str]
    """One for each question, in the file's order."""
    notes: list[str] = field(default_factory=list)
    """Counts and warnings for the user."""


def score(
    questions: Path, head: Path, answers: Path | None, setting: HeadSetting, progress: Progress,
    cache: Path | None = None,
) -> ScoreReport:  # fmt: skip
    """Score answers to questions with a head.

    Args:
        questions: file of them, which may have answers.
        head: of the head.
        answers: file of answers, where the questions have none.
        setting: the model and how it is run.
        progress: for people.
        cache: where what is read is kept; None: the user's.

    Raises:
        UserError: head, model, questions or answers are not as they must be; nothing was written.
    """
    card = read_card(head)
    asked = read_scoring_file(questions, read_words(head).subject)
    if (own := Format(card.asked.format)) is not asked.format:
        kinds = {Format.CHOICE: "questions with options", Format.OPEN: "open questions"}
        add = own is Format.CHOICE
        way_out = "add the options in column 'choices'" if add else "take the options out of a copy of the file"
        raise UserError(
            f"--head {head}: it is for {kinds[own]} (it was tested on {card.asked.task}), and {asked.name} has"
            f" {kinds[asked.format]}; {way_out}, or take a head for {kinds[asked.format]}."
        )
    written, notes = asked.given, []
    if answers is not None:
        if asked.given:
            raise UserError(
                f"--answers {answers}: {asked.name} has answers of its own in column 'given'; take these out, or leave"
                " --answers out."
            )
        told = read_answers(answers)
        known = {question.id for question in asked.questions}
        written = {key: replace(answer, correct=None) for key, answer in told.answers.items() if key in known}
        if not written:
            raise UserError(
                f"--answers {told.name}: expected answers to questions such as {asked.questions[0].id!r}, found none,"
                f" but such as {next(iter(told.answers))!r}; give both files the same ids in column 'id'."
            )
        others = len(told.answers) - len(written)
        notes += [f"{told.name}: {others:,} answers are to no question of {asked.name}"] * bool(others)
    progress.say(f"{len(asked.questions):,} questions, {len(written):,} with an answer; loading {card.backbone.model}")
    cache = cache or cache_folder()
    opened = open_head(head, setting, cache, progress=progress)
    given = opened.accepted(asked.questions, written)
    with in_use(cache, label_of(opened.reader.lm.spec)) as reads:
        opened.reader.store.reads = reads
        scored = opened.scored(asked.questions, given, asked.dev)
    lines = list(_lines(scored, opened, given))
    changed = sum(answer != written[key] for key, answer in given.items())
    notes += [f"given answers that are a letter written otherwise (A for a), scored as it: {changed:,}"] * bool(changed)
    return ScoreReport(
        [json.dumps(line, ensure_ascii=False) for line in lines], [*notes, *_notes(scored, opened, lines, len(given))]
    )


def _lines(scored: Scored, head: Scorer, given: Mapping[str, Released]) -> Iterator[dict[str, object]]:
    for question, answer, sure in zip(scored.questions, scored.answers, scored.confidence.tolist(), strict=True):
        own = question.id not in given
        unread = answer is not None and bool(answer.text) and not answer.parsed
        line: dict[str, object] = {
            "id": question.id,
            "answer": None if answer is None else answer.text,
            "confidence": None if np.isnan(sure) or (unread and not own) else sure,
            "head": head.name,
        }
        if head.card.guard is not None:
            covered = own and (answer is None or answer.parsed)
            line |= {"trusted": head.card.guard.trusts(sure, own=covered), "guard": head.card.guard.name}
        if answer is None:
            line["note"] = scored.too_long[question.id]
        elif not answer.text:
            line["note"] = "the answer has no text"
        elif unread:
            line["note"] = "the answer is no option's letter"
        yield line


def _notes(scored: Scored, head: Scorer, lines: Sequence[Mapping[str, object]], given: int) -> Iterator[str]:
    n, card, others = len(scored.questions), head.card, scored.strangers
    done = sum(line["confidence"] is not None for line in lines)
    unread = n - done - len(scored.too_long)
    yield f"{done:,} of {n:,} questions scored with {head.name}; answers given: {given:,}, the model's: {n - given:,}"
    context, answers = f"{head.reader.lm.context:,}", [a for a in scored.answers if a is not None]
    odd = [answer for answer in answers if answer.text and not answer.parsed]
    counts = {
        f"too long for the model's context of {context} tokens, not scored": len(scored.too_long),
        "answers without text, scored as the protocol says": sum(not a.text for a in answers),
        "given answers that are no option's letter, not scored": unread,
        "the model's answers that are no option's letter, scored as in a run": len(odd) - unread,
        "questions with two equal options, scored all the same": len(with_equal_options(scored.questions)),
        "answers that name an option not by its letter alone (A for a), scored as written": sum(
            a.letter is not None and a.text != a.letter for a in answers
        ),
    }
    yield from (f"{what}: {count:,}" for what, count in counts.items() if count)
    if others.questions:
        named = ", ".join(map(repr, others.subjects[:3])) + (" ..." if len(others.subjects) > 3 else "")  # noqa: PLR2004
        yield (
            f"{others.questions:,} questions are of subjects that the head has no exemplars of ({named}): their prompts"
            f" show {others.shown} of other subjects; add rows of split 'dev' to show your own"
        )
    trusted = sum(line.get("trusted") is True for line in lines)
    yield from guard_notes(card.guard, trusted, given, others.questions)
    dtype = head.reader.lm.dtype_name
    if dtype != card.backbone.dtype:
        yield (
            f"the head was made in {card.backbone.dtype}, and its model is read in {dtype}; how far that moves its"
            " confidences says bench head check"
        )
    if card.test.limit is not None:
        yield f"the head was made by a run with --limit {card.test.limit}; it learned from few answers"


def guard_notes(guard: GuardCard | None, trusted: int, given: int, strangers: int) -> Iterator[str]:
    """Sentences on what was trusted, and where the guard says nothing.

    Args:
        guard: of the head.
        trusted: answers that it trusts.
        given: answers that were not the model's own.
        strangers: questions of subjects that the head has no exemplars of.
    """
    if guard is None:
        return
    yield f"trusted are {guard.terms}, calibrated on {guard.answers:,} answers of {guard.task}: {trusted:,}"
    beyond = [f"{given:,} answers that were given to it"] * bool(given)
    beyond += [f"{strangers:,} questions of other subjects"] * bool(strangers)
    if beyond:
        yield (
            f"the guard is for the model's own answers to questions like those of {guard.task}; of"
            f" {' and '.join(beyond)} it guarantees nothing"
        )
