"""What the commands print: lists without heavy imports, plans that write nothing, JSON that parses, whole help."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from bench.cli import app, check, exit_codes
from bench.cli.check_process import check_file
from bench.testing import CheckResult
from tests.fixtures.whole_run import TESTED, WholeRun

Command = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "datasets", "sklearn", "pandas", "pyarrow", "scipy", "matplotlib", "openai")


def test_listing_methods_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['bench', 'list', 'methods']\n"
        "from bench.cli.app import main\n"
        "try:\n    main()\n"
        "finally:\n    sys.stderr.write(' '.join(m for m in sys.modules if '.' not in m))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "ptrue" in result.stdout
    assert not set(HEAVY) & set(result.stderr.split())


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("methods", {"ptrue", "ccps"}),
        ("models", {"tiny", "llama8b", "qwen14b", "mistral24b", "qwen32b"}),
        ("tasks", {"atlas-choice", "atlas-oe", "mmlu-choice"}),
    ],
)
def test_lists_name_everything_as_table_and_as_json(bench: Command, kind: str, names: set[str]) -> None:
    table, data = bench("list", kind), bench("list", kind, "--json")
    assert table.returncode == data.returncode == 0
    assert {line["name"] for line in json.loads(data.stdout)} >= names
    assert all(name in table.stdout for name in names)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ptrue", ["arXiv:2207.05221", "QueryLogits"]),
        ("ccps", ["arXiv:2505.21772", "radius", "20.0", "refcode"]),
        ("atlas-choice", ["choice", "options", "footer"]),
        ("mmlu-choice", ["cais/mmlu", "MIT", "c30699e8356da336a370243923dbaf21066bb9fe"]),
        ("tiny", ["float32", "demo"]),
        ("protocol", ["shots", "ece_bins", "fixed", "refcode"]),
    ],
)
def test_show_tells_the_same_as_table_and_as_json(bench: Command, name: str, words: list[str]) -> None:
    shown, data = bench("show", name), bench("show", name, "--json")
    assert shown.returncode == data.returncode == 0
    assert json.loads(data.stdout)["kind"] in {"method", "task", "model", "protocol"}
    for word in words:
        assert word in shown.stdout
        assert word in data.stdout


def test_an_example_is_the_whole_prompt_with_its_right_answer(bench: Command) -> None:
    shown = bench("show", "atlas-choice", "--example", 3)
    data = json.loads(bench("show", "atlas-choice", "--example", 3, "--json").stdout)
    assert shown.returncode == 0
    assert list(data) == ["system", "user", "right answer"]
    assert data["user"].count("Answer:") == 6  # five exemplars and the question
    assert data["user"].endswith("Answer:")
    assert len(data["right answer"]) == 1
    for part in data.values():
        assert part in shown.stdout


# --- run --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(bench: Command, small_model: Path, rivers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two methods, one of them in a file of its own, on a model that lies in a folder."""
    made = tmp_path_factory.mktemp("ran")
    result = bench(
        "run", "--method", "ptrue,echo", "--model", small_model, "--task", "rivers", "--plugin", rivers,
        "--out", made / "out", env={"CONFBENCH_CACHE": str(made / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return made


def test_a_plan_is_printed_and_nothing_is_written(
    bench: Command, small_model: Path, rivers: Path, tmp_path: Path
) -> None:
    result = bench(
        "run", "--method", "ptrue,echo", "--model", small_model, "--task", "rivers", "--plugin", rivers, "--dry-run",
        "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert result.returncode == 0
    assert result.stdout == ""
    assert "Plan: ptrue, echo on" in result.stderr
    for part in ("rivers/test: 310 questions", "rivers/train: 279", "rivers/validation: 31", "shards to compute"):
        assert part in result.stderr
    assert "1 fits and 2 predictions" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_plan_knows_what_is_stored(bench: Command, whole_run: WholeRun) -> None:
    result = bench(*whole_run.words, "--dry-run", "--json", env=whole_run.env)
    said = json.loads(result.stdout)
    assert said["rows"] == said["paths"] == []
    reads = [line for line in said["plan"] if line.startswith("read")]
    assert len(reads) == 3
    assert all("all stored" in line for line in reads)


def test_json_goes_to_stdout_and_progress_to_stderr(
    bench: Command, small_model: Path, rivers: Path, folder: Path
) -> None:
    result = bench(
        "run", "--method", "ptrue,echo", "--model", small_model, "--task", "rivers", "--plugin", rivers, "--json",
        "--out", folder / "again", env={"CONFBENCH_CACHE": str(folder / "cache")},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert [(row["method"], row["status"]) for row in said["rows"]] == [("ptrue", "ok"), ("echo", "ok")]
    assert all(Path(path).is_file() for path in said["paths"])
    assert result.stderr.startswith("Plan: ")
    assert "all stored" in result.stderr
    for row in said["rows"]:
        (stored,) = (folder / "out").glob(f"*/rivers/{row['method']}--*.json")
        before = json.loads(stored.read_text(encoding="utf-8"))
        assert row["metrics"] == before["metrics"]
        assert row["per_subject"] == before["per_subject"]


def test_results_name_no_path_of_this_machine(folder: Path, whole_run: WholeRun) -> None:
    for path in (*folder.glob("out/**/*.json"), *whole_run.cells().values()):
        text = path.read_text(encoding="utf-8")
        assert str(folder) not in text
        assert str(whole_run.folder) not in text
        assert str(Path.home()) not in text or str(Path.home()) == "/"


def test_a_table_in_each_format(bench: Command, folder: Path) -> None:
    said = {
        name: bench("table", "--results", folder / "out", "--format", name)
        for name in ("terminal", "md", "csv", "tex", "json")
    }
    for name, result in said.items():
        assert result.returncode == 0, result.stderr
        for method in ("ptrue", "echo"):
            assert method in result.stdout, name
    assert json.loads(said["json"].stdout)
    assert len({len(line) for line in csv.reader(io.StringIO(said["csv"].stdout))}) == 1
    assert re.search(r"^\| (\*\*)?ptrue", said["md"].stdout, re.MULTILINE)  # bold where it leads
    assert r"\toprule" in said["tex"].stdout


def test_partial_results_stay_out_of_the_table_unless_asked_for(bench: Command, whole_run: WholeRun) -> None:
    def numbers(*more: object) -> set[str]:
        table = bench("table", "--results", *more, "--method", "pik", "--format", "csv").stdout
        return {line["n"] for line in csv.DictReader(io.StringIO(table))}

    assert numbers(whole_run.out) == {str(TESTED)}
    assert numbers(whole_run.out / "partial", "--partial") == {"10"}


def test_a_run_prints_table_paths_and_that_plugin_code_was_run(
    bench: Command, small_model: Path, rivers: Path, folder: Path
) -> None:
    result = bench(
        "run", "--method", "ptrue", "--model", small_model, "--task", "rivers", "--plugin", rivers,
        "--out", folder / "third", env={"CONFBENCH_CACHE": str(folder / "cache")},
    )  # fmt: skip
    assert "AUROC" in result.stdout
    (path,) = (folder / "third").rglob("*.json")
    assert f"wrote {path}" in result.stdout
    assert f"note: --plugin {rivers}: the code in this file was run" in result.stderr


def test_a_run_ends_with_commands_that_show_what_it_wrote(
    bench: Command, small_model: Path, rivers: Path, folder: Path
) -> None:
    arguments = (
        "run", "--method", "ptrue", "--model", small_model, "--task", "rivers", "--plugin", rivers, "--limit", 20,
        "--out", folder / "a fourth",
    )  # fmt: skip
    result = bench(*arguments, env={"CONFBENCH_CACHE": str(folder / "cache")})
    assert result.returncode == 0, result.stderr
    lines = result.stdout.partition("next: ")[2].splitlines()
    table, page = (shlex.split(re.split(" {2,}", line.strip())[0]) for line in lines)
    shown = bench(*table[1:])
    assert shown.returncode == 0, shown.stderr
    assert "ptrue" in shown.stdout
    assert page[-1] == "--serve"
    written = bench(*page[1:-1], "--out", folder / "fourth.html")
    assert written.returncode == 0, written.stderr


def test_make_demo_writes_where_git_looks_away_and_its_commands_are_whole(bench: Command) -> None:
    make = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True)
    printed = re.findall(r"^\s*(?:echo '\s*)?\S*bin/bench (\w.*?)'?$", make.stdout, re.MULTILINE)
    run, *own = map(shlex.split, printed)
    folder = run[run.index("--out") + 1]
    ignored = subprocess.run(["git", "check-ignore", "-q", f"{folder}/tiny"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    assert [words[0] for words in own] == ["new", "check", "run", "table"]
    assert {
        words[words.index(option) + 1] for words in own for option in ("--out", "--results") if option in words
    } == {folder}
    assert own[2][own[2].index("--method") + 1] == own[0][own[0].index("method") + 1]
    for words in (run, *own):
        known = {option for parameter in COMMANDS.commands[words[0]].params for option in parameter.opts}  # type: ignore[attr-defined]
        assert {word for word in words if word.startswith("--")} <= known | {"--trained"}


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A signal that stops a command leaves this process alive, and heard as before: `test_exit_codes.py` has the rest."""
    monkeypatch.setattr(exit_codes, "_CLEANUP_SECONDS", 1e6)  # after which it would be ended
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("signals")
def test_ctrl_c_leaves_one_line_and_says_how_to_go_on(
    bench: Command, small_model: Path, rivers: Path, folder: Path, tmp_path: Path
) -> None:
    started = tmp_path / "started"

    def press() -> None:
        until = time.monotonic() + 60
        while not started.exists() and time.monotonic() < until:
            time.sleep(0.02)
        if started.exists():
            os.kill(os.getpid(), signal.SIGINT)

    presses = threading.Thread(target=press)
    presses.start()
    result = bench(
        "run", "--method", "echo", "--seed", "7", "--model", small_model, "--task", "rivers", "--plugin", rivers,
        "--out", tmp_path / "out", env={"CONFBENCH_CACHE": str(folder / "cache"), "PAUSE": str(started)},
    )  # fmt: skip
    presses.join()
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("bench: interrupted")
    assert "run the same command to go on" in result.stderr
    assert not (tmp_path / "out").exists()


# --- check and help ---------------------------------------------------------------------------------------------------


def test_check_fails_a_dishonest_method_in_both_forms(
    bench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_in: dict[Path, list[CheckResult]] = {}

    def once(path: Path, *others: Any) -> list[CheckResult]:
        """A check starts a process: that of a file whose results are there is shown again in another form."""
        found_in[path] = found_in.get(path) or check_file(path, *others)
        return found_in[path]

    monkeypatch.setattr(check, "check_file", once)
    source = '''
import numpy as np
from bench.api import ConfidenceMethod, Needs, QueryLogits, method

@method("plugged")
class Plugged(ConfidenceMethod):
    """The probability of yes."""
    reference = "arXiv:2207.05221"
    needs = Needs(predict=frozenset({QueryLogits()}))

    def predict(self, batch):
        logits = batch[QueryLogits()].astype(float)
        return 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])) * 2
'''
    path = tmp_path / "plugged.py"
    path.write_text(source, encoding="utf-8")
    data = bench("check", path, "--json")
    found = json.loads(data.stdout)
    assert all(set(line) == {"check", "ok", "message"} for line in found)
    plain = bench("check", path)
    assert plain.returncode == data.returncode == 1
    assert 0 < sum(line["ok"] for line in found) < len(found)
    assert f"{sum(line['ok'] for line in found)} of {len(found)} checks passed" in plain.stdout


COMMANDS = typer.main.get_command(app.app)


@pytest.mark.parametrize("command", ["run", "list", "show", "table", "import", "check"])
def test_help_names_every_option_and_explains_it(bench: Command, command: str) -> None:
    result = bench(command, "--help")
    assert result.returncode == 0
    known = COMMANDS.commands[command].params  # type: ignore[attr-defined]
    assert known
    for parameter in known:
        for name in parameter.opts:
            assert name in result.stdout
        assert parameter.help
    expected = {"run": 17, "list": 2, "show": 4, "table": 5, "import": 6, "check": 2}
    assert sum(p.opts[0].startswith("-") for p in known) >= expected[command]


def test_without_a_command_the_help_is_shown(bench: Command) -> None:
    result = bench()
    said = result.stdout + result.stderr
    for command in ("run", "list", "show", "table", "import", "check"):
        assert command in said
