"""`docs/comparison.ipynb` runs, and what it shows is what it would show now."""

from __future__ import annotations

import ast
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

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


def value_of(code: str, names: dict[str, Any]) -> Any:
    """Run a cell; returns what its last line is."""
    module = ast.parse(code)
    last = module.body.pop() if isinstance(module.body[-1], ast.Expr) else None
    exec(compile(module, "cell", "exec"), names)  # noqa: S102 - that is what a notebook does
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None  # noqa: S307


def test_notebook_part_that_reads_results_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: the start of a kernel takes seconds."""
    monkeypatch.chdir(NOTEBOOK.parent)
    cells = [cell for cell in read_first(kept()) if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    formats, now = DisplayFormatter(), []
    with pd.option_context("display.max_columns", 20):  # as in a kernel
        for cell in cells:
            value = value_of("".join(cell["source"]), names)
            now.append({"outputs": [] if value is None else [{"data": formats.format(value)[0]}]})
    assert len(now) > 6
    assert shown({"cells": now}, "text/plain") == shown({"cells": cells}, "text/plain")
    assert sum("image/png" in each["data"] for cell in now for each in cell["outputs"]) == 1


@pytest.mark.slow
def test_notebook_runs_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # this working tree, for the notebook's process
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path))
    now = executed(NOTEBOOK)
    first, before = {"cells": read_first(now)}, {"cells": read_first(kept())}
    assert len(first["cells"]) > 10
    assert shown(first, "text/plain") == shown(before, "text/plain")
    assert len(shown(first, "image/png")) == 1
    assert shown(now, "text/plain")[-1] == "'report.html'"
    assert any("top-option" in text for text in shown(now, "text/html"))


def test_notebook_has_no_path_warning_or_error() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r'[\s"\'(](/(home|root|tmp|work|Users|var)/|[A-Z]:\\\\)', text)
    assert '"stderr"' not in text
    assert '"traceback"' not in text
