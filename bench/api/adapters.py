"""LoRA adapters: `TrainAdapter`, which trains one for a method, and the `AdapterModel` that its loss function gets."""

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
    """Digest of the adapter's weights and configuration; part of the store key of every signal computed with it."""


class AdapterModel(Protocol):
    """The model with an adapter in training, as passed to a loss function.

    A loss function is called as `loss(model, examples, settings)` with some of the examples of a batch and returns the
    sum of their losses, a scalar tensor with gradient. The sum must not depend on how examples are batched.
    """

    @property
    def verdict_ids(self) -> tuple[int, int]:
        """Token ids of (no, yes) after the self-check query."""

    def logits(self, sequences: Ragged, last: IntArray, *, adapted: bool = True) -> torch.Tensor:
        """Return next-token logits at the last positions of each sequence; the output head runs on those alone.

        A prefix that sequences of one call share is computed once.

        Args:
            sequences: token ids.
            last: `(n,)` number of positions at the end of each sequence.
            adapted: False for the frozen model: the same weights without adapter, dropout and gradient.

        Returns:
            `(sum of last, v)` float32, sequence after sequence.
        """


class Validation(NamedTuple):
    """Validation answers, and the function for their confidences, by which an adapter's training is stopped."""

    confidence: str
    """A pure function as `module:name`, called as `confidence(model, examples, settings)`; returns `(n,)` in [0, 1]."""
    examples: Mapping[str, Ragged | npt.NDArray[Any]]
    """Name -> column as in `TrainAdapter`; among them `correct` `(n,)` bool."""


class TrainAdapter(Protocol):
    """Trains a LoRA adapter on the model of the run, in a separate process."""

    def __call__(
        self,
        *,
        loss: str,
        examples: Mapping[str, Ragged | npt.NDArray[Any]],
        settings: Mapping[str, object],
        validation: Validation | None = None,
    ) -> AdapterRef:
        """Train an adapter and save it.

        Args:
            loss: a pure function as `module:name`, e.g. `methods._shared.lora:ct_loss`; see `AdapterModel`.
            examples: name -> column with one row for each example; the first is a `Ragged` of token ids, and examples
                with a common prefix in it are computed together.
            settings: LoRA, optimiser and schedule as fields of `bench.training.job.Recipe`, and settings of the loss.
            validation: answers by which the kept step is chosen, as `EarlyStopping` does; None keeps the last step.

        Raises:
            UserError: training failed; the message has the end of its log.
        """
