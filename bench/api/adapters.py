"""LoRA adapters: `TrainAdapter` trains one for a method; `AdapterModel` is the model that the loss function calls."""

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
    """Reference to a trained LoRA adapter, a folder in peft's format."""

    folder: Path
    fingerprint: str
    """Digest of the adapter's weights and configuration. It is part of the store's key of each signal that is computed
    with the adapter."""


class AdapterModel(Protocol):
    """The model with an adapter in training, as passed to a loss function.

    A loss function is called as `loss(model, examples, settings)` with some of the examples of a batch. It returns the
    sum of their losses, a scalar tensor with gradient. The sum must not depend on how examples are batched.
    """

    @property
    def verdict_ids(self) -> tuple[int, int]:
        """Ids of the two tokens (no, yes) with which the model can reply to the self-check query."""

    def logits(self, sequences: Ragged, last: IntArray, *, adapted: bool = True) -> torch.Tensor:
        """Return next-token logits at the last positions of each sequence; only these positions pass the output head.

        A prefix that sequences of one call share is computed once, unless the model reads each sequence alone.

        Args:
            sequences: token ids.
            last: `(n,)` number of positions at the end of each sequence.
            adapted: False for the frozen model: the same weights without adapter, dropout and gradient.

        Returns:
            `(sum of last, v)` float32, sequence after sequence.
        """


class Validation(NamedTuple):
    """Labelled validation answers, and the function that computes confidences for them.

    An adapter's training stops early on them.
    """

    confidence: str
    """Function, named as `module:name` and without side effects, that returns confidences `(n,)` in [0, 1]. It is
    called as `confidence(model, examples, settings)`."""
    examples: Mapping[str, Ragged | npt.NDArray[Any]]
    """Column name -> column with one row for each validation answer, as in `TrainAdapter`. The column `correct` `(n,)`
    bool has the labels."""


class TrainAdapter(Protocol):
    """Function that trains a LoRA adapter on the model of the run, in a separate process."""

    def __call__(
        self,
        *,
        loss: str,
        examples: Mapping[str, Ragged | npt.NDArray[Any]],
        settings: Mapping[str, object],
        validation: Validation | None = None,
    ) -> AdapterRef:
        """Train an adapter, save it, and return a reference to its folder.

        Args:
            loss: function named as `module:name`, without side effects, e.g. `methods._shared.lora:ct_loss`; see
                `AdapterModel`.
            examples: column name -> column with one row for each example. The first column is a `Ragged` of token ids;
                a prefix that examples share in it is computed once.
            settings: settings of LoRA, optimiser and schedule, named as the fields of `bench.training.job.Recipe`, and
                further settings that the loss function reads.
            validation: answers on which the training step with the smallest loss is chosen, as `EarlyStopping` does.
                With None, the weights of the last step are kept.

        Raises:
            UserError: training failed; the message has the end of its log.
            ContractError: `settings` lack a field of the recipe that has no default.
        """
