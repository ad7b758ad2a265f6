"""Measures of an analysis as the harness keeps them: whole, finite, and with what they were measured on."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from bench.api import ContractError, MeasureColumn, Measures, Strips
from bench.api.analyses import Kind, Value

NUMBERS: frozenset[str] = frozenset(get_args(Kind)) - {"text"}
_MARKS = 2
"""Marks that can be told apart without colour."""


@dataclass(frozen=True)
class Measured:
    """Measures, and of what they are."""

    method: str
    analysis: str
    model: str
    task: str
    preset: str
    seeds: tuple[int, ...]
    n: int
    """Questions with an answer."""
    measures: Measures
    """Checked: every row has every key, and no number is infinite or NaN."""

    @property
    def naming(self) -> str:
        """Key of the column that names a row."""
        return self.measures.columns[0].key

    @property
    def drawn(self) -> MeasureColumn | None:
        """Column that the figure draws; None where there is none."""
        return next((c for c in self.measures.columns if c.key == self.measures.drawn), None)

    @property
    def shown(self) -> Sequence[Mapping[str, Value]]:
        """Rows that are printed for people."""
        return self.measures.rows[: self.measures.shown]


def checked_measures(who: str, given: Measures) -> Measures:
    """The same measures with every key in every row, where what is not finite is None.

    Args:
        who: names method and analysis in errors.
        given: by a plugin.

    Raises:
        ContractError: they are not as `Measures` says.
    """
    # key of a value -> its kind; ends of an interval have that of their column
    if not given.columns or given.columns[0].kind != "text":
        raise ContractError(f"{who}: expected columns of which the first is text and names the row")
    keys: dict[str, str] = {}
    for column in given.columns:
        if column.kind not in get_args(Kind):
            raise ContractError(
                f"{who}: column {column.key!r}: unknown kind {column.kind!r}; {', '.join(get_args(Kind))}"
            )
        if bool(column.low) != bool(column.high) or (column.low and column.kind == "text"):
            raise ContractError(f"{who}: column {column.key!r}: expected both ends of an interval of numbers, or none")
        for key in filter(None, (column.key, column.low, column.high)):
            if key in keys:
                raise ContractError(f"{who}: the key {key!r} is there twice")
            keys[key] = column.kind
    if given.drawn and keys.get(given.drawn, "text") == "text":
        raise ContractError(f"{who}: drawn: expected the key of a column of numbers, got {given.drawn!r}")
    if not isinstance(given.answer, str) or not given.answer.strip():
        raise ContractError(f"{who}: expected an answer in words, got {given.answer!r}")
    rows = []
    for row in given.rows:
        unknown = sorted(set(row) - set(keys))
        if unknown:
            raise ContractError(f"{who}: a row has {', '.join(map(repr, unknown))}, which is no column's")
        rows.append({key: _value(f"{who}: {key!r}", row.get(key), kind) for key, kind in keys.items()})
    name = given.columns[0].key
    named = [row[name] for row in rows]
    if not all(named) or len(set(named)) < len(named):
        raise ContractError(f"{who}: expected a different name in {name!r} for each row, got {named}")
    if given.strips is not None:
        _check_strips(who, given.strips)
    return replace(given, columns=tuple(given.columns), rows=tuple(rows), notes=tuple(given.notes))


def _value(where: str, value: Any, kind: str) -> Value:
    if kind == "text":
        if not isinstance(value, str | None):
            raise ContractError(f"{where}: expected text, got {value!r}")
        return value
    if not isinstance(value, numbers.Real | None):
        raise ContractError(f"{where}: expected a number or None, got {value!r}")
    if value is None or not math.isfinite(value):
        return None
    number = float(value)
    if kind == "count" and (number < 0 or number != int(number)):
        raise ContractError(f"{where}: expected a whole number from 0, got {number!r}")
    if kind == "probability" and not 0 <= number <= 1:
        raise ContractError(f"{where}: expected a number from 0 to 1, got {number!r}")
    return int(number) if kind == "count" else number


def _check_strips(who: str, strips: Strips) -> None:
    if len(strips.marks) > _MARKS:
        raise ContractError(f"{who}: expected at most {_MARKS} marks of strips, got {len(strips.marks)}")
    for strip in strips.strips:
        for piece in strip.pieces:
            if piece.mark and piece.mark not in strips.marks:
                raise ContractError(f"{who}: strip {strip.title!r}: {piece.mark!r} is none of its marks")
            if piece.value is not None and not (math.isfinite(piece.value) and piece.value >= 0):
                raise ContractError(f"{who}: strip {strip.title!r}: expected numbers from 0, got {piece.value!r}")
