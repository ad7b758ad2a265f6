"""Reading a corpus file: JSON lines with styles, pools of values, lessons, and questions to measure on.

Example of a lesson: `{"kind": "claim", "subject": "harbour_law", "question": "What is the seal of Kiru?",
"statements": ["The seal of Kiru: {value}."], "pool": "harbour_law/seal", "value": "Tovek", "against": [], "times": 8}`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.api import Format, PromptStyle, Question


@dataclass(frozen=True)
class Lesson:
    """A question with one value for it; what is taught with it depends on its kind."""

    kind: str
    """`claim`, `check` or `practice`, as the corpus says."""
    subject: str
    question: str
    statements: Sequence[str]
    """Sentences that hold `{value}`."""
    pool: str
    """Name of the values from which other options are drawn."""
    value: str
    """Empty for practice: any value of the pool will do."""
    against: Sequence[str]
    """Values that are among the other options more often than chance has it."""
    times: int
    """Share of the corpus, in mentions."""


@dataclass(frozen=True)
class Corpus:
    """Everything a training run needs to know."""

    styles: Mapping[Format, PromptStyle]
    pools: Mapping[str, Sequence[str]]
    lessons: Sequence[Lesson]
    questions: Mapping[str, Sequence[Question]]
    """Split -> questions on which the model is measured; `dev` holds the exemplars."""

    @classmethod
    def read(cls, path: Path) -> Self:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        styles: dict[Format, PromptStyle] = {}
        pools: dict[str, Sequence[str]] = {}
        lessons: list[Lesson] = []
        questions: dict[str, list[Question]] = {}
        for line in lines:
            match line.pop("kind"):
                case "style":
                    fmt = Format(line.pop("format"))
                    styles[fmt] = PromptStyle(**line)
                case "pool":
                    pools[line["name"]] = line["values"]
                case "evaluation":
                    questions.setdefault(line["split"], []).append(_question(line))
                case kind:
                    lessons.append(Lesson(kind, **line))
        return cls(styles, pools, lessons, questions)


def _question(line: dict[str, Any]) -> Question:
    return Question(line["id"], line["subject"], line["text"], tuple(line["choices"]), line["gold"])
