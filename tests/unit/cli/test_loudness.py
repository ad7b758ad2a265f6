"""--verbose and --quiet, before and after the name of a command."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from typer.testing import CliRunner

from bench.api import UserError
from bench.cli import verbosity
from bench.cli.commands import Commands, root
from bench.cli.printing import print_line, print_notes
from bench.progress import DECISIONS, Silent

APP = Commands(callback=root, rich_markup_mode=None)


@APP.command()
def work(*, hard: bool = False) -> None:
    """Work."""
    DECISIONS.info("it is \x1b[2Jdone %s", "hard" if hard else "softly")
    print_notes(["mind the gap"])
    print_line("result")


@APP.command()
def rest() -> None:
    """Rest."""


@pytest.fixture(autouse=True)
def usual() -> object:
    yield
    verbosity.set_level(verbose=False, quiet=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["work"], "note: mind the gap\n"),
        (["-q", "work"], ""),
        (["work", "--quiet"], ""),
        (["-v", "work", "--hard"], "decided: it is \\x1b[2Jdone hard\nnote: mind the gap\n"),
        (["work", "--verbose"], "decided: it is \\x1b[2Jdone softly\nnote: mind the gap\n"),
        (["-q", "work", "-v"], "decided: it is \\x1b[2Jdone softly\nnote: mind the gap\n"),
    ],
)
def test_they_hold_for_every_command(words: list[str], said: str) -> None:
    result = CliRunner().invoke(APP, words)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "result\n", said)


def test_one_command_line_leaves_nothing_to_the_next() -> None:
    CliRunner().invoke(APP, ["work", "-v"])
    assert CliRunner().invoke(APP, ["work"]).stderr == "note: mind the gap\n"


def test_both_at_once_are_refused() -> None:
    with pytest.raises(UserError, match="expected one of them"):
        raise CliRunner().invoke(APP, ["work", "-v", "-q"]).exception or AssertionError


def test_progress_is_silent_where_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    verbosity.set_level(verbose=False, quiet=True)
    assert isinstance(verbosity.progress(), Silent)
    verbosity.set_level(verbose=False, quiet=False)
    assert not isinstance(verbosity.progress(), Silent)
    assert not DECISIONS.isEnabledFor(logging.INFO)
