"""A method that raises or breaks a rule fails alone: its cell has the reason, and the other cells their numbers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.run import fitting
from tests.kit.place import Place

SOURCE = '''"""Two small tasks, and methods that are fine."""
import shutil

import numpy as np

from bench.api import (
    Adapter, ChoiceLogits, ConfidenceMethod, Format, Needs, PromptStyle, QueryLogits, Question, Task, TaskCard, method,
    task,
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


class Fitted(Fine):
    "Has a fit of its own."
    def fit(self, train, ctx):
        return self
'''
FITTED = {
    "no-save": ("def save(self, folder): raise ValueError('no room')", "ValueError: no room (broken.py:{line})"),
    "no-adapter": (
        "needs = Needs(fit=Fine.needs.fit, predict=frozenset({QueryLogits(Adapter.OWN)}))",
        "no-adapter reads through an adapter of its own, and fit left none in `adapter_`",
    ),
    "learns": ("", ""),
    "no-folder": (
        "def save(self, folder): shutil.rmtree(folder)", "no-folder deleted the folder that save was given",
    ),
    "no-fit": (
        "def fit(self, train, ctx): raise ValueError('two\\nlines')", "ValueError: two lines (broken.py:{line})",
    ),
    "no-state": ("def fit(self, train, ctx): self.handle_ = object(); return self", "handle_"),
}  # fmt: skip
"""What a class has beside `fit` -> what its reason has; in the order in which they are fitted."""
OTHERS = {
    "no-count": ("def n_parameters(self, facts): raise KeyError('layers')", "KeyError: 'layers' (broken.py:{line})"),
    "no-skip": ("def skip(self, facts): raise SystemExit('no idea')", "SystemExit: no idea (broken.py:{line})"),
    "skips": ("def skip(self, facts): return 'not on this model'", "not on this model"),
}
PREDICTING = {
    "return np.full(len(batch), np.nan)": "expected numbers, got NaN",
    "return np.full(len(batch), 1.5)": "within [0, 1]",
    "return np.full(len(batch) + 1, 0.5)": "expected shape (12,), got (13,)",
    "return ['sure'] * len(batch)": "expected real numbers, got <U4 (a list)",
    "return batch[ChoiceLogits()].max(axis=1)": "ChoiceLogits() was read but not declared in needs",
    "return batch.correct.astype(float)": "batch.correct was read outside fit",
    "batch[QueryLogits()][:] = 0": "expected real numbers, got object (a NoneType)",
    "return 1 / 0": "ZeroDivisionError",
    "raise SystemExit(0)": "SystemExit",
}
"""Body of `predict` -> what its reason has; more values that are none are in `tests/unit/api/test_confidence.py`."""
METHODS = FITTED | OTHERS | {
    f"breaks-{i}": (f"def predict(self, batch): {body}", reason) for i, (body, reason) in enumerate(PREDICTING.items())
}  # fmt: skip
PLUGINS = SOURCE + "".join(
    f'\n\n@method("{name}")\nclass M{i}({"Fitted" if name in FITTED else "Fine"}):\n    "Is tried."\n    {body}\n'
    for i, (name, (body, _)) in enumerate(METHODS.items())
)
OK = {"learns", "learns+temperature", "ptrue", "ptrue+temperature"}


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
def place(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where all of them were run."""
    place = Place(tmp_path_factory.mktemp("broken"))
    asked = ("--method", ",".join([*METHODS, "ptrue"]), "--model", small_model, "--recalibrate", "temperature")
    with pytest.MonkeyPatch.context() as patch:
        put_clock_in(patch)
        place.run(*asked, "--plugin", place.write("broken.py", PLUGINS), "--task", "small-a,small-b", code=1)
    return place


@pytest.fixture(scope="module")
def cells(place: Place) -> dict[str, dict[str, Any]]:
    """Method and task -> the cell."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in (place / "out").rglob("*.json")]
    return {f"{row['method']} {row['task']}": row for row in rows}


@pytest.mark.parametrize("name", [name for name in METHODS if name != "learns"])
def test_cells_of_broken_methods_have_the_reason(cells: dict[str, dict[str, Any]], name: str) -> None:
    body, reason = METHODS[name]
    line = 1 + PLUGINS[: PLUGINS.index(body)].count("\n")
    for task in ("small-a", "small-b"):
        row = cells[f"{name} {task}"]
        assert (row["status"], row["metrics"]) == ("skipped" if name == "skips" else "failed", {})
        assert reason.format(line=line) in row["reason"]
        assert "\n" not in row["reason"]


def test_cells_of_other_methods_have_their_numbers(place: Place, cells: dict[str, dict[str, Any]]) -> None:
    assert {row["method"] for row in cells.values() if row["status"] == "ok"} == OK
    assert {path.name.partition("--")[0] for path in (place / "out").rglob("*--s0.parquet")} == OK


def test_seconds_of_fits_are_those_of_the_cell(cells: dict[str, dict[str, Any]]) -> None:
    first, second = (cells[f"learns {task}"]["timings"]["fit"] for task in ("small-a", "small-b"))
    assert (first, second) == (3.0, 9.0)  # the third of six fits for each task


def test_fits_of_broken_methods_are_not_stored(place: Place) -> None:
    stored = [json.loads(path.read_text("utf-8")) for path in (place / "cache").glob("fits/**/manifest.json")]
    assert {fit["fields"]["method"] for fit in stored} <= {"learns", "no-adapter"}


def test_tracebacks_of_plugins_are_printed_with_debug(place: Place, small_model: Path) -> None:
    """Without it none is: see `Place.done`."""
    asked = ("--method", "no-fit", "--model", small_model, "--plugin", place / "broken.py", "--task", "small-a")
    said = place.bench("run", *asked, "--debug", "--out", place / "debugged")
    assert (said.returncode, "Traceback" in said.stdout) == (1, False)
    assert said.stderr.count("Traceback") == 1
    assert "ValueError: two\nlines" in said.stderr
