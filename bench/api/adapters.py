"""LoRA adapters: what a method asks to have trained, and what a loss function sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy.typing as npt

from bench.api.batch import IntArray, Ragged

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class AdapterRef:
    """A trained adapter in peft's format."""

    folder: Path
    fingerprint: str
    """Digest of its weights and configuration; part of the key of everything read through it."""


class AdapterModel(Protocol):
    """The model with an adapter in training, as a loss function sees it.

    A loss function is called as `loss(model, examples, settings)` with some of the examples of a batch and returns the
    sum of their losses, a scalar tensor with gradient. It must not depend on which examples come together.
    """

    @property
    def verdict_ids(self) -> tuple[int, int]:
        """Token ids of (no, yes) after the self-check query."""

    def logits(self, sequences: Ragged, last: IntArray, *, adapted: bool = True) -> torch.Tensor:
        """Next-token logits at the last positions of each sequence; the output head runs on these alone.

        Sequences of one call that begin alike are computed together; what they share is read once.

        Args:
            sequences: token ids.
            last: `(n,)` how many positions are read at the end of each.
            adapted: False for the frozen model: the same weights without adapter, dropout and gradient.

        Returns:
            `(sum of last, v)` float32, sequence after sequence.
        """


class Validation(NamedTuple):
    """Validation answers and reader by which an adapter's training is stopped."""

    confidence: str
    """A pure function as `module:name`, called as `confidence(model, examples, settings)`; returns `(n,)` in [0, 1]."""
    examples: Mapping[str, Ragged | npt.NDArray[Any]]
    """Columns as in training; among them `correct` `(n,)` bool."""


class TrainAdapter(Protocol):
    """Trains a LoRA adapter on the model of the run, in a process of its own."""

    def __call__(
        self,
        *,
        loss: str,
        examples: Mapping[str, Ragged | npt.NDArray[Any]],
        settings: Mapping[str, object],
        validation: Validation | None = None,
    ) -> AdapterRef:
        """Train and save.

        Args:
            loss: a pure function as `module:name`, e.g. `methods._shared.lora:ct_loss`; see `AdapterModel`.
            examples: name -> column with one row for each example; the first is a `Ragged` of token ids, and examples
                that begin alike in it are computed together.
            settings: LoRA, optimiser and schedule as `bench.training.job.Recipe` names them, and what the loss reads.
            validation: examples to choose the step by, as `EarlyStopping` does; None keeps the last step.

        Raises:
            UserError: training failed; the message holds the end of its log.
        """
