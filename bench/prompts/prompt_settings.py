"""Prompt settings that don't depend on the question: option letters, self-check turn, maximum lengths in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bench.prompts.front_coding import Ids


@dataclass(frozen=True)
class PromptSettings:
    """Settings that are the same for all questions of a run on one model."""

    max_new_tokens: int
    letter_ids: Ids
    """Token id of each option letter at the beginning of an answer, for the largest number of options of a question."""
    suffix: Ids
    """Token ids of the self-check turn that follows the answer."""
    verdict_ids: Ids
    """Token ids of the two verdicts (no, yes) in reply to the self-check."""
    budget: int
    """Maximum number of tokens of a pack, i.e. of one forward pass over prompts."""
    others: Mapping[str, Ids] = field(default_factory=dict)
    """Wording of a user turn after the answer -> its token ids, for turns other than the self-check."""
    words: Mapping[tuple[str, ...], Ids] = field(default_factory=dict)
    """Tuple of words -> token ids, one id for each word at the beginning of a reply."""
    closing: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Token ids between a reasoning trace that is cut off and an answer that is forced there."""

    @property
    def turns(self) -> Mapping[str, Ids]:
        """Wording of a user turn after the answer -> its token ids. The self-check has the empty wording."""
        return {"": self.suffix, **self.others}
