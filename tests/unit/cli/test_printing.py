"""Lists keep every name whole: a line for each thing in a pipe, a table or paragraphs in a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cli import printing
from bench.cli.describe import KINDS, listing

ROOT = Path(__file__).parents[3]
LONG = "a-method-with-a-name-that-no-narrow-terminal-has-room-for"
RECORDS = [
    {"name": "short", "origin": "built-in", "what": "First words,\n  second words."},
    {"name": LONG, "origin": "file\twith a tab", "broken": "It doesn't load."},
]


def in_terminal(columns: int, *arguments: str) -> str:
    """What `bench` prints in a terminal of a width, without styles."""
    inner, outer = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.cli", *arguments], stdout=outer, stdin=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(outer)
        found = b""
        try:
            while piece := os.read(inner, 1 << 16):
                found += piece
        except OSError:  # Linux says so that the other side was closed
            pass
        os.close(inner)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[\d;]*m", "", found.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [40, 60, 80, 160])
@pytest.mark.parametrize("kind", KINDS)
def test_no_name_is_cut_and_nothing_is_left_out(kind: str, columns: int) -> None:
    shown = in_terminal(columns, "list", kind)
    for record in listing(kind):
        assert re.search(rf"^{re.escape(record['name'])}( |$)", shown, re.MULTILINE)
    words = {word for record in listing(kind) for value in record.values() for word in str(value).split()}
    assert words - set(shown.split()) == set()
    longest = max(map(len, words)) + 4
    assert max(map(len, shown.splitlines())) <= max(columns, longest)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", ["20", "200"])
def test_a_pipe_gets_a_line_for_each_thing(
    kind: str, columns: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    printing.print_listing(listing(kind))
    lines = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    assert lines == [[str(value) for value in record.values()] for record in listing(kind)]


def test_line_ends_and_tabs_inside_a_value_make_no_further_lines_or_columns(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_listing(RECORDS)
    assert capsys.readouterr().out.splitlines() == [
        "short\tbuilt-in\tFirst words, second words.\t",
        f"{LONG}\tfile with a tab\t\tIt doesn't load.",
    ]


def test_constants_are_whole_in_narrow_terminals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = [{"name": LONG, "paper": 0.1, "deviates": "", "source": "The paper, §2."}]
    for columns, expected in (
        ("40", f"{LONG}\n  source: The paper, §2.\n  paper: 0.1\n"),
        ("200", f"{LONG} 0.1            The paper, §2."),
    ):
        monkeypatch.setenv("COLUMNS", columns)
        printing.print_fields({"kind": "method", "constants": constants})
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 200])
def test_numbers_that_have_no_room_beside_each_other_go_below(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folded, an interval would be on three lines, and the name of a row on four."""
    monkeypatch.setenv("COLUMNS", str(columns))
    row = {"metric": "AUROC", "variant": "perturbation", "value": "85.2", "interval": "82.9 to 87.4", "less": "+0.2",
           "its interval": "0.1 to 0.4", "p": "0.269", "an interval alone": "1 to 2"}  # fmt: skip
    printing.print_numbers([row, {**row, "variant": "original"}], names=2)
    lines = [re.split(r" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    headings = [line for line in lines if line[0] == "metric"]
    assert [key for line in headings for key in line[2:]] == [*row][2:]
    assert len(headings) == (3 if columns == 60 else 1)
    assert all(line[:2] == ["metric", "variant"] for line in headings)
    assert lines.count(["AUROC", "original", *list(row.values())[2 : len(headings[0])]]) == 1
