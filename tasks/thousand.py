"""Tasks of one thousand: fixed subsets of MMLU, MMLU-Pro and MedMCQA with training questions of their own.

The subsets are ours (docs/methods.md §1.10). `thousand.toml` lists their rows, drawn once by `benchmarks/thousand.py`.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from importlib import resources
from typing import ClassVar, Literal

from bench.api import Question, Split, Task, TaskCard, UserError, task
from tasks.medmcqa import MedMCQA, MedMCQAChoice
from tasks.mmlu import MMLU, MMLUChoice, MMLUOpen
from tasks.mmlu_pro import MMLUProChoice

FILE = "thousand.toml"
Part = Literal["test", "holdout", "train", "validation", "dev"]
"""A part of a subset. The part `holdout` is the test split of a task of its own; only MedMCQA has a part `dev`."""
SIZES: Mapping[Part, int] = {"test": 1_140, "holdout": 570, "train": 1_000, "validation": 250}


def row_key(question: Question) -> str:
    """Return the key of a question in `FILE`: the row number in MMLU, else the benchmark's own id.

    Of MedMCQA's UUIDs this is the part before the first hyphen, which is unique there.
    """
    return question.id.rpartition("/")[2].partition("-")[0]


def digest(question: Question) -> str:
    """Return six hex digits of a SHA-256 of all that a benchmark says of a question: subject, texts, right option."""
    texts = (question.subject, question.text, *question.choices, str(question.gold))
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:6]


@cache
def digests_of_rows() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return the rows of all subsets: folder of the benchmark -> part -> key of a row -> digest of its question."""
    tables = tomllib.loads((resources.files("tasks") / FILE).read_text(encoding="utf-8"))
    return {
        folder: {part: dict(row.split(":") for row in rows.split()) for part, rows in parts.items()}
        for folder, parts in tables.items()
    }


class Thousand(Task):
    """Base class of the subsets: questions of a benchmark, chosen by `FILE`, with the ids that they have there."""

    whole: ClassVar[type[Task]]
    """Task of the whole benchmark."""
    parts: ClassVar[Mapping[Split, Part]] = {"test": "test", "train": "train", "validation": "validation"}
    """Split -> part of the subset. Exemplars are those of the whole benchmark unless `dev` is a part here."""

    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of a split in the order of the benchmark's rows.

        Raises:
            UserError: a row is invalid; or the benchmark lacks a question that was drawn, or has another in its place.
        """
        if split not in self.parts:
            return self.whole(self.source, self.protocol).questions(split)
        rows = digests_of_rows()[self.card.folder][self.parts[split]]
        where = f"{self.card.folder}/{self.card.splits[split]}"
        differing = [key for key, of in rows.items() if key not in self._rows or digest(self._rows[key]) != of]
        if differing:
            key = differing[0]
            found = f"got {self._rows[key].text!r:.60}" if key in self._rows else "it is not there"
            raise UserError(
                f"{where}: expected the rows that {self.name} was drawn from, but {len(differing):,} of {len(rows):,}"
                f" {split} rows are missing or differ in subject, text, options or right answer, e.g. row {key!r}"
                f" ({found}); use {self.card.hub} at revision {self.card.revision}"
            )
        return (question for key, question in self._rows.items() if key in rows)

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """Return subject -> exemplars: those of the subject, or, if `dev` was drawn, the same for all subjects."""
        if "dev" not in self.parts:
            return super().pools()
        return dict.fromkeys({question.subject for question in self._rows.values()}, tuple(self.questions("dev")))

    @cached_property
    def _rows(self) -> Mapping[str, Question]:
        return {row_key(question): question for question in self.whole(self.source, self.protocol).questions("test")}


def _card(whole: TaskCard, parts: Mapping[Split, Part], why: str) -> TaskCard:
    """Build the card of a subset from that of the whole benchmark: all its parts come from the benchmark's test split.

    Without a part `dev`, exemplars are those of the whole benchmark.
    """
    splits: dict[Split, str] = dict.fromkeys(parts, whole.splits["test"])
    sizes = {split: SIZES.get(part, whole.sizes["dev"]) for split, part in parts.items()}
    return replace(
        whole,
        version=1,
        splits={"dev": whole.splits["dev"], **splits},
        sizes={"dev": whole.sizes["dev"], **sizes},
        why=f"Ours, beside the whole benchmark: {why}; no wording stands twice in it, and none is an exemplar's.",
    )


HOLDOUT: Mapping[Split, Part] = {"test": "holdout"}
WITH_DEV: Mapping[Split, Part] = {**Thousand.parts, "dev": "dev"}
HOLDOUT_WITH_DEV: Mapping[Split, Part] = {**HOLDOUT, "dev": "dev"}
MMLU_WHY = "51 to 53 rows of each subject, 20 of them to test and 10 to hold out"
PRO_WHY = "as many rows of each category, none with a wording that was drawn for MMLU or is an exemplar there"
MEDMCQA_WHY = "rows in proportion to the size of a subject, without Unknown, and five exemplars from rows not drawn"


class MMLUThousand(Thousand):
    """Base class of MMLU's subset with options and without, which have the same questions."""

    card = _card(MMLU.card, Thousand.parts, MMLU_WHY)


@task("mmlu-1k-choice")
class MMLUThousandChoice(MMLUThousand):
    """1,140 questions of MMLU, 20 of each subject, with lettered options; 1,250 others to learn on."""

    whole = MMLUChoice
    format, style = MMLUChoice.format, MMLUChoice.style


@task("mmlu-1k-oe")
class MMLUThousandOpen(MMLUThousand):
    """The questions of `mmlu-1k-choice` without their options."""

    whole = MMLUOpen
    format, style = MMLUOpen.format, MMLUOpen.style


@task("mmlu-1k-holdout-choice")
class MMLUHoldoutChoice(MMLUThousandChoice):
    """570 further questions of MMLU, 10 of each subject, for methods that learn on `mmlu-1k-choice`."""

    parts = HOLDOUT
    card = _card(MMLU.card, HOLDOUT, MMLU_WHY)
    train_on = "mmlu-1k-choice"


@task("mmlu-pro-1k-choice")
class MMLUProThousandChoice(Thousand):
    """1,140 questions of MMLU-Pro, 81 or 82 of each category, with lettered options; 1,250 others to learn on."""

    whole = MMLUProChoice
    format, style = MMLUProChoice.format, MMLUProChoice.style
    card = _card(MMLUProChoice.card, Thousand.parts, PRO_WHY)


@task("mmlu-pro-1k-holdout-choice")
class MMLUProHoldoutChoice(MMLUProThousandChoice):
    """570 further questions of MMLU-Pro, 40 or 41 of each category, for methods that learn on `mmlu-pro-1k-choice`."""

    parts = HOLDOUT
    card = _card(MMLUProChoice.card, HOLDOUT, PRO_WHY)
    train_on = "mmlu-pro-1k-choice"


@task("medmcqa-1k-choice")
class MedMCQAThousandChoice(Thousand):
    """1,140 questions of MedMCQA in 20 subjects, with lettered options; 1,250 others to learn on."""

    whole = MedMCQAChoice
    format, style = MedMCQAChoice.format, MedMCQAChoice.style
    parts = WITH_DEV
    card = _card(MedMCQA.card, WITH_DEV, MEDMCQA_WHY)


@task("medmcqa-1k-holdout-choice")
class MedMCQAHoldoutChoice(MedMCQAThousandChoice):
    """570 further questions of MedMCQA, for methods that learn on `medmcqa-1k-choice`."""

    parts = HOLDOUT_WITH_DEV
    card = _card(MedMCQA.card, HOLDOUT_WITH_DEV, MEDMCQA_WHY)
    train_on = "medmcqa-1k-choice"
