"""Log-probability of each answer token, and entropy of the distribution that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import Of, Ragged, TokenScores, UserError
from bench.backbone.measure import Arrays, Growth, Taken, Upto
from bench.signals.definition import PassDefinition

if TYPE_CHECKING:
    import torch

    from bench.backbone.items import Pass
    from bench.signals.planted import World
    from bench.signals.stored import StoredSplit

AT_ONCE = 256
"""Positions whose logits are held at once: 150 MB in float32 for 152,064 tokens."""


class TokenScoresDefinition(PassDefinition[TokenScores]):
    """Definition of scores, stored as the fields of `TokenScores.dtype`, `(sum of t_i, ...)` each, with `offsets`."""

    declares = TokenScores

    @property
    def growth(self) -> Growth:
        """Growth up to the state that predicts the last answer token: no token more than the answer's own."""
        return Growth(Upto.ANSWER_PREDICTING)

    @property
    def ragged(self) -> bool:
        """Answers differ in length."""
        return True

    @property
    def unanswered(self) -> Arrays:
        """No rows."""
        import torch

        return _scores(torch.zeros(0, self.signal.top + 1), torch.zeros(0, dtype=torch.long), self.signal.top)

    def take(self, done: Pass) -> list[list[Taken]]:
        """Fields of `TokenScores.dtype`, `(t_i, ...)` each, from the output head's logits in float32.

        Raises:
            UserError: more tokens are asked for than the vocabulary has.
        """
        import torch

        sizes = [len(answer) for answer in done.answers]
        if not sum(sizes):
            return done.each(self.unanswered for _ in sizes)
        states, ids = done.states(1.0, done.all_predicting()), done.ids_of(np.concatenate(done.answers))
        parts = []
        for first in range(0, len(ids), AT_ONCE):
            logits = done.backbone.head.logits(states[first : first + AT_ONCE])
            if self.signal.top > logits.shape[-1]:
                raise UserError(f"{self.signal!r}: expected at most {logits.shape[-1]} tokens, the whole vocabulary")
            parts.append(_scores(logits, ids[first : first + AT_ONCE], self.signal.top))
        columns = {name: torch.split(torch.cat([part[name] for part in parts]), sizes) for name in parts[0]}
        return done.each({name: column[i] for name, column in columns.items()} for i in range(len(sizes)))

    def column(self, split: StoredSplit) -> Ragged:
        """A `Ragged` of `TokenScores.dtype`, `(t_i,)` for each question."""
        arrays = split.arrays(self.name(split.asking, split.seed))
        return Ragged(self._records(arrays), arrays["offsets"])

    def planted(self, world: World) -> Ragged:
        """Scores by the output head of the planted states: the tokens of sure answers are likelier."""
        import torch

        answers = world.texts[Of.ANSWER]
        logits = torch.from_numpy(answers.states @ world.head.T)
        scores = _scores(logits, torch.as_tensor(answers.ids.values), self.signal.top)
        return Ragged(self._records({name: column.numpy() for name, column in scores.items()}), answers.ids.offsets)

    def _records(self, arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.void]:
        records = np.empty(len(arrays["log_probability"]), dtype=self.signal.dtype)
        for name in self.signal.dtype.names or ():
            records[name] = arrays[name]
        return records


def _scores(logits: torch.Tensor, ids: torch.Tensor, top: int) -> Arrays:
    """Fields of `TokenScores.dtype`, on the logits' device.

    Args:
        logits: `(m, v)` float32.
        ids: `(m,)` the token that came, on the same device.
        top: how many of the most likely tokens are kept.
    """
    import torch

    log_probabilities = logits.log_softmax(dim=-1)
    scores = {
        "log_probability": log_probabilities.gather(-1, ids[:, None])[:, 0],
        "entropy": torch.special.entr(log_probabilities.exp()).sum(dim=-1),  # 0 where a token is impossible
    }
    if top:
        likeliest = log_probabilities.topk(top, dim=-1)
        scores |= {"top_ids": likeliest.indices, "top_log_probabilities": likeliest.values}
    return scores


DEFINITION = TokenScoresDefinition
