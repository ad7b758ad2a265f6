"""Cells of a transfer matrix: results of methods trained on another task, or without the subject of the question.

They are ordinary results in a separate folder. Example: `Corpus("atlas-oe", SUBJECT).label`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.results.row import ResultRow

LEAVE_OUT = "leave_out"
"""Key in `ResultRow.config`; the value says which part of the training data is left out for each question."""
SUBJECT = "subject"
"""Value of LEAVE_OUT: the subject of the question."""
AT_RANDOM = "as many at random"
"""Value of LEAVE_OUT: as many answers as the subject has, sampled from all subjects. A control of matched size: it
measures the cost of fewer answers, not of a new subject."""
FOLDER = "transfer"
"""Folder of transfer cells below `results/`, reserved in `bench.results.files.RESERVED`."""
MATRIX = "--transfer.json"
"""Suffix of the JSON file of the matrix, beside its cells."""


@dataclass(frozen=True, order=True)
class Corpus:
    """Training data of a method: the train and validation answers of a task."""

    task: str
    leaves_out: str = ""
    """Part left out for each question: SUBJECT, AT_RANDOM, or empty."""

    @property
    def label(self) -> str:
        """Name of the corpus in tables."""
        words = {SUBJECT: "the subject"}
        return f"{self.task} without {words.get(self.leaves_out, self.leaves_out)}" if self.leaves_out else self.task


@dataclass(frozen=True)
class TransferCell:
    """A cell of the transfer matrix."""

    method: str
    test: str
    """Name of the task whose test questions are predicted."""
    corpus: Corpus | None
    """Training data; None for a method without labels, which has one cell for each test task."""
    row: ResultRow | None = None
    """Result of the cell; None where the cell was not computed."""
    path: Path | None = None
    """JSON file of the row."""
    missing: str = ""
    """Reason why the cell has no numbers; empty where it has numbers."""


@dataclass(frozen=True)
class Share:
    """Share of right answers in a corpus: in all of it, or in what is left of it for the fit of one subject."""

    corpus: Corpus
    subject: str
    """Subject that was left out, or whose size was matched; empty where nothing was left out."""
    share: float
    n: int
    """Number of answers."""


@dataclass(frozen=True)
class About:
    """Design of a transfer matrix."""

    model: str
    preset: str
    corpora: tuple[Corpus, ...]
    """Training corpora, the rows of the matrix."""
    tests: tuple[str, ...]
    homes: Mapping[str, str]
    """Test task -> reference training task: that of --home, or the default one, if it is among the corpora."""
    learners: tuple[str, ...]
    """Trained methods."""
    scaled: tuple[str, ...]
    """Untrained methods whose scores are scaled to probabilities on the corpus's validation split."""
    seeds: tuple[int, ...]
    forward_tokens: int = 0
    """Token positions that the matrix fed to the model."""
    shares: tuple[Share, ...] = ()
    """Shares of right answers in the corpora, for the first seed."""

    def home(self, test: str) -> Corpus | None:
        """Reference corpus of a test task; None where it is not among the corpora."""
        return Corpus(self.homes[test]) if test in self.homes else None

    def share(self, corpus: Corpus) -> float | None:
        """Return the share of right answers in a whole corpus, whatever is left out of it for a subject."""
        matching = (item.share for item in self.shares if item.corpus.task == corpus.task and not item.subject)
        return next(matching, None)
