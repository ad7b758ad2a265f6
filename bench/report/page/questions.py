"""Select the questions that the page shows of a model and task, and cut their texts to a budget of bytes.

The page shows the most confident mistakes and the least confident right answers, by the mean confidence over methods.
It also shows a random sample, which is the same for all models. All questions would make the page too large.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api import BoolArray, FloatArray, IntArray, PromptStyle, Question
from bench.api.protocol import Protocol
from bench.grading.grade import parse_letter
from bench.prompts import templates
from bench.report.page.disagreements import largest_disagreements
from bench.results.question_records import QuestionRecords
from bench.results.question_texts import QuestionText
from bench.results.row import ResultRow

PARTS = 10_000
"""Confidences are stored on the page as integers: a confidence times this number, rounded."""
Runs = Sequence[QuestionRecords]
"""Answers and confidences of one method, one element for each seed whose run succeeded."""
EACH = 50
"""Number of questions in each of three groups: confident mistakes, unconfident right answers, random sample."""
FEW = 25
"""Number of questions in each group (mistakes, right answers, random sample) on a page of many tables."""
_BUDGET = 2_500_000
"""Maximum size of all question texts and answers on one page, in bytes."""
_BRIEF_BUDGET = 600_000
"""Maximum total size, in bytes, of texts of questions that the page shows only because two methods disagree."""
_BRIEF_LIMITS = (1_000, 400, 200, 100)
_ONLY_OPTIONS = PromptStyle(header="", footer="", context="{options}")
_HEADING = "Choices:"
"""Text that stands on a line above the answer options in most prompts."""
_LIMITS = (20_000, 8_000, 3_000, 1_000, 400, 200)
"""Maximum lengths of a question text, in characters, to try in order. The first with which all texts fit is used."""


@dataclass
class QuestionTexts:
    """Texts of the questions on a page, each stored once for all models."""

    each: int = EACH
    """Number of questions in each group (mistakes, right answers, random sample) of a model and task."""
    limit: int | None = None
    """Maximum length of a text in characters; None if no text was cut."""
    brief_limit: int | None = None
    """Maximum length in characters of brief texts, which are then shown without options; None if none was cut.

    Texts are brief if the page shows the question only because two methods disagree.
    """
    _texts: list[list[Any]] = field(default_factory=list)
    _index: dict[tuple[str, int, str], int] = field(default_factory=dict)
    _brief: set[int] = field(default_factory=set)

    def add(self, task: str, version: int, question_text: QuestionText | None, *, brief: bool = False) -> int:
        """Store the text of a question and return its index; -1 if `question_text` is None.

        The page shows answer options beside the text, so they are removed from the text if they have the default
        format. A text is `brief` if the page shows the question only because two methods disagree. Brief texts have a
        smaller budget of bytes.
        """
        if question_text is None:
            return -1
        index = self._index.setdefault((task, version, question_text.id), len(self._texts))
        if index == len(self._texts):
            text, options = question_text.text, list(question_text.choices)
            if options:
                question = Question(question_text.id, question_text.subject, "", question_text.choices, 0)
                text = text.removesuffix(templates.context(question, _ONLY_OPTIONS, Protocol().letters)).rstrip()
                if text == question_text.text.rstrip():
                    options = []
                else:
                    text = text.removesuffix(_HEADING).rstrip()
            self._texts.append([text, options, question_text.gold])
            self._brief.add(index)
        if not brief:
            self._brief.discard(index)
        return index

    def shortened(self, blocks: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        """Return all question texts, cut to the budget of bytes; the answers in `blocks` are cut in place."""
        answers = [block["questions"]["answer"] for block in blocks if block["questions"]]
        parts = [part for column in answers for part in column]
        brief: list[str] = []
        for i, (text, options, gold) in enumerate(self._texts):
            (brief if i in self._brief else parts).extend((text, gold, *options))
        limit, is_cut = _limit(parts, _BUDGET, _LIMITS)
        self.limit = limit if is_cut else None
        for column in answers:
            column[:] = [trim(text, limit) for text in column]
        if sum(_size(part) for part in brief) > _BRIEF_BUDGET:
            self.brief_limit, _ = _limit([self._texts[i][0] for i in self._brief], _BRIEF_BUDGET, _BRIEF_LIMITS)
        texts: list[list[Any]] = []
        for i, (text, options, gold) in enumerate(self._texts):
            if i in self._brief and self.brief_limit is not None:
                size = min(limit, self.brief_limit)
                texts.append([text if len(text) <= size else f"{text[:size]}…", [], gold[:size]])
            else:
                texts.append([trim(text, limit), [trim(option, limit) for option in options], trim(gold, limit)])
        return texts


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _limit(texts: Sequence[str], budget: int, limits: Sequence[int]) -> tuple[int, bool]:
    """Return the first of `limits` at which the texts fit into a budget of bytes, and whether a text is cut by it.

    If the texts fit at none of the limits, the last one is returned.
    """
    sizes = list(map(_size, texts))
    limit = next((limit for limit in limits if sum(min(size, limit) for size in sizes) <= budget), limits[-1])
    return limit, any(size > limit for size in sizes)


def trim(text: str, limit: int) -> str:
    """Cut out the middle of a text longer than `limit` characters, and say how many were left out.

    >>> trim("abcdefgh", 4)
    'ab [4 characters left out] gh'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half:,} characters left out] {text[-half:]}"


# --- which ones -------------------------------------------------------------------------------------------------------


def select_questions(
    row: ResultRow,
    records: Sequence[Runs],
    subjects: Sequence[str],
    by_id: Mapping[str, QuestionText],
    texts: QuestionTexts,
    *,
    disputed: Sequence[tuple[int, int]],
    each_way: int,
    base: int | None = None,
) -> dict[str, Any] | None:
    """Return the questions to show of one model and task; None if no method has a result.

    Returns:
        {"id", "subject", "answer", "letter", "correct", "parsed", "asked": lists with a value for each of k questions;
            `letter` is the index of the option that was answered, or null; `asked` is the index of the question's text,
        "confidence": [[k values in ten-thousandths, or null] of each method],
        "groups": {"mistakes", "hits", "random": [index of a question in the lists, ...]},
        "of": {"all", "mistakes", "hits": number of questions of the task, shown or not},
        "differing": number of questions to which some method's result has another answer than the one shown,
        "relabelled": [index of each method in whose result an answer is graded otherwise than shown],
        "disagreements": [[method, other method, questions where the first is more confident, where the second is],
            ...]}

    Args:
        row: any result of the model and task.
        records: answers and confidences of each method, by seed.
        subjects: names of subjects; `subject` above has indices into this list.
        by_id: texts of the task's questions, by id.
        texts: receives the texts of the selected questions.
        disputed: pairs of methods, as indices into `records`, whose largest disagreements are shown too. Pairs in which
            a method has other labels than those shown are ignored.
        each_way: maximum number of questions for a pair of methods and a direction of disagreement.
        base: index of the method whose answers and labels are shown; by default the first method with a result.
    """
    with_results = [runs[0] for runs in records if runs]
    if not with_results:
        return None
    shown = with_results[0] if base is None else records[base][0]
    correct, ref = shown.correct, _by_id(shown, shown.correct)
    answers = dict(zip(shown.id, shown.answer, strict=True))
    # mean confidence over seeds, (lines, n); NaN where a line doesn't have the question
    seeds = [[_by_id(run, run.confidence) for run in runs] or [{}] for runs in records]
    confidence = np.array([np.mean([[run.get(key, np.nan) for key in ref] for run in runs], axis=0) for runs in seeds])
    is_known = ~np.isnan(confidence)
    mean = np.where(is_known, confidence, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    seed = hashlib.sha256(f"{row.task}\0{row.task_version}".encode()).digest()
    groups = pick(mean, correct, int.from_bytes(seed[:8], "big"), texts.each)
    labels = [[_by_id(run, run.correct) for run in runs] for runs in records]
    agreeing = {line for line, runs in enumerate(labels) if runs and all(run == ref for run in runs)}
    disagreements = largest_disagreements(confidence, [ends for ends in disputed if set(ends) <= agreeing], each_way)
    idx = np.unique(np.concatenate([*groups.values(), *(rows for _, _, *sides in disagreements for rows in sides)]))
    grouped = {int(i) for group in groups.values() for i in group}
    subject_index, rows = {name: i for i, name in enumerate(subjects)}, idx.tolist()
    letters: list[int | None] = []
    for i in rows:
        question = by_id.get(shown.id[i])
        options = Protocol().letters[: len(question.choices) if question else 0]
        letter = parse_letter(shown.answer[i], options)
        letters.append(None if letter is None else options.index(letter))
    all_answers = (pair for runs in records for run in runs for pair in zip(run.id, run.answer, strict=True))
    return {
        "id": [shown.id[i] for i in rows],
        "subject": [subject_index[shown.subject[i]] for i in rows],
        "answer": [shown.answer[i] for i in rows],
        "correct": correct[idx].astype(int).tolist(),
        "letter": letters,
        "parsed": shown.parsed[idx].astype(int).tolist(),
        "asked": [texts.add(row.task, row.task_version, by_id.get(shown.id[i]), brief=i not in grouped) for i in rows],
        "confidence": [
            [None if np.isnan(value) else round(value * PARTS) for value in values]
            for values in confidence[:, idx].tolist()
        ],
        "groups": {name: np.searchsorted(idx, group).tolist() for name, group in groups.items()},
        "of": {"all": correct.size, "mistakes": int((~correct).sum()), "hits": int(correct.sum())},
        "differing": len({key for key, answer in all_answers if answers.get(key, answer) != answer}),
        "relabelled": [
            line
            for line, runs in enumerate(labels)
            if any(ref.get(key, right) != right for run in runs for key, right in run.items())
        ],
        "disagreements": [
            [first, second, *(np.searchsorted(idx, rows).tolist() for rows in sides)]
            for first, second, *sides in disagreements
        ],
    }


def _by_id(records: QuestionRecords, values: npt.NDArray[Any]) -> dict[str, Any]:
    return dict(zip(records.id, values.tolist(), strict=True))


def pick(confidence: FloatArray, correct: BoolArray, seed: int, each: int = EACH) -> dict[str, IntArray]:
    """Pick the most confident mistakes, the least confident right answers, and as many questions at random.

    Args:
        confidence: shape (n,), in [0, 1].
        correct: shape (n,), bool.
        seed: seed of the random sample.
        each: maximum number of questions in each group.

    Returns:
        Group -> indices (<= each,) of its questions. `mistakes` are sorted by decreasing and `hits` by increasing
            confidence (stable), `random` by index.

    >>> {k: v.tolist() for k, v in pick(np.array([0.9, 0.2, 0.7]), np.array([False, True, False]), 0, 1).items()}
    {'mistakes': [0], 'hits': [1], 'random': [2]}
    """
    wrong, right = np.flatnonzero(~correct), np.flatnonzero(correct)
    rng = np.random.default_rng(seed)
    return {
        "mistakes": wrong[np.argsort(-confidence[wrong], kind="stable")][:each],
        "hits": right[np.argsort(confidence[right], kind="stable")][:each],
        "random": np.sort(rng.choice(correct.size, min(each, correct.size), replace=False)),
    }
