"""The rules for tasks, one small function each."""

from __future__ import annotations

import functools
import string
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from bench import prompting
from bench.api import Format, Question, Split
from bench.protocol import Protocol
from bench.testing.check import MakeTask, check_docstring


@functools.lru_cache(maxsize=64)
def _questions(make: MakeTask, split: Split) -> tuple[Question, ...]:
    return tuple(make().questions(split))


def _every_question(make: MakeTask) -> Iterator[Question]:
    for split in make.plugin.card.splits:
        yield from _questions(make, split)


def check_card(make: MakeTask) -> None:
    """The card is complete, and the revision is pinned or says why not."""
    card = make.plugin.card
    assert card.license.strip(), "the card names no license"
    assert card.why.strip(), "the card's `why` is empty"
    assert card.version >= 1, f"expected a version from 1, got {card.version}"
    fewest, most = card.options
    assert 2 <= fewest <= most <= len(string.ascii_lowercase), f"options: expected 2 to 26, got {card.options}"  # noqa: PLR2004
    assert "test" in card.splits, f"expected a test split, got {sorted(card.splits)}"


def check_style(make: MakeTask) -> None:
    """The style shows the question, and the options where they are lettered."""
    style, lettered = make.plugin.style, make.plugin.format is Format.CHOICE
    assert "{text}" in style.context, "style.context has no {text}"
    assert ("{options}" in style.context) == lettered, f"{{options}} in style.context: expected {lettered}"


def check_sizes(make: MakeTask) -> None:
    """Every split has as many questions as the card says."""
    for split, expected in make.plugin.card.sizes.items():
        n = len(_questions(make, split))
        assert n == expected, f"{split}: expected {expected} questions, got {n}"


def check_ids(make: MakeTask) -> None:
    """Ids are unique over all splits, and the same when read again."""
    counts = Counter(question.id for question in _every_question(make))
    twice = [name for name, count in counts.items() if count > 1]
    assert not twice, f"{len(twice)} ids occur more than once, e.g. {twice[0]!r}"
    for split in make.plugin.card.splits:
        again = tuple(make().questions(split))
        assert again == _questions(make, split), f"{split}: a second reading gave other questions"


def check_gold(make: MakeTask) -> None:
    """The right option is among the options, and their number is within the card's range."""
    fewest, most = make.plugin.card.options
    for question in _every_question(make):
        n = len(question.choices)
        assert fewest <= n <= most, f"{question.id}: expected {fewest} to {most} options, got {n}"
        assert 0 <= question.gold < n, f"{question.id}: expected a gold index from 0 to {n - 1}, got {question.gold}"


def check_letters(make: MakeTask) -> None:
    """Every letter is the right one somewhere in the test split."""
    if make.plugin.format is not Format.CHOICE:
        return
    letters = string.ascii_lowercase[: make.plugin.card.options[1]]
    gold = {letters[question.gold] for question in _questions(make, "test")}
    assert gold == set(letters), f"never right: {sorted(set(letters) - gold)}; hidden labels, or a shifted index?"


def check_prompts(make: MakeTask) -> None:
    """Test prompts have the protocol's exemplars from their own subject, and end with the style's target prompt."""
    protocol, task = Protocol(), make.plugin
    exemplars: dict[str, list[Question]] = {}
    for question in _questions(make, "dev") if "dev" in task.card.splits else ():
        exemplars.setdefault(question.subject, []).append(question)
    first = {question.subject: question for question in reversed(_questions(make, "test"))}
    for subject, question in first.items():
        shots = exemplars.get(subject, [])[: protocol.shots]
        expected = protocol.shots if exemplars else 0
        assert len(shots) == expected, f"{subject}: expected {expected} exemplars, got {len(shots)}"
        prompt = prompting.build(question, shots, task.style, task.format, protocol)
        end = task.style.target_prompt
        assert prompt.messages[-1].content.endswith(end), f"{question.id}: the prompt does not end with {end!r}"


TASK_CHECKS: tuple[Callable[[Any], None], ...] = (check_docstring, check_card, check_style)
TASK_ROW_CHECKS: tuple[Callable[[Any], None], ...] = (
    check_sizes,
    check_ids,
    check_gold,
    check_letters,
    check_prompts,
)
