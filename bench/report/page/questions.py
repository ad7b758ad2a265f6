"""Select the questions that the page shows of a model and task, and fit their texts into a budget of bytes.

Shown are the most confident mistakes, the least confident hits (by mean confidence over methods) and a random sample,
which is the same for all models; all questions would make the page too large.
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
"""Confidences are stored as integers, in units of 1 / PARTS."""
Runs = Sequence[QuestionRecords]
"""Records of each seed of a line that is ok; empty if no seed is."""
EACH = 50
"""Number of questions in each of the three groups."""
FEW = 25
"""Number of questions in each group on a page of many tables."""
_BUDGET = 2_500_000
"""Maximum size of question texts and answers on one page, in bytes."""
_BRIEF_BUDGET = 600_000
"""Maximum size of the texts of questions that only disagreements show, in bytes."""
_BRIEF_LIMITS = (1_000, 400, 200, 100)
_ONLY_OPTIONS = PromptStyle(header="", footer="", context="{options}")
_HEADING = "Choices:"
"""Text of the line above the options in most prompts."""
_LIMITS = (20_000, 8_000, 3_000, 1_000, 400, 200)
"""Candidate maximum lengths of a text in characters; the first with which all texts fit into the budget is used."""


@dataclass
class QuestionTexts:
    """Texts of questions, stored once for all models."""

    each: int = EACH
    """Number of questions that a block shows in each group."""
    limit: int | None = None
    """Characters to which texts were cut; None if all are whole."""
    brief_limit: int | None = None
    """Characters to which brief texts were cut, and their options removed; None if they are whole."""
    _texts: list[list[Any]] = field(default_factory=list)
    _index: dict[tuple[str, int, str], int] = field(default_factory=dict)
    _brief: set[int] = field(default_factory=set)

    def add(self, task: str, version: int, question_text: QuestionText | None, *, brief: bool = False) -> int:
        """Store a question's text and return its index; -1 without a text.

        Options are removed from the text if they have the default format. A text is `brief` if only disagreements show
        the question; brief texts have a smaller budget.
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
        """Return all texts, trimmed to the budget; answers in the blocks are trimmed in place."""
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
    """Return the first limit at which texts fit into a budget of bytes, else the last; and whether a text is longer."""
    sizes = list(map(_size, texts))
    limit = next((limit for limit in limits if sum(min(size, limit) for size in sizes) <= budget), limits[-1])
    return limit, any(size > limit for size in sizes)


def trim(text: str, limit: int) -> str:
    """Cut the middle out of a long text and say how much was left out.

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
    """Return the questions to show of a block; None without an ok line.

    Returns:
        {"id", "subject", "answer", "letter", "correct", "parsed", "asked": columns over the k questions; `letter` is
        the index of the option that the answer chose, or null, and `asked` the index of the text,
        "confidence": [[k values in ten-thousandths, or null] of each line],
        "groups": {"mistakes", "hits", "random": [row, ...]}, "of": {"all", "mistakes", "hits": number of questions},
        "differing": number of questions on which some line has another answer than the one shown,
        "relabelled": lines in which an answer is right that is shown as wrong, or the reverse,
        "disagreements": [[line, line, rows on which the first is more confident, rows on which the second is], ...]}

    Args:
        row: any result of the block.
        records: records of each line of the block.
        subjects: subjects of the block; the column `subject` has indices of them.
        by_id: texts of the task's questions, by id.
        texts: collects the texts of the selected questions.
        disputed: pairs of lines whose largest disagreements are shown too, if both lines have the labels shown.
        each_way: maximum number of disagreements of a pair in each direction.
        base: index of the line whose answers and labels are shown; by default the first line with results.
    """
    with_results = [runs[0] for runs in records if runs]
    if not with_results:
        return None
    shown = with_results[0] if base is None else records[base][0]
    correct, ref, answers = (
        shown.correct,
        _by_id(shown, shown.correct),
        dict(zip(shown.id, shown.answer, strict=True)),
    )
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
    """Pick the most confident mistakes, the least confident hits, and as many questions at random.

    Args:
        confidence: shape (n,), in [0, 1].
        correct: shape (n,), bool.
        seed: seed of the random sample.
        each: maximum number of questions in each group.

    Returns:
        Row indices (<= each,) of each group: the first two groups ordered by confidence (stable), the last ascending.

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
