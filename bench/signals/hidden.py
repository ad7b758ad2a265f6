"""Hidden states along prompt and answer, and along other answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import At, Format, Hidden, Of, Ragged, TokenIds
from bench.api.batch import Column
from bench.backbone.measure import Growth, Taken, Upto
from bench.signals.definition import PassDefinition, definition

if TYPE_CHECKING:
    import torch

    from bench.backbone.items import Pass
    from bench.signals.planted import World
    from bench.signals.stored import StoredSplit

_GROWTH = {
    At.PROMPT_END: Growth(Upto.PROMPT_END),
    At.ANSWER_PREDICTING: Growth(Upto.ANSWER_PREDICTING),
    At.ANSWER_END: Growth(Upto.ANSWER_END),
    At.GOLD_PREDICTING: Growth(gold=True),
    At.WRONG_PREDICTING: Growth(wrong=True),
}
_PREDICTED = {At.ANSWER_PREDICTING: Of.ANSWER, At.GOLD_PREDICTING: Of.GOLD, At.WRONG_PREDICTING: Of.WRONG}
"""Whose tokens the states predict, one for each."""
OPTIONS = frozenset({At.GOLD_PREDICTING, At.WRONG_PREDICTING})


class HiddenDefinition(PassDefinition[Hidden]):
    """Stored in the model's dtype: `values` `(n, d)`, or `(sum of t_i, d)` with `offsets` where it predicts tokens."""

    declares = Hidden

    @property
    def growth(self) -> Growth:
        """Along the answer, or other answers of an open question."""
        return _GROWTH[self.signal.at]

    @property
    def depths(self) -> frozenset[float]:
        """Fraction of the depth at which the state is read."""
        return frozenset({self.signal.depth})

    @property
    def ragged(self) -> bool:
        """Whether a question has a row for each token; only states that predict tokens do."""
        return self.signal.at in _PREDICTED

    def stored_as(self, fmt: Format, max_new_tokens: int) -> PassDefinition[Hidden]:
        """A letter, right or wrong, is predicted at the prompt's end."""
        del max_new_tokens
        lettered = self.signal.at in OPTIONS and fmt is Format.CHOICE
        return HiddenDefinition(replace(self.signal, at=At.PROMPT_END)) if lettered else self

    def take(self, done: Pass) -> list[list[Taken]]:
        """`values`: `(d,)`, or `(t_i, d)`."""
        then = _all if self.ragged else _first
        nodes = (self._nodes(done, i) for i in range(len(done.items)))
        return done.each({"values": done.awaited(self.signal.depth, chosen, then)} for chosen in nodes)

    def _nodes(self, done: Pass, i: int) -> list[int]:
        if self.signal.at is At.PROMPT_END:
            return [i]
        if self.signal.at is At.ANSWER_END:
            return done.path(i)[-1:]
        if self.signal.at is At.ANSWER_PREDICTING:
            return done.predicting(i)
        item = done.items[i][0]
        return done.continuation(i, [item.gold] if self.signal.at is At.GOLD_PREDICTING else item.wrong)

    def column(self, split: StoredSplit) -> Column:
        """`(n, d)` float32, or a `Ragged` with a row for each token that is predicted."""
        if self.signal.at not in OPTIONS:
            return super().column(split)
        ids: Any = definition(TokenIds(_PREDICTED[self.signal.at])).column(split)
        source = self.stored_as(split.reading.task.format, split.asking.max_new_tokens)
        arrays = split.arrays(source.name(split.asking, split.seed))
        if source is self:
            return Ragged(arrays["values"], arrays["offsets"], ids.owner)
        return Ragged(np.repeat(arrays["values"], ids.lengths, axis=0), ids.offsets, ids.owner)

    def planted(self, world: World) -> Column:
        """States that lie further along one direction where the answer is right, and that the output head can read."""
        last = self.signal.depth == 1.0
        if self.ragged:
            text = world.texts[_PREDICTED[self.signal.at]]
            sure = np.repeat(world.sure, text.ids.lengths)
            states = text.states if last else world.elsewhere(repr(self.signal), sure)
            return Ragged(states, text.ids.offsets, text.ids.owner)
        if self.signal.at is At.PROMPT_END and last:
            return world.first
        return world.elsewhere(repr(self.signal), world.sure)


def _all(states: torch.Tensor) -> torch.Tensor:
    return states


def _first(states: torch.Tensor) -> torch.Tensor:
    return states[0]


DEFINITION = HiddenDefinition
