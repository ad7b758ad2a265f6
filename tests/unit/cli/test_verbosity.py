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
def work() -> None:
    """Work."""
    DECISIONS.info("it is \x1b[2Jdone")
    print_notes(["mind the gap"])
    print_line("result")


@APP.command()
def rest() -> None:
    """Rest."""


@pytest.fixture(autouse=True)
def usual() -> object:
    yield
    verbosity.set_level(verbose=False, quiet=False)


NOTED = "note: mind the gap\n"
DECIDED = f"decided: it is \\x1b[2Jdone\n{NOTED}"


@pytest.mark.parametrize(
    ("words", "said"),
    [("work", NOTED), ("-q work", ""), ("work --quiet", ""), ("-v work", DECIDED), ("work --verbose", DECIDED),
     ("-q work -v", DECIDED)],
)  # fmt: skip
def test_verbosity_holds_for_one_command_line(words: str, said: str) -> None:
    for line, stderr in ((words, said), ("work", NOTED)):
        result = CliRunner().invoke(APP, line.split())
        assert (result.exit_code, result.stdout, result.stderr) == (0, "result\n", stderr)


def test_verbosity_of_both_kinds_is_refused() -> None:
    assert isinstance(error := CliRunner().invoke(APP, ["work", "-v", "-q"]).exception, UserError)
    assert "expected one of them" in str(error)


def test_progress_is_silent_where_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    verbosity.set_level(verbose=False, quiet=True)
    assert isinstance(verbosity.progress(), Silent)
    verbosity.set_level(verbose=False, quiet=False)
    assert not isinstance(verbosity.progress(), Silent)
    assert not DECISIONS.isEnabledFor(logging.INFO)
