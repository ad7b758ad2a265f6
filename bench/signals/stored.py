"""A split whose answers and signals lie in the store, as the definitions of signals see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import AdapterRef, Format, Question, UserError
from bench.prompts.shards import PromptTokeniser
from bench.prompts.tails import Ids
from bench.signals.files import load_signal
from bench.signals.reading import Reading

if TYPE_CHECKING:
    from bench.backbone.model import Backbone
    from bench.prompts.asking import Asking


@dataclass(frozen=True, eq=False)
class StoredSplit:
    """Stored signals of a split, with all that makes columns of them."""

    reading: Reading
    backbone: Backbone
    prompts: PromptTokeniser
    asking: Asking
    seed: int
    """Seed of samples."""

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the signal of this name as the store has them, the shards joined."""
        name = name_of(name, self.reading.adapter)
        parts = [load_signal(entries, name) for entries in self.reading.bundles]
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0] if key != "offsets"}
        if "offsets" in parts[0]:
            sizes = np.concatenate([np.diff(part["offsets"]) for part in parts])
            joined["offsets"] = np.concatenate([[0], np.cumsum(sizes)])
        return joined

    @cached_property
    def questions(self) -> list[Question]:
        """The questions in the order of the shards."""
        return list(self.reading.in_shards())

    @cached_property
    def options(self) -> list[list[Ids]]:
        """Ids of each question's options as the model would have to say them: letters, or texts."""
        return self.prompts.options(self.reading.task, self.questions)

    @cached_property
    def unlabelled(self) -> list[list[int]]:
        """Numbers of each question's options in an order that does not tell the right one: see `Of.OPTIONS`.

        Raises:
            UserError: a question has one option alone.
        """
        for question in self.questions:
            if len(question.choices) == 1:
                raise UserError(
                    f"it reads the options without labels, and question {question.id!r} of {self.reading.where} has the"
                    " right one alone"
                )
        if self.reading.task.format is Format.CHOICE:
            return [list(range(len(question.choices))) for question in self.questions]
        return [sorted(range(len(q.choices)), key=q.choices.__getitem__) for q in self.questions]


def name_of(name: str, adapter: AdapterRef | None = None) -> str:
    """A signal's name in keys, with the adapter through which it is read."""
    return name if adapter is None else f"{name} adapter {adapter.fingerprint}"
