"""Options made from the fields of a dataclass: names, types, defaults, help, headings, and the object they make."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from bench.api.options import Heading, Names, OptionName, Separated, words_of
from bench.api.protocol import PRESETS
from bench.cli.options import GroupedHelp, help_of, options_from
from bench.grading.judges import KINDS
from bench.metrics.recalibration import RECALIBRATORS
from bench.report.selection import ReportRequest, View
from bench.run.config import RunConfig


@dataclass(frozen=True)
class Trip:
    """What is asked for in these tests."""

    rivers: Annotated[Names, Heading("Where")]
    """Rivers, separated by commas."""
    paddles: tuple[Path, ...] = ()
    """Files; may be repeated."""
    rules: Annotated[tuple[str, ...], OptionName("--rule-out")] = ()
    """Rules that don't hold."""
    days: Annotated[int, Heading("When")] = 3
    """Days
    on the water."""
    guide: str | None = None
    """Name of a guide."""
    at_night: bool = False
    """Also at night."""
    hidden: str = "kept"
    """No option."""


SEEN: list[tuple[Trip, bool]] = []
APP = typer.Typer(rich_markup_mode=None, add_completion=False)


@APP.command(cls=GroupedHelp)
@options_from(Trip, without=("hidden",))
def travel(trip: Trip, *, loud: bool = False) -> None:
    """Travel."""
    SEEN.append((trip, loud))


def asked(*words: str) -> Any:
    return CliRunner().invoke(APP, list(words))


def test_fields_that_are_not_given_keep_their_defaults() -> None:
    assert asked("--river", "Elbe").exit_code == 0
    assert SEEN.pop() == (Trip(("Elbe",)), False)


def test_each_option_fills_its_field() -> None:
    words = [
        "--river", "Elbe, Oder,", "--river", "Spree", "--paddle", "a", "--paddle", "b,c", "--rule-out", "x=1,2",
        "--days", "5", "--guide", "Ada", "--at-night", "--loud",
    ]  # fmt: skip
    assert asked(*words).exit_code == 0
    trip = Trip(("Elbe", "Oder", "Spree"), (Path("a"), Path("b,c")), ("x=1,2",), 5, "Ada", at_night=True)
    assert SEEN.pop() == (trip, True)


def test_words_of_an_object_make_it_again() -> None:
    trip = Trip(("Elbe", "Oder"), (Path("a"), Path("b,c")), ("x=1,2",), 5, "Ada", at_night=True)
    for each in (trip, Trip(("Elbe",))):
        assert asked(*words_of(each)).exit_code == 0
        assert SEEN.pop() == (each, False)
    assert words_of(Trip(("Elbe",), days=5, hidden="x"), without=("days", "hidden")) == ["--river", "Elbe"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Missing option '--river'"),
        (("--river", "Elbe", "--days", "many"), "Invalid value for '--days'"),
        (("--river", "Elbe", "--pedal", "x"), "--paddle"),
        (("--river", "Elbe", "--hidden", "x"), "No such option: --hidden"),
        (("--river", "Elbe", "--no-at-night"), "No such option: --no-at-night"),
    ],
)
def test_wrong_options_are_refused_with_exit_code_2(words: tuple[str, ...], sentence: str) -> None:
    result = asked(*words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_the_help_is_grouped_in_the_order_of_the_fields() -> None:
    lines = [" ".join(line.split()) for line in asked("--help").stdout.splitlines() if line]
    assert lines[2:] == [
        "Where:", "--river <str> Rivers, separated by commas. [required]", "--paddle <path> Files; may be repeated.",
        "--rule-out <str> Rules that don't hold.", "When:", "--days <int> Days on the water. [default: 3]",
        "--guide <str> Name of a guide.", "--at-night Also at night.", "Options:",
        "--loud / --no-loud [default: no-loud]", "--help Show this message and exit.",
    ]  # fmt: skip


def test_every_field_of_a_run_has_help() -> None:
    assert set(help_of(RunConfig)) == {field.name for field in fields(RunConfig)}


@pytest.mark.parametrize("request_of", [View, ReportRequest])
def test_every_field_of_a_table_and_a_report_has_help(request_of: type) -> None:
    assert set(help_of(request_of)) == {field.name for field in fields(request_of)}


@pytest.mark.parametrize(("field", "kinds"), [("judge", KINDS), ("recalibrate", RECALIBRATORS), ("preset", PRESETS)])
def test_the_help_names_every_kind(field: str, kinds: Iterable[str]) -> None:
    assert set(kinds) <= set(re.findall(r"\w+", help_of(RunConfig)[field]))


@dataclass(frozen=True)
class Voyage(Trip):
    """A longer one."""

    ports: Annotated[tuple[str, ...] | None, Separated()] = None
    """Ports on the way. Default: none is called at."""


VOYAGES: list[Voyage] = []
SEA = typer.Typer(rich_markup_mode=None, add_completion=False)


@SEA.command(cls=GroupedHelp)
@options_from(Voyage, without=("hidden",))
def sail(voyage: Voyage) -> None:
    """Sail."""
    VOYAGES.append(voyage)


def test_a_dataclass_has_the_options_of_the_one_that_it_extends() -> None:
    result = CliRunner().invoke(SEA, ["--help"])
    assert [word in result.stdout for word in ("--river", "Where:", "Files; may be repeated.", "--port")] == [True] * 4
    assert result.stdout.index("--river") < result.stdout.index("--port")


def test_a_tuple_that_may_be_none_tells_none_given_from_an_empty_one() -> None:
    for words, ports in (((), None), (("--port", ""), ()), (("--port", "Ra, Bo"), ("Ra", "Bo"))):
        assert CliRunner().invoke(SEA, ["--river", "Elbe", *words]).exit_code == 0
        assert VOYAGES.pop() == Voyage(("Elbe",), ports=ports)
