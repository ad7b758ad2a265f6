"""Training utilities of methods: batches, the loop over steps, seeding, and checks of inputs and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from bench.api import ConfidenceMethod, ContractError, EarlyStopping, FloatArray, Search, Times, UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

AROUND = Times(0.1, 10.0)
"""Search range of a constant under `--tune`: from a tenth of the preset's value to ten times it. CHOSEN: the same
decade to either side for every method and constant, so that no method's range was set where it does well
(docs/methods.md §5.4)."""
RATE_AND_DECAY: Mapping[str, Search] = {"learning_rate": AROUND, "weight_decay": AROUND}
"""Search space under `--tune` of a method with one training. CHOSEN: the two constants that every training by gradient
steps has. Layers, steps and batches are not searched, so that all configurations have the same size and cost
(docs/methods.md §5.4)."""

_MANY_WEIGHTS = 1 << 18  # from which a matrix product gains from a second thread


def run_steps(
    stopping: EarlyStopping,
    optimiser: torch.optim.Optimizer,
    batches: Iterator[Tensor],
    loss: Callable[[Tensor], Tensor],
    record: Callable[[], None],
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> None:
    """Run the steps of a training, until the last one or until early stopping ends it.

    Args:
        stopping: iterates over the steps.
        optimiser: optimiser of the trained parameters.
        batches: row numbers, `(batch,)` int64, one for each step.
        loss: mean loss of a batch, a scalar with gradient.
        record: function that evaluates on validation, called after the steps at which `stopping` is due.
        schedule: learning rate schedule; None: constant.
    """
    for _, rows in zip(stopping, batches, strict=False):
        optimiser.zero_grad()
        loss(rows).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if schedule is not None:
            schedule.step()
        if stopping.due:
            record()


def iterate_batches(n: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of row numbers `(min(batch_size, n),)` int64 endlessly, from consecutive permutations of n rows."""
    import torch

    batch_size = min(batch_size, n)
    rows = torch.empty(0, dtype=torch.int64)
    while True:
        while len(rows) < batch_size:
            rows = torch.cat([rows, torch.randperm(n, generator=generator)])
        yield rows[:batch_size]
        rows = rows[batch_size:]


@contextmanager
def seeded_torch(seed: int, device: str) -> Iterator[None]:
    """Context manager that seeds torch's global generators, for weights and dropout, and restores them on exit."""
    import torch

    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def limited_threads(network: torch.nn.Module) -> Iterator[None]:
    """Context manager in which torch uses one CPU thread if no layer has many weights.

    Small matrix products gain nothing from a second thread. On a busy machine, waiting for a second thread takes fifty
    times as long as the product.
    """
    import torch

    threads = torch.get_num_threads()
    if max(parameter.numel() for parameter in network.parameters()) < _MANY_WEIGHTS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check_fitted(method: ConfidenceMethod) -> None:
    """Raise an error if a method has not been fitted.

    Raises:
        ContractError: neither `fit` nor `load` was called.
    """
    if not method.fitted():
        raise ContractError(
            f"{method.name}: predict needs a fitted method, and fit was not called; call fit or load first"
        )


def check_fractions(who: str, **fractions: float) -> None:
    """Raise an error if settings such as dropout are not in [0, 1).

    Args:
        who: name of the method, for the error.
        fractions: name of the setting -> value.

    Raises:
        UserError: a value is outside [0, 1); the message names its setting.
    """
    for key, value in fractions.items():
        if not 0 <= value < 1:
            raise UserError(f"{who}.{key}: expected a number from 0 to below 1, got {value}")


def check_finite(who: str, states: FloatArray) -> None:
    """Raise an error if hidden states `(n, d)` are not finite.

    Raises:
        UserError: some are NaN or infinite; the message says how many.
    """
    bad = ~np.isfinite(states).all(axis=1)
    if bad.any():
        raise UserError(
            f"{who}: expected finite hidden states; {bad.sum()} of {len(states)} hold infinity or NaN;"
            " load the model in another precision, e.g. --dtype float32"
        )
