"""Words and exemplars by which a head's questions are asked, as data: no task has to be there when it is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.api import Format, PromptStyle, Question, Split, Task, TaskCard, UserError
from bench.api.errors import fenced
from bench.api.protocol import ExemplarOrder, Protocol
from bench.data.sources import HubSource
from bench.data.splits import spread
from bench.run.scorers.card import WORDS, ProtocolCard
from bench.store.decoding import decoded, parsed

_MOST = 5_000
"""Exemplars that a head keeps, at most."""


@dataclass(frozen=True)
class PromptWording:
    """Words around questions, and the exemplars before them."""

    styles: Mapping[str, PromptStyle]
    """Subject -> its words; those of the empty subject are for all others."""
    pools: Mapping[str, tuple[Question, ...]]
    """Subject -> questions that may be shown as exemplars."""

    @property
    def subject(self) -> str:
        """Subject of a question that names none: the only one there is, if there is only one."""
        return next(iter(self.pools)) if len(self.pools) == 1 else "general knowledge"


@dataclass(frozen=True)
class UnknownSubjects:
    """Subjects of which a head has no exemplars."""

    subjects: tuple[str, ...] = ()
    questions: int = 0
    shown: int = 0
    """Exemplars of other subjects that their prompts show instead."""


def words_of(task: Task, questions: Sequence[Question], protocol: Protocol) -> PromptWording:
    """Words and exemplars by which a task asks questions.

    Raises:
        UserError: that can't be kept as data.
    """
    with fenced(f"task {task.name!r}, pools and style_of"):
        pools = dict(task.pools())
        asked = [*questions, *(question for pool in pools.values() for question in pool[: protocol.shots + 1])]
        styles: dict[str, PromptStyle] = {}
        for question in asked:
            style = task.style_of(question)
            if styles.setdefault(question.subject, style) != style:
                raise UserError(f"task {task.name} words questions of one subject in several ways")
    if task.draws_exemplars:
        raise UserError(f"each prompt of task {task.name} draws its exemplars from a training set, which no head keeps")
    if protocol.exemplar_order is not ExemplarOrder.PERMUTED:
        pools = {subject: tuple(pool[: protocol.shots + 1]) for subject, pool in pools.items()}
    if sum(map(len, pools.values())) > _MOST:
        raise UserError(f"task {task.name} has more than {_MOST:,} exemplars, which no head keeps")
    common = Counter(map(repr, styles.values())).most_common(1)[0][0]
    usual = next(style for style in styles.values() if repr(style) == common)
    others = {subject: style for subject, style in styles.items() if style != usual}
    return PromptWording({"": usual, **others}, {subject: tuple(pool) for subject, pool in pools.items()})


def read_words(folder: Path) -> PromptWording:
    """Words and exemplars of a head.

    Raises:
        UserError: it is something else.
    """
    try:
        return decoded(parsed((folder / WORDS).read_text(encoding="utf-8")), PromptWording)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--head {folder}: {WORDS} can't be used ({str(error)[:100]}); copy the head again.") from error


class _HeadTask(Task):
    """Questions that a head is asked about; `task_of` makes a subclass for each."""

    words: ClassVar[PromptWording]
    exemplars: ClassVar[Mapping[str, Sequence[Question]]]

    def questions(self, split: Split) -> Iterator[Question]:
        """None: they come from whoever asks."""
        del split
        yield from ()

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """The head's own, and others where it has none of a subject."""
        return self.exemplars

    def style_of(self, question: Question) -> PromptStyle:
        """The words of the question's subject, else those of all others."""
        return self.words.styles.get(question.subject, self.words.styles[""])


def task_of(
    card: ProtocolCard, words: PromptWording, protocol: Protocol, questions: Sequence[Question], dev: Sequence[Question]
) -> tuple[Task, UnknownSubjects]:
    """The task that asks these questions as the head's own were asked.

    A subject of which the head has no exemplars gets some of all its subjects in turn: a model that is shown none
    answers otherwise than it did when the head learned.

    Args:
        card: of the head.
        words: of the head.
        protocol: of the head.
        questions: what is asked.
        dev: exemplars that came with the questions, before all others of their subjects.
    """
    pools: dict[str, Sequence[Question]] = dict(words.pools)
    own: dict[str, list[Question]] = {}
    for question in dev:
        own.setdefault(question.subject, []).append(question)
    every = [question for pool in words.pools.values() for question in pool]
    others = spread(every, protocol.shots + 1)
    counts = Counter(question.subject for question in questions)
    strange = [subject for subject in counts if subject not in pools and subject not in own]
    pools |= {**own, **(dict.fromkeys(strange, others) if others else {})}
    told = UnknownSubjects(
        tuple(strange), sum(counts[subject] for subject in strange), min(len(others), protocol.shots)
    )
    fields = {
        "__doc__": "Questions that a head is asked about.",
        "__module__": __name__,
        "name": card.task,
        "format": Format(card.format),
        "card": TaskCard(license="not stated", version=1, splits={}, sizes={}, options=(2, 26), why="A head's."),
        "style": words.styles[""],
        "prompt_tokens": card.prompt_tokens,
        "words": words,
        "exemplars": pools,
    }
    made: Task = type("HeadTask", (_HeadTask,), fields)(HubSource(), protocol)  # whose rows nobody asks for
    return made, told if words.pools and protocol.shots else UnknownSubjects()
