"""The CCPS networks: shapes and sizes, the loss against its formula, draws, and what the padding does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.api import Format
from methods._shared import networks as by_hand
from methods._shared.probe import draw_batches
from methods.ccps import networks
from methods.ccps.networks import (
    Data,
    Mlp,
    Network,
    Stage,
    build,
    n_parameters,
    train_classifier,
    train_contrastive,
)

STAGE = Stage(steps=200, batch_size=16, learning_rate=3e-3, dropout=0.0, optimiser="adamw", weight_decay=0.1)


def network(fmt: Format = Format.CHOICE, *, pool_mask: bool = False) -> Network:
    torch.manual_seed(0)
    return build(fmt, 75, (64, 32), pool_mask=pool_mask)


def data(n: int = 60) -> Data:
    generator = torch.Generator().manual_seed(1)
    labels = (torch.arange(n) % 3 == 0).long()
    return Data(torch.randn(n, 75, generator=generator) + labels[:, None], labels)


@pytest.mark.parametrize(
    ("fmt", "channels", "n_features", "wanted"),
    [
        (Format.CHOICE, (64, 32), 75, 9_542),
        (Format.CHOICE, (64, 32), 63, 8_774),
        (Format.CHOICE, (64, 32), 12, 5_510),
        (Format.OPEN, (64, 32), 75, 21_778),
        (Format.OPEN, (64, 32), 63, 19_474),
        (Format.OPEN, (64, 32), 12, 9_682),
        (Format.OPEN, (64, 32, 16), 75, 23_074),
    ],
)
def test_sizes_are_the_published_ones(fmt: Format, channels: tuple[int, ...], n_features: int, wanted: int) -> None:
    assert n_parameters(fmt, n_features, channels) == wanted


def test_choice_network_is_the_product_of_its_layers() -> None:
    net = network()
    x = torch.randn(4, 75)
    y = x
    for mlp in (net.encoder, net.classifier):
        assert isinstance(mlp, Mlp)
        weights = list(mlp.parameters())
        for i in range(0, len(weights), 2):
            y = y @ weights[i].T + weights[i + 1]
            if i + 2 < len(weights):
                y = torch.where(y > 0, y, y.exp() - 1)
    torch.testing.assert_close(net(x), y)


def test_open_network_pools_over_tokens() -> None:
    """A token's features reach the maximum whichever place they stand in, away from the edges."""
    net = network(Format.OPEN)
    here, there = torch.zeros(1, 30, 75), torch.zeros(1, 30, 75)
    here[0, 5] = there[0, 17] = torch.randn(75)
    torch.testing.assert_close(net(here), net(there))


def test_padding_takes_part_in_the_pool_unless_masked() -> None:
    answer = torch.randn(1, 6, 75)
    short, long = (torch.cat([answer, torch.zeros(1, n, 75)], dim=1) for n in (2, 20))
    masked = network(Format.OPEN, pool_mask=True)
    torch.testing.assert_close(masked(short), masked(long))
    assert not torch.allclose(masked(long), network(Format.OPEN)(long))


def hadsell(a: Tensor, b: Tensor, differ: Tensor, margin: float) -> Tensor:
    distance = ((a - b + 1e-6) ** 2).sum(1).sqrt()
    y = differ.float()
    return ((1 - y) * distance**2 + y * torch.relu(margin - distance) ** 2).mean()


def test_one_contrastive_step_is_one_step_on_the_formula() -> None:
    rows, stage = data(20), STAGE._replace(steps=1, optimiser="adam", weight_decay=0.0)
    ours, theirs = network(), network()
    train_contrastive(ours, rows, stage, 1.0, torch.Generator().manual_seed(5))

    generator = torch.Generator().manual_seed(5)
    anchors = torch.randperm(20, generator=generator)[:16]
    others = [[j for j in range(20) if j != i] for i in anchors.tolist()]
    picks = torch.randint(19, (1, 16), generator=generator)[0]
    partners = torch.tensor([row[k] for row, k in zip(others, picks.tolist(), strict=True)])
    optimiser = torch.optim.Adam(theirs.encoder.parameters(), lr=stage.learning_rate)
    a, b = theirs.encoder(rows.features[anchors]), theirs.encoder(rows.features[partners])
    hadsell(a, b, rows.labels[anchors] != rows.labels[partners], 1.0).backward()
    optimiser.step()
    for (name, mine), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if name != "encoder.layers.3.bias":  # no part in any distance: its gradient is rounding, which Adam scales up
            torch.testing.assert_close(mine, wanted)


def test_stages_pull_labels_apart_and_then_learn_them() -> None:
    net, rows = network(), data()
    generator = torch.Generator().manual_seed(2)

    def contrast() -> float:
        with torch.no_grad():
            z = net.encoder(rows.features)
            gaps = torch.cdist(z, z)
            same = rows.labels[:, None] == rows.labels
            return float(gaps[~same].mean() / gaps[same].mean())

    before = contrast()
    classifier = [p.clone() for p in net.classifier.parameters()]
    train_contrastive(net, rows, STAGE, 1.0, generator)
    assert contrast() > 2 * before
    assert all(torch.equal(p, q) for p, q in zip(net.classifier.parameters(), classifier, strict=True))
    train_classifier(net, rows, STAGE, generator)
    accuracy = (net(rows.features).argmax(1) == rows.labels).float().mean()
    assert accuracy == 1
    assert not net.training


@pytest.mark.parametrize(("optimiser", "shrinks"), [("adamw", True), ("adam", False)])
def test_weight_decay_is_decoupled_only_for_adamw(optimiser: str, *, shrinks: bool) -> None:
    """A layer with zero gradient: AdamW shrinks it by lr * decay, Adam's L2 moves it by about lr."""
    net, rows = network(), data(20)
    rows = rows._replace(features=torch.zeros_like(rows.features))  # no gradient reaches the first weights
    first = next(iter(net.parameters()))
    before = first.detach().clone()
    stage = STAGE._replace(steps=1, optimiser=optimiser, weight_decay=0.5, learning_rate=0.01)
    train_classifier(net, rows, stage, torch.Generator().manual_seed(0))
    if shrinks:
        torch.testing.assert_close(first.detach(), before * (1 - 0.01 * 0.5))
    else:
        torch.testing.assert_close(first.detach(), before - 0.01 * before.sign(), rtol=0, atol=1e-4)


# --- gradients by hand against autograd -------------------------------------------------------------------------------


def answers(n: int = 90, tokens: int = 12) -> Data:
    """Open answers of 1 to 12 tokens, some as long as the padding."""
    generator = torch.Generator().manual_seed(4)
    lengths = torch.randint(1, tokens + 1, (n, 1), generator=generator)
    labels = (torch.arange(n) % 3 == 0).long()
    features = torch.randn(n, tokens, 75, generator=generator) + labels[:, None, None]
    return Data(features * (torch.arange(tokens) < lengths)[:, :, None], labels)


def some_are_dropped(x: Tensor, share: float) -> Tensor:
    """In place of chance, so that autograd drops the same."""
    return ((x < 0.1) | (x > 0.3)).float() / (1 - share)


def embed(net: Network, x: Tensor, dropout: float) -> Tensor:
    """The encoder with dropout after each activation but the last layer's."""
    encoder = net.encoder
    if isinstance(encoder, Mlp):
        for layer in list(encoder.layers)[:-1]:
            x = nn.functional.elu(layer(x))
            x = x * some_are_dropped(x, dropout) if dropout else x
        return encoder.layers[-1](x)
    y = x.transpose(1, 2)
    for convolution in encoder.convolutions:
        y = convolution(y).relu()
        y = y * some_are_dropped(y, dropout) if dropout else y
    if encoder.pool_mask:
        y = y.masked_fill((x == 0).all(dim=2)[:, None], -torch.inf)
    return encoder.projection(y.amax(dim=2))


def slowly(net: Network, rows: Data, stage: Stage, *, margin: float | None) -> None:
    """Both stages by autograd and torch's optimisers, on the draws of generator 5."""
    generator, n = torch.Generator().manual_seed(5), len(rows.labels)
    drawn = draw_batches(n, stage.steps, stage.batch_size, generator)
    partners = torch.randint(n - 1, drawn.shape, generator=generator)
    partners += partners >= drawn
    module: nn.Module = net if margin is None else net.encoder
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[stage.optimiser]
    optimiser = kind(module.parameters(), lr=stage.learning_rate, weight_decay=stage.weight_decay)
    for i, j in zip(drawn, partners, strict=True):
        if margin is None:
            logits = net.classifier(embed(net, rows.features[i], stage.dropout))
            loss = nn.functional.cross_entropy(logits, rows.labels[i])
        else:
            a, b = embed(net, torch.cat([rows.features[i], rows.features[j]]), stage.dropout).chunk(2)
            loss = hadsell(a, b, rows.labels[i] != rows.labels[j], margin)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if margin is not None:
            list(module.parameters())[-1].grad.zero_()  # it is rounding, see above
        optimiser.step()


def compare(start: Network, rows: Data, stage: Stage, margin: float | None, tolerance: float) -> None:
    """Train copies of a network by autograd and by hand; outputs and weights must agree."""
    quick, slow = copy.deepcopy(start), copy.deepcopy(start)
    slowly(slow, rows, stage, margin=margin)
    generator = torch.Generator().manual_seed(5)
    if margin is None:
        train_classifier(quick, rows, stage, generator)
    else:
        train_contrastive(quick, rows, stage, margin, generator)
    with torch.no_grad():
        torch.testing.assert_close(quick(rows.features), slow(rows.features), rtol=tolerance, atol=tolerance)
        for (name, mine), theirs in zip(quick.named_parameters(), slow.parameters(), strict=True):
            assert (mine - theirs).norm() <= tolerance * theirs.norm(), name


@pytest.mark.parametrize("margin", [None, 1.0])
@pytest.mark.parametrize(
    ("fmt", "pool_mask", "channels", "changes"),
    [
        (Format.CHOICE, False, (64, 32), {}),
        (Format.CHOICE, False, (64, 32), {"dropout": 0.3, "optimiser": "adam", "weight_decay": 0.01}),
        (Format.OPEN, False, (64, 32), {}),
        (Format.OPEN, True, (64, 32), {}),
        (Format.OPEN, False, (24, 16, 8), {"dropout": 0.3, "optimiser": "adam", "weight_decay": 0.01}),
        (Format.OPEN, True, (24, 16), {"dropout": 0.3}),
    ],
)
def test_training_by_hand_is_that_by_autograd(
    fmt: Format,
    channels: tuple[int, ...],
    changes: dict[str, Any],
    margin: float | None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    pool_mask: bool,
) -> None:
    """In float64, where nothing hides; two gradients that cancel are rounding in float32, which Adam scales up."""
    for module in (by_hand, networks):
        monkeypatch.setattr(module, "dropout_mask", some_are_dropped)
    rows = data(90) if fmt is Format.CHOICE else answers()
    torch.manual_seed(0)
    start = build(fmt, 75, channels, pool_mask=pool_mask).double()
    stage = STAGE._replace(steps=60, **changes)
    compare(start, rows._replace(features=rows.features.double()), stage, margin, 1e-9)


@pytest.mark.parametrize(("fmt", "margin"), [(Format.CHOICE, None), (Format.CHOICE, 1.0), (Format.OPEN, None)])
def test_training_by_hand_in_single_precision(fmt: Format, margin: float | None) -> None:
    stage = STAGE._replace(steps=300, learning_rate=1e-4, batch_size=32)
    compare(network(fmt), data(90) if fmt is Format.CHOICE else answers(), stage, margin, 1e-4)


def test_dropout_follows_torchs_global_seed() -> None:
    trained = []
    for seed in (1, 1, 2):
        net = network()
        torch.manual_seed(seed)
        train_classifier(net, data(), STAGE._replace(steps=3, dropout=0.5), torch.Generator().manual_seed(0))
        trained.append(next(iter(net.parameters())))
    assert torch.equal(trained[0], trained[1])
    assert not torch.equal(trained[0], trained[2])


def test_dropout_keeps_the_mean() -> None:
    mask = by_hand.dropout_mask(torch.zeros(200, 200), 0.2)
    assert set(mask.unique().tolist()) == {0, 1.25}
    assert float(mask.mean()) == pytest.approx(1, abs=0.02)
