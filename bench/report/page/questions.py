"""Questions that the page shows of a model and task, and their texts within a budget.

The most confident mistakes, the least confident hits (both by the mean confidence over methods), and some at random,
the same for all models; whole result files would make the page too large to open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray, IntArray, PromptStyle, Question
from bench.api.protocol import Protocol
from bench.grading.grade import parse_letter
from bench.prompts import templates
from bench.report.page.disagreements import most
from bench.results.questions import QuestionText
from bench.results.records import Records
from bench.results.row import ResultRow

PARTS = 10_000
"""Confidences are integers in these parts of 1."""
Runs = Sequence[Records]
"""Questions of each seed of a line that is ok; empty where none is."""
EACH = 50
"""Questions in each of the three groups."""
FEW = 25
"""The same, on a page of many tables."""
_BUDGET = 2_500_000
"""Bytes of question texts and answers on one page."""
_BRIEF_BUDGET = 600_000
"""Bytes of the texts of questions that only disagreements show."""
_BRIEF_LIMITS = (1_000, 400, 200, 100)
_HEADING = "Choices:"
"""Line above the options in most prompts."""
_LIMITS = (20_000, 8_000, 3_000, 1_000, 400, 200)
"""Characters that a text may have; the first with which all fit into the budget."""


@dataclass
class Texts:
    """The texts of questions, each once, however many models were asked."""

    each: int = EACH
    """Questions that a block shows of each kind."""
    limit: int | None = None
    """Characters to which texts were cut; None where all are whole."""
    brief_limit: int | None = None
    """The same for brief ones, which then lack their options."""
    _asked: list[list[Any]] = field(default_factory=list)
    _index: dict[tuple[str, int, str], int] = field(default_factory=dict)
    _brief: set[int] = field(default_factory=set)

    def add(self, task: str, version: int, asked: QuestionText | None, *, brief: bool = False) -> int:
        """Index of a question's text; -1 where it is not at hand. Brief ones share a smaller budget."""
        if asked is None:
            return -1
        key = task, version, asked.id
        if key not in self._index:
            self._index[key] = len(self._asked)
            text, options = _apart(asked)
            self._asked.append([text, options, asked.gold])
            self._brief.add(self._index[key])
        if not brief:
            self._brief.discard(self._index[key])
        return self._index[key]

    def shortened(self, blocks: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        """All texts, cut in the middle where all together are too long; answers in the blocks are cut with them."""
        answers = [block["questions"]["answer"] for block in blocks if block["questions"]]
        lengths = [len(text.encode("utf-8", "replace")) for column in answers for text in column]
        whole = [entry for i, entry in enumerate(self._asked) if i not in self._brief]
        asked = [part for text, options, gold in whole for part in (text, gold, *options)]
        lengths += [len(part.encode("utf-8", "replace")) for part in asked]
        limit = next(
            (limit for limit in _LIMITS if sum(min(length, limit) for length in lengths) <= _BUDGET), _LIMITS[-1]
        )
        if any(length > limit for length in lengths):
            self.limit = limit
        for column in answers:
            column[:] = [cut(text, limit) for text in column]
        self._set_brief_limit()
        return [
            _shortened(entry, limit) if i not in self._brief else self._shortened_brief(entry, limit)
            for i, entry in enumerate(self._asked)
        ]

    def _set_brief_limit(self) -> None:
        brief = [self._asked[i] for i in self._brief]
        if sum(_bytes_of(entry) for entry in brief) > _BRIEF_BUDGET:
            sizes = [len(text.encode("utf-8", "replace")) for text, *_ in brief]
            self.brief_limit = next(
                (k for k in _BRIEF_LIMITS if sum(min(size, k) for size in sizes) <= _BRIEF_BUDGET), _BRIEF_LIMITS[-1]
            )

    def _shortened_brief(self, entry: list[Any], limit: int) -> list[Any]:
        if self.brief_limit is None:
            return _shortened(entry, limit)
        text, _, gold = entry
        most = min(limit, self.brief_limit)
        return [text if len(text) <= most else f"{text[:most]}…", [], gold[:most]]


def _shortened(entry: list[Any], limit: int) -> list[Any]:
    text, options, gold = entry
    return [cut(text, limit), [cut(option, limit) for option in options], cut(gold, limit)]


def _bytes_of(entry: list[Any]) -> int:
    text, options, gold = entry
    return sum(len(part.encode("utf-8", "replace")) for part in (text, gold, *options))


def cut(text: str, limit: int) -> str:
    """The text, or its two ends with a word on how much is missing between them.

    >>> cut("abcdefgh", 4)
    'ab [4 characters left out] gh'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half:,} characters left out] {text[-half:]}"


def _apart(asked: QuestionText) -> tuple[str, list[str]]:
    """Text and options, which are taken out of the text where they are written the usual way."""
    if not asked.choices:
        return asked.text, []
    only_options = PromptStyle(header="", footer="", context="{options}")
    question = Question(asked.id, asked.subject, "", asked.choices, 0)
    written = templates.context(question, only_options, Protocol().letters)
    text = asked.text.removesuffix(written)
    if text == asked.text:
        return text.rstrip(), []
    return text.rstrip().removesuffix(_HEADING).rstrip(), list(asked.choices)


# --- which ones -------------------------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """Questions that a block shows because methods disagree."""

    pairs: Sequence[tuple[int, int]]
    """Pairs of lines, whose most different confidences are shown too where both have the answers shown."""
    each_way: int
    """At most so many of a pair each way."""
    base: int | None = None
    """Line whose answers and labels are shown; by default the first with results."""


def chosen(
    row: ResultRow,
    records: Sequence[Runs],
    subjects: Sequence[str],
    asked: Mapping[str, QuestionText],
    texts: Texts,
    wanted: Wanted,
) -> dict[str, Any] | None:
    """The questions to show of a block; None where no line is ok.

    Returns:
        {"id", "subject", "answer", "letter", "correct", "parsed", "asked": columns over the k questions; `letter` is
        the index of the option that was chosen, or null,
        "confidence": [[k values in ten-thousandths, or null] of each line],
        "groups": {"mistakes", "hits", "random": [row, ...]}, "of": {"all", "mistakes", "hits": how many there are},
        "differing": questions on which lines have other answers than those shown,
        "relabelled": lines of which other answers are right than those shown,
        "disagreements": [[line, line, rows of which the first is surer, rows of which the second is], ...]}

    Args:
        row: any result of the block.
        records: of the block's lines.
        subjects: its subjects, which the column `subject` points to.
        asked: its questions by id.
        texts: gets the texts of those that are chosen.
        wanted: disagreements to show.
    """
    with_results = [runs[0] for runs in records if runs]
    if not with_results:
        return None
    base = with_results[0] if wanted.base is None else records[wanted.base][0]
    correct = np.asarray(base.correct, dtype=np.bool_)
    confidence = np.stack([_aligned(runs, base) for runs in records])  # (lines, n)
    seed = hashlib.sha256(f"{row.task}\0{row.task_version}".encode()).digest()
    groups = pick(_mean_known(confidence), correct, int.from_bytes(seed[:8], "big"), texts.each)
    alike = [line for line, runs in enumerate(records) if runs and all(_same_labels(run, base) for run in runs)]
    disagreements = most(confidence, [ends for ends in wanted.pairs if set(ends) <= set(alike)], wanted.each_way)
    disputed = [rows for *_, above, below in disagreements for rows in (above, below)]
    kept = np.unique(np.concatenate([*groups.values(), *disputed]))  # (k,)
    grouped = {int(i) for group in groups.values() for i in group}
    place = {name: i for i, name in enumerate(subjects)}
    rows = kept.tolist()
    return {
        "id": [base.id[i] for i in rows],
        "subject": [place[base.subject[i]] for i in rows],
        "answer": [base.answer[i] for i in rows],
        "correct": correct[kept].astype(int).tolist(),
        "letter": [_letter(base.answer[i], asked.get(base.id[i])) for i in rows],
        "parsed": np.asarray(base.parsed)[kept].astype(int).tolist(),
        "asked": [texts.add(row.task, row.task_version, asked.get(base.id[i]), brief=i not in grouped) for i in rows],
        "confidence": [_in_parts(values[kept]) for values in confidence],
        "groups": {name: np.searchsorted(kept, group).tolist() for name, group in groups.items()},
        "of": {"all": correct.size, "mistakes": int((~correct).sum()), "hits": int(correct.sum())},
        "differing": _differing(records, base),
        "relabelled": [line for line, runs in enumerate(records) if any(_is_relabelled(run, base) for run in runs)],
        "disagreements": [
            [first, second, *(np.searchsorted(kept, rows).tolist() for rows in sides)]
            for first, second, *sides in disagreements
        ],
    }


def _letter(answer: str, asked: QuestionText | None) -> int | None:
    letters = Protocol().letters[: len(asked.choices) if asked else 0]
    letter = parse_letter(answer, letters)
    return None if letter is None else letters.index(letter)


def pick(confidence: FloatArray, correct: BoolArray, seed: int, each: int = EACH) -> dict[str, IntArray]:
    """Rows of the most confident mistakes, the least confident hits, and of as many at random.

    Args:
        confidence: shape (n,), in [0, 1].
        correct: shape (n,), bool.
        seed: of those at random.
        each: at most so many of each.

    Returns:
        Row numbers (<= each,): the first two ordered by confidence, equal ones as they come; the last ascending.

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


def _aligned(runs: Runs, base: Records) -> FloatArray:
    """Mean over seeds of each base question's confidence, (n,); NaN where the line doesn't have the question."""
    if not runs:
        return np.full(len(base.id), np.nan)
    mean: FloatArray = np.mean([_by_id(records, base) for records in runs], axis=0)
    return mean


def _by_id(records: Records, base: Records) -> FloatArray:
    values = np.asarray(records.confidence, dtype=np.float64)
    if list(records.id) == list(base.id):
        return values
    found = dict(zip(records.id, values.tolist(), strict=True))
    return np.array([found.get(key, np.nan) for key in base.id])


def _same_labels(records: Records, base: Records) -> bool:
    """Whether all answers are to the same questions, and right or wrong alike."""
    labels = dict(zip(base.id, np.asarray(base.correct).tolist(), strict=True))
    return labels == dict(zip(records.id, np.asarray(records.correct).tolist(), strict=True))


def _is_relabelled(records: Records, base: Records) -> bool:
    """Whether an answer to a question of the base is right here and wrong there, or the other way round."""
    if list(records.id) == list(base.id):
        return not np.array_equal(records.correct, base.correct)
    labels = dict(zip(base.id, np.asarray(base.correct).tolist(), strict=True))
    own = zip(records.id, np.asarray(records.correct).tolist(), strict=True)
    return any(labels.get(key, correct) != correct for key, correct in own)


def _mean_known(confidence: FloatArray) -> FloatArray:
    """Mean over lines, (n,), of a matrix (lines, n) in which NaN is unknown; 0 where all are."""
    known = ~np.isnan(confidence)
    mean: FloatArray = np.where(known, confidence, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return mean


def _in_parts(values: FloatArray) -> list[int | None]:
    return [None if np.isnan(value) else round(value * PARTS) for value in values.tolist()]


def _differing(records: Sequence[Runs], base: Records) -> int:
    """Questions of the base to which some run has another answer."""
    answers = dict(zip(base.id, base.answer, strict=True))
    same = list(base.id), list(base.answer)
    others = (r for runs in records for r in runs if (list(r.id), list(r.answer)) != same)
    pairs = (pair for other in others for pair in zip(other.id, other.answer, strict=True))
    return len({key for key, answer in pairs if answers.get(key, answer) != answer})
