"""A run ends with commands that show what it wrote, and that name this program so that the shell finds it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.cli.run import next_steps, program, rank_heads
from bench.results import files
from bench.run.analyses.request import format_command
from bench.run.config import RunConfig
from tests.kit.tables import planted

IN_FOLDER = ["--results", "my runs", "--partial", "--deviations"]
ROWS = planted({"ptrue": 0.2}, constant=0.24).rows
PARTIAL = {"out": Path("my runs"), "limit": 40, "overrides": ("ptrue.x=1",)}


@pytest.mark.parametrize(
    ("options", "heads", "commands"),
    [
        ({}, [], [["bench", "table", "--stats"], ["bench", "report"]]),
        (PARTIAL, [], [["bench", "table", *IN_FOLDER, "--stats"], ["bench", "report", *IN_FOLDER]]),
        (
            {},
            [Path("my heads/a"), Path("my heads/b")],
            [
                ["bench", "table", "--stats"],
                ["bench", "report"],
                ["bench", "score", "--head", "my heads/a", "--model", "tiny", "questions.jsonl"],
            ],
        ),
        (
            {"tokenizer": "org/original"},
            [Path("a")],
            [
                ["bench", "table", "--stats"],
                ["bench", "report"],
                ["bench", "score", "--head", "a", "--model", "tiny", "--tokenizer", "org/original", "questions.jsonl"],
            ],
        ),
        (
            {"plugins": (Path("m y.py"),), "trust_remote_code": True, "preset": "fixed"},
            [Path("a")],
            [
                ["bench", "table", "--preset", "fixed", "--stats"],
                ["bench", "report", "--preset", "fixed"],
                shlex.split("bench score --head a --model tiny --trust-remote-code --plugin 'm y.py' questions.jsonl"),
            ],
        ),
    ],
    ids=["usual", "partial", "heads", "tokenizer", "plugin"],
)
def test_commands_show_what_the_run_wrote(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object], heads: list[Path], commands: list[list[str]]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "run"])  # started by its name, in a folder without such a file
    config = RunConfig(methods=("ptrue",), model="tiny", **options)  # type: ignore[arg-type]
    rows = [replace(row, deviations={"ptrue.x": 1} if config.overrides else {}) for row in ROWS]
    found = [
        shlex.split(line.removeprefix("next:").strip().partition("  ")[0]) for line in next_steps(config, rows, heads)
    ]
    assert found == commands


def test_commands_name_servers_without_their_secrets() -> None:
    url, shown = "https://me:hunter2@example.org/v1?token=abcdefgh", "https://example.org/v1"
    config = RunConfig(methods=("ptrue",), model=url, answers=url, judge_url=url)
    assert f"--model {shown} questions.jsonl" in next_steps(config, ROWS, [Path("a")])[-1]
    assert format_command(config) == (f"bench run --method ptrue --model {shown} --answers {shown} --judge-url {shown}")


def test_commands_show_results_of_answers_that_deviate() -> None:
    """Answers of a file whose tokens are found anew deviate without a `--set`."""
    config = RunConfig(methods=("ptrue",), model="tiny")
    assert not any("--deviations" in line for line in next_steps(config, ROWS))
    deviating = [replace(row, deviations={"answer_ids": "retokenised"}) for row in ROWS]
    assert all("--deviations" in line for line in next_steps(config, deviating))


@pytest.mark.parametrize(
    ("made", "first"),
    [
        (["none", "third", "second", "lead"], "lead"),
        (["none", "third", "second"], "second"),  # the leader has no head
        (["none", "other", "third"], "third"),
        (["other", "none"], "other"),  # no better than a constant: the first that was made
    ],
)
def test_suggested_head_is_of_a_method_that_leads(made: list[str], first: str) -> None:
    table = planted({"other": 0.26, "none": 0.25, "third": 0.2, "second": 0.15, "lead": 0.1}, constant=0.24)
    paths = {line.key.method: files.path_of(line.rows[0], Path("heads")).with_suffix("") for line in table.lines}
    config = RunConfig(methods=("all",), model="tiny", save_heads=Path("heads"))
    assert rank_heads([paths[name] for name in made], [table], config)[0] == paths[first]


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
