"""Runs a notebook of `docs/`: `python -m tests.notebook docs/comparison.ipynb` runs it and keeps what it showed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SECONDS = 300
"""Longest time of a cell."""


def executed(path: Path, before: str = "") -> Any:
    """The notebook with what its cells showed, other than warnings; run in its own folder.

    Args:
        path: of the notebook.
        before: leaves out everything from the first cell on that has this in it; empty: none.
    """
    notebook = nbformat.read(path, as_version=4)
    ends = [number for number, cell in enumerate(notebook.cells) if before and before in cell.source]
    notebook.cells = notebook.cells[: min(ends, default=None)]
    folder = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=SECONDS, resources=folder, record_timing=False).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [shown for shown in cell.outputs if shown.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:]:
        nbformat.write(executed(Path(name)), name)
