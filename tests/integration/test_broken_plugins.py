"""A plugin that raises fails alone: its cell has the reason, and the other cells their numbers."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.run import fitting

Command = Callable[..., "subprocess.CompletedProcess[str]"]

PLUGINS = '''"""Two small tasks, and methods that raise in one place each."""
import numpy as np

from bench.api import (
    Adapter, ConfidenceMethod, Format, Needs, PromptStyle, QueryLogits, Question, Task, TaskCard, method, task,
)

SIZES = {"train": 24, "validation": 24, "test": 12}


class Small(Task):
    "Which letter comes first."
    format = Format.CHOICE
    card = TaskCard(license="MIT", version=1, why="none", options=(2, 2), splits={s: s for s in SIZES}, sizes=SIZES)
    style = PromptStyle(header="", footer="", context="{text}\\n{options}")

    def questions(self, split):
        for i in range(SIZES[split]):
            yield Question(f"{self.name}/{split}/{i}", "s", f"{self.name} {split} {i}?", ("x", "y"), i % 2)


@task("small-a")
class A(Small):
    "The first."


@task("small-b")
class B(Small):
    "The second."


class Fine(ConfidenceMethod):
    "As sure as the self-check."
    reference = "none"
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits()}))
    takes_one_class = True  # a random model names no letter: all its answers are wrong

    def predict(self, batch):
        z = batch[QueryLogits()].astype(np.float64)
        return 1 / (1 + np.exp(z[:, 0] - z[:, 1]))


@method("no-count")
class NoCount(Fine):
    "Can't count its parameters."
    def n_parameters(self, facts):
        raise KeyError("layers")


@method("no-skip")
class NoSkip(Fine):
    "Can't say whether it runs."
    def skip(self, facts):
        raise SystemExit("no idea")


@method("no-save")
class NoSave(Fine):
    "Can't be saved."
    def fit(self, train, ctx):
        return self

    def save(self, folder):
        raise ValueError("no room")


@method("no-folder")
class NoFolder(Fine):
    "Deletes the folder that it is to write to."
    def fit(self, train, ctx):
        return self

    def save(self, folder):
        import shutil
        shutil.rmtree(folder)


@method("no-adapter")
class NoAdapter(Fine):
    "Reads through an adapter that it never trained."
    needs = Needs(fit=frozenset({QueryLogits()}), predict=frozenset({QueryLogits(Adapter.OWN)}))

    def fit(self, train, ctx):
        return self


@method("learns")
class Learns(Fine):
    "Has a fit of its own."
    def fit(self, train, ctx):
        return self
'''


def line(text: str) -> int:
    """Number of the line of the plugins that has this text."""
    return 1 + next(i for i, code in enumerate(PLUGINS.splitlines()) if text in code)


def put_clock_in(patch: pytest.MonkeyPatch) -> None:
    """Have a fit take a second more than the one before, and nothing else any time."""
    refuse, now, lengths = fitting.refuse_one_class, [0.0], itertools.count(1.0)

    def timed(*arguments: Any) -> None:
        """Between the two looks at the clock of each fit."""
        now[0] += next(lengths)
        refuse(*arguments)

    patch.setattr(fitting, "refuse_one_class", timed)
    patch.setattr(fitting, "time", SimpleNamespace(perf_counter=lambda: now[0]))


@pytest.fixture(scope="module")
def cells(bench: Command, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Method and task -> the cell of one run with all of them."""
    folder = tmp_path_factory.mktemp("broken")
    path = folder / "broken.py"
    path.write_text(PLUGINS, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        put_clock_in(patch)
        result = bench(
            "run", "--method", "no-count,no-skip,no-save,no-adapter,learns,ptrue,no-folder", "--model", small_model,
            "--plugin", path, "--task", "small-a", "--task", "small-b", "--recalibrate", "temperature",
            "--out", folder / "out",
            env={"CONFBENCH_CACHE": str(folder / "cache")},
        )  # fmt: skip
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "out").rglob("*.json")]
    return {f"{row['method']} {row['task']}": row for row in rows}


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("no-count", f"KeyError: 'layers' (broken.py:{line('layers')})"),
        ("no-skip", f"SystemExit: no idea (broken.py:{line('no idea')})"),
        ("no-save", f"ValueError: no room (broken.py:{line('no room')})"),
        ("no-folder", "no-folder deleted the folder that save was given"),
        ("no-adapter", "no-adapter reads through an adapter of its own, and fit left none in `adapter_`"),
    ],
)
def test_a_method_that_raises_has_the_reason_in_its_cells(
    cells: dict[str, dict[str, Any]], method: str, reason: str
) -> None:
    for task in ("small-a", "small-b"):
        row = cells[f"{method} {task}"]
        assert (row["status"], row["reason"], row["metrics"]) == ("failed", reason, {})


@pytest.mark.parametrize("method", ["ptrue", "ptrue+temperature", "learns", "learns+temperature"])
def test_the_others_have_their_numbers(cells: dict[str, dict[str, Any]], method: str) -> None:
    for task in ("small-a", "small-b"):
        assert cells[f"{method} {task}"]["status"] == "ok"


def test_seconds_are_those_of_the_cell(cells: dict[str, dict[str, Any]]) -> None:
    first, second = (cells[f"learns {task}"]["timings"]["fit"] for task in ("small-a", "small-b"))
    assert (first, second) == (3.0, 7.0)  # four methods are fitted for each task, it is the third
