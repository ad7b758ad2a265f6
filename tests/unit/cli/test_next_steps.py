"""A run ends with commands that show what it wrote, and that name this program so that the shell finds it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from bench.cli.run import next_steps, program
from bench.run.config import RunConfig

IN_FOLDER = ["--results", "my runs", "--partial", "--deviations"]
PARTIAL = {"out": Path("my runs"), "limit": 40, "overrides": ("ptrue.x=1",)}


@pytest.mark.parametrize(
    ("options", "heads", "commands"),
    [
        ({}, [], [["bench", "table", "--stats"], ["bench", "report", "--serve"]]),
        (PARTIAL, [], [["bench", "table", *IN_FOLDER, "--stats"], ["bench", "report", *IN_FOLDER, "--serve"]]),
        (
            {},
            [Path("my heads/a"), Path("my heads/b")],
            [
                ["bench", "table", "--stats"],
                ["bench", "report", "--serve"],
                ["bench", "score", "--head", "my heads/a", "--model", "tiny", "questions.jsonl"],
            ],
        ),
        (
            {"tokenizer": "org/original"},
            [Path("a")],
            [
                ["bench", "table", "--stats"],
                ["bench", "report", "--serve"],
                ["bench", "score", "--head", "a", "--model", "tiny", "--tokenizer", "org/original", "questions.jsonl"],
            ],
        ),
    ],
    ids=["usual", "partial", "heads", "tokenizer"],
)
def test_commands_show_what_the_run_wrote(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object], heads: list[Path], commands: list[list[str]]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "run"])  # started by its name, in a folder without such a file
    config = RunConfig(methods=("ptrue",), model="tiny", **options)  # type: ignore[arg-type]
    found = [shlex.split(line.removeprefix("next:").strip().partition("  ")[0]) for line in next_steps(config, heads)]
    assert found == commands


@pytest.mark.parametrize(
    ("argv", "path", "named"),
    [
        ("bin/bench", "/nowhere", ["bin/bench"]),  # which the shell would not find
        ("bin/bench", "bin", ["bench"]),
        ("other bin/bench", "bin", ["other bin/bench"]),  # another program of that name
        ("bench/cli/__main__.py", "bin", ["python3", "-m", "bench.cli"]),
        ("bench/cli/__main__.py", "/nowhere", ["bin/python3", "-m", "bench.cli"]),
    ],
)
def test_program_is_named_so_that_the_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: str, path: str, named: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("bin/bench", "bin/python3", "other bin/bench"):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).touch(0o755)
    monkeypatch.setattr(sys, "argv", [argv, "run"])
    monkeypatch.setattr(sys, "executable", "bin/python3")
    monkeypatch.setenv("PATH", path)
    assert shlex.split(program()) == named
