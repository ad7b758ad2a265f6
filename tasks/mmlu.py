"""MMLU: 14,042 four-option questions in 57 subjects, with five exemplars each (Hendrycks et al., arXiv:2009.03300).

A row: {"question": "Find all c in Z_3 such that ...", "subject": "abstract_algebra",
"choices": ["0", "1", "2", "3"], "answer": 1}. The rows come grouped by subject and stay in the file's order.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import Format, Question, Split, Task, TaskCard, task
from tasks import _choices

SUBJECTS = (
    "abstract_algebra", "anatomy", "astronomy", "business_ethics", "clinical_knowledge", "college_biology",
    "college_chemistry", "college_computer_science", "college_mathematics", "college_medicine", "college_physics",
    "computer_security", "conceptual_physics", "econometrics", "electrical_engineering", "elementary_mathematics",
    "formal_logic", "global_facts", "high_school_biology", "high_school_chemistry", "high_school_computer_science",
    "high_school_european_history", "high_school_geography", "high_school_government_and_politics",
    "high_school_macroeconomics", "high_school_mathematics", "high_school_microeconomics", "high_school_physics",
    "high_school_psychology", "high_school_statistics", "high_school_us_history", "high_school_world_history",
    "human_aging", "human_sexuality", "international_law", "jurisprudence", "logical_fallacies", "machine_learning",
    "management", "marketing", "medical_genetics", "miscellaneous", "moral_disputes", "moral_scenarios", "nutrition",
    "philosophy", "prehistory", "professional_accounting", "professional_law", "professional_medicine",
    "professional_psychology", "public_relations", "security_studies", "sociology", "us_foreign_policy", "virology",
    "world_religions",
)  # fmt: skip

FIELDS = _choices.Fields(subject="subject", text="question", choices="choices", gold="answer", subjects=SUBJECTS)


class MMLU(Task):
    """Base class of the choice and the open task, which have the same questions.

    Each prompt shows the five dev questions of the question's subject as exemplars (docs/methods.md §1.4).
    """

    card = TaskCard(
        hub="cais/mmlu",
        config="all",
        revision="c30699e8356da336a370243923dbaf21066bb9fe",
        folder="mmlu",
        license="MIT",
        version=1,
        splits={"test": "test", "dev": "dev"},
        sizes={"test": 14_042, "dev": 285},
        options=(4, 4),
        why="27 test rows are exact duplicates and 9 repeat an option; they stay, as in every published number.",
    )

    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of `test` or `dev`, with ids `mmlu/<split>/<row>`, the same in both formats."""
        rows = self.source.rows(self.card, split, FIELDS.columns)
        return _choices.require_unique_ids(
            (row, _choices.question(row, FIELDS, f"{self.card.folder}/{split}/{row.index}")) for row in rows
        )


@task("mmlu-choice")
class MMLUChoice(MMLU):
    """MMLU with lettered options."""

    format = Format.CHOICE
    style = _choices.LETTERED
    train_on = "ct-choice"


@task("mmlu-oe")
class MMLUOpen(MMLU):
    """MMLU without its options, as in the paper: all questions, even those that refer to options."""

    format = Format.OPEN
    style = _choices.OPEN
    train_on = "ct-oe"
