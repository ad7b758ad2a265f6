"""Replacement for adapter training in the checks: examples are checked, and the loss is computed on a toy model."""

from __future__ import annotations

import atexit
import functools
import importlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import AdapterRef, Context, IntArray, Ragged, Validation
from bench.api.methods import validation_signals
from bench.signals.synthetic import MODEL, planted
from bench.testing.check import MakeMethod

if TYPE_CHECKING:
    import torch

_WIDTH = 8
"""Hidden size of the toy model."""
VALIDATION = 40
"""Number of validation answers that `fit` gets in the checks."""
SEED = 2**62 + 7
"""Seed of 63 bits, as runs have. Methods that pass such a seed to scikit-learn or `numpy.random.seed` fail, as both
take only 32 bits."""


def context(make: MakeMethod, *, label: bool | None = None) -> Context:
    """Return the context that `fit` gets in the checks.

    With `label`, all validation answers have this label.
    """
    validation = None
    if make.plugin.fit_on == "train":
        signals = validation_signals(make.reads)
        labels = None if label is None else np.full(VALIDATION, label)
        validation = planted(signals, VALIDATION, seed=3, fmt=make.format, correct=labels)
    return Context(seed=SEED, format=make.format, train_adapter=train_on_toy, validation=validation)


class _ToyModel:
    """A toy model with the interface of `AdapterModel`. Its hidden states are running means of token embeddings.

    Its adapter is one square matrix, which is trained.
    """

    verdict_ids = (0, 1)

    def __init__(self) -> None:
        import torch

        generator = torch.Generator().manual_seed(0)
        self.embedding = torch.randn(MODEL.vocab_size, _WIDTH, generator=generator)
        self.head = torch.randn(_WIDTH, MODEL.vocab_size, generator=generator)
        self.adapter = torch.zeros(_WIDTH, _WIDTH, requires_grad=True)

    def logits(self, sequences: Ragged, last: IntArray, *, adapted: bool = True) -> torch.Tensor:
        """Return next-token logits at the last positions of each sequence, with or without the adapter.

        See `AdapterModel.logits`.
        """
        import torch

        rows = []
        for i, k in enumerate(last):
            embedded = self.embedding[torch.tensor(np.array(sequences[i], dtype=np.int64))]
            rows.append((embedded.cumsum(dim=0) / torch.arange(1, len(embedded) + 1)[:, None])[-int(k) :])
        states = torch.cat(rows)
        return (states + states @ self.adapter if adapted else states) @ self.head


def train_on_toy(
    *,
    loss: str,
    examples: Mapping[str, Ragged | npt.NDArray[Any]],
    settings: Mapping[str, object],
    validation: Validation | None = None,
) -> AdapterRef:
    """Check a method's loss, gradient and validation confidences on a toy model; return a reference to an empty folder.

    The arguments are those of `TrainAdapter`, and the folder stands for a trained adapter.

    Raises:
        AssertionError: the loss is no finite scalar, the gradient is 0 or not finite, or confidences are not `(n,)`
            within [0, 1].
    """
    import torch

    model = _ToyModel()
    value = _load_function(loss)(model, examples, settings)
    assert value.shape == (), f"{loss}: expected a scalar, got shape {tuple(value.shape)}"
    assert torch.isfinite(value), f"{loss}: expected a finite value, got {value.item()}"
    (gradient,) = torch.autograd.grad(value, [model.adapter])
    assert torch.isfinite(gradient).all(), f"{loss}: the gradient is not finite"
    assert gradient.abs().max() > 0, f"{loss}: the adapter has no part in it"
    if validation is not None:
        p = _load_function(validation.confidence)(model, validation.examples, settings).detach()
        expected = (len(validation.examples["correct"]),)
        assert p.shape == expected, f"{validation.confidence}: expected shape {expected}, got {tuple(p.shape)}"
        assert ((p >= 0) & (p <= 1)).all(), f"{validation.confidence}: expected values within [0, 1]"
    return AdapterRef(_empty_folder(), "0" * 64)


def _load_function(function: str) -> Callable[..., torch.Tensor]:
    """Import a function, given as `module:name`."""
    module, _, name = function.partition(":")
    loaded: Callable[..., torch.Tensor] = getattr(importlib.import_module(module), name)
    return loaded


@functools.cache
def _empty_folder() -> Path:
    """Return an empty folder, shared by all checks of this process and removed at its exit."""
    folder = Path(tempfile.mkdtemp(prefix="confbench-adapter-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
