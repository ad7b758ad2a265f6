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


def defined(notebook: Notebook, alpha: float) -> str:
    """Digest of one cell that was run while a name of another cell had this value."""
    notebook.cell(f"ALPHA = {alpha}")
    made = notebook.cell(CELL.replace("steps: int = 3", "steps: int = 3\n    alpha = ALPHA"))["Mine"]
    notebook.cell("ALPHA = 9.0")
    return source_digest(made)


def test_what_a_name_stood_for_when_the_class_was_defined_counts(notebook: Notebook) -> None:
    """A cell above was changed and run, and the class only later: its lines and what they name now are the same."""
    assert defined(notebook, 1.0) == defined(notebook, 1.0)
    assert defined(notebook, 1.0) != defined(notebook, 2.0)


@pytest.mark.parametrize(
    "later",
    [
        "Mine.offset = {}",
        "Mine.extra = {}",
        "def shifted(self, p):\n    return {}\nMine.shifted = shifted",
        "def helper(x, by={}):\n    return by\nhelper.__defaults__ = ({},)",
    ],
)
def test_what_was_set_after_the_cell_counts(later: str) -> None:
    def changed(value: int) -> str:
        with Notebook() as made:
            made.cell(CELL)
            return source_digest(made.cell(later.replace("{}", str(value)))["Mine"])

    assert changed(1) == changed(1)
    assert changed(1) != changed(2)
    assert changed(1) != digest()


HELPER = """
from dataclasses import dataclass
from enum import Enum

@dataclass
class Net:
    w: float = 1.0

    def apply(self, x):
        return x * 2

class Kind(Enum):
    A = 1

    def factor(self):
        return 4

NETS = {"one": [(Net(), Kind.A)]}
"""


@pytest.mark.parametrize(
    ("before", "after"), [("x * 2", "x * 3"), ("return 4", "return 5"), ("w: float = 1.0", "w: float = 2.0")]
)
def test_functions_of_the_values_that_it_names_count(before: str, after: str) -> None:
    def of(helper: str) -> str:
        with Notebook() as made:
            made.cell(helper)
            return source_digest(made.cell(CELL.replace("math.sqrt(2)", 'NETS["one"][0][0].apply(2)'))["Mine"])

    assert of(HELPER) == of(HELPER)
    assert before in HELPER
    assert of(HELPER.replace(before, after)) != of(HELPER)


def test_what_a_factory_was_given_counts(notebook: Notebook) -> None:
    notebook.cell(CELL)
    body = CELL[CELL.index('@method("mine")') :].replace("steps: int = 3", "steps: int = 3\n    alpha = alpha_")
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    make = notebook.cell(f"def make(alpha_):\n{lines}\n    return Mine")["make"]
    assert source_digest(make(1.0)) == source_digest(make(1.0))
    assert source_digest(make(1.0)) != source_digest(make(2.0))


def test_a_masked_array_is_more_than_its_numbers(notebook: Notebook) -> None:
    cls = notebook.cell(CELL.replace("np.array([1.0, 2.0])", "np.ma.array([1.0, 2.0], mask=[0, 1])"))["Mine"]
    assert source_digest(cls) != source_digest(cls)
