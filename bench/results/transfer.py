"""Cells of a transfer matrix: results of methods trained on another task, or without the tested question's subject.

The cells are ordinary results in a separate folder. Example: `Corpus("atlas-oe", SUBJECT).label`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.results.row import ResultRow

LEAVE_OUT = "leave_out"
"""Key in `ResultRow.config` of results that were trained without some answers. Its value says which answers were left
out for each test question."""
SUBJECT = "subject"
"""Value of LEAVE_OUT: the training answers of the test question's subject are left out."""
AT_RANDOM = "as many at random"
"""Value of LEAVE_OUT: as many training answers as the question's subject has are left out, but drawn at random from all
subjects. Compared with SUBJECT, this tells the effect of a new subject from that of fewer training answers."""
FOLDER = "transfer"
"""Name of the folder of transfer results below `results/`; no model may use this name
(`bench.results.files.RESERVED`)."""
MATRIX = "--transfer.json"
"""File name suffix of the JSON file with the whole matrix, beside the results of its cells."""


@dataclass(frozen=True, order=True)
class Corpus:
    """Training data of a method: the train and validation answers of one task, perhaps without some."""

    task: str
    leaves_out: str = ""
    """Which training answers are left out for a test question: SUBJECT, AT_RANDOM, or empty for none."""

    @property
    def label(self) -> str:
        """Name of the training data in tables."""
        words = {SUBJECT: "the subject"}
        return f"{self.task} without {words.get(self.leaves_out, self.leaves_out)}" if self.leaves_out else self.task


@dataclass(frozen=True)
class TransferCell:
    """One method, trained on one corpus and tested on one task."""

    method: str
    test: str
    """Name of the task whose test questions are predicted."""
    corpus: Corpus | None
    """Training data. None for a method that needs no labels, which has only one cell per test task."""
    row: ResultRow | None = None
    """The result; None if the cell was not computed."""
    path: Path | None = None
    """Path of the result's JSON file."""
    missing: str = ""
    """Reason why the cell has no numbers; empty if it has."""


@dataclass(frozen=True)
class Share:
    """Share of right answers among the training answers: among all, or among those left for one subject's questions."""

    corpus: Corpus
    subject: str
    """Subject whose answers were left out, or as many answers at random. Empty if none were left out."""
    share: float
    n: int
    """Number of training answers over which the share is computed."""


@dataclass(frozen=True)
class About:
    """Design of a transfer matrix: its model, training corpora, test tasks, methods and seeds."""

    model: str
    preset: str
    corpora: tuple[Corpus, ...]
    """Training corpora; in tables and figures each is a column, and methods are rows."""
    tests: tuple[str, ...]
    homes: Mapping[str, str]
    """Test task -> training task with which transfer from other corpora is compared: the one that --home names, or the
    test task's default training task. Test tasks for which this task is not among the corpora are left out."""
    learners: tuple[str, ...]
    """Names of the trained methods."""
    scaled: tuple[str, ...]
    """Names of the untrained methods that give scores, which are scaled to probabilities on the validation split of a
    corpus."""
    seeds: tuple[int, ...]
    forward_tokens: int = 0
    """Number of token positions that were fed to the model for the matrix."""
    shares: tuple[Share, ...] = ()
    """Shares of right answers in the training data, for the first seed."""
    overlapping: tuple[tuple[str, str], ...] = ()
    """Pairs of tasks of which the data set of one has rows of that of the other (`TaskCard.overlaps`)."""

    def home(self, test: str) -> Corpus | None:
        """Return the corpus with which transfer to a test task is compared; None if it isn't in the matrix."""
        return Corpus(self.homes[test]) if test in self.homes else None

    def share(self, corpus: Corpus) -> float | None:
        """Return the share of right answers in the whole corpus of the task, even if `corpus` leaves answers out.

        None if the share is not known.
        """
        matching = (item.share for item in self.shares if item.corpus.task == corpus.task and not item.subject)
        return next(matching, None)
