"""README and docs are true: commands run, the example passes its checks, every method, task and option is named."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import typer.main
from typer import Context

from bench import registry
from bench.cli.app import app
from bench.report.figures import write
from methods.ccps import Ccps
from tests.integration.conftest import ROOT
from tests.kit.command import bench

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
"""The README, and the pages of the site, which have what is too long for it."""
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
ALL = "\n".join(TEXTS.values())
BENCH = Path(sys.executable).parent / "bench"
LIMIT = 16
TRAINING = "32+32"
"""Questions of each training and validation split: as few as teach a method."""
MINUTES = 60


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def lines(language: str, *pages: str) -> list[str]:
    """Calls of the command in blocks of a language, each once."""
    found = (line for page in pages for block in blocks(language, TEXTS[page]) for line in block.splitlines())
    return list(dict.fromkeys(line for line in found if line.startswith("bench ")))


def commands() -> list[str]:
    """Commands of `sh` blocks, in the order in which they are read: each is run."""
    return lines("sh", *TEXTS)


def words_of(command: str) -> list[str]:
    """Words after `bench`."""
    _, *words = shlex.split(command)
    return [str(ROOT.parent / "shared" / "data") if word == "DATA" else word for word in words]


def check_ended_well(command: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def data_is_missing(command: str) -> bool:
    return "--data-dir DATA" in command and not (ROOT.parent / "shared" / "data").is_dir()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder in which a reader types the commands, with the example method saved as its page says."""
    (example,) = blocks("python", TEXTS["add-method.md"])
    (tmp_path / "margin.py").write_text(example, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("trained_here")
def test_readme_commands_run_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On few questions, in a few steps and in this process: each of its own would spend seconds on importing libraries.

    Figures are drawn in the quickest format alone; `test_scores.py` has a command draw them in all.
    `--set` would make a variant of `ccps`, which later commands do not name.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setattr(write, "write_figures", partial(write.write_figures, formats=["svg"]))
    for name in ("contrastive_steps", "classifier_steps"):
        monkeypatch.setitem(Ccps.presets["demo"], name, 20)
    more = {"run": ["--limit", LIMIT, "--train-limit", TRAINING], "table": ["--partial"], "report": ["--partial"]}
    for command in commands():
        if not data_is_missing(command):
            words = words_of(command)
            done = bench(*words, *more.get(words[0], ()), env={"CONFBENCH_CACHE": str(folder / "cache")})
            check_ended_well(command, done)


def parse(command: str) -> None:
    """Parse names, types and numbers of values of a command line."""
    _, *words = shlex.split(command, comments=True)
    known = typer.main.get_command(app)
    while hasattr(known, "commands"):
        _, known, words = known.resolve_command(Context(known), words)
    with known.make_context(str(known.name), list(words)) as context:
        assert not context.args


@pytest.mark.parametrize("command", [*commands(), *lines("text", *TEXTS), *lines("console", *TEXTS)])
def test_readme_commands_are_spelled_right(command: str) -> None:
    parse(command)


def test_readme_is_short() -> None:
    """At most 900 words beside code and tables."""
    prose = re.sub(r"```.*?```|^\|.*?$|<!--.*?-->", "", TEXTS["README.md"], flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 900


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if ":" not in target and not (page.parent / target).is_file()]
    assert not missing


@pytest.mark.slow
def test_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    loaded = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^"'>\s]+""")
    assert not [hit for page in pages for hit in loaded.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.readme
@pytest.mark.skipif(not BENCH.exists(), reason="the command `bench` is not installed beside this Python")
def test_readme_commands_run_whole(folder: Path) -> None:
    environment = {**os.environ, "CONFBENCH_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    for command in commands():
        if data_is_missing(command):
            pytest.skip("../shared/data is not there")
        done = subprocess.run(
            [BENCH, *words_of(command)], cwd=folder, env=environment, capture_output=True, text=True,
            timeout=MINUTES * 60, check=False,
        )  # fmt: skip
        check_ended_well(command, done)


def test_readme_opens_with_the_two_commands() -> None:
    assert blocks("sh", TEXTS["README.md"])[0].split("\n")[:2] == ["make demo", "make test"]


def test_pages_name_every_option_of_bench_run() -> None:
    run = typer.main.get_command(app).commands["run"]
    options = [option for parameter in run.params for option in parameter.opts[:1] if option.startswith("--")]
    missing = [option for option in options if f"`{option}" not in ALL]
    assert not [option for option in missing if option != "--help"]


def test_catalogue_names_every_method_and_task() -> None:
    names = [*registry.methods().names(), *registry.tasks().names()]
    assert not [name for name in names if f"`{name}`" not in TEXTS["catalogue.md"]]
