"""A plugin of a file harms itself alone, and `bench check` names what it breaks, also where it hangs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]

PLUGINS = '''"""Methods that do harm when they are fitted."""
import os
import time

import numpy as np

from bench.api import ConfidenceMethod, Needs, QueryLogits, Unembedding, method


class Fine(ConfidenceMethod):
    "As sure as the self-check."
    reference = "arXiv:2410.00001"
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))
    takes_one_class = True  # a random model names no letter: all its answers are wrong

    def predict(self, batch):
        z = batch[QueryLogits()].astype(np.float64)
        return 1 / (1 + np.exp(z[:, 0] - z[:, 1]))


@method("exits")
class Exits(Fine):
    "Ends its process."
    def fit(self, train, ctx):
        print("about to leave", flush=True)
        os._exit(3)


@method("hangs")
class Hangs(Fine):
    "Never comes back."
    def fit(self, train, ctx):
        print("about to sleep")
        time.sleep(999)


@method("interrupts")
class Interrupts(Fine):
    "Pretends to be the user."
    def fit(self, train, ctx):
        raise KeyboardInterrupt("mine")


@method("zeroes")
class Zeroes(Fine):
    "Spoils the output head."
    needs = Needs(fit=frozenset({QueryLogits(), Unembedding()}), predict=frozenset({QueryLogits()}))

    def fit(self, train, ctx):
        train[Unembedding()].weight.zero_()
        return self
'''


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    path = tmp_path / "harm.py"
    path.write_text(PLUGINS, encoding="utf-8")
    return path


@pytest.mark.parametrize("hanging", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_a_file_does_to_its_process_fails_its_own_cell_alone(
    bench: Command, small_model: Path, rivers: Path, plugins: Path, tmp_path: Path, hanging: bool
) -> None:
    def run(methods: str, out: str, cache: str) -> dict[str, tuple[str, str, object]]:
        result = bench(
            "run", "--method", methods, "--model", small_model, "--plugin", plugins, "--plugin", rivers, "--task",
            "rivers", "--limit", 16, "--scale-training", "--method-timeout", 12 if hanging else 60, "--json",
            "--out", tmp_path / out,
            env={"CONFBENCH_CACHE": str(tmp_path / cache)},
        )  # fmt: skip
        assert result.returncode in {0, 1}, result.stderr
        told = json.loads(result.stdout)
        notes.extend(told["notes"])
        return {row["method"]: (row["status"], row["reason"], row["metrics"]) for row in told["rows"]}

    notes: list[str] = []
    cells = run(f"exits,{'hangs,' * hanging}interrupts,zeroes,ptrue", "out", "cache")
    assert cells["exits"][:2] == ("failed", "exits: its process ended in fit: exit code 3")
    if hanging:
        assert cells["hangs"][:2] == ("failed", "hangs took longer than 12 s in fit (--method-timeout)")
    line = 1 + PLUGINS[: PLUGINS.index("raise Key")].count("\n")
    assert cells["interrupts"][:2] == ("failed", f"KeyboardInterrupt: mine (harm.py:{line})")
    assert cells["zeroes"][0] == "ok"
    (log,) = (tmp_path / "cache" / "logs").iterdir()
    assert "about to leave" in log.read_text(encoding="utf-8")
    assert "KeyboardInterrupt: mine" in log.read_text(encoding="utf-8")
    assert any(str(log) in note for note in notes)
    assert run("ptrue", "alone", "other")["ptrue"] == cells["ptrue"]


def test_a_file_that_ends_its_process_when_it_is_imported_is_refused(bench: Command, tmp_path: Path) -> None:
    path = tmp_path / "leaves.py"
    path.write_text("import os\nos._exit(0)\n", encoding="utf-8")
    result = bench("run", "--method", "ptrue", "--model", "tiny", "--plugin", path)
    assert result.returncode == 2
    assert f"--plugin {path}: its process ended in run_file: exit code 0" in result.stderr
    result = bench("check", path)
    assert result.returncode == 2
    assert "its process ended (exit code 0)" in result.stderr


@pytest.mark.slow
def test_the_rule_that_hangs_is_named(bench: Command, plugins: Path, tmp_path: Path) -> None:
    path = tmp_path / "hangs.py"
    head, _, rest = PLUGINS.partition('@method("exits")')
    path.write_text(head + '@method("hangs")' + rest.partition('@method("hangs")')[2].partition("@method")[0])
    start = time.monotonic()
    result = bench("check", path, "--timeout", 4, env={"CONFBENCH_CACHE": str(tmp_path / "cache")})
    assert time.monotonic() - start < 60
    assert result.returncode == 1
    assert "hangs-choice values it took longer than 4 s; the rules after it were not checked" in result.stdout
    assert "about to sleep" not in result.stdout


def test_a_fit_that_raises_is_named_once(bench: Command, tmp_path: Path) -> None:
    path = tmp_path / "interrupts.py"
    head, _, rest = PLUGINS.partition('@method("exits")')
    rest = '@method("interrupts")' + rest.partition('@method("interrupts")')[2].partition("@method")[0]
    path.write_text(head + rest.replace("KeyboardInterrupt", "ValueError"))
    result = bench("check", path, env={"CONFBENCH_CACHE": str(tmp_path / "cache")})
    assert result.returncode == 1
    assert result.stdout.count("ValueError: mine (interrupts.py:") == 1
    assert "other rules fail by this alone" in result.stdout
