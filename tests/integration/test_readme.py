"""The README is true: its commands run, its example passes its checks, it names every method, task and option."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from bench import registry
from bench.cli.app import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCH = Path(sys.executable).parent / "bench"
LIMIT = 40
MINUTES = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("bench ")]


def run_in(folder: Path, command: str, *more: str) -> None:
    program, *words = shlex.split(command)
    assert program == "bench"
    words = [word.replace("../shared/data", str(ROOT.parent / "shared" / "data")) for word in words]
    environment = {**os.environ, "CONFBENCH_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [BENCH, *words, *more], cwd=folder, env=environment, capture_output=True, text=True, timeout=MINUTES * 60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def data_is_missing(command: str) -> bool:
    return "../shared/data" in command and not (ROOT.parent / "shared" / "data").is_dir()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder in which a reader types the README, with the example method saved as it says."""
    folder = tmp_path_factory.mktemp("reader")
    (example,) = blocks("python")
    (folder / "margin.py").write_text(example, encoding="utf-8")
    return folder


@pytest.mark.skipif(not BENCH.exists(), reason="the command `bench` is not installed beside this Python")
def test_its_commands_run_in_order(folder: Path) -> None:
    for command in commands():
        if data_is_missing(command):
            continue
        if command.startswith("bench run"):
            run_in(folder, command, "--limit", str(LIMIT))
        else:
            run_in(folder, command, *(["--partial"] if command.startswith(("bench table", "bench report")) else []))


@pytest.mark.readme
def test_its_commands_run_whole(folder: Path) -> None:
    shutil.rmtree(folder / "results", ignore_errors=True)
    for command in commands():
        if data_is_missing(command):
            pytest.skip("../shared/data is not there")
        run_in(folder, command)


def test_it_opens_with_the_two_commands() -> None:
    assert blocks("sh")[0].split("\n")[:2] == ["make demo", "make test"]


def test_it_names_every_option_of_bench_run() -> None:
    run = typer.main.get_command(app).commands["run"]
    options = [option for parameter in run.params for option in parameter.opts if option.startswith("--")]
    missing = [option for option in options if f"`{option}" not in README]
    assert not [option for option in missing if option != "--help"]


@pytest.mark.parametrize("name", [*registry.methods().names(), *registry.tasks().names()])
def test_it_names_every_method_and_task(name: str) -> None:
    assert f"`{name}`" in README


def test_its_glossary_has_the_words_of_the_code() -> None:
    for word in ("question", "prompt", "answer", "signal", "confidence", "unparsed", "preset"):
        assert re.search(rf"^\| .*{word}.* \|", README, flags=re.MULTILINE)
