"""A plugin of a file harms itself alone, and `bench check` names what it breaks, also where it hangs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.kit.place import Place

FINE = '''"""Methods that do harm when they are fitted."""
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
'''
EXITS = """

@method("exits")
class Exits(Fine):
    "Ends its process."
    def fit(self, train, ctx):
        print("about to leave", flush=True)
        os._exit(3)
"""
HANGS = """

@method("hangs")
class Hangs(Fine):
    "Never comes back."
    def fit(self, train, ctx):
        print("about to sleep")
        time.sleep(999)
"""
INTERRUPTS = """

@method("interrupts")
class Interrupts(Fine):
    "Pretends to be the user."
    def fit(self, train, ctx):
        raise KeyboardInterrupt("mine")
"""
ZEROES = """

@method("zeroes")
class Zeroes(Fine):
    "Spoils the output head."
    needs = Needs(fit=frozenset({QueryLogits(), Unembedding()}), predict=frozenset({QueryLogits()}))

    def fit(self, train, ctx):
        train[Unembedding()].weight.zero_()
        return self
"""


@pytest.mark.slow
@pytest.mark.parametrize("hanging", [False, True])
def test_harm_to_a_process_fails_its_own_cell(place: Place, small_model: Path, rivers: Path, hanging: bool) -> None:
    path = place.write("harm.py", FINE + EXITS + HANGS + INTERRUPTS + ZEROES)
    asked = (
        "--model", small_model, "--plugin", path, "--plugin", rivers, "--task", "rivers", "--limit", 16, "--json",
        "--train-limit", 64, "--method-timeout", 12 if hanging else 60,
    )  # fmt: skip
    told = json.loads(
        place.run("--method", f"exits,{'hangs,' * hanging}interrupts,zeroes,ptrue", *asked, code=1).stdout
    )
    cells = {row["method"]: (row["status"], row["reason"], row["metrics"]) for row in told["rows"]}
    assert cells["exits"][:2] == ("failed", "exits: its process ended in fit: exit code 3")
    if hanging:
        assert cells["hangs"][:2] == ("failed", "hangs took longer than 12 s in fit (--method-timeout)")
    line = 1 + next(i for i, text in enumerate(path.read_text(encoding="utf-8").splitlines()) if "raise Key" in text)
    assert cells["interrupts"][:2] == ("failed", f"KeyboardInterrupt: mine (harm.py:{line})")
    assert cells["zeroes"][0] == "ok"
    (log,) = (place / "cache" / "logs").iterdir()
    assert "about to leave" in log.read_text(encoding="utf-8")
    assert "KeyboardInterrupt: mine" in log.read_text(encoding="utf-8")
    assert any(str(log) in note for note in told["notes"])
    other = Place(place / "other")
    other.run("--method", "ptrue", *asked)
    row = other.rows()["ptrue"]
    assert (row["status"], row["reason"], row["metrics"]) == cells["ptrue"]


def test_file_that_ends_its_process_is_refused(place: Place) -> None:
    path = place.write("leaves.py", "import os\nos._exit(0)\n")
    said = place.refused("run", "--method", "ptrue", "--model", "tiny", "--plugin", path)
    assert f"--plugin {path}: its process ended in run_file: exit code 0" in said
    assert "its process ended (exit code 0)" in place.refused("check", path)


@pytest.mark.slow
def test_rule_that_hangs_is_named(place: Place) -> None:
    start = time.monotonic()
    result = place.done("check", place.write("hangs.py", FINE + HANGS), "--timeout", 4, code=1)
    assert time.monotonic() - start < 60
    assert "hangs-choice values it took longer than 4 s; the rules after it were not checked" in result.stdout
    assert "about to sleep" not in result.stdout


@pytest.mark.slow
def test_fit_that_raises_is_named_once(place: Place) -> None:
    path = place.write("interrupts.py", FINE + INTERRUPTS.replace("KeyboardInterrupt", "ValueError"))
    result = place.done("check", path, code=1)
    assert result.stdout.count("ValueError: mine (interrupts.py:") == 1
    assert "other rules fail by this alone" in result.stdout
