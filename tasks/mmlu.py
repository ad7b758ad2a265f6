"""MMLU: 14,042 four-option questions in 57 subjects, with five exemplars each (Hendrycks et al., arXiv:2009.03300).

A row: {"question": "Find all c in Z_3 such that ...", "subject": "abstract_algebra",
"choices": ["0", "1", "2", "3"], "answer": 1}. The rows come grouped by subject and stay in the file's order.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import Format, PromptStyle, Question, Split, Task, TaskCard, task
from tasks import _choices

FIELDS = _choices.Fields(subject="subject", text="question", choices="choices", gold="answer")


@task("mmlu-choice")
class MMLUChoice(Task):
    """MMLU with lettered options; each prompt shows its subject's five dev rows (methods.md §1.4)."""

    format = Format.CHOICE
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
    style = PromptStyle(
        header="The following are multiple-choice questions (with answers) about {label}.",
        footer="Now, answer the next question.",
        context="Question:\n{text}\n\nChoices:\n{options}",
    )
    train_on = "ct-choice"

    def questions(self, split: Split) -> Iterator[Question]:
        """The questions of `test` or `dev`, with ids `mmlu/<split>/<row>`, shared by every format of MMLU."""
        rows = self.source.rows(self.card, split, FIELDS.columns)
        return _choices.unique(
            (row, _choices.question(row, FIELDS, f"{self.card.folder}/{split}/{row.index}")) for row in rows
        )
