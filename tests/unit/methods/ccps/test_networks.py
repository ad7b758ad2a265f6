"""The CCPS networks: shapes and sizes, the loss against its formula, draws, and what the padding does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.api import Batch, EarlyStopping, Format
from methods.ccps.networks import (
    Data,
    Mlp,
    Network,
    Splits,
    StageSettings,
    build,
    classification_objective,
    contrastive_objective,
    train,
)

STAGE = StageSettings(
    "", steps=200, batch_size=16, learning_rate=3e-3, dropout=0.0, optimiser="adamw", weight_decay=0.1, margin=1.0
)


def contrast(net: Network, rows: Data, stage: StageSettings, seed: int = 5) -> None:
    train(net, contrastive_objective(Splits(rows, None), stage, seed), stage, EarlyStopping(stage.steps))


def classify(net: Network, rows: Data, stage: StageSettings, seed: int = 5) -> None:
    train(net, classification_objective(Splits(rows, None), stage, seed), stage, EarlyStopping(stage.steps))


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
def test_network_sizes_are_the_published_ones(
    fmt: Format, channels: tuple[int, ...], n_features: int, wanted: int
) -> None:
    net = build(fmt, n_features, channels, pool_mask=False)
    assert sum(parameter.numel() for parameter in net.parameters()) == wanted


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
    answers = torch.randn(64, 6, 75)  # in one of a hundred no channel has its maximum at a position of padding
    short, long = (torch.cat([answers, torch.zeros(64, n, 75)], dim=1) for n in (2, 20))
    masked = network(Format.OPEN, pool_mask=True)
    torch.testing.assert_close(masked(short), masked(long))
    assert not torch.allclose(masked(long), network(Format.OPEN)(long))


def hadsell(a: Tensor, b: Tensor, differ: Tensor, margin: float) -> Tensor:
    distance = ((a - b + 1e-6) ** 2).sum(1).sqrt()
    y = differ.float()
    return ((1 - y) * distance**2 + y * torch.relu(margin - distance) ** 2).mean()


def test_contrastive_step_follows_the_formula() -> None:
    rows, stage = data(20), STAGE._replace(steps=1, optimiser="adam", weight_decay=0.0)
    ours, theirs = network(), network()
    contrast(ours, rows, stage)

    generator = torch.Generator().manual_seed(5)
    anchors = torch.randperm(20, generator=generator)[:16]
    others = [[j for j in range(20) if j != i] for i in anchors.tolist()]
    picks = torch.randint(19, (16,), generator=generator)
    partners = torch.tensor([row[k] for row, k in zip(others, picks.tolist(), strict=True)])
    optimiser = torch.optim.Adam(theirs.encoder.parameters(), lr=stage.learning_rate)
    a, b = theirs.encoder(rows.features[anchors]), theirs.encoder(rows.features[partners])
    hadsell(a, b, rows.labels[anchors] != rows.labels[partners], 1.0).backward()
    optimiser.step()
    for (name, mine), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if name != "encoder.layers.3.bias":  # no part in any distance: rounding here, and exactly 0 in ours
            torch.testing.assert_close(mine, wanted)
    torch.testing.assert_close(ours.encoder.layers[3].bias, network().encoder.layers[3].bias, rtol=0, atol=0)


@pytest.mark.parametrize(("optimiser", "shrinks"), [("adamw", True), ("adam", False)])
def test_weight_decay_is_decoupled_only_for_adamw(optimiser: str, *, shrinks: bool) -> None:
    """A layer with zero gradient: AdamW shrinks it by lr * decay, Adam's L2 moves it by about lr."""
    net, rows = network(), data(20)
    rows = rows._replace(features=torch.zeros_like(rows.features))  # no gradient reaches the first weights
    first = next(iter(net.parameters()))
    before = first.detach().clone()
    stage = STAGE._replace(steps=1, optimiser=optimiser, weight_decay=0.5, learning_rate=0.01)
    classify(net, rows, stage)
    if shrinks:
        torch.testing.assert_close(first.detach(), before * (1 - 0.01 * 0.5))
    else:
        torch.testing.assert_close(first.detach(), before - 0.01 * before.sign(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("fmt", list(Format))
def test_dropout_is_the_encoders_alone(fmt: Format) -> None:
    net = network(fmt)
    net.encoder.dropout = 0.5
    x = torch.randn(200, 75) if fmt is Format.CHOICE else torch.randn(200, 6, 75)
    torch.testing.assert_close(net.eval()(x), net(x), rtol=0, atol=0)
    assert not torch.equal(net.train()(x), net(x))
    embedded = net.encoder(x)
    assert torch.equal(net.classifier(embedded), net.classifier(embedded))


def test_dropout_is_off_in_validation() -> None:
    net, (rows, labelled), modes = network(), held_out(), list[bool]()
    net.encoder.register_forward_hook(lambda encoder, *_: modes.append(encoder.training))
    stage = STAGE._replace(steps=4, dropout=0.5)
    train(net, classification_objective(Splits(data(), rows), stage, 5), stage, EarlyStopping(4, labelled))
    assert modes == [True, False, True, False, True, True, False]  # validation after the steps 1, 2 and 4
    assert not net.training


# --- which step is kept -----------------------------------------------------------------------------------------------


def held_out(n: int = 40) -> tuple[Data, Batch]:
    generator = torch.Generator().manual_seed(9)
    labels = (torch.arange(n) % 3 == 0).long()
    return Data(torch.randn(n, 75, generator=generator) + labels[:, None], labels), Batch(
        ["q"] * n, {}, labels.numpy().astype(bool)
    )


def test_contrastive_stage_is_chosen_by_its_own_loss() -> None:
    net, (rows, labelled) = network(), held_out()
    stopping = EarlyStopping(640, labelled, name="contrastive")
    train(net, contrastive_objective(Splits(data(), rows), STAGE, 5), STAGE, stopping)
    stage = stopping.stage()
    assert not stopping.confidences
    assert stage.losses[stage.steps.index(stage.kept)] == min(stage.losses)

    generator = torch.Generator().manual_seed(5)
    anchors = torch.arange(40)
    picks = torch.randint(39, (40,), generator=generator)
    partners = picks + (picks >= anchors)
    with torch.no_grad():
        a, b = net.encoder(rows.features[anchors]), net.encoder(rows.features[partners])
    loss = hadsell(a, b, rows.labels[anchors] != rows.labels[partners], 1.0)
    assert float(loss) == pytest.approx(min(stage.losses), rel=1e-5)


def test_classification_stage_is_chosen_by_its_confidences() -> None:
    net, (rows, labelled) = network(), held_out()
    stopping = EarlyStopping(640, labelled)
    train(net, classification_objective(Splits(data(), rows), STAGE, 5), STAGE, stopping)
    stage = stopping.stage()
    best = stopping.confidences[int(np.argmin(stage.losses))]
    with torch.no_grad():
        assert net(rows.features).softmax(1)[:, 1].numpy() == pytest.approx(best, rel=1e-5)
