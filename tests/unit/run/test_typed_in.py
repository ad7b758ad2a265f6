"""Digest of a method that was typed into a notebook: another one whenever what it computes may be another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.api import UserError
from bench.run.isolation.guard import Isolation
from bench.run.isolation.methods import guarded
from bench.run.resolve import source_digest
from bench.run.typed_in import is_typed_in
from methods.ptrue import PTrue
from tests.fixtures.cells import Notebook

ROOT = Path(__file__).parents[3]
CELL = '''
import math
from dataclasses import dataclass
from functools import cache, partial
import numpy as np
from bench.api import ChoiceLogits, ConfidenceMethod, Needs, method

SCALE = 2.0
WEIGHTS = np.array([1.0, 2.0])
SIGNALS = frozenset({ChoiceLogits()})
UNUSED = 1

def inner(x):
    return x + 1

@cache
def helper(x):
    return inner(x) * SCALE

class Base(ConfidenceMethod):
    offset = 0.0

    def shifted(self, p):
        return p + self.offset

@method("mine")
@dataclass(kw_only=True, eq=False)
class Mine(Base):
    """A method."""

    reference = "arXiv:1610.02136"
    needs = Needs(predict=SIGNALS)
    steps: int = 3

    def predict(self, batch):
        return self.shifted(np.exp(helper(1.0) * WEIGHTS.sum()) * math.sqrt(2))
'''


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    with Notebook() as made:
        yield made


def digest(text: str = CELL) -> str:
    with Notebook() as made:
        return source_digest(made.cell(text)["Mine"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("math.sqrt(2)", "math.sqrt(3)"),
        ("steps: int = 3", "steps: int = 4"),
        ('@method("mine")', '@method("other")'),
        ("SCALE = 2.0", "SCALE = 2.5"),
        ("np.array([1.0, 2.0])", "np.array([1.0, 2.5])"),
        ("return x + 1", "return x + 2"),
        ("offset = 0.0", "offset = 0.5"),
        ("return p + self.offset", "return p - self.offset"),
        ("frozenset({ChoiceLogits()})", "frozenset()"),
    ],
)
def test_it_changes_with_whatever_the_class_names(before: str, after: str) -> None:
    """Also where that stands in another cell, in a base, or is named by a function that it calls."""
    assert before in CELL
    assert digest(CELL.replace(before, after)) != digest()


@pytest.mark.parametrize(("before", "after"), [("UNUSED = 1", "UNUSED = 2"), ("import math\n", "import math\nx = 1\n")])
def test_it_does_not_change_with_the_rest_of_the_notebook(before: str, after: str) -> None:
    assert digest(CELL.replace(before, after)) == digest()


def test_it_is_the_same_in_another_process() -> None:
    """Sets are written in another order there."""
    code = (
        "import json, sys; from tests.fixtures.cells import Notebook; from bench.run.resolve import source_digest\n"
        "with Notebook() as n: print(source_digest(n.cell(json.loads(sys.stdin.read()))['Mine']))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(CELL), capture_output=True, text=True, check=True, cwd=ROOT,
        timeout=60, env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7", "PATH": ""},
    )  # fmt: skip
    assert shown.stdout.strip() == digest()


def test_a_later_cell_that_changes_a_helper_changes_it(notebook: Notebook) -> None:
    cls = notebook.cell(CELL)["Mine"]
    before = source_digest(cls)
    notebook.cell("SCALE = 7.0")
    assert source_digest(cls) != before


def test_the_later_of_two_cells_with_one_class_counts(notebook: Notebook) -> None:
    first = notebook.cell(CELL)["Mine"]
    second = notebook.cell(CELL.replace("math.sqrt(2)", "math.sqrt(3)"))["Mine"]
    assert source_digest(first) != source_digest(second)


def test_a_value_without_a_lasting_description_makes_it_new_each_time(notebook: Notebook) -> None:
    """Nothing may then be kept: the fit could depend on it."""
    cls = notebook.cell(CELL.replace("SCALE = 2.0", "SCALE = np.random.default_rng(0)"))["Mine"]
    assert source_digest(cls) != source_digest(cls)


def test_a_guarded_class_has_the_digest_of_the_method(notebook: Notebook) -> None:
    cls = notebook.cell(CELL)["Mine"]
    assert source_digest(guarded(cls, Isolation(), None)) == source_digest(cls)


@pytest.mark.parametrize("kept", [True, False])
def test_a_class_without_source_is_refused_in_words(notebook: Notebook, kept: bool) -> None:
    text = (
        CELL if not kept else CELL.replace("    def predict(self, batch):\n        return self", "    x = lambda self")
    )
    with pytest.raises(UserError, match=r"the source of (Mine|Base) can't be read.*put it into a notebook cell"):
        source_digest(notebook.cell(text.split("x = lambda")[0], kept=kept)["Mine"])


def test_classes_of_files_are_not_typed_in() -> None:
    assert not is_typed_in(PTrue)
    assert not is_typed_in(int)
    assert len(source_digest(PTrue)) == 64
