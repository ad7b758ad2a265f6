"""Right and wrong answers of open questions as they stand in keys: signals are read along them, and no prompt tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.api import Question
from bench.backbone.measure import Growth
from bench.prompts.tails import Ids
from bench.store.folders import digest_arrays


@dataclass(frozen=True)
class OtherAnswers:
    """Digests of the ids of a shard's right answers, and of its wrong ones."""

    gold: str
    wrong: str

    @classmethod
    def of(cls, questions: Sequence[Question], options: Sequence[Sequence[Ids]]) -> OtherAnswers:
        """Digests of the options of some questions, `options[i]` being those of question i."""
        pairs = list(zip(questions, options, strict=True))
        gold = [own[question.gold] for question, own in pairs if own]
        wrong = [[ids for k, ids in enumerate(own) if k != question.gold] for question, own in pairs]
        counts = np.asarray([len(own) for own in wrong], dtype=np.int64)
        return cls(digest_arrays(gold), digest_arrays([counts, *(ids for own in wrong for ids in own)]))

    def told(self, name: str, growth: Growth) -> str:
        """A signal's name in keys, with the answers that are read for it."""
        read = {"gold": self.gold if growth.gold else "", "wrong": self.wrong if growth.wrong else ""}
        return " ".join([name, *(f"{what} {digest}" for what, digest in read.items() if digest)])
