"""Prompt settings that don't depend on the question: option letters, self-check turn, maximum answer length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.prompts.front_coding import Ids


@dataclass(frozen=True)
class PromptSettings:
    """Settings that are the same for all questions of a run on one model."""

    max_new_tokens: int
    letter_ids: Ids
    """Ids of the option letters at the beginning of an answer, as many as the largest number of options."""
    suffix: Ids
    """Ids of the self-check turn after the answer."""
    verdict_ids: Ids
    """Ids of the verdicts (no, yes)."""
    budget: int
    """Maximum tokens of a pack."""
    others: Mapping[str, Ids] = field(default_factory=dict)
    """Wording -> ids of a user turn after the answer, other than the self-check."""
    words: Mapping[tuple[str, ...], Ids] = field(default_factory=dict)
    """Words -> the token id of each word at the beginning of a reply."""

    @property
    def turns(self) -> Mapping[str, Ids]:
        """Wording -> ids of a user turn after the answer; the self-check's wording is the empty one."""
        return {"": self.suffix, **self.others}
