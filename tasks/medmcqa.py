"""MedMCQA: 4,183 four-option questions of medical entrance exams in 21 subjects (Pal et al., arXiv:2203.14371).

A row: {"id": "45258d3d-...", "question": "...", "opa": "...", "opb": "...", "opc": "...", "opd": "...", "cop": 1,
"choice_type": "single", "subject_name": "Physiology"}, and columns that are not read. On the Hub `cop` counts from 0.
The questions come from the official validation split, as the labels of the official test split are hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bench.api import Format, Question, Row, Split, Task, TaskCard, UserError, task
from tasks import _choices

SUBJECTS = (
    "Anaesthesia", "Anatomy", "Biochemistry", "Dental", "ENT", "Forensic Medicine", "Gynaecology & Obstetrics",
    "Medicine", "Microbiology", "Ophthalmology", "Orthopaedics", "Pathology", "Pediatrics", "Pharmacology",
    "Physiology", "Psychiatry", "Radiology", "Skin", "Social & Preventive Medicine", "Surgery", "Unknown",
)  # fmt: skip

OPTIONS = ("opa", "opb", "opc", "opd")
FIELDS = _choices.Fields(
    subject="subject_name", text="question", choices=OPTIONS, gold="cop", subjects=SUBJECTS, hidden="test"
)
SINGLE, MULTI = TYPES = ("single", "multi")
MULTIS = "questions of choice_type multi"


class MedMCQA(Task):
    """Base class of the choice and the open task, which have the same questions.

    Every prompt shows the same five train questions as exemplars (docs/methods.md §0.3, §1.9).
    """

    card = TaskCard(
        hub="openlifescienceai/medmcqa",
        revision="91c6572c454088bf71b679ad90aa8dffcd0d5868",
        folder="medmcqa",
        license="MIT",
        version=1,
        splits={"test": "validation", "dev": "train"},
        sizes={"test": 4_183, "dev": 5},
        options=(4, 4),
        why=(
            "Tested on the official validation split because the labels of the official test split are hidden; the"
            " prompts' header names medicine instead of a subject because all subjects show the same exemplars."
        ),
    )

    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of `test`, or the exemplars as split `dev`, with ids `medmcqa/<id>`."""
        rows: Sequence[Row] = self.source.rows(self.card, split, (*FIELDS.columns, "id", "choice_type"))
        if split == "dev":
            rows = _exemplars(rows, f"{self.card.folder}/{self.card.splits[split]}")
        counts: Counter[str] = Counter()
        yield from _choices.require_unique_ids((row, _question(row, counts)) for row in rows)
        self.counts |= counts

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """Return subject -> exemplar pool: five questions, the same for all; empty if the train file is missing."""
        if not self.source.has(self.card, "dev"):
            return {}
        return dict.fromkeys(SUBJECTS, tuple(self.questions("dev")))


def _question(row: Row, counts: Counter[str]) -> Question:
    if _choices.one_of(row, "choice_type", TYPES) == MULTI:
        counts[MULTIS] += 1
    return _choices.question(row, FIELDS, f"medmcqa/{_choices.row_id(row, 'id')}")


def _exemplars(rows: Iterable[Row], where: str) -> list[Row]:
    """Return five rows with `choice_type` "single", in the file's order.

    They are the first row with each of the four right options, and the first of the other rows.
    """
    firsts: dict[int, Row] = {}
    others: list[Row] = []
    for row in rows:
        if _choices.one_of(row, "choice_type", TYPES) == SINGLE:
            first = firsts.setdefault(_choices.question(row, FIELDS, "").gold, row)
            others += [row] if first is not row else []
        if len(firsts) == len(OPTIONS) and others:
            return sorted([*firsts.values(), others[0]], key=lambda row: row.index)
    raise UserError(
        f"{where}: expected, to show as exemplars, rows of choice_type {SINGLE!r} for each of the {len(OPTIONS)} right"
        f" options and one more, got {len(firsts) + len(others)} rows for {len(firsts)} options; use the whole file"
    )


@task("medmcqa-choice")
class MedMCQAChoice(MedMCQA):
    """MedMCQA with lettered options."""

    format = Format.CHOICE
    style = replace(
        _choices.LETTERED, header="The following are multiple-choice questions (with answers) about medicine."
    )
    train_on = "ct-choice"


@task("medmcqa-oe")
class MedMCQAOpen(MedMCQA):
    """MedMCQA without its options: all questions, even those that refer to options."""

    format = Format.OPEN
    style = replace(_choices.OPEN, header="The following are questions (with answers) about medicine.")
    train_on = "ct-oe"
