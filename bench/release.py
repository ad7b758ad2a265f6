"""Answers that the paper's authors released with their labels, in place of generating and grading."""

from __future__ import annotations

from bench.api import Question, Split, Task
from bench.config import RunConfig
from bench.models import ModelSpec
from bench.records import Released


class Release:
    """The released records of one model."""

    def records(self, task: Task, split: Split) -> list[tuple[Question, Released]]:
        """Questions of a split with prompt, answer and label, in the release's order."""
        raise NotImplementedError


def open_release(config: RunConfig, model: ModelSpec) -> Release | None:
    """The release that a run asks for; None where answers are generated."""
    del model
    return None if config.answers == "generate" else Release()
