"""Store the wording and exemplars of prompts in a head, and build a task from them.

A head can then be used where its task is not installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.api import Format, PromptStyle, Question, Split, Task, TaskCard, UserError
from bench.api.errors import plugin_errors
from bench.api.protocol import ExemplarOrder, Protocol
from bench.data.sources import HubSource
from bench.data.splits import limit_by_subject
from bench.run.scorers.card import WORDS, ProtocolCard
from bench.store.decoding import decode_record, parse_json

_MOST = 5_000
"""Largest number of exemplars in a head."""


@dataclass(frozen=True)
class PromptWording:
    """Wording and exemplars of a task's prompts, as stored in a head."""

    styles: Mapping[str, PromptStyle]
    """Subject -> prompt style (wording); the key "" holds the default style."""
    pools: Mapping[str, tuple[Question, ...]]
    """Subject -> exemplars, from which prompts for questions of this subject take theirs."""

    @property
    def subject(self) -> str:
        """Subject for questions without one: the exemplars' subject if all have the same, else "general knowledge"."""
        return next(iter(self.pools)) if len(self.pools) == 1 else "general knowledge"


@dataclass(frozen=True)
class SubjectsWithoutExemplars:
    """Subjects of scored questions for which a head has no exemplars."""

    subjects: tuple[str, ...] = ()
    questions: int = 0
    """Number of questions on these subjects."""
    shown: int = 0
    """Number of exemplars of other subjects in each prompt for such a question."""


def collect_wording(task: Task, questions: Sequence[Question], protocol: Protocol) -> PromptWording:
    """Collect the prompt styles and exemplars of a task.

    Raises:
        UserError: a head can't store them: a subject has several styles, there are too many exemplars, or each prompt
            draws exemplars of its own.
    """
    with plugin_errors(f"task {task.name!r}, pools and style_of"):
        pools = dict(task.pools())
        with_exemplars = [*questions, *(question for pool in pools.values() for question in pool[: protocol.shots + 1])]
        styles: dict[str, PromptStyle] = {}
        for question in with_exemplars:
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
    default = next(style for style in styles.values() if repr(style) == common)
    others = {subject: style for subject, style in styles.items() if style != default}
    return PromptWording({"": default, **others}, {subject: tuple(pool) for subject, pool in pools.items()})


def read_wording(folder: Path) -> PromptWording:
    """Read the prompt styles and exemplars from the folder of a head.

    Raises:
        UserError: the file with them is missing or damaged.
    """
    try:
        return decode_record(parse_json((folder / WORDS).read_text(encoding="utf-8")), PromptWording)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--head {folder}: {WORDS} can't be used ({str(error)[:100]}); copy the head again.") from error


class _HeadTask(Task):
    """Base class of tasks that build prompts for a head; each call of `build_task` makes a subclass with its data."""

    words: ClassVar[PromptWording]
    exemplars: ClassVar[Mapping[str, Sequence[Question]]]

    def questions(self, split: Split) -> Iterator[Question]:
        """Yield nothing, since the caller of `build_task` has the questions already."""
        del split
        yield from ()

    def pools(self) -> Mapping[str, Sequence[Question]]:
        """Return subject -> exemplars: the head's, and substitutes for subjects that have no exemplars in the head."""
        return self.exemplars

    def style_of(self, question: Question) -> PromptStyle:
        """Return the prompt style (wording) for a question's subject, or the default style."""
        return self.words.styles.get(question.subject, self.words.styles[""])


def build_task(
    card: ProtocolCard, words: PromptWording, protocol: Protocol, questions: Sequence[Question], dev: Sequence[Question]
) -> tuple[Task, SubjectsWithoutExemplars]:
    """Build a task whose prompts have the form of the head's test prompts; also return the subjects without exemplars.

    Questions of a subject without exemplars in the head are shown exemplars of other subjects. Without any exemplars,
    the model would answer otherwise than in the head's training.

    Args:
        card: description of prompts in the head's card.
        words: prompt styles and exemplars of the head.
        protocol: protocol of the head.
        questions: questions to score.
        dev: exemplars from the file of questions; they replace the head's exemplars of the same subjects.
    """
    pools: dict[str, Sequence[Question]] = dict(words.pools)
    from_file: dict[str, list[Question]] = {}
    for question in dev:
        from_file.setdefault(question.subject, []).append(question)
    exemplars = [question for pool in words.pools.values() for question in pool]
    substitutes = limit_by_subject(exemplars, protocol.shots + 1)
    counts = Counter(question.subject for question in questions)
    unknown = [subject for subject in counts if subject not in pools and subject not in from_file]
    pools |= {**from_file, **(dict.fromkeys(unknown, substitutes) if substitutes else {})}
    unknown_subjects = SubjectsWithoutExemplars(
        tuple(unknown), sum(counts[subject] for subject in unknown), min(len(substitutes), protocol.shots)
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
    task: Task = type("HeadTask", (_HeadTask,), fields)(HubSource(), protocol)  # a source that is never read
    return task, unknown_subjects if words.pools and protocol.shots else SubjectsWithoutExemplars()
