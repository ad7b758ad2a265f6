"""Check the columns of a sheet and turn them into numbers: what is right, how sure, of which question and group.

Nothing is guessed: a value that is no number, a unit that isn't named and a column that isn't there are refused with a
sentence. Example: `read_values(sheet, AuditRequest(confidences=("verbal",))).confidences["verbal"]`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from bench.api import BoolArray, FloatArray, UserError
from bench.api.errors import did_you_mean
from bench.data.confidence_files import INSPECT, LM_EVAL, Sheet
from bench.report.selection import AuditRequest
from bench.report.text import join

_RIGHT: Mapping[str, bool] = {
    **dict.fromkeys(("true", "1", "1.0", "c", "correct", "right", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "i", "n", "incorrect", "wrong", "no"), False),
}
"""Grades as text; C, I and N (no answer) are those of Inspect."""
_MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>", "nat"})
ALL = "all answers"
"""Group of all rows, if there is no column of groups."""
_SHOWN = 5
_MOST_GROUPS = 50


@dataclass(frozen=True, eq=False)
class Values:
    """Columns of n answers, checked."""

    name: str
    id: Sequence[str]
    subject: Sequence[str]
    group: Sequence[str]
    learned: BoolArray
    """Rows of the splits to learn on, shape (n,); they aren't judged."""
    correct: BoolArray
    confidences: Mapping[str, FloatArray]
    """Name -> confidences in [0, 1], or scores (more is surer) for a name in `scores`; each of shape (n,)."""
    scores: frozenset[str]
    by: Mapping[str, Sequence[str]]
    """Column -> its values as texts."""


def read_values(sheet: Sheet, request: AuditRequest) -> Values:
    """Check the columns that a request names, and return their values.

    Raises:
        UserError: a column is missing, a value isn't what its column needs, or options contradict each other.
    """
    n, columns = len(sheet.where), sheet.columns
    there = join(name for name in columns if name != "file")
    roles = {"id": request.id, "subject": request.subject, "group": request.group, "split": request.split}
    if request.group is None and INSPECT in sheet.kinds:
        roles["group"] = "model"
    roles = {role: name or (role if role in columns else None) for role, name in roles.items()}
    named = [request.correct, *filter(None, roles.values()), *request.by, *request.uncertainties, *request.confidences]
    for name in named:
        if name not in columns:
            option = "" if name != request.correct else "; name the column of right and wrong with --correct"
            raise UserError(
                f"{sheet.name}: expected a column {name!r}, found only {there}{option}.{did_you_mean(name, columns)}"
            )
    used = {*named, "file", *(("epoch", "task", "model") if INSPECT in sheet.kinds else ())}
    others = [name for name in columns if name not in used]
    confidences = request.confidences or () if request.uncertainties else request.confidences
    if not confidences and not request.uncertainties:
        preferred = ["softmax"] if LM_EVAL in sheet.kinds else [x for x in others if "confidence" in x.casefold()]
        confidences = tuple(preferred or others)
        if not confidences or (INSPECT in sheet.kinds and not preferred):
            raise UserError(
                f"{sheet.name}: expected a column of confidences, found only {there}; name it with --confidence"
            )
    scales, words = _scales(request.scale, confidences), _words(request.words)
    values = {name: _confidences(sheet, name, scales.get(name), words) for name in confidences}
    values |= {name: -_numbers(sheet, name, {}, "a number") for name in request.uncertainties}
    if request.learn_on and (roles["split"] is None or not (request.recalibrate or request.uncertainties)):
        needed = "a column split" if roles["split"] is None else "--recalibrate as well"
        raise UserError(f"--learn-on: expected {needed}, to say what is learned there")
    splits = _texts(columns[roles["split"]]) if roles["split"] else [""] * n
    for name in request.learn_on:
        if name not in splits:
            raise UserError(f"--learn-on: no row has the split {name!r}; there are {join(sorted(set(splits)))}")
    learned = np.isin(np.asarray(splits, dtype=object), request.learn_on)
    if learned.all():
        raise UserError(f"--learn-on {join(request.learn_on)}: expected rows of other splits to judge, found none")
    groups = _texts(columns[roles["group"]]) if roles["group"] else [ALL] * n
    if len(set(groups)) > _MOST_GROUPS:
        raise UserError(
            f"--group {roles['group']}: it has {len(set(groups)):,} values, and a table is made of each, at most"
            f" {_MOST_GROUPS}; name another column, or show it with --by"
        )
    return Values(
        name=sheet.name,
        id=_texts(columns[roles["id"]]) if roles["id"] else [f"row {k}" for k in range(n)],
        subject=_texts(columns[roles["subject"]]) if roles["subject"] else [""] * n,
        group=groups,
        learned=learned,
        correct=_grades(sheet, request.correct),
        confidences=values,
        scores=frozenset(request.uncertainties),
        by={name: _texts(columns[name]) for name in request.by},
    )


def _texts(values: Sequence[Any]) -> list[str]:
    return ["" if value is None else str(value) for value in values]


def _grades(sheet: Sheet, column: str) -> BoolArray:
    grades = np.empty(len(sheet.where), dtype=bool)
    for k, value in enumerate(sheet.columns[column]):
        grade = _RIGHT.get(str(value).strip().casefold())
        if grade is None:
            expected = "true or false, 1 or 0, C or I"
            raise _error(sheet, k, column, expected, value, "grade the answer as right or wrong, or leave the row out")
        grades[k] = grade
    return grades


def _numbers(sheet: Sheet, column: str, words: Mapping[str, float], expected: str) -> FloatArray:
    """Return the numbers of a column; words that have a number are NaN."""
    values = sheet.columns[column]
    with suppress(ValueError, TypeError):  # at once, where all are numbers
        plain = np.array(values, dtype=np.float64)
        if np.isfinite(plain).all() and bool not in set(map(type, values)):
            return plain
    missing = [k for k, value in enumerate(values) if value is None or _folded(str(value)) in _MISSING]
    if missing:
        raise UserError(
            f"{sheet.where[missing[0]]}: expected {expected} in column {column!r}, got nothing. {len(missing):,} of"
            f" {len(values):,} rows have none: take them out, or write what your program takes instead"
        )
    numbers = [_number(value, words) for value in values]
    wrong = next((k for k, number in enumerate(numbers) if number is None), None)
    if wrong is not None:
        advice = "write numbers with a point and without a sign of percent"
        unknown = sorted({value for value in values if isinstance(value, str) and value.strip().isalpha()})
        if values[wrong] in unknown:
            unknown = [word for word in unknown if _folded(word) not in words][:_SHOWN]
            advice = f"give words numbers (--words {','.join(f'{word}=...' for word in unknown)})"
        advice += ", or name the columns of confidences (--confidence)"
        raise _error(sheet, wrong, column, expected, values[wrong], advice)
    return np.array(numbers, dtype=np.float64)


def _number(value: object, words: Mapping[str, float]) -> float | None:
    """Return a value as a number, and NaN for a word that has one; None if it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, str | Real):
        return None
    if isinstance(value, str) and _folded(value) in words:
        return math.nan
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _confidences(sheet: Sheet, column: str, scale: float | None, words: Mapping[str, float]) -> FloatArray:
    expected = f"a number from 0 to {scale or 1:g}"
    values = _numbers(sheet, column, words, expected)
    outside = np.flatnonzero((values < 0) | (values > (scale or 1)))
    if outside.size:
        k, advice = int(outside[0]), "correct it"
        if scale is None and values[k] > 1:
            advice += f", or say that the column goes up to 100 (--scale {column}=100)"
        advice += ", or name the columns of confidences (--confidence)"
        raise _error(sheet, k, column, expected, sheet.columns[column][k], advice)
    if scale is not None and values.size and np.nanmax(values, initial=0.0) <= 1:
        raise UserError(
            f"{sheet.name}: with --scale {scale:g} expected numbers up to {scale:g} in column {column!r}, but none is"
            " above 1; leave out --scale, or name the columns that it is for (--scale NAME=100)"
        )
    values = values / (scale or 1)
    for k in np.flatnonzero(np.isnan(values)).tolist():
        values[k] = words[_folded(sheet.columns[column][k])]
    return values


def _folded(word: str) -> str:
    return word.strip().casefold()


def _error(sheet: Sheet, k: int, column: str, expected: str, value: object, advice: str) -> UserError:
    got = "nothing" if value is None or value == "" else f"{value!r:.60}"
    return UserError(f"{sheet.where[k]}: expected {expected} in column {column!r}, got {got}; {advice}")


def _scales(texts: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    scales: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if number not in {"1", "100"} or (name and name not in names):
            raise UserError(f"--scale: expected 100, or NAME=100 of a column of confidences, got {text!r}")
        scales |= dict.fromkeys([name] if name else [each for each in names if each not in scales], float(number))
    return {name: scale for name, scale in scales.items() if scale != 1}


def _words(texts: Sequence[str]) -> dict[str, float]:
    words: dict[str, float] = {}
    for text in texts:
        word, value = pair_of(text, "--words", "high=0.9")
        words[_folded(word)] = value
    return words


def pair_of(text: str, option: str, example: str) -> tuple[str, float]:
    """Split `NAME=0.1` into name and number.

    Raises:
        UserError: it isn't of this form, or the number isn't from 0 to 1.
    """
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not name.strip() or not 0 <= value <= 1:
        raise UserError(f"{option}: expected a name and a number from 0 to 1, e.g. {example}, got {text!r}")
    return name.strip(), value
