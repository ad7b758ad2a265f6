"""A run ends with commands that show what it wrote, and that name this program so that the shell finds it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from bench.cli.run import next_steps, program
from bench.run.config import RunConfig


@pytest.fixture
def _usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program was started by its name alone, in a folder without such a file."""
    monkeypatch.setattr(sys, "argv", ["bench", "run"])


def commands(**options: object) -> list[str]:
    config = RunConfig(methods=("ptrue",), model="tiny", **options)  # type: ignore[arg-type]
    return [line.removeprefix("next:").strip().partition("   ")[0].partition("  ")[0] for line in next_steps(config)]


@pytest.mark.usefixtures("_usual")
def test_results_of_the_usual_folder_need_no_options() -> None:
    assert commands() == ["bench table --stats", "bench report --serve"]


@pytest.mark.usefixtures("_usual")
def test_partial_and_changed_runs_are_asked_for_in_their_folder() -> None:
    found = commands(out=Path("my runs"), limit=40, overrides=("ptrue.x=1",))
    where = ["--results", "my runs", "--partial", "--deviations"]
    assert list(map(shlex.split, found)) == [
        ["bench", "table", *where, "--stats"],
        ["bench", "report", *where, "--serve"],
    ]


@pytest.mark.usefixtures("_usual")
def test_a_head_that_was_kept_is_named_with_the_command_that_uses_it() -> None:
    config = RunConfig(methods=("lts",), model="tiny")
    *_, last = next_steps(config, [Path("my heads/a"), Path("my heads/b")])
    words = shlex.split(last)
    assert words[:7] == ["bench", "score", "--head", "my heads/a", "--model", "tiny", "questions.jsonl"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in `bin` below the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bin" / "bench"
    path.parent.mkdir()
    path.touch(0o755)
    return path


def test_a_program_that_the_shell_would_not_find_is_named_as_it_was(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["bin/bench", "run"])
    assert program() == "bin/bench"
    monkeypatch.setenv("PATH", str(installed.parent))
    assert program() == "bench"


def test_another_program_of_that_name_is_not_named(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = installed.parent.parent / "other bin" / "bench"
    other.parent.mkdir()
    other.touch(0o755)
    monkeypatch.setenv("PATH", str(installed.parent))
    monkeypatch.setattr(sys, "argv", [str(other), "run"])
    assert shlex.split(program()) == [str(other)]


def test_a_module_is_started_by_its_python(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = installed.with_name("python3")
    python.touch(0o755)
    monkeypatch.setattr(sys, "argv", ["/somewhere/bench/cli/__main__.py", "run"])
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(installed.parent))
    assert program() == "python3 -m bench.cli"
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == f"{python} -m bench.cli"
