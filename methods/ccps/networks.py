"""The two CCPS networks and their two training stages (methods.md §2.9-§2.12).

Single-token answers: an MLP 75 -> 64 -> 32 -> 16 -> 8, then 8 -> 48 -> 24 -> 12 -> 2, with ELU. Open answers: two
convolutions over the tokens' features, a maximum over tokens, 16 -> 32 -> 2, with ReLU. First the encoder learns to put
answers with different labels apart, then encoder and classifier learn the labels together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.api import Format
from methods._shared.networks import (
    Activation,
    Dense,
    Layer,
    Optimiser,
    Parameters,
    dropout_mask,
    indicators,
    layers_of,
    logistic_gradient,
    threads_for,
)
from methods._shared.probe import draw_batches

CHOICE_ENCODER = (64, 32, 16, 8)
"""Widths after the features (paper, architecture appendix; methods.md §2.9)."""
CHOICE_CLASSIFIER = (8, 48, 24, 12, 2)
OPEN_EMBEDDING = 16
"""Width of the open-ended embedding (paper, architecture appendix; methods.md §2.10)."""
OPEN_CLASSIFIER = (OPEN_EMBEDDING, 32, 2)
_KERNEL = 3
_MATRIX = 2  # dimensions
_FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "elu": functional.elu}


class Mlp(nn.Module):
    """Linear layers with an activation after each but the last."""

    def __init__(self, widths: Sequence[int], activation: Activation) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.activation: Activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """`(n, first width)` -> `(n, last width)`."""
        for layer in list(self.layers)[:-1]:
            x = _FUNCTIONS[self.activation](layer(x))
        y: Tensor = self.layers[-1](x)
        return y


class TokenEncoder(nn.Module):
    """Convolutions over the tokens of an answer, the maximum over tokens, one linear layer."""

    def __init__(self, channels: Sequence[int], *, pool_mask: bool) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv1d(a, b, _KERNEL, padding=_KERNEL // 2) for a, b in pairwise(channels))
        self.projection = nn.Linear(channels[-1], OPEN_EMBEDDING)
        self.pool_mask = pool_mask

    def forward(self, x: Tensor) -> Tensor:
        """`(n, tokens, features)`, zero rows where an answer has ended -> `(n, 16)`."""
        y = x.transpose(1, 2)
        for convolution in self.convolutions:
            y = functional.relu(convolution(y))  # (n, channels, tokens)
        if self.pool_mask:
            padding = x.eq(0).all(dim=2)[:, None]  # standardised features of a real token are never all 0
            y = y.masked_fill(padding, -torch.inf)
        embedding: Tensor = self.projection(y.amax(dim=2))
        return embedding


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
        return Network(encoder, Mlp(OPEN_CLASSIFIER, "relu"))
    return Network(Mlp((n_features, *CHOICE_ENCODER), "elu"), Mlp(CHOICE_CLASSIFIER, "elu"))


def n_parameters(answer_format: Format, n_features: int, channels: Sequence[int]) -> int:
    """Trainable parameters of `build`, counted on modules without storage."""
    with torch.device("meta"):
        return sum(p.numel() for p in build(answer_format, n_features, channels, pool_mask=False).parameters())


# --- training ---------------------------------------------------------------------------------------------------------

_TINY_DISTANCE = 1e-30  # where two embeddings coincide, their distance has no gradient


class Stage(NamedTuple):
    """How one stage is trained."""

    steps: int
    batch_size: int
    learning_rate: float
    dropout: float
    """In the encoder; the classifier has none."""
    optimiser: Optimiser
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
    anchors = draw_batches(n, stage.steps, stage.batch_size, generator)
    partners = torch.randint(n - 1, anchors.shape, generator=generator)
    partners += partners >= anchors
    pairs = torch.cat([anchors, partners], dim=1).to(data.features.device)  # (steps, 2 * batch)
    first, second = data.labels[pairs].chunk(2, dim=1)
    differ = (first != second).unbind()
    parameters = _parameters(network.encoder)
    encoder = _by_hand(network.encoder, parameters, data, stage.dropout)
    with torch.inference_mode(), threads_for(CHOICE_ENCODER):
        for step, rows in enumerate(pairs.unbind()):
            encoder.backward(_hadsell_gradient(encoder.encode(rows), differ[step], margin))
            # The last bias is in no distance: its gradient is 0, and summed up it is rounding, which Adam scales up.
            parameters.gradients[-1].zero_()
            parameters.step(stage.learning_rate, stage.weight_decay, stage.optimiser)
    _write_back(network.encoder, parameters)


def _hadsell_gradient(embeddings: Tensor, differ: Tensor, margin: float) -> Tensor:
    """Gradient of the loss in the embeddings `(2 * batch, width)`: first the anchors, then their partners."""
    first, second = embeddings.chunk(2)
    gap = first - second + 1e-6  # as in torch's pairwise_distance
    distance = torch.linalg.vector_norm(gap, dim=1).clamp_(min=_TINY_DISTANCE)
    pull = torch.where(differ, (distance - margin).clamp_(max=0).div_(distance), 1.0)  # (batch,)
    gap *= pull.mul_(2 / len(gap))[:, None]
    return torch.cat([gap, -gap])


def train_classifier(network: Network, data: Data, stage: Stage, generator: torch.Generator) -> None:
    """Train encoder and classifier together on the labels, by cross-entropy."""
    batches = draw_batches(len(data.labels), stage.steps, stage.batch_size, generator).to(data.features.device)
    targets = indicators(data.labels[batches]).unbind()
    parameters = _parameters(network)
    encoder = _by_hand(network.encoder, parameters, data, stage.dropout)
    after = len(list(network.encoder.parameters()))
    classifier = Dense(layers_of(parameters, after), network.classifier.activation)
    with torch.inference_mode(), threads_for(CHOICE_ENCODER):
        for step, rows in enumerate(batches.unbind()):
            gradient = logistic_gradient(classifier.forward(encoder.encode(rows)), targets[step])
            encoder.backward(classifier.backward(gradient, to_inputs=True))
            parameters.step(stage.learning_rate, stage.weight_decay, stage.optimiser)
    _write_back(network, parameters)


def _parameters(module: nn.Module) -> Parameters:
    """The module's parameters; a convolution `(outputs, inputs, 3)` as three matrices."""
    values = [parameter.detach() for parameter in module.parameters()]
    return Parameters([value.permute(2, 0, 1) if value.dim() > _MATRIX else value for value in values])


def _write_back(module: nn.Module, parameters: Parameters) -> None:
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), parameters.values, strict=True):
            parameter.copy_(value.permute(1, 2, 0) if value.dim() > _MATRIX else value)
    module.eval()


class _Encoder(Protocol):
    """An encoder with its gradients by hand."""

    def encode(self, rows: Tensor) -> Tensor:
        """Embeddings `(len(rows), width)` of these training rows."""

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of all parameters, given the loss's in the embeddings."""


def _by_hand(encoder: Mlp | TokenEncoder, parameters: Parameters, data: Data, dropout: float) -> _Encoder:
    if isinstance(encoder, Mlp):
        return _Rows(encoder, parameters, data, dropout)
    return _Tokens(encoder, parameters, data, dropout)


class _Rows:
    """The encoder of single-token answers."""

    def __init__(self, encoder: Mlp, parameters: Parameters, data: Data, dropout: float) -> None:
        layers = layers_of(parameters, 0, len(list(encoder.parameters())))
        self._dense = Dense(layers, encoder.activation, dropout)
        self._features = data.features

    def encode(self, rows: Tensor) -> Tensor:
        return self._dense.forward(self._features.index_select(0, rows))

    def backward(self, gradient: Tensor) -> None:
        self._dense.backward(gradient)


class _Tokens:
    """The encoder of open answers, on the tokens that differ.

    The answers of a batch stand one below the other, each closed by a row of zeros, which is the convolutions' own
    padding; a convolution is the sum of three products. Beyond an answer's last token and the reach of the convolutions
    all positions are alike, and one of them is enough for the maximum. (With dropout they differ, and all are kept.)
    """

    def __init__(self, encoder: TokenEncoder, parameters: Parameters, data: Data, dropout: float) -> None:
        depth = len(encoder.convolutions)
        self._convolutions = layers_of(parameters, 0, 2 * depth)
        self._projection = Dense(layers_of(parameters, 2 * depth, 2 * depth + 2), "relu")
        self._dropout = dropout
        tokens = data.features.shape[1]
        index = torch.arange(1, tokens + 1, device=data.features.device)
        lengths = (data.features.ne(0).any(dim=2) * index).amax(dim=1)
        kept = torch.full_like(lengths, tokens) if dropout else (lengths + 2 * depth + 1).clamp(max=tokens)
        self._sizes = kept + 1
        self._pooled = lengths.clamp(min=1) if encoder.pool_mask else kept
        self._starts = 1 + self._sizes.cumsum(0) - self._sizes
        closed = functional.pad(data.features, (0, 0, 0, 1))
        table = closed[torch.arange(tokens + 1, device=kept.device) <= kept[:, None]]
        self._table = functional.pad(table, (0, 0, 1, 0))

    def encode(self, rows: Tensor) -> Tensor:
        sizes = self._sizes[rows]
        ends = sizes.cumsum(0)  # rows of zeros, as is row 0
        shift = torch.repeat_interleave(self._starts[rows] - (ends - sizes), sizes)
        x = self._table.index_select(0, functional.pad(shift + torch.arange(len(shift), device=shift.device), (1, 0)))
        self._inputs, self._activated, self._masks = [x], [], []
        for layer in self._convolutions:
            x = _convolved(x, layer).index_fill_(0, ends, 0)
            self._activated.append(x)
            if self._dropout:
                self._masks.append(dropout_mask(x, self._dropout))
                x = x * self._masks[-1]
            self._inputs.append(x)
        pooled = self._pooled[rows]
        step = torch.arange(int(pooled.max()), device=rows.device)
        places = (1 + ends - sizes)[:, None] + torch.minimum(step, pooled[:, None] - 1)  # (n, longest)
        best, at = x[places].max(dim=1)
        self._chosen = places.gather(1, at)  # (n, channels)
        return self._projection.forward(best)

    def backward(self, gradient: Tensor) -> None:
        best = self._projection.backward(gradient, to_inputs=True)
        y = torch.zeros_like(self._activated[-1]).scatter_(0, self._chosen, best)
        for i in reversed(range(len(self._convolutions))):
            if self._dropout:
                y *= self._masks[i]
            y *= self._activated[i] > 0
            y = _convolved_back(y, self._inputs[i], self._convolutions[i], to_inputs=i > 0)


def _convolved(x: Tensor, layer: Layer) -> Tensor:
    """ReLU of a convolution over all rows `(rows, inputs)` but the first and the last, which become 0."""
    y = x.new_zeros(len(x), layer.weight.shape[1])
    inner = y[1:-1]
    torch.addmm(layer.bias, x[:-2], layer.weight[0].T, out=inner)
    inner.addmm_(x[1:-1], layer.weight[1].T).addmm_(x[2:], layer.weight[2].T)
    inner.relu_()
    return y


def _convolved_back(y: Tensor, x: Tensor, layer: Layer, *, to_inputs: bool) -> Tensor:
    """Write the gradients of a layer, given the loss's in its outputs y; returns that in its inputs x if asked for."""
    inner, reached = y[1:-1], torch.zeros_like(x) if to_inputs else x
    torch.sum(inner, 0, out=layer.bias_gradient)
    for tap in range(_KERNEL):
        window = slice(tap, len(x) - _KERNEL + 1 + tap)
        torch.mm(inner.T, x[window], out=layer.weight_gradient[tap])
        if to_inputs:
            reached[window].addmm_(inner, layer.weight[tap])
    return reached
