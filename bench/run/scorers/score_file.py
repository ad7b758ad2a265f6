"""`bench score`: compute a head's confidences in answers to a file of questions, as one JSON line for each question.

Answers come from the same file or from another one; the model answers the questions that have none there.
"""

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
from bench.report.text import plural
from bench.run.config import HeadSetting, RunConfig
from bench.run.scorers.card import GuardCard, read_card
from bench.run.scorers.scorer import ScoredAnswers, Scorer, open_head, with_equal_options
from bench.run.scorers.scoring_input import read_wording
from bench.signals.definition import continuations_of, required_stored_signals
from bench.store.disk_cache import cache_folder
from bench.store.locks import mark_in_use


@dataclass
class ScoreReport:
    """Output of `bench score`."""

    lines: list[str]
    """One JSON text for each question, in the order of the file."""
    notes: list[str] = field(default_factory=list)
    """Counts and warnings to show to the user."""


def score(
    questions: Path, head: Path, answers: Path | None, setting: HeadSetting, progress: Progress,
    cache: Path | None = None,
) -> ScoreReport:  # fmt: skip
    """Compute a head's confidences in answers to the questions of a file.

    Args:
        questions: file of questions; it may also hold answers.
        head: folder of the head.
        answers: file of answers, if `questions` holds none. The model answers questions without a given answer.
        setting: the model, and how it is run.
        progress: reports how far scoring is.
        cache: folder of the store; None: the user's default folder.

    Raises:
        UserError: head, model, questions or answers are invalid.
    """
    card = read_card(head)
    file = read_scoring_file(questions, read_wording(head).subject)
    if (expected := Format(card.asked.format)) is not file.format:
        kinds = {Format.CHOICE: "questions with options", Format.OPEN: "open questions"}
        add = expected is Format.CHOICE
        way_out = "add the options in column 'choices'" if add else "take the options out of a copy of the file"
        raise UserError(
            f"--head {head}: it is for {kinds[expected]} (it was tested on {card.asked.task}), and {file.name} has"
            f" {kinds[file.format]}; {way_out}, or take a head for {kinds[file.format]}."
        )
    provided, notes = file.given, []
    if answers is not None:
        if file.given:
            raise UserError(
                f"--answers {answers}: {file.name} has answers of its own in column 'given'; take these out, or leave"
                " --answers out."
            )
        source = read_answers(answers)
        ids = {question.id for question in file.questions}
        provided = {key: replace(answer, correct=None) for key, answer in source.answers.items() if key in ids}
        if not provided:
            raise UserError(
                f"--answers {source.name}: expected answers to questions such as {file.questions[0].id!r}, found none,"
                f" but such as {next(iter(source.answers))!r}; give both files the same ids in column 'id'."
            )
        others = len(source.answers) - len(provided)
        notes += [f"{source.name}: left out: {plural(others, 'answer')} to no question of {file.name}"] * bool(others)
    progress.say(f"questions: {len(file.questions):,}, answered: {len(provided):,}; loading {card.backbone.model}")
    cache = cache or cache_folder()
    scorer = open_head(head, setting, cache, progress=progress)
    stored = required_stored_signals(scorer.method.reads().predict, expected, 2)
    n = max((sampling.n for sampling in continuations_of(stored).samples), default=0)
    numbers = [len(answer.samples or ()) for answer in provided.values()]
    if max(numbers, default=0) and min(numbers) < n:
        raise UserError(
            f"--answers {answers}: the head reads {n} samples of each question, found {min(numbers) or 'none'} of one;"
            " add them, or take column 'samples' out, and the model draws them."
        )
    checked = scorer.check_answers(file.questions, provided)
    with mark_in_use(cache, label_of(scorer.reader.lm.spec)) as reads:
        scorer.reader.store.reads = reads
        scored = scorer.score_questions(file.questions, checked, file.dev)
    lines = list(_output_lines(scored, scorer, checked))
    notes += filter(None, [scorer.traces_note(file.questions, checked)])
    changed = sum(answer != provided[key] for key, answer in checked.items())
    notes += [f"given answers that are a letter written otherwise (A for a), scored as it: {changed:,}"] * bool(changed)
    return ScoreReport(
        [json.dumps(line, ensure_ascii=False) for line in lines], [*notes, *_notes(scored, scorer, lines, len(checked))]
    )


def _output_lines(scored: ScoredAnswers, head: Scorer, provided: Mapping[str, Released]) -> Iterator[dict[str, object]]:
    for question, answer, confidence in zip(scored.questions, scored.answers, scored.confidence.tolist(), strict=True):
        generated = question.id not in provided
        unusable = answer is not None and not answer.parsed
        line: dict[str, object] = {
            "id": question.id,
            "answer": None if answer is None else answer.text,
            "confidence": None if np.isnan(confidence) or (unusable and not generated) else confidence,
            "head": head.name,
        }
        if head.card.guard is not None:
            covered = generated and (answer is None or answer.parsed)
            line |= {"trusted": head.card.guard.trusts(confidence, own=covered), "guard": head.card.guard.name}
        if answer is None:
            line["note"] = scored.too_long[question.id]
        elif not answer.text:
            line["note"] = "the answer has no text"
        elif unusable:
            line["note"] = "the answer is no option's letter"
        yield line


def _notes(scored: ScoredAnswers, head: Scorer, lines: Sequence[Mapping[str, object]], given: int) -> Iterator[str]:
    n, card, others = len(scored.questions), head.card, scored.unknown_subjects
    done = sum(line["confidence"] is not None for line in lines)
    empty = sum(line["answer"] == "" and line["confidence"] is None for line in lines)
    unparsed = n - done - len(scored.too_long) - empty
    yield f"scored with {head.name}: {done:,} of {n:,}; answers given: {given:,}, the model's: {n - given:,}"
    context, answers = f"{head.reader.lm.context:,}", [a for a in scored.answers if a is not None]
    unparsed_answers = [answer for answer in answers if answer.text and not answer.parsed]
    counts = {
        f"too long for the model's context of {context} tokens, not scored": len(scored.too_long),
        "given answers without text, not scored": empty,
        "the model's answers without text, scored as the protocol says": sum(not a.text for a in answers) - empty,
        "given answers that are no option's letter, not scored": unparsed,
        "the model's answers that are no option's letter, scored as in a run": len(unparsed_answers) - unparsed,
        "questions with two equal options, scored all the same": len(with_equal_options(scored.questions)),
        "answers that name an option not by its letter alone (A for a), scored as written": sum(
            a.letter is not None and a.text != a.letter for a in answers
        ),
    }
    yield from (f"{what}: {count:,}" for what, count in counts.items() if count)
    if others.questions:
        named = ", ".join(map(repr, others.subjects[:3])) + (" ..." if len(others.subjects) > 3 else "")
        yield (
            f"{plural(others.questions, 'question')} of subjects that the head has no exemplars of ({named}): their"
            f" prompts show {others.shown} of other subjects; add rows of split 'dev' to show your own"
        )
    trusted = sum(line.get("trusted") is True for line in lines)
    yield from guard_notes(card.guard, trusted, given, others.questions)
    dtype = head.reader.lm.dtype_name
    if dtype != card.backbone.dtype:
        yield (
            f"the head was made in {card.backbone.dtype}, and its model is read in {dtype}; how far that moves its"
            " confidences says bench head check"
        )
    if card.asked.answers != RunConfig.answers and given < n:
        yield f"the model's own answers, unlike those of the head, which are from {card.asked.answers}: {n - given:,}"
    if card.test.limit is not None:
        yield f"the head was made by a run with --limit {card.test.limit}; its metrics are those of few answers"


def guard_notes(guard: GuardCard | None, trusted: int, provided: int, unknown_subjects: int) -> Iterator[str]:
    """Yield notes on how many answers a head's guard trusts, and how many it doesn't cover.

    Args:
        guard: guard of the head. If it is None, nothing is yielded.
        trusted: number of trusted answers.
        provided: number of answers that the model did not generate.
        unknown_subjects: number of questions on subjects for which the head has no exemplars.
    """
    if guard is None:
        return
    yield f"trusted are {guard.terms}, calibrated on {guard.answers:,} answers of {guard.task}: {trusted:,}"
    outside = [f"{plural(provided, 'answer')} given to it"] * bool(provided)
    outside += [f"{plural(unknown_subjects, 'question')} of other subjects"] * bool(unknown_subjects)
    if outside:
        yield (
            f"the guard is for the model's own answers to questions like those of {guard.task}; of"
            f" {' and '.join(outside)} it guarantees nothing"
        )
