"""Lists keep every name whole: a line for each thing in a pipe, a table or paragraphs in a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.cli import printing
from bench.cli.describe import KINDS, list_records

LONG = "a-method-with-a-name-that-no-narrow-terminal-has-room-for"
RECORDS = [
    {"name": "short", "origin": "built-in", "what": "First words,\n  second words."},
    {"name": LONG, "origin": "file\twith a tab", "broken": "It doesn't load."},
]


def read(inner: int) -> str:
    """What was written into a terminal whose other side is closed, without styles."""
    found = b""
    with contextlib.suppress(OSError):  # Linux says so that the other side was closed
        while piece := os.read(inner, 1 << 16):
            found += piece
    os.close(inner)
    return re.sub(r"\x1b\[[\d;]*m", "", found.decode()).replace("\r\n", "\n")


def printed(kind: str, **environment: str) -> str:
    """What `bench list` prints in a terminal."""
    inner, outer = pty.openpty()
    with ThreadPoolExecutor(1) as beside, pytest.MonkeyPatch.context() as patch:
        found = beside.submit(read, inner)  # a terminal that nobody reads is full after some pages
        with os.fdopen(outer, "w", encoding="utf-8") as terminal:
            patch.setattr(sys, "stdout", terminal)
            for name, value in environment.items():
                patch.setenv(name, value)
            printing.print_listing(list_records(kind))
        return found.result(60)


@pytest.mark.parametrize("kind", KINDS)
def test_terminal_cuts_no_name_and_leaves_nothing_out(kind: str) -> None:
    words = {word for record in list_records(kind) for value in record.values() for word in str(value).split()}
    longest = max(map(len, words)) + 4
    for columns in (40, 60, 80, 160):
        shown = printed(kind, COLUMNS=str(columns), TERM="xterm", NO_COLOR="1")
        for record in list_records(kind):
            assert re.search(rf"^{re.escape(record['name'])}( |$)", shown, re.MULTILINE)
        assert words - set(shown.split()) == set()
        assert max(map(len, shown.splitlines())) <= max(columns, longest)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", ["20", "200"])
def test_pipe_gets_a_line_for_each_thing(
    kind: str, columns: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    printing.print_listing(list_records(kind))
    lines = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    assert lines == [[str(value) for value in record.values()] for record in list_records(kind)]


def test_pipe_gets_no_line_ends_and_tabs_of_values(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_listing(RECORDS)
    assert capsys.readouterr().out.splitlines() == [
        "short\tbuilt-in\tFirst words, second words.\t",
        f"{LONG}\tfile with a tab\t\tIt doesn't load.",
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [("40", f"{LONG}\n  source: The paper, §2.\n  paper: 0.1\n"), ("200", f"{LONG} 0.1            The paper, §2.")],
)
def test_constants_are_whole_in_narrow_terminals(
    columns: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    constants = [{"name": LONG, "paper": 0.1, "deviates": "", "source": "The paper, §2."}]
    printing.print_fields({"kind": "method", "constants": constants})
    assert expected in capsys.readouterr().out


def test_fields_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_fields({"kind": "task", "hub": None, "files": (), "folder": "", "sizes": {"test": 20}, "version": 0})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["kind", "sizes", "version"]


def test_many_written_files_are_counted_below_their_folder(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [Path("demo") / "tiny" / task / f"{n}.json" for task in ("rivers", "lakes") for n in range(5)]
    printing.print_written(paths[:8])
    printing.print_written(paths)
    *each, counted = capsys.readouterr().out.splitlines()
    assert each == [f"wrote {path}" for path in paths[:8]]
    assert counted == "wrote 10 files below demo/tiny"
