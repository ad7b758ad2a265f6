"""Answers that a head trusts: those at the threshold of its guard or above."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.run.heads.card import Card, GuardCard


def name_of(guard: GuardCard) -> str:
    """The guard by which a line of `bench score` says trusted or not.

    >>> name_of(GuardCard(threshold=0.7, risk=0.05, level=0.9, bound=0.048, task="bees", answers=600, kept=300,
    ...                   mistakes=8, share=0.5, split_seed=0))
    'bees: risk 0.05, level 0.9, threshold 0.7'
    """
    return f"{guard.task}: risk {guard.risk:g}, level {guard.level:g}, threshold {guard.threshold:.6g}"


def trusted(guard: GuardCard, confidence: float) -> bool:
    """Whether an answer with this confidence is trusted; one without a confidence (NaN) never is."""
    return bool(confidence >= guard.threshold)


def terms_of(guard: GuardCard) -> str:
    """The guard in words."""
    return (
        f"answers with a confidence of {guard.threshold:.6g} or more (at most {100 * guard.risk:.6g} % of them wrong,"
        f" with a chance of {100 * guard.level:.6g} %)"
    )


def notes_of(card: Card, confidence: np.ndarray, given: int, strangers: int) -> Iterator[str]:
    """Sentences on what was trusted, and where the guard says nothing.

    Args:
        card: of the head.
        confidence: `(n,)`, NaN where there is none.
        given: answers that were not the model's own.
        strangers: questions of subjects that the head has no exemplars of.
    """
    guard = card.guard
    if guard is None:
        return
    kept = int(np.count_nonzero(confidence >= guard.threshold))
    yield f"trusted are {terms_of(guard)}, calibrated on {guard.answers:,} answers of {guard.task}: {kept:,}"
    beyond = [f"{given:,} answers that were given to it"] * bool(given)
    beyond += [f"{strangers:,} questions of other subjects"] * bool(strangers)
    if beyond:
        yield (
            f"the guard is for the model's own answers to questions like those of {guard.task}; of"
            f" {' and '.join(beyond)} it guarantees nothing"
        )
