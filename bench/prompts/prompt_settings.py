"""Parts of asking besides the question itself: letters, the self-check, how long an answer may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.prompts.front_coding import Ids


@dataclass(frozen=True)
class PromptSettings:
    """Settings that are the same for all questions of a run on one model."""

    max_new_tokens: int
    letter_ids: Ids
    """Ids of the option letters where an answer begins, as many as the largest number of options."""
    suffix: Ids
    """Ids of the self-check turn, after the answer."""
    verdict_ids: Ids
    """Ids of (no, yes)."""
    budget: int
    """Tokens in one pack."""
    others: Mapping[str, Ids] = field(default_factory=dict)
    """Wording -> ids of a user turn after the answer, where it is not the self-check."""
    words: Mapping[tuple[str, ...], Ids] = field(default_factory=dict)
    """Words -> the id of each where a reply begins."""

    @property
    def turns(self) -> Mapping[str, Ids]:
        """Wording -> ids of a user turn after the answer; the self-check's wording is the empty one."""
        return {"": self.suffix, **self.others}
