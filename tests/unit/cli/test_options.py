"""Options made from the fields of a dataclass: names, types, defaults, help, headings, and the object they make."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Voyage(Trip):
    """A longer one."""

    ports: Annotated[tuple[str, ...] | None, Separated()] = None
    """Ports on the way. Default: none is called at."""


SEEN: list[object] = []
APP = typer.Typer(rich_markup_mode=None, add_completion=False)


@APP.command(cls=GroupedHelp)
@options_from(Trip, without=("hidden",))
def travel(trip: Trip, *, loud: bool = False) -> None:
    """Travel."""
    SEEN.append((trip, loud))


@APP.command(cls=GroupedHelp)
@options_from(Voyage, without=("hidden",))
def sail(voyage: Voyage) -> None:
    """Sail."""
    SEEN.append(voyage)


def asked(*words: str, command: str = "travel") -> Any:
    return CliRunner().invoke(APP, [command, *words])


FULL = Trip(("Elbe", "Oder"), (Path("a"), Path("b,c")), ("x=1,2",), 5, "Ada", at_night=True)
WORDS = (
    "--river", "Elbe,", "--river", " Oder", "--paddle", "a", "--paddle", "b,c", "--rule-out", "x=1,2", "--days", "5",
    "--guide", "Ada", "--at-night",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (("--river", "Elbe"), (Trip(("Elbe",)), False)),
        ((*WORDS, "--loud"), (FULL, True)),
        (words_of(FULL), (FULL, False)),
        (words_of(Trip(("Elbe",))), (Trip(("Elbe",)), False)),
    ],
)
def test_options_fill_their_fields(words: Iterable[str], seen: object) -> None:
    assert asked(*words).exit_code == 0
    assert SEEN.pop() == seen


def test_words_leave_out_what_they_should() -> None:
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
def test_options_that_are_wrong_are_refused(words: tuple[str, ...], sentence: str) -> None:
    result = asked(*words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_help_is_grouped_in_the_order_of_fields() -> None:
    lines = [" ".join(line.split()) for line in asked("--help").stdout.splitlines() if line]
    assert lines[2:] == [
        "Where:", "--river, --rivers <str> Rivers, separated by commas. [required]",
        "--paddle, --paddles <path> Files; may be repeated.",
        "--rule-out <str> Rules that don't hold.", "When:", "--days <int> Days on the water. [default: 3]",
        "--guide <str> Name of a guide.", "--at-night Also at night.", "Options:",
        "--loud / --no-loud [default: no-loud]", "--help Show this message and exit.",
    ]  # fmt: skip


@pytest.mark.parametrize(("field", "kinds"), [("judge", KINDS), ("recalibrate", RECALIBRATORS), ("preset", PRESETS)])
def test_help_names_every_kind(field: str, kinds: Iterable[str]) -> None:
    assert set(kinds) <= set(re.findall(r"\w+", help_of(RunConfig)[field]))


def test_options_of_the_extended_dataclass_come_first() -> None:
    shown = asked("--help", command="sail").stdout
    assert [word in shown for word in ("--river", "Where:", "Files; may be repeated.", "--port")] == [True] * 4
    assert shown.index("--river") < shown.index("--port")


@pytest.mark.parametrize(("words", "ports"), [((), None), (("--port", ""), ()), (("--port", "Ra, Bo"), ("Ra", "Bo"))])
def test_options_tell_none_given_from_an_empty_one(words: tuple[str, ...], ports: tuple[str, ...] | None) -> None:
    assert asked("--river", "Elbe", *words, command="sail").exit_code == 0
    assert SEEN.pop() == Voyage(("Elbe",), ports=ports)
