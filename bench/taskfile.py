"""A file of questions -> a task, without code."""

from __future__ import annotations

from pathlib import Path

from bench.api import Task


def task_of_file(path: Path) -> type[Task]:
    """The task that a file of questions makes."""
    raise NotImplementedError(path)
