"""Check the columns of a sheet and turn them into numbers: what is right, how sure, of which question and group.

Nothing is guessed: a value that is no number, a unit that isn't named and a column that isn't there are refused with a
sentence. Example: `read_values(sheet, AuditRequest(confidences=("verbal",))).confidences["verbal"]`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from bench.api import BoolArray, FloatArray, UserError
from bench.api.errors import did_you_mean
from bench.data.confidence_files import ROLES, Sheet
from bench.report.selection import AuditRequest
from bench.report.text import join
from bench.results.files import RECALIBRATED

_RIGHT: Mapping[str, bool] = {
    **dict.fromkeys(("true", "1", "1.0", "c", "correct", "right", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "i", "n", "incorrect", "wrong", "no"), False),
}
"""Grades as text; C, I and N (no answer) are those of Inspect."""
_MISSING = frozenset({"", "nan", "na", "n/a", "nat", "null", "none", "<na>"})
ALL = "all answers"
"""Group of all rows, if there is no column of groups."""
_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""Columns in which pandas saves the index of a frame."""


class Values(NamedTuple):
    """Columns of n answers, checked."""

    id: Sequence[str]
    subject: Sequence[str]
    group: Sequence[str]
    learned: BoolArray
    """Rows of the splits to learn on, shape (n,); they aren't judged."""
    correct: BoolArray
    confidences: Mapping[str, FloatArray]
    """Name -> confidences in [0, 1], or scores (more is surer) of an uncertainty; each of shape (n,)."""
    most: Mapping[str, float]
    """Name -> the number that stood for a confidence of 1, e.g. 100; 0 of an uncertainty."""
    by: Mapping[str, Sequence[str]]
    """Column -> its values as texts."""


def read_values(sheet: Sheet, request: AuditRequest) -> Values:
    """Check the columns that a request names, and return their values.

    Raises:
        UserError: a column is missing, a value isn't what its column needs, or options contradict each other.
    """
    name, columns = sheet.name, sheet.columns
    roles = {role: getattr(request, role) or role * (role in columns) for role in ROLES}
    roles["group"] = roles["group"] or "model" * sheet.is_inspect
    named = [request.correct, *filter(None, roles.values()), *request.by, *request.uncertainties, *request.confidences]
    there = join(column or "one without a name" for column in columns if column != "file") or "none"
    for column in (column for column in named if column not in columns):
        option = "; name the column of right and wrong with --correct" * (column == request.correct)
        hint = did_you_mean(column, columns)
        raise UserError(f"{name}: expected a column {column!r}, found only {there}{option}.{hint}")
    known = {*named, "file", *["epoch", "task"] * sheet.is_inspect}
    others = [column for column in columns if column not in known and not _INDEX.fullmatch(column)]
    likely = [column for column in others if "confidence" in column.casefold()]
    confidences = request.confidences or ([] if request.uncertainties else likely or others * (not sheet.is_inspect))
    if not confidences and not request.uncertainties:
        raise UserError(f"{name}: expected a column of confidences, found only {there}; name it with --confidence")
    for column in ({request.correct} & {*named[1:]}) | ({*confidences} & {*request.uncertainties}):
        raise UserError(
            f"{name}: expected another column for each purpose, got {column!r} for two: right or wrong is no"
            " confidence, group or subject, and a confidence no uncertainty"
        )
    scales = {x.rpartition("=")[0]: x.rpartition("=")[2] for x in request.scale}
    if set(scales) - {"", *confidences} or set(scales.values()) - {"1", "10", "100"}:
        raise UserError(f"--scale: expected 100, 10 or NAME=100 of a column of confidences, got {join(request.scale)}")
    most = {column: float(scales.get(column, scales.get("", 1))) for column in confidences}
    most |= dict.fromkeys(request.uncertainties, 0.0)
    words = {word.casefold(): value for word, value in (pair_of(x, "--words", "high=0.9") for x in request.words)}
    correct = _grades(sheet, request.correct)
    numbers = {c.replace(RECALIBRATED, "_"): _confidences(sheet, c, most[c], words) for c in most}
    if len(numbers) < len(most):
        raise UserError(f"{name}: expected names that differ in more than + and _, got {join(most)}; rename one")
    if not (request.confidences or correct.all()) and (copies := [c for c in numbers if (numbers[c] == correct).all()]):
        raise UserError(
            f"{name}: column {copies[0]!r} is 1 where the answer is right and else 0, so it is a grade; name the"
            " columns of confidences (--confidence)"
        )
    texts = {role: _texts(columns[column]) if column else [""] * len(sheet.where) for role, column in roles.items()}
    if roles["id"] and "" in texts["id"]:
        k, advice = texts["id"].index(""), "write one into each row, or name another column (--id)"
        raise _error(sheet, k, roles["id"], "the question's id", advice)
    splits, learn_on = set(texts["split"]), set(request.learn_on)
    if learn_on and not (learn_on < splits and (request.recalibrate or request.uncertainties)):
        raise UserError(
            f"--learn-on {join(learn_on)}: expected splits of which there are rows, others to judge, and --recalibrate"
            f" to say what is learned; the splits are {join(splits) or 'without a name'}"
        )
    by = {column: _texts(columns[column]) for column in request.by}
    for option, column, most_values in [("group", texts["group"], 50), *(("by", each, 1_000) for each in by.values())]:
        if (n := len(set(column))) > most_values:
            raise UserError(f"--{option}: expected a column of at most {most_values:,} values, got {n:,}; name another")
    return Values(
        id=texts["id"] if roles["id"] else [f"row {k}" for k in range(len(sheet.where))],
        subject=texts["subject"],
        group=[text or "(none)" if roles["group"] else ALL for text in texts["group"]],
        learned=np.array([split in learn_on for split in texts["split"]]),
        correct=correct, confidences=numbers, most=dict(zip(numbers, most.values(), strict=True)), by=by,
    )  # fmt: skip


def pair_of(text: str, option: str, example: str) -> tuple[str, float]:
    """Split `NAME=0.1` into name and number.

    Raises:
        UserError: it isn't of this form, or the number isn't from 0 to 1.
    """
    name, _, number = text.rpartition("=")
    value = _number(number, {})
    if not name.strip() or value is None or not 0 <= value <= 1:
        raise UserError(f"{option}: expected a name and a number from 0 to 1, e.g. {example}, got {text!r}")
    return name.strip(), value


def _texts(values: Sequence[Any]) -> list[str]:
    """Return values as texts that UTF-8 can encode, without spaces around them; empty where there is none."""
    texts = ["" if not isinstance(x, str) and str(x).casefold() in _MISSING else str(x).strip() for x in values]
    return [text if text.isascii() else text.encode("utf-8", "backslashreplace").decode() for text in texts]


def _grades(sheet: Sheet, column: str) -> BoolArray:
    grades = [_RIGHT.get(str(value).strip().casefold()) for value in sheet.columns[column]]
    if None in grades:
        advice = "grade the answer as right or wrong, or leave the row out"
        raise _error(sheet, grades.index(None), column, "true or false, 1 or 0, C or I", advice)
    return np.array(grades, dtype=bool)


def _confidences(sheet: Sheet, column: str, most: float, words: Mapping[str, float]) -> FloatArray:
    """Return the confidences of a column of numbers up to `most`, or scores of an uncertainty, whose `most` is 0."""
    if not most:
        return -_numbers(sheet, column, "a number", {})
    expected, advice = f"a number from 0 to {most:g}", "correct it, or name the columns of confidences (--confidence)"
    numbers = _numbers(sheet, column, expected, {word: most * value for word, value in words.items()})
    for k in np.flatnonzero((numbers < 0) | (numbers > most)).tolist():
        up_to = 10 if numbers.max() <= 10 else 100
        hint = f"if this column goes up to {up_to}, say --scale {column}={up_to}; else " * bool(most == 1 < numbers[k])
        hint += "of log-probabilities write exp(value); else " * bool(numbers.max() <= 0)
        raise _error(sheet, k, column, expected, hint + advice)
    if most > 1 and numbers.max() <= most / 10:
        raise UserError(
            f"{sheet.name}: with --scale {most:g} expected numbers up to {most:g} in column {column!r}, but none is"
            f" above {most / 10:g}; leave out --scale, or name another or the columns that it is for (--scale NAME=10)"
        )
    return numbers / most


def _numbers(sheet: Sheet, column: str, expected: str, words: Mapping[str, float]) -> FloatArray:
    """Return the numbers of a column, or those of its words."""
    values = sheet.columns[column]
    with suppress(ValueError, TypeError, OverflowError):  # at once, where all are numbers
        plain = np.array(values, dtype=np.float64)
        if plain.ndim == 1 and np.isfinite(plain).all() and not {bool, np.bool_} & set(map(type, values)):
            return plain
    numbers = [_number(value, words) for value in values]
    if None not in numbers:
        return np.array(numbers, dtype=np.float64)
    texts = [str(value).strip() for value in values]
    missing = [k for k, text in enumerate(texts) if text.casefold() in _MISSING - words.keys()]
    k, name = (missing or [numbers.index(None)])[0], "name the columns of confidences (--confidence)"
    advice = f"write numbers with a point and without a sign of percent, or {name}"
    unknown = sorted({x for x in texts if x.replace(" ", "").isalpha() and x.casefold() not in words})
    if missing:
        advice = f"{len(missing):,} of {len(values):,} rows have none: take them out, or write what is taken instead"
    elif texts[k] in unknown and isinstance(values[k], str):
        advice = f"{name}, or give words numbers (--words {shlex.quote(','.join(f'{x}=...' for x in unknown[:5]))})"
    raise _error(sheet, k, column, expected, advice)


def _number(value: object, words: Mapping[str, float]) -> float | None:
    """Return a value as a number, or that of a word; None if it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, str | Real):
        return None
    if isinstance(value, str) and (number := words.get(value.strip().casefold())) is not None:
        return number
    with suppress(ValueError, OverflowError):
        return number if math.isfinite(number := float(value)) else None
    return None


def _error(sheet: Sheet, k: int, column: str, expected: str, advice: str) -> UserError:
    value = sheet.columns[column][k]
    got = "nothing" if str(value).strip() in {"", "None"} else f"{value!r:.60}"
    return UserError(f"{sheet.where[k]}: expected {expected} in column {column!r}, got {got}; {advice}")
