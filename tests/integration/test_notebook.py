"""`docs/comparison.ipynb` runs, and what it shows is what it would show now."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebook import executed

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "comparison.ipynb"
RUNS = "import numpy as np"
"""In the first cell of the part that runs methods."""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """This working tree for the notebook's process."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def shown(notebook: Any, kind: str) -> list[str]:
    """What its cells have shown of a kind."""
    outputs = (each for cell in notebook["cells"] for each in cell.get("outputs", ()))
    return ["".join(each["data"][kind]) for each in outputs if kind in each.get("data", {})]


def kept() -> Any:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


@pytest.mark.usefixtures("kernel")
def test_the_part_that_reads_results_runs() -> None:
    now = executed(NOTEBOOK, before=RUNS)
    numbers = len(now.cells)
    before = {"cells": kept()["cells"][:numbers]}
    assert numbers > 10
    assert shown(now, "text/plain") == shown(before, "text/plain")
    assert len(shown(now, "image/png")) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("kernel")
def test_all_of_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path))
    now = executed(NOTEBOOK)
    assert shown(now, "text/plain")[-1] == "'report.html'"
    assert any("top-option" in text for text in shown(now, "text/html"))


def test_what_is_kept_is_of_no_machine() -> None:
    """No path, no warning, no error."""
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r'[\s"\'(](/(home|root|tmp|work|Users|var)/|[A-Z]:\\\\)', text)
    assert '"stderr"' not in text
    assert '"traceback"' not in text
