"""Devices: their kinds, the budgets of each, the cards that a child sees and those that are asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bench.api import UserError
from bench.model import devices
from bench.model.devices import ALONE, default_batch_limits, default_budget, shard_divisor, training_budget
from bench.model.language_model import gpu_devices


@pytest.mark.parametrize(
    ("meant", "hidden", "expected"),
    [
        (["cpu"], None, None),
        (["cuda"], None, None),
        (["cuda"], "2,3", None),
        (["cuda:1"], None, "1"),
        (["cuda:1"], "", "1"),
        (["cuda:1"], "4, 6", "6"),
        (["cuda:0"], "GPU-5c2e,GPU-77ab", "GPU-5c2e"),
        (["cuda:3", "cuda:1"], None, "3,1"),
        (["cuda:1", "cuda:0"], "4,6", "6,4"),
    ],
)
def test_cards_of_a_child_are_those_meant(meant: list[str], hidden: str | None, expected: str | None) -> None:
    environment = {} if hidden is None else {"CUDA_VISIBLE_DEVICES": hidden}
    seen = {} if expected is None else {"CUDA_VISIBLE_DEVICES": expected}
    assert devices.visible_devices_env(meant, environment) == seen


def test_kinds_of_devices_have_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [devices.device_kind(device) for device in ("cpu", "cuda", "cuda:1", "mps")]
    assert kinds == ["cpu", "cuda", "cuda", "mps"]
    assert devices.device_class("cpu") == "cpu"
    names = {"cuda:0": "H100", "cuda:1": "H100", "cuda:2": "A100"}
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)
    assert devices.device_class("cuda:0", "cuda:1") == devices.device_class("cuda:1") == "cuda H100"
    assert devices.device_class("cuda:1", "cuda:2") == "cuda H100 + cuda A100"
    assert devices.device_class("cuda:2", "cuda:1") == "cuda A100 + cuda H100"  # other blocks on each


@pytest.mark.parametrize(
    ("cards", "reading", "training", "sequences", "most"),
    [
        ({"cpu": None}, 1024, 2048, 32, 2.5e8),
        ({"mps": None}, 1024, 2048, 1, 0),
        ({"cuda:1": 25_300_000_000}, 2048, 1024, 1, 0),
        ({"cuda": 39_600_000_000}, 8192, 2048, 128, 4e9),
        ({"cuda": 42_300_000_000}, 8192, 2048, 128, 4e9),
        ({"cuda:1": 85_100_000_000}, 8192, 2048, 128, 10e9),
        ({"cuda:0": 85_000_000_000, "cuda:1": 25_000_000_000}, 2048, 1024, 1, 0),
    ],
)
def test_budgets_follow_the_smallest_card(
    monkeypatch: pytest.MonkeyPatch,
    cards: dict[str, int | None],
    reading: int,
    training: int,
    sequences: int,
    most: int,
) -> None:
    built = {device: SimpleNamespace(total_memory=size) for device, size in cards.items()}
    monkeypatch.setattr(torch.cuda, "get_device_properties", built.get)
    assert (default_budget(*cards), training_budget(*cards)) == (reading, training)
    limits = default_batch_limits(*cards, dtype=torch.bfloat16)
    assert (limits.sequences, limits.bytes) == (sequences, most)
    assert (limits == ALONE) == (sequences == 1)
    assert default_batch_limits("cpu", dtype=torch.float32) == ALONE  # bits don't depend on what is read beside


@pytest.mark.parametrize(
    ("numbers", "device", "there", "said"),
    [
        ("0,0", None, 2, "--devices 0,0: expected each card once; name different ones."),
        ("0,7", None, 2, "--devices 0,7: expected cards that this machine has; it has cards 0 to 1. Use"),
        ("0,1", None, 1, "--devices 0,1: expected cards that this machine has; it has card 0 alone. Use"),
        ("0,1", None, 0, "--devices 0,1: expected cards that this machine has; it has none. Use"),
        ("a", None, 2, "--devices a: expected the numbers of two or more cards, like 0,1; for"),
        ("0,a", None, 2, "--devices 0,a: expected the numbers of two or more cards"),
        ("0,-1", None, 2, "--devices 0,-1: expected the numbers of two or more cards"),
        ("1", None, 2, "--devices 1: expected the numbers of two or more cards, like 0,1; for a model on one device"),
        ("0,1", "cuda:1", 2, "--device cuda:1 --devices 0,1: expected one of the two; --devices names all cards"),
    ],
)
def test_cards_are_refused_in_one_sentence(
    numbers: str, device: str | None, there: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    with pytest.raises(UserError) as raised:
        gpu_devices(numbers.split(","), device)
    assert str(raised.value).startswith(said)


def test_cards_are_taken_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert gpu_devices(["2", "0"]) == ("cuda:2", "cuda:0")
    assert gpu_devices([], "cuda:1") == ()


@pytest.mark.parametrize(
    ("device", "weights", "divisor"),
    [
        ("cpu", 0, 1),
        ("cpu", 400_000_000, 1),
        ("cpu", 400_000_001, 2),
        ("cpu", 1_310_000_000, 4),
        ("cpu", 3_000_000_000, 8),
        ("cpu", 70_000_000_000, 8),
        ("cuda:1", 70_000_000_000, 1),
    ],
)
def test_shards_of_a_slow_model_are_smaller(device: str, weights: int, divisor: int) -> None:
    assert shard_divisor(device, weights) == divisor
