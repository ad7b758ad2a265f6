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
    """Token ids of the option letters at the beginning of an answer, as many as the largest number of options."""
    suffix: Ids
    """Token ids of the self-check turn that follows the answer."""
    verdict_ids: Ids
    """Token ids of the two verdicts (no, yes) in reply to the self-check."""
    budget: int
    """Maximum number of tokens of a pack, i.e. of one forward pass over prompts."""
    others: Mapping[str, Ids] = field(default_factory=dict)
    """Token ids of each user turn after the answer other than the self-check, by the turn's wording."""
    words: Mapping[tuple[str, ...], Ids] = field(default_factory=dict)
    """Token ids of words at the beginning of a reply, one id for each word, by the tuple of words."""

    @property
    def turns(self) -> Mapping[str, Ids]:
        """Token ids of each user turn after the answer, by its wording; the self-check has the empty wording."""
        return {"": self.suffix, **self.others}
