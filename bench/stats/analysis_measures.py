"""Validation of the table of numbers that a plugin's analysis returns.

The validated table is stored with its model, task, preset and seeds.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from bench.api import ContractError, Measures, Strips
from bench.api.analyses import Kind, Value

_MARKS = 2
"""Largest number of kinds of underlines in a page of coloured texts: as many as can be told apart without colour."""


@dataclass(frozen=True)
class AnalysisMeasures:
    """Validated table of numbers from one analysis of one method, with its model, task, preset and seeds."""

    method: str
    analysis: str
    model: str
    task: str
    preset: str
    seeds: tuple[int, ...]
    n: int
    """Number of test questions that have an answer and are not left out, e.g. for want of a verdict."""
    measures: Measures
    """The table itself. Every row has a value for every column, and no number is infinite or NaN."""

    @property
    def name_key(self) -> str:
        """Key of the table's first column, whose texts name the rows."""
        return self.measures.columns[0].key

    @property
    def shown_rows(self) -> Sequence[Mapping[str, Value]]:
        """Rows of the table that are printed; files have all rows."""
        return self.measures.rows[: self.measures.shown]


def validate_measures(who: str, measures: Measures) -> Measures:
    """Validate the table that an analysis returned, and return it with a value for every column in every row.

    Missing values, infinities and NaN become None.

    Args:
        who: method and analysis, for error messages.
        measures: the table, as the plugin's analysis returned it.

    Raises:
        ContractError: the table breaks the contract of `Measures`.
    """
    # `keys` is row key -> kind of number; the ends of an interval have the kind of their column
    if not measures.columns or measures.columns[0].kind != "text":
        raise ContractError(f"{who}: expected columns of which the first is text and names the row")
    keys: dict[str, str] = {}
    for column in measures.columns:
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
    if measures.drawn and keys.get(measures.drawn, "text") == "text":
        raise ContractError(f"{who}: drawn: expected the key of a column of numbers, got {measures.drawn!r}")
    if not isinstance(measures.answer, str) or not measures.answer.strip():
        raise ContractError(f"{who}: expected an answer in words, got {measures.answer!r}")
    rows = []
    for row in measures.rows:
        unknown = sorted(set(row) - set(keys))
        if unknown:
            raise ContractError(f"{who}: a row has {', '.join(map(repr, unknown))}, which is no column's")
        rows.append({key: _value(f"{who}: {key!r}", row.get(key), kind) for key, kind in keys.items()})
    name = measures.columns[0].key
    row_names = [row[name] for row in rows]
    if not all(row_names) or len(set(row_names)) < len(row_names):
        raise ContractError(f"{who}: expected a different name in {name!r} for each row, got {row_names}")
    if measures.strips is not None:
        _check_strips(who, measures.strips)
    return replace(measures, columns=tuple(measures.columns), rows=tuple(rows), notes=tuple(measures.notes))


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
