"""The two CCPS networks and their two training stages (docs/methods.md §2.9-§2.12).

Each network has an encoder and a classifier. Single-token answers: MLPs 75 -> 64 -> 32 -> 16 -> 8 and
8 -> 48 -> 24 -> 12 -> 2, with ELU. Open answers: an encoder of two convolutions over the tokens' features, a maximum
over tokens and a layer to 16 numbers, then a classifier 16 -> 32 -> 2, with ReLU. First the encoder is trained by a
contrastive loss, then encoder and classifier together by cross-entropy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.api import Context, EarlyStopping, Format
from methods._shared.training import iterate_batches, limited_threads, run_steps

Activation = Literal["relu", "elu"]
Optimiser = Literal["adamw", "adam"]
"""Name of an optimiser: AdamW, with decoupled weight decay, or Adam, with an L2 penalty."""
Weights = dict[str, Tensor]
Forward = Callable[[Tensor], Tensor]
"""Forward pass of a network or of its encoder, from features to logits or embeddings."""
Evaluate = Callable[[Callable[[Forward, Tensor], Tensor], Tensor], Tensor]
"""Function that applies a given function to (forward pass, rows), for one network, or for k networks at once with a
result `(k, ...)`."""
MaxRows = Callable[[Tensor], int]
"""Function from features to the number of rows per evaluation pass, which bounds the memory."""

CHOICE_ENCODER = (64, 32, 16, 8)
"""Widths of the layers of the encoder of single-token answers (paper, architecture appendix; docs/methods.md §2.9)."""
CHOICE_CLASSIFIER = (8, 48, 24, 12, 2)
OPEN_EMBEDDING = 16
"""Width of the embedding of open answers (paper, architecture appendix; docs/methods.md §2.10)."""
OPEN_CLASSIFIER = (OPEN_EMBEDDING, 32, 2)
KERNEL = 3
"""Kernel size of the convolutions, in tokens."""
_FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "elu": functional.elu}


def _max_rows(_: Tensor) -> int:
    return 4096


class Mlp(nn.Module):
    """Linear layers with an activation, and optional dropout, after each but the last."""

    def __init__(self, widths: Sequence[int], activation: Activation) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.activation: Activation = activation
        self.dropout = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs `(n, first width)` to outputs `(n, last width)`."""
        for layer in list(self.layers)[:-1]:
            x = functional.dropout(_FUNCTIONS[self.activation](layer(x)), self.dropout, self.training)
        y: Tensor = self.layers[-1](x)
        return y


class TokenEncoder(nn.Module):
    """Encoder of open answers: convolutions over an answer's tokens, maximum over tokens, and a linear layer."""

    def __init__(self, channels: Sequence[int], *, pool_mask: bool) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv1d(a, b, KERNEL, padding=KERNEL // 2) for a, b in pairwise(channels))
        self.projection = nn.Linear(channels[-1], OPEN_EMBEDDING)
        self.pool_mask = pool_mask
        self.dropout = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Map features `(n, tokens, features)`, zero on padding, to embeddings `(n, 16)`."""
        y = x.transpose(1, 2)
        for convolution in self.convolutions:
            # y has the shape (n, channels, tokens)
            y = functional.dropout(functional.relu(convolution(y)), self.dropout, self.training)
        if self.pool_mask:
            padding = x.eq(0).all(dim=2)[:, None]  # standardised features of a real token are never all 0
            y = y.masked_fill(padding, -torch.inf)
        embedding: Tensor = self.projection(y.amax(dim=2))
        return embedding


def tokens_needed(longest: int, convolutions: int) -> int:
    """Number of tokens to which answers may be padded without changing the maxima over tokens or their gradients.

    Each of c convolutions reads one token to each side. So the first c positions after the longest answer depend on the
    answer, and the last c - 1 positions on the end of the input. All positions between have the same value, and one of
    them is enough.
    """
    return longest + 2 * convolutions * (KERNEL // 2)


class Network(nn.Module):
    """Encoder and classifier of CCPS; of the two logits the second is that of "correct"."""

    def __init__(self, encoder: Mlp | TokenEncoder, classifier: Mlp) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """Features `(n, 75)` or `(n, tokens, 75)` -> logits `(n, 2)`."""
        logits: Tensor = self.classifier(self.encoder(x))
        return logits


def build(answer_format: Format, n_features: int, channels: Sequence[int], *, pool_mask: bool) -> Network:
    """Build the network for an answer format; `channels` and `pool_mask` matter for open answers only."""
    if answer_format is Format.OPEN:
        encoder = TokenEncoder((n_features, *channels), pool_mask=pool_mask)
        return Network(encoder, Mlp(OPEN_CLASSIFIER, "relu"))
    return Network(Mlp((n_features, *CHOICE_ENCODER), "elu"), Mlp(CHOICE_CLASSIFIER, "elu"))


# --- training ---------------------------------------------------------------------------------------------------------


class StageSettings(NamedTuple):
    """Settings of one of the two stages of a training."""

    name: str
    steps: int
    """Largest number of steps; early stopping may end the stage before."""
    batch_size: int
    learning_rate: float
    dropout: float
    """Dropout rate in the encoder; the classifier has no dropout."""
    optimiser: Optimiser
    weight_decay: float
    margin: float
    """Margin of the contrastive loss."""

    def create_early_stopping(self, ctx: Context, n: int) -> EarlyStopping:
        """Return the early stopping of this stage for a training on n answers."""
        return ctx.early_stopping(self.steps, name=self.name, epochs_per_step=min(self.batch_size, n) / n)


class Data(NamedTuple):
    """Features and labels of answers, on the device where the network trains."""

    features: Tensor
    """`(n, 75)`, or `(n, tokens, 75)` for open answers."""
    labels: Tensor
    """`(n,)` int64: 1 if the answer is right, else 0."""


class Splits(NamedTuple):
    """Training data, and validation data for early stopping."""

    train: Data
    validation: Data | None


OPTIMISERS: dict[Optimiser, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


class StageObjective(NamedTuple):
    """What one stage trains: a part of the network, its loss, and how validation selects the best step."""

    part: str
    """Name of the trained submodule; empty: the whole network."""
    batches: Iterator[Tensor]
    loss: Callable[[Forward, Tensor], Tensor]
    """Function from a forward pass and a batch of row numbers to the mean loss."""
    on_validation: Callable[[Evaluate, MaxRows], Tensor | None]
    """Function that computes the loss or the probabilities on validation; its result is None without validation
    rows."""
    record: Callable[[EarlyStopping, Tensor | None, Callable[[], Weights]], None]
    """Function that hands the validation result of one network to early stopping, with a function that returns the
    weights."""


def contrastive_objective(splits: Splits, stage: StageSettings, seed: int) -> StageObjective:
    """Return the contrastive stage's objective, which trains the encoder on pairs of rows.

    Embeddings of equal labels are pulled together, others pushed apart by at least the margin. A pair is an anchor and
    a partner sampled from all other rows (docs/methods.md §2.11). The encoder with the smallest loss on pairs of
    validation rows is kept. These pairs are sampled once, one for each validation row as the anchor.
    """
    generator = torch.Generator().manual_seed(seed)
    train, validation = splits
    n = len(train.labels)
    batches = (draw_pairs(rows, n, generator) for rows in iterate_batches(n, stage.batch_size, generator))
    pairs = draw_pairs(torch.arange(len(validation.labels)), len(validation.labels), generator) if validation else None

    def loss(data: Data, encoder: Forward, pairs: Tensor) -> Tensor:
        return hadsell_loss(encoder, data, pairs, stage.margin)

    def on_validation(evaluate: Evaluate, _: MaxRows) -> Tensor | None:
        return None if validation is None or pairs is None else evaluate(partial(loss, validation), pairs)

    def record(stopping: EarlyStopping, value: Tensor | None, keep: Callable[[], Weights]) -> None:
        stopping.record_loss(lambda _: math.nan if value is None else float(value), keep=keep)

    return StageObjective("encoder", batches, partial(loss, train), on_validation, record)


def classification_objective(splits: Splits, stage: StageSettings, seed: int) -> StageObjective:
    """Return the classification stage's objective: encoder and classifier are trained together by cross-entropy."""
    train, validation = splits

    def loss(network: Forward, rows: Tensor) -> Tensor:
        return functional.cross_entropy(network(train.features[rows]), train.labels[rows])

    def on_validation(evaluate: Evaluate, at_once: MaxRows) -> Tensor | None:
        return predict_proba(evaluate, validation.features, at_once) if validation else None

    def record(stopping: EarlyStopping, value: Tensor | None, keep: Callable[[], Weights]) -> None:
        stopping.record(lambda _: np.zeros(0) if value is None else value.cpu().numpy(), keep=keep)

    batches = iterate_batches(len(train.labels), stage.batch_size, torch.Generator().manual_seed(seed))
    return StageObjective("", batches, loss, on_validation, record)


def train(network: Network, objective: StageObjective, stage: StageSettings, stopping: EarlyStopping) -> None:
    """Train a network in place, and restore the weights of the step that early stopping selects."""
    module = network.get_submodule(objective.part)
    network.encoder.dropout = stage.dropout
    optimiser = OPTIMISERS[stage.optimiser](
        module.parameters(), lr=stage.learning_rate, weight_decay=stage.weight_decay, fused=True
    )

    def record() -> None:
        module.eval()
        with torch.no_grad():
            value = objective.on_validation(lambda function, x: function(module, x), _max_rows)
            weights = module.state_dict()
            objective.record(stopping, value, lambda: {name: w.detach().clone() for name, w in weights.items()})
        module.train()

    module.train()
    with limited_threads(module):
        run_steps(stopping, optimiser, objective.batches, partial(objective.loss, module), record)
    module.load_state_dict(stopping.kept)
    module.eval()


def hadsell_loss(encoder: Callable[[Tensor], Tensor], data: Data, pairs: Tensor, margin: float) -> Tensor:
    """Mean of (1 - y) D^2 + y max(0, margin - D)^2 over pairs of rows `(2, n)`; y = 1 where their labels differ.

    D is the distance of a pair's embeddings. The two rows pass through the encoder separately. No distance depends on
    the encoder's last bias, so the gradients of this bias cancel exactly. If both rows passed together, rounding errors
    would remain, which Adam would scale up to full steps.
    """
    first, second = (encoder(data.features[side]) for side in pairs)
    distance = functional.pairwise_distance(first, second)
    differ = data.labels[pairs[0]] != data.labels[pairs[1]]
    return torch.where(differ, (margin - distance).clamp(min=0), distance).square().mean()


def draw_pairs(anchors: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Return pairs `(2, len(anchors))` of row numbers: each anchor and a partner sampled from the n - 1 other rows."""
    partners = torch.randint(n - 1, anchors.shape, generator=generator)
    return torch.stack([anchors, partners + (partners >= anchors)])


def predict_proba(evaluate: Evaluate, features: Tensor, at_once: MaxRows) -> Tensor:
    """Return the probability that each answer is right, float64: `(n,)`, or `(k, n)` for k networks."""
    parts = torch.split(features, at_once(features))
    logits = torch.cat([evaluate(lambda network, x: network(x), part).cpu() for part in parts], -2)
    return logits.double().softmax(dim=-1)[..., 1]


def probabilities(network: Network, features: Tensor) -> npt.NDArray[np.float64]:
    """Return the probability that each answer is right, `(n,)` float64, by one network in evaluation mode."""
    with torch.no_grad():
        result: npt.NDArray[np.float64] = predict_proba(lambda f, x: f(network, x), features, _max_rows).numpy()
    return result
