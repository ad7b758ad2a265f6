"""MMLU-Pro: 12,032 questions with 3 to 10 options in 14 categories (Wang et al., arXiv:2406.01574).

A row: {"question_id": 70, "question": "Typical advertising ...", "options": ["Safe practices, Fear", ...],
"answer": "I", "answer_index": 8, "category": "business"}, and columns that are not read. The right option is read from
`answer_index`: in one test row (id 3983) `answer` names another option (docs/methods.md §0.7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from bench.api import Format, Question, Row, Split, Task, TaskCard, task
from tasks import _choices

CATEGORIES = (
    "biology", "business", "chemistry", "computer science", "economics", "engineering", "health", "history", "law",
    "math", "other", "philosophy", "physics", "psychology",
)  # fmt: skip

FIELDS = _choices.Fields(
    subject="category", text="question", choices="options", gold="answer_index", subjects=CATEGORIES
)

STRIPPED = "options stripped of outer white space"
CONFLICTS = "rows where answer and answer_index disagree"


@task("mmlu-pro-choice")
class MMLUProChoice(Task):
    """MMLU-Pro with up to ten lettered options; each prompt shows its category's five validation rows."""

    format = Format.CHOICE
    card = TaskCard(
        hub="TIGER-Lab/MMLU-Pro",
        revision="b189ec765aa7ed75c8acfea42df31fdae71f97be",
        folder="mmlu_pro",
        license="Apache-2.0",
        version=1,
        splits={"test": "test", "dev": "validation"},
        sizes={"test": 12_032, "dev": 70},
        options=(3, 10),
        overlaps=("cais/mmlu",),
        why=(
            "Results of the paper's time pin 3373e0b32277875b8db2aa555a333b78a08477ea, older than the data change of"
            " 2025; options are stripped because revisions differ in their white space, and 158 duplicate rows stay."
        ),
    )
    style = _choices.LETTERED
    train_on = "ct-choice"

    def questions(self, split: Split) -> Iterator[Question]:
        """Yield the questions of `test` or `dev`, with ids `mmlu-pro/<question_id>`."""
        counts: Counter[str] = Counter()
        rows = self.source.rows(self.card, split, (*FIELDS.columns, "question_id", "answer"))
        yield from _choices.require_unique_ids((row, _question(row, counts)) for row in rows)
        if split != "dev":
            self.counts |= +counts


def _question(row: Row, counts: Counter[str]) -> Question:
    question = _choices.question(row, FIELDS, f"mmlu-pro/{_choices.row_id(row, 'question_id')}")
    choices = tuple(option.strip() for option in question.choices)
    counts[STRIPPED] += sum(map(str.__ne__, choices, question.choices))
    counts[CONFLICTS] += _choices.letter(row, "answer", len(choices)) != question.gold
    return replace(question, choices=choices)
