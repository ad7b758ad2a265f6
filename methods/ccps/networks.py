"""The two CCPS networks and their two training stages (methods.md §2.9-§2.12).

Single-token answers: an MLP 75 -> 64 -> 32 -> 16 -> 8, then 8 -> 48 -> 24 -> 12 -> 2, with ELU. Open answers: two
convolutions over the tokens' features, a maximum over tokens, 16 -> 32 -> 2, with ReLU. First the encoder learns to put
answers with different labels apart, then encoder and classifier learn the labels together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.api import Format

CHOICE_ENCODER = (64, 32, 16, 8)
"""Widths after the features (paper, architecture appendix; methods.md §2.9)."""
CHOICE_CLASSIFIER = (8, 48, 24, 12, 2)
OPEN_EMBEDDING = 16
"""Width of the open-ended embedding (paper, architecture appendix; methods.md §2.10)."""
OPEN_CLASSIFIER = (OPEN_EMBEDDING, 32, 2)
_KERNEL = 3

Activation = Callable[[Tensor], Tensor]


class Mlp(nn.Module):
    """Linear layers with an activation, and dropout if any, after each but the last."""

    def __init__(self, widths: Sequence[int], activation: Activation) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.activation = activation
        self.dropout = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """`(n, first width)` -> `(n, last width)`."""
        for layer in list(self.layers)[:-1]:
            x = _drop(self.activation(layer(x)), self)
        y: Tensor = self.layers[-1](x)
        return y


class TokenEncoder(nn.Module):
    """Convolutions over the tokens of an answer, the maximum over tokens, one linear layer."""

    def __init__(self, channels: Sequence[int], *, pool_mask: bool) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv1d(a, b, _KERNEL, padding=_KERNEL // 2) for a, b in pairwise(channels))
        self.projection = nn.Linear(channels[-1], OPEN_EMBEDDING)
        self.pool_mask = pool_mask
        self.dropout = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """`(n, tokens, features)`, zero rows where an answer has ended -> `(n, 16)`."""
        y = x.transpose(1, 2)
        for convolution in self.convolutions:
            y = _drop(functional.relu(convolution(y)), self)  # (n, channels, tokens)
        if self.pool_mask:
            padding = x.eq(0).all(dim=2)[:, None]  # standardised features of a real token are never all 0
            y = y.masked_fill(padding, -torch.inf)
        embedding: Tensor = self.projection(y.amax(dim=2))
        return embedding


def _drop(x: Tensor, module: Mlp | TokenEncoder) -> Tensor:
    return functional.dropout(x, module.dropout, training=module.training) if module.dropout else x


class Network(nn.Module):
    """Encoder and classifier; the second logit stands for "correct"."""

    def __init__(self, encoder: Mlp | TokenEncoder, classifier: Mlp) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """Features -> logits `(n, 2)`."""
        logits: Tensor = self.classifier(self.encoder(x))
        return logits


def build(answer_format: Format, n_features: int, channels: Sequence[int], *, pool_mask: bool) -> Network:
    """The network for this format of answers; channels and pool_mask matter to open ones only."""
    if answer_format is Format.OPEN:
        encoder = TokenEncoder((n_features, *channels), pool_mask=pool_mask)
        return Network(encoder, Mlp(OPEN_CLASSIFIER, functional.relu))
    return Network(Mlp((n_features, *CHOICE_ENCODER), functional.elu), Mlp(CHOICE_CLASSIFIER, functional.elu))


def n_parameters(answer_format: Format, n_features: int, channels: Sequence[int]) -> int:
    """Trainable parameters of `build`, counted on modules without storage."""
    with torch.device("meta"):
        return sum(p.numel() for p in build(answer_format, n_features, channels, pool_mask=False).parameters())


# --- training ---------------------------------------------------------------------------------------------------------

_OPTIMISERS: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


class Stage(NamedTuple):
    """How one stage is trained."""

    steps: int
    batch_size: int
    learning_rate: float
    dropout: float
    """In the encoder; the classifier has none."""
    optimiser: str
    weight_decay: float


class Data(NamedTuple):
    """Training rows on the device where the network trains."""

    features: Tensor
    """(n, 75) or (n, tokens, 75)"""
    labels: Tensor
    """(n,) int64: 1 where the answer was right."""


def train_contrastive(network: Network, data: Data, stage: Stage, margin: float, generator: torch.Generator) -> None:
    """Train the encoder to bring answers with equal labels together and others apart, by at least the margin.

    Hadsell's loss, mean of (1 - y) D^2 + y max(0, margin - D)^2, where y = 1 if the labels differ; each anchor's
    partner is drawn from all other training rows (methods.md §2.11).
    """
    n = len(data.labels)
    anchors = draw_batches(n, stage, generator)
    partners = torch.randint(n - 1, anchors.shape, generator=generator)
    partners += partners >= anchors
    pairs = torch.cat([anchors, partners], dim=1).to(data.features.device)  # (steps, 2 * batch)
    first, second = data.labels[pairs].chunk(2, dim=1)
    differ = first != second

    def loss(step: int) -> Tensor:
        a, b = network.encoder(data.features[pairs[step]]).chunk(2)
        distance = functional.pairwise_distance(a, b)
        return torch.where(differ[step], (margin - distance).clamp(min=0), distance).square().mean()

    _train(network.encoder, network.encoder, loss, stage)


def train_classifier(network: Network, data: Data, stage: Stage, generator: torch.Generator) -> None:
    """Train encoder and classifier together on the labels, by cross-entropy."""
    batches = draw_batches(len(data.labels), stage, generator).to(data.features.device)
    targets = data.labels[batches]

    def loss(step: int) -> Tensor:
        return functional.cross_entropy(network(data.features[batches[step]]), targets[step])

    _train(network, network.encoder, loss, stage)


def draw_batches(n: int, stage: Stage, generator: torch.Generator) -> Tensor:
    """Row indices `(steps, batch)`: one permutation of the n rows after another, cut into batches."""
    needed = stage.steps * stage.batch_size
    epochs = [torch.randperm(n, generator=generator) for _ in range(-(-needed // n))]
    return torch.cat([*epochs, torch.empty(0, dtype=torch.int64)])[:needed].view(stage.steps, stage.batch_size)


def _train(module: nn.Module, encoder: Mlp | TokenEncoder, loss: Callable[[int], Tensor], stage: Stage) -> None:
    """Minimise loss(step) over the module's parameters; what stays is the final step."""
    optimiser = _OPTIMISERS[stage.optimiser](
        module.parameters(), lr=stage.learning_rate, weight_decay=stage.weight_decay, fused=True
    )
    encoder.dropout = stage.dropout
    module.train()
    with _one_thread():
        for step in range(stage.steps):
            optimiser.zero_grad(set_to_none=True)
            loss(step).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    module.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small gain nothing from a second thread, and on a busy machine waiting for it costs 50 times."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
