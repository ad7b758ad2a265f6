"""`docs/comparison.ipynb` runs, and what it shows is what it would show now."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT
from tests.notebook import executed

NOTEBOOK = ROOT / "docs" / "comparison.ipynb"
RUNS = "import numpy as np"
"""In the first cell of the part that runs methods."""


def shown(notebook: Any, kind: str) -> list[str]:
    """What its cells have shown of a kind."""
    outputs = (each for cell in notebook["cells"] for each in cell.get("outputs", ()))
    return ["".join(each["data"][kind]) for each in outputs if kind in each.get("data", {})]


def read_first(notebook: Any) -> list[Any]:
    """Cells of the part that reads results."""
    return list(itertools.takewhile(lambda cell: RUNS not in "".join(cell["source"]), notebook["cells"]))


def kept() -> Any:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_notebook_runs_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # this working tree, for the notebook's process
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path))
    now = executed(NOTEBOOK)
    first, before = {"cells": read_first(now)}, {"cells": read_first(kept())}
    assert len(first["cells"]) > 10
    assert len(shown(first, "text/plain")) > 6
    assert shown(first, "text/plain") == shown(before, "text/plain")
    assert len(shown(first, "image/png")) == 1
    assert shown(now, "text/plain")[-1] == "'report.html'"
    assert any("top-option" in text for text in shown(now, "text/html"))


def test_notebook_has_no_path_warning_or_error() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r'[\s"\'(](/(home|root|tmp|work|Users|var)/|[A-Z]:\\\\)', text)
    assert '"stderr"' not in text
    assert '"traceback"' not in text
