"""Training of probes and CCPS networks, against a loop over a `DataLoader` with the same arithmetic.

A step's time doesn't depend on how many there are, so both sides run a part of the paper's 10,000 steps and the times
are scaled up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from bench.api import Context, FloatArray, Format
from methods._shared.probe import Recipe, train_probe
from methods.ccps.networks import Data, Stage, build, train_classifier, train_contrastive
from methods.pik import PAPER as PIK
from methods.saplma import PAPER as SAPLMA
from tests.performance.measure import Line, Options, interleaved

ROWS, TOKENS, FEATURES = 2_000, 30, 75
WIDTHS = (128, 4096)
SHARE = 20
"""Of the paper's steps one in so many is taken."""
MEAN_TOKENS = 6
"""Of an open answer; lengths are geometric."""


@dataclass(frozen=True)
class Part:
    """Something that is trained, in both ways."""

    name: str
    count: int
    """How many of them a comparison of all methods trains."""
    ours: Callable[[int], None]
    """Takes the number of steps."""
    plain: Callable[[int], None]
    steps: int


def lines(options: Options) -> Iterator[Line]:
    """One line for each part, and one for all together at both widths; the CCPS networks are the same at both."""
    networks = np.zeros(2)
    for part in _networks():
        seconds = _whole(part, options)
        networks += seconds
        yield _line(f"training: {part.name}", seconds, f"{part.steps:,} steps")
    for width in WIDTHS:
        total = networks.copy()
        for part in _probes(width):
            seconds = _whole(part, options)
            total += seconds
            yield _line(
                f"training: {part.name}, d = {width:,}", seconds, f"{part.count} probes of {part.steps:,} steps"
            )
        threads = f"{torch.get_num_threads()} threads"
        yield _line(f"training, all: DataLoader ÷ ours, d = {width:,}", total, threads, ">= 3")


def _whole(part: Part, options: Options) -> FloatArray:
    """Seconds of our way and of the plain one, for all steps of all such parts."""
    steps = part.steps // SHARE
    seconds = interleaved([partial(part.ours, steps), partial(part.plain, steps)], min(3, options.repeats))
    return np.array(seconds) * part.steps / steps * part.count


def _line(name: str, seconds: FloatArray, note: str, target: str = "") -> Line:
    ours, plain = seconds.tolist()
    return Line(name, plain / ours, target, f"{plain:.1f} s ÷ {ours:.1f} s; {note}")


def _probes(width: int) -> list[Part]:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(ROWS, width)).astype(np.float32)
    correct = states[:, :8].sum(axis=1) > 0
    x, y = torch.from_numpy(states), torch.from_numpy(correct).long()

    def ours(hidden: tuple[int, ...]) -> Callable[[int], None]:
        recipe = Recipe(hidden, SAPLMA.steps, SAPLMA.batch_size, SAPLMA.learning_rate, SAPLMA.weight_decay, False)

        def train(steps: int) -> None:
            train_probe("probe", states, correct, recipe._replace(steps=steps), Context(seed=0))

        return train

    def plain(hidden: tuple[int, ...]) -> Callable[[int], None]:
        def train(steps: int) -> None:
            widths = (width, *hidden, 2)
            modules = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
            network = nn.Sequential(*modules[:-1])
            _loop(network, x, y, steps, lambda a, b: functional.cross_entropy(network(a), b))

        return train

    return [
        Part("P(IK)", 1, ours(()), plain(()), PIK.steps),
        Part("SAPLMA", 3, ours(SAPLMA.hidden_layers), plain(SAPLMA.hidden_layers), SAPLMA.steps),
    ]


def _networks() -> list[Part]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (ROWS,), generator=generator)
    lengths = torch.tensor(np.random.default_rng(0).geometric(1 / MEAN_TOKENS, ROWS).clip(1, TOKENS))
    padding = torch.arange(TOKENS) >= lengths[:, None]
    open_rows = torch.randn(ROWS, TOKENS, FEATURES, generator=generator).masked_fill(padding[:, :, None], 0)
    rows = {Format.CHOICE: torch.randn(ROWS, FEATURES, generator=generator), Format.OPEN: open_rows}
    parts = []
    for fmt, features in rows.items():
        parts.append(Part(f"CCPS {fmt.value}", 1, *_two_stages(fmt, Data(features, labels)), 10_000))
    return parts


def _two_stages(fmt: Format, data: Data) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """Half of the steps each: encoder by pairs, then encoder and classifier by labels."""

    def ours(steps: int) -> None:
        network = build(fmt, FEATURES, (64, 32), pool_mask=False)
        stage = Stage(steps // 2, 32, 1e-4, 0.0, "adamw", 0.1)
        train_contrastive(network, data, stage, 1.0, torch.Generator().manual_seed(0))
        train_classifier(network, data, stage, torch.Generator().manual_seed(0))

    def plain(steps: int) -> None:
        network = build(fmt, FEATURES, (64, 32), pool_mask=False)

        def pairs(a: Tensor, label: Tensor) -> Tensor:
            partner = torch.randint(ROWS, (len(a),))
            first, second = network.encoder(torch.cat([a, data.features[partner]])).chunk(2)
            distance = functional.pairwise_distance(first, second)
            differ = label != data.labels[partner]
            return torch.where(differ, (1 - distance).clamp(min=0), distance).square().mean()

        _loop(network.encoder, data.features, data.labels, steps // 2, pairs)
        _loop(network, data.features, data.labels, steps // 2, lambda a, b: functional.cross_entropy(network(a), b))

    return ours, plain


def _loop(module: nn.Module, x: Tensor, y: Tensor, steps: int, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    """What one would write first."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-4, weight_decay=0.1)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, drop_last=True)
    done = 0
    while True:
        for rows, labels in loader:
            if done == steps:
                return
            optimiser.zero_grad()
            loss(rows, labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            done += 1
