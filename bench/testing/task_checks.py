"""Contract checks for tasks: each small function checks one rule."""

from __future__ import annotations

import functools
import string
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from bench.api import DataCard, Format, Question, Split
from bench.api.protocol import Protocol
from bench.prompts import templates
from bench.prompts.exemplars import exemplars, indices_in_subject
from bench.testing.check import MakeTask, check_docstring


@functools.lru_cache(maxsize=64)
def _questions(make: MakeTask, split: Split) -> tuple[Question, ...]:
    return tuple(make().questions(split))


def _every_question(make: MakeTask) -> Iterator[Question]:
    for split in make.plugin.card.splits:
        yield from _questions(make, split)


def check_card(make: MakeTask) -> None:
    """The card is complete, and the revision is pinned or the card says why not.

    A card (`TaskCard`) states license, version, splits and sizes of a task; the revision is a commit on the Hub.
    """
    card = make.plugin.card
    assert card.license.strip(), "the card names no license"
    assert card.why.strip(), "the card's `why` is empty"
    assert card.version >= 1, f"expected a version from 1, got {card.version}"
    fewest, most = card.options
    assert 2 <= fewest <= most <= len(string.ascii_lowercase), f"options: expected 2 to 26, got {card.options}"
    assert {"test", "train"} & set(card.splits), f"expected a test or a train split, got {sorted(card.splits)}"


def check_style(make: MakeTask) -> None:
    """The prompt style shows the options if and only if the format is multiple choice."""
    style, lettered = make.plugin.style, make.plugin.format is Format.CHOICE
    assert ("{options}" in style.context) == lettered, f"{{options}} in style.context: expected {lettered}"


def check_origins(make: MakeTask) -> None:
    """`origins` lists the data sets of every split, each as a card and one of its splits.

    A card (`DataCard`) describes one data set: its origin, license and splits.
    """
    for split in make.plugin.card.splits:
        for card, origin in make().origins(split):
            assert isinstance(card, DataCard), f"{split}: expected (DataCard, split), got {card!r}"
            assert origin in card.splits, f"{split}: the card of {card.hub} has no split {origin!r}"


def check_provenance(make: MakeTask) -> None:
    """`provenance` returns texts by name for every split.

    These texts are further facts on the origin of the questions, e.g. a file's digest.
    """
    for split in make.plugin.card.splits:
        for name, value in make().provenance(split).items():
            assert isinstance(name, str), f"{split}: expected text, got {name!r}"
            assert isinstance(value, str), f"{split}: {name}: expected text, got {value!r}"


def check_sizes(make: MakeTask) -> None:
    """Every split has the number of questions that the card states.

    The card (`TaskCard`) of a task lists the size of each split.
    """
    for split, expected in make.plugin.card.sizes.items():
        n = len(_questions(make, split))
        assert n == expected, f"{split}: expected {expected} questions, got {n}"


def check_ids(make: MakeTask) -> None:
    """Ids are unique over all splits, and a second read gives the same questions."""
    counts = Counter(question.id for question in _every_question(make))
    twice = [name for name, count in counts.items() if count > 1]
    assert not twice, f"{len(twice)} ids occur more than once, e.g. {twice[0]!r}"
    for split in make.plugin.card.splits:
        again = tuple(make().questions(split))
        assert again == _questions(make, split), f"{split}: a second reading gave other questions"


def check_gold(make: MakeTask) -> None:
    """The right option is among the options, and their number is within the card's range.

    The card (`TaskCard`) states the smallest and largest number of options of a task's questions.
    """
    fewest, most = make.plugin.card.options
    for question in _every_question(make):
        n = len(question.choices)
        assert fewest <= n <= most, f"{question.id}: expected {fewest} to {most} options, got {n}"
        assert 0 <= question.gold < n, f"{question.id}: expected a gold index from 0 to {n - 1}, got {question.gold}"


def check_letters(make: MakeTask) -> None:
    """Every letter that is shown often is the right one in some question of the evaluated split.

    If a letter never is, the right options may be missing or shifted by one. Often means in at least five times as many
    questions as the largest number of options: with random labels the letter would be right five times or more. The
    evaluated split is `test`, or `train` for a task without `test`.
    """
    if make.plugin.format is not Format.CHOICE:
        return
    questions = _questions(make, _evaluated_split(make))
    shown = Counter(k for question in questions for k in range(len(question.choices)))
    often = {k for k, n in shown.items() if n >= 5 * make.plugin.card.options[1]}
    never = [string.ascii_lowercase[k] for k in sorted(often - {question.gold for question in questions})]
    assert not never, f"never right: {never}; hidden labels, or a shifted index?"


def check_prompts(make: MakeTask) -> str:
    """Prompts show the whole question after exemplars of its subject, and end with the style's target prompt."""
    protocol, task = Protocol(), make()
    pools, questions = task.pools(), _questions(make, _evaluated_split(make))
    numbers = indices_in_subject(questions)
    n_shown: dict[str, int] = {}
    for question in {question.subject: question for question in reversed(questions)}.values():
        shown = exemplars(task, question, numbers[question.id], pools.get(question.subject, ()), protocol)
        if pools and len(shown) < protocol.shots:
            n_shown[question.subject] = len(shown)
        style = task.style_of(question)
        prompt = templates.build(question, shown, style, task.format, protocol)
        message = prompt.messages[-1].content
        assert message.endswith(style.target_prompt), (
            f"{question.id}: the prompt does not end with {style.target_prompt!r}"
        )
        for part in (question.text, *(question.choices if task.format is Format.CHOICE else ())):
            assert part in message, f"{question.id}: the prompt does not show {part[:40]!r}"
    # with fewer exemplars than the protocol shows, a run goes on and says so
    if not n_shown:
        return ""
    subject, count = next(iter(n_shown.items()))
    subjects = f"{len(n_shown)} subject{'s have' if len(n_shown) > 1 else ' has'}"
    shots = f"{protocol.shots} exemplars"
    return f"{subjects} fewer than {shots}, e.g. {subject!r} {count}; a run goes on with them and says so"


def _evaluated_split(make: MakeTask) -> Split:
    return "test" if "test" in make.plugin.card.splits else "train"


TASK_CHECKS: tuple[Callable[[Any], str | None], ...] = (check_docstring, check_card, check_style, check_origins)
TASK_ROW_CHECKS: tuple[Callable[[Any], str | None], ...] = (
    check_sizes,
    check_ids,
    check_gold,
    check_letters,
    check_prompts,
    check_provenance,
)
