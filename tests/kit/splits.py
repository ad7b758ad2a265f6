"""Small splits, read through a reader and its store: questions about rivers, asked with letters and openly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.api import Format, Question, Signal, Split, Task
from bench.api.protocol import FIXED
from bench.api.question import Message, Prompt, Released
from bench.data.splits import TaskSplit
from bench.grading.grade import MatchJudge
from bench.progress import Silent
from bench.signals.batch_builder import BatchBuilder
from bench.signals.grading import Grader
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import Store
from tests.fixtures.rivers import NAMES, Rivers
from tests.kit import passes

SAID = ("The answer is b", "b", "", "a river")


class FewRivers(Rivers):
    """Questions of two subjects that share exemplars, options and beginnings."""

    def questions(self, split: Split) -> Iterator[Question]:
        """Seven questions a subject."""
        count = 2 if split == "dev" else 7
        for subject in ("rivers", "hills"):
            for i in range(count):
                choices = tuple(NAMES[(i + j) % len(NAMES)] for j in range(2 + i % 3))
                text = f"Where does {NAMES[(i // 2) % len(NAMES)]} end"  # two questions of one text: longer sharing
                yield Question(f"{split}/{subject}/{i}", subject, text, choices, i % len(choices))


class OpenRivers(FewRivers):
    """The same, asked openly."""

    name = "rivers-oe"
    format = Format.OPEN


class FiveRivers(FewRivers):
    """Five of the questions, where each is a request."""

    def questions(self, split: Split) -> Iterator[Question]:
        """Every third question."""
        yield from itertools.islice(super().questions(split), 0, None, 3)


class FiveOpenRivers(FiveRivers, OpenRivers):
    """The same, asked openly."""


TASKS = pytest.mark.parametrize("task", [FewRivers, OpenRivers], ids=lambda task: task.name)


def opened(reader: Reader, task: type[Task], said: Sequence[str | Released] = ()) -> SplitData:
    """The test questions; `said` are answers made elsewhere, in turn, where the model doesn't answer."""
    made = task(None)  # type: ignore[arg-type]
    questions = list(made.questions("test"))
    released = {}
    for i, each in enumerate(questions if said else []):
        own = said[i % len(said)]
        released[each.id] = Released(_prompt(each), own, correct=i % 3 == 0) if isinstance(own, str) else own
    return reader.open(TaskSplit(task.name, "test"), made, questions, released)


def read(
    folder: Path,
    cache: Path,
    task: type[Task],
    signals: set[Signal],
    said: Sequence[str | Released] = (),
    judge: Any = None,
) -> tuple[Reader, SplitData]:
    """Read signals of the test questions by the model of a folder, and grade them; `said` as in `opened`."""
    store = Store(cache)
    store.prepare()
    reader = Reader(passes.load(folder), store, replace(FIXED, max_new_tokens_open=4), 96, Silent())
    done = reader.read(opened(reader, task, said), frozenset(signals))
    return reader, Grader(reader, judge or MatchJudge()).grade(done)


def batch_of(reader: Reader, split_data: SplitData, *signals: Signal, labels: bool = False) -> Any:
    """The batch of a method that reads these signals."""
    return BatchBuilder(reader).batch(split_data, frozenset(signals), labels=labels)


def _prompt(question: Question) -> Prompt:
    messages = (Message("system", "Be brief."), Message("user", f"Of {question.subject}: {question.text}?\nAnswer:"))
    return Prompt(messages)
