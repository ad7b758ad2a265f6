"""Names of signals in the keys of one shard, with that on which they depend besides its prompts and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.api import Question
from bench.backbone.measure import Growth
from bench.prompts.tails import Ids
from bench.store.folders import digest_arrays, key_of


@dataclass(frozen=True)
class Naming:
    """Digests of all that no prompt tells of a shard's questions."""

    ids: str = ""
    """Digest of their ids, by which samples are drawn; empty where the samples came with the questions."""
    gold: str = ""
    """Digest of the token ids of their right answers."""
    wrong: str = ""
    """Digest of those of their wrong answers."""

    @classmethod
    def of(cls, questions: Sequence[Question], options: Sequence[Sequence[Ids]], *, draws: bool) -> Naming:
        """Digests of some questions; `options[i]` are those of question i, as token ids."""
        pairs = list(zip(questions, options, strict=True))
        gold = [own[question.gold] for question, own in pairs if own]
        wrong = [[ids for k, ids in enumerate(own) if k != question.gold] for question, own in pairs]
        counts = np.asarray([len(own) for own in wrong], dtype=np.int64)
        wrong_digest = digest_arrays([counts, *(ids for own in wrong for ids in own)])
        ids = key_of({"ids": [question.id for question in questions]}) if draws else ""
        return cls(ids, digest_arrays(gold), wrong_digest)

    def named(self, name: str, growth: Growth) -> str:
        """A signal's name, with what is read for it."""
        drawn = growth.samples and self.ids
        told = (("gold", self.gold, growth.gold), ("wrong", self.wrong, growth.wrong), ("drawn by", self.ids, drawn))
        return " ".join([name, *(f"{what} {digest}" for what, digest, wanted in told if wanted)])
