"""Cells of methods that learned elsewhere: on which corpus, and whether the subject of the question was among it.

Such cells are ordinary results in a folder of their own. Example: `Corpus("atlas-oe", leaves_out=True).label`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.results.row import ResultRow

LEAVE_OUT = "leave_out"
"""Setting in `ResultRow.config` of a cell whose methods learned without the subject of the question."""
SUBJECT = "subject"
"""Value of that setting."""
FOLDER = "transfer"
"""Folder of such cells in a folder of results, reserved in `bench.results.files.RESERVED`."""
MATRIX = "--transfer.json"
"""End of the name of the matrix's own JSON file beside its cells."""


@dataclass(frozen=True, order=True)
class Corpus:
    """Training and validation answers that a method learned from."""

    task: str
    leaves_out: bool = False
    """Whether each question's subject was left out of training and validation."""

    @property
    def label(self) -> str:
        """Words for a reader."""
        return f"{self.task} without the subject" if self.leaves_out else self.task


@dataclass(frozen=True)
class TransferCell:
    """A cell of the matrix."""

    method: str
    test: str
    """Task that was tested."""
    corpus: Corpus | None
    """None for a method that is told no label: it has one cell for each test, whatever the corpus."""
    row: ResultRow | None = None
    """None where the cell was not computed."""
    path: Path | None = None
    """JSON file of the row."""
    missing: str = ""
    """Reason why there are no numbers; empty where there are."""
