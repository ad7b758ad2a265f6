"""JSON values as records: what fits, and errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from bench.store.decoding import RecordError, decode_record, parse_json


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
    words: tuple[str, ...]
    flag: bool
    anything: Any
    steps: tuple[Inner, ...] = ()


GOOD = """{"name": "x", "kind": "a", "inner": {"size": 3, "share": null}, "table": {"s": {"m": 1, "n": null}},
           "steps": [{"size": 1, "share": 1}], "words": ["u", "v"], "flag": true, "anything": [1, {}]}"""


def test_record_is_built_whole() -> None:
    assert decode_record(parse_json(GOOD), Outer) == Outer(
        "x", "a", Inner(3, None), {"s": {"m": 1, "n": None}}, ("u", "v"), True, [1, {}], (Inner(1, 1.0),)
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["name"], 3, "name: expected str, got '3'"),
        (["kind"], "c", "kind: expected a or b, got 'c'"),
        (["inner"], [], "inner: expected an object, got '[]'"),
        (["inner", "size"], True, "inner.size: expected int, got 'True'"),
        (["inner", "size"], 3.0, "inner.size: expected int, got '3.0'"),
        (["inner", "share"], "0.5", "inner.share: expected a finite number, got '0.5'"),
        (["table", "s", "m"], False, "table.s.m: expected a finite number, got 'False'"),
        (["table"], 1, "table: expected an object, got '1'"),
        (["steps"], {"a": 1}, "steps: expected a list"),
        (["steps"], [{"size": 1, "share": True}], "steps.0.share: expected a finite number, got 'True'"),
        (["steps"], [{"size": 1, "share": 1, "more": 1}], "unknown steps.0 'more'"),
        (["steps"], [{"size": 1}], "missing steps.0 'share'"),
        (["words"], ["u", 1], "words.1: expected str, got '1'"),
        (["words"], "uv", "words: expected a list, got 'uv'"),
        (["name"], "\ud800", r"name: expected str, got '\ud800'"),
        (["flag"], 1, "flag: expected bool, got '1'"),
        (["flag"], None, "flag: expected bool, got 'None'"),
        (["inner", "share"], float("nan"), "inner.share: expected a finite number, got 'nan'"),
        (["table", "s", "n"], float("inf"), "table.s.n: expected a finite number, got 'inf'"),
        (["anything"], [0, {"a": [-float("inf")]}], "anything.1.a.0: expected a JSON value, got '-inf'"),
        (["anything"], ["\ud800"], r"anything.0: expected a JSON value, got '\ud800'"),
        (["inner", "share"], 10**400, "inner.share: expected a finite number, got '1000"),
        (["inner", "more"], 1, "unknown inner 'more'"),
        (["more"], 1, "unknown key 'more'"),
    ],
)
def test_values_that_do_not_fit_are_named(path: list[str], value: Any, message: str) -> None:
    values = json.loads(GOOD)
    place = values
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(RecordError) as caught:
        decode_record(values, Outer)
    assert str(caught.value).startswith(message)


def test_missing_fields_are_named() -> None:
    values = json.loads(GOOD)
    for names, place, said in (("size",), "inner", "inner 'size'"), (("flag", "steps"), None, "key 'flag', 'steps'"):
        for name in names:  # also one with a default
            del (values[place] if place else values)[name]
        with pytest.raises(RecordError, match=f"missing {said}"):
            decode_record(values, Outer)


@dataclass(frozen=True)
class Limited:
    odds: tuple[Annotated[float, Meta(ge=0, description="a number of at least 0")] | None, ...]


@pytest.mark.parametrize("odds", [-0.5, "0.5", True, float("nan")])
def test_limits_are_told_in_their_words(odds: object) -> None:
    assert decode_record({"odds": [0, None]}, Limited) == Limited((0.0, None))
    with pytest.raises(RecordError, match=rf"odds\.1: expected a number of at least 0, got '{odds}'"):
        decode_record({"odds": [1, odds]}, Limited)


@pytest.mark.parametrize("text", ["", "{", "{} {}", "{'a': 1}", '{"a": 01}', '{"a": "\n"}', "[1,]"])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d"):
        parse_json(text)
    with pytest.raises(RecursionError):
        parse_json("[" * 100_000)
