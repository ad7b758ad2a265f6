"""JSON values as records: what fits, and errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from bench.decoding import MisfitError, decoder


@dataclass(frozen=True)
class Inner:
    size: int
    share: float | None


@dataclass(frozen=True)
class Outer:
    name: str
    kind: Literal["a", "b"]
    inner: Inner
    table: Mapping[str, Mapping[str, float | None]]
    pair: tuple[float, float] | None
    words: tuple[str, ...]
    flag: bool
    anything: Any


GOOD = """{"name": "x", "kind": "a", "inner": {"size": 3, "share": null}, "table": {"s": {"m": 1, "n": null}},
           "pair": [0.5, 1], "words": ["u", "v"], "flag": true, "anything": [1, {}]}"""


def test_a_record_is_built_whole() -> None:
    assert decoder(Outer)(json.loads(GOOD)) == Outer(
        "x", "a", Inner(3, None), {"s": {"m": 1, "n": None}}, (0.5, 1), ("u", "v"), True, [1, {}]
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["name"], 3, "name: expected str, got '3'"),
        (["kind"], "c", "kind: expected a or b, got 'c'"),
        (["inner"], [], "inner: expected an object, got '[]'"),
        (["inner", "size"], True, "inner.size: expected int, got 'True'"),
        (["inner", "size"], 3.0, "inner.size: expected int, got '3.0'"),
        (["inner", "share"], "0.5", "inner.share: expected float, got '0.5'"),
        (["table", "s", "m"], False, "table.s.m: expected float, got 'False'"),
        (["table"], 1, "table: expected an object, got '1'"),
        (["pair"], [1], "pair: expected 2 values, got '[1]'"),
        (["pair"], {"a": 1}, "pair: expected a list"),
        (["words"], ["u", 1], "words: expected str, got '1'"),
        (["flag"], 1, "flag: expected bool, got '1'"),
        (["inner", "more"], 1, "unknown inner 'more'"),
        (["more"], 1, "unknown key 'more'"),
    ],
)
def test_what_does_not_fit_is_named(path: list[str], value: Any, message: str) -> None:
    values = json.loads(GOOD)
    place = values
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(MisfitError) as caught:
        decoder(Outer)(values)
    assert str(caught.value).startswith(message)


def test_what_is_missing_is_named() -> None:
    values = json.loads(GOOD)
    del values["inner"]["size"]
    with pytest.raises(MisfitError, match="missing inner 'size'"):
        decoder(Outer)(values)
    del values["flag"], values["name"]
    with pytest.raises(MisfitError, match="missing key 'flag', 'name'"):
        decoder(Outer)(values)
