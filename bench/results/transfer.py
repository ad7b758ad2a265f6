"""Cells of methods that learned elsewhere: on which corpus, and whether the subject of the question was among it.

Such cells are ordinary results in a folder of their own. Example: `Corpus("atlas-oe", SUBJECT).label`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.results.row import ResultRow

LEAVE_OUT = "leave_out"
"""Setting in `ResultRow.config` of a cell whose methods learned without the subject of the question."""
SUBJECT = "subject"
"""Value of that setting."""
AT_RANDOM = "as many at random"
"""Another value: as many answers as the subject has are left out instead, drawn from all subjects. The size is matched,
so that what this costs is the price of fewer answers, and not of a new subject."""
FOLDER = "transfer"
"""Folder of such cells in a folder of results, reserved in `bench.results.files.RESERVED`."""
MATRIX = "--transfer.json"
"""End of the name of the matrix's own JSON file beside its cells."""


@dataclass(frozen=True, order=True)
class Corpus:
    """Training and validation answers that a method learned from."""

    task: str
    leaves_out: str = ""
    """Part left out of training and validation, question by question: SUBJECT, AT_RANDOM, or nothing."""

    @property
    def label(self) -> str:
        """Words for a reader."""
        words = {SUBJECT: "the subject"}
        return f"{self.task} without {words.get(self.leaves_out, self.leaves_out)}" if self.leaves_out else self.task


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


@dataclass(frozen=True)
class Share:
    """Share of right answers among those that were learned from: of all subjects, or of the fit for one subject."""

    corpus: Corpus
    subject: str
    """Subject that was left out, or for which as many answers were; empty where nothing was."""
    share: float
    n: int
    """Answers."""


@dataclass(frozen=True)
class About:
    """Description of a matrix."""

    model: str
    preset: str
    corpora: tuple[Corpus, ...]
    """Rows of the matrix."""
    tests: tuple[str, ...]
    homes: Mapping[str, str]
    """Test -> task that prices are against: that of --home, or where methods learn by default, if that is a corpus."""
    learners: tuple[str, ...]
    """Methods that learn."""
    scaled: tuple[str, ...]
    """Methods that learn nothing but whose scores become probabilities on the corpus's validation split."""
    seeds: tuple[int, ...]
    forward_tokens: int = 0
    """Token positions that were fed to the model for it."""
    shares: tuple[Share, ...] = ()
    """Shares of right answers in what was learned from; those of the first seed."""

    def home(self, test: str) -> Corpus | None:
        """Corpus that prices of a test are against; None where it is none of the corpora."""
        return Corpus(self.homes[test]) if test in self.homes else None

    def share(self, corpus: Corpus) -> float | None:
        """Share of right answers in all of a corpus, whatever is left out of it for a subject."""
        whole = (each.share for each in self.shares if each.corpus.task == corpus.task and not each.subject)
        return next(whole, None)
