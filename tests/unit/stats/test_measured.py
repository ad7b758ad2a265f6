"""Measures of a plugin: whole and finite, or a sentence that names whose they are and what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.api import ContractError, MeasureColumn, Measures, Piece, Strip, Strips
from bench.stats.analysis_measures import validate_measures

COLUMNS = (
    MeasureColumn("what", "what", "text"),
    MeasureColumn("impact", "impact", "points", "low", "high"),
    MeasureColumn("p", "p", "probability"),
    MeasureColumn("n", "n", "count"),
)
GOOD = Measures("Is it so?", "It is.", COLUMNS, [{"what": "a", "impact": 0.1}, {"what": "b", "n": 2.0}], "impact")


def strips(*pieces: Piece) -> Strips:
    return Strips("impact", "All.", [Strip("q1", pieces)], {"content": "a content word"})


def test_measures_have_every_key_and_finite_numbers() -> None:
    rows = [{"what": "a", "impact": np.float32(0.5), "low": float("-inf"), "high": float("nan"), "n": np.int64(3)}]
    (row,) = validate_measures("m", replace(GOOD, rows=rows)).rows
    assert row == {"what": "a", "impact": 0.5, "low": None, "high": None, "p": None, "n": 3}
    assert type(row["impact"]) is float
    assert type(row["n"]) is int


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": [{"what": "a", "size": 1}]}, "a row has 'size', which is no column's"),
        ({"rows": [{"what": "a"}, {"what": "a"}]}, "expected a different name in 'what' for each row"),
        ({"rows": [{"impact": 1.0}]}, "expected a different name in 'what' for each row"),
        ({"rows": [{"what": 3}]}, "'what': expected text, got 3"),
        ({"rows": [{"what": "a", "impact": "much"}]}, "'impact': expected a number or None, got 'much'"),
        ({"rows": [{"what": "a", "n": 1.5}]}, "'n': expected a whole number from 0, got 1.5"),
        ({"rows": [{"what": "a", "p": 1.5}]}, "'p': expected a number from 0 to 1, got 1.5"),
        ({"columns": COLUMNS[1:]}, "columns of which the first is text"),
        ({"columns": ()}, "columns of which the first is text"),
        ({"columns": (COLUMNS[0], COLUMNS[0])}, "the key 'what' is there twice"),
        ({"columns": (COLUMNS[0], MeasureColumn("x", "x", "points", "low"))}, "expected both ends of an interval"),
        ({"columns": (COLUMNS[0], MeasureColumn("x", "x", "share"))}, "unknown kind 'share'"),  # type: ignore[arg-type]
        ({"drawn": "what"}, "drawn: expected the key of a column of numbers, got 'what'"),
        ({"drawn": "gone"}, "drawn: expected the key of a column of numbers, got 'gone'"),
        ({"answer": " "}, "expected an answer in words"),
        ({"strips": strips(Piece("a", -1.0))}, "strip 'q1': expected numbers from 0, got -1.0"),
        ({"strips": strips(Piece("a", float("nan")))}, "strip 'q1': expected numbers from 0, got nan"),
        ({"strips": strips(Piece("a", mark="noun"))}, "strip 'q1': 'noun' is none of its marks"),
    ],
)
def test_measures_that_are_wrong_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ContractError) as raised:
        validate_measures("ccps, analysis 'tokens'", replace(GOOD, **change))
    assert str(raised.value).startswith("ccps, analysis 'tokens': ")
    assert said in str(raised.value)
