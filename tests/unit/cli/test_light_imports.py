"""What begins in a moment never loads what only some commands compute with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = {"torch", "transformers", "datasets", "sklearn", "pandas", "pyarrow", "scipy", "matplotlib", "openai"}
LIST = """
import sys
sys.argv = ["bench", "list", "methods"]
from bench.cli.app import main
try:
    main()
except SystemExit:
    pass
"""
AUDIT = f"""
import bench
words = "high=0.9,medium=0.6,low=0.3"
bench.audit({str(ROOT / "tests/fixtures/confidences/dspy.csv")!r}, correct="exact", words=words).report().render()
"""
FIGURE = """
import pathlib, tempfile
from bench.report.figures.drawing import new_figure, save
save(new_figure((1, 1), (3.0, 1.0), title="a", note="b")[0], pathlib.Path(tempfile.mkdtemp()) / "a.svg")
"""


@pytest.mark.parametrize(
    ("program", "never"),
    [
        ("import bench", {*HEAVY, "numpy", "typer", "rich", "bench.api", "bench.report.tables"}),
        ("import bench.cli.app", {"pandas", "torch", "bench.stats", "bench.report.tables", "bench.report.figures"}),
        ("from bench import load_results; load_results.__name__", {"torch"}),
        (AUDIT, {"torch", "transformers", "datasets", "sklearn"}),
        ("from bench import registry; registry.methods(), registry.tasks()", HEAVY),
        ("import bench.report.tables.build, bench.results.files", {"torch", "transformers", "pandas"}),
        ("import bench.report.style, bench.report.figures", {"matplotlib"}),
        (FIGURE, {"matplotlib.pyplot"}),
        (LIST, HEAVY),
    ],
    ids=["package", "command", "results", "audit", "registry", "tables", "figures", "a drawn figure", "list"],
)
def test_imports_are_light(program: str, never: set[str]) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True,
        check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout.splitlines()[-1]  # fmt: skip
    assert not never & set(loaded.split())
