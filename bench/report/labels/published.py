"""The paper's label counts: how many answers of a split were right and wrong, by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.report.tables.published import values_of

FILE = "label_distribution.csv"
COLUMNS = ("task", "split", "model", "correct", "incorrect", "total")


@dataclass(frozen=True)
class PaperCount:
    """Answers of a split as the paper counts them."""

    model: str
    task: str
    split: str
    right: int
    wrong: int

    @property
    def base_rate(self) -> float:
        """Share of right answers."""
        return self.right / (self.right + self.wrong)


def read_counts(results: Path) -> tuple[PaperCount, ...]:
    """The paper's counts; none where there is no such file.

    Args:
        results: folder of results; where it has no `paper` of its own, that of the checkout is read.

    Raises:
        UserError: the file is not as it must be.
    """
    return tuple(values_of(results, FILE, COLUMNS, _count, "counts of right and wrong answers"))


def _count(line: Mapping[str, str]) -> PaperCount:
    right, wrong, total = (int(line[name]) for name in ("correct", "incorrect", "total"))
    if right + wrong != total or min(right, wrong) < 0 or not total:
        raise ValueError(f"got {right} + {wrong} = {total}")
    return PaperCount(line["model"], line["task"], line["split"], right, wrong)


def counts_of(published: Sequence[PaperCount], model: str, split: str) -> PaperCount | None:
    """The paper's count of the same model and split (`task/split`); None where there is none."""
    return next((each for each in published if (each.model, f"{each.task}/{each.split}") == (model, split)), None)
