"""A device has a kind, and a child process can be shown one card alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bench.model.devices import (
    ALONE,
    default_batch_limits,
    default_budget,
    device_class,
    device_kind,
    training_budget,
    visible_devices_env,
)


@pytest.mark.parametrize(
    ("device", "hidden", "expected"),
    [
        ("cpu", None, {}),
        ("cuda", None, {}),
        ("cuda", "2,3", {}),
        ("cuda:1", None, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("cuda:1", "", {"CUDA_VISIBLE_DEVICES": "1"}),
        ("cuda:1", "4, 6", {"CUDA_VISIBLE_DEVICES": "6"}),
        ("cuda:0", "GPU-5c2e,GPU-77ab", {"CUDA_VISIBLE_DEVICES": "GPU-5c2e"}),
    ],
)
def test_a_child_sees_the_card_that_is_meant(device: str, hidden: str | None, expected: dict[str, str]) -> None:
    environment = {} if hidden is None else {"CUDA_VISIBLE_DEVICES": hidden}
    assert visible_devices_env([device], environment) == expected


def test_kinds_have_no_number() -> None:
    assert [device_kind(device) for device in ("cpu", "cuda", "cuda:1", "mps")] == ["cpu", "cuda", "cuda", "mps"]
    assert device_class("cpu") == "cpu"


@pytest.mark.parametrize(
    ("device", "size", "reading", "training"),
    [
        ("cpu", None, 1024, 2048),
        ("mps", None, 1024, 2048),
        ("cuda:1", 25_300_000_000, 2048, 1024),
        ("cuda", 39_600_000_000, 8192, 2048),
        ("cuda", 85_100_000_000, 8192, 2048),
    ],
)
def test_budgets_follow_the_size_of_the_card_as_built(
    monkeypatch: pytest.MonkeyPatch, device: str, size: int | None, reading: int, training: int
) -> None:
    built = SimpleNamespace(total_memory=size)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {device: built}.get)
    assert (default_budget(device), training_budget(device)) == (reading, training)


@pytest.mark.parametrize(
    ("device", "size", "sequences", "most"),
    [
        ("cpu", None, 1, 0),
        ("mps", None, 1, 0),
        ("cuda", 25_300_000_000, 1, 0),
        ("cuda", 42_300_000_000, 128, 4e9),
        ("cuda:1", 85_100_000_000, 128, 10e9),
    ],
)
def test_packs_are_followed_together_on_large_cards_alone(
    monkeypatch: pytest.MonkeyPatch, device: str, size: int | None, sequences: int, most: float
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", {device: SimpleNamespace(total_memory=size)}.get)
    found = default_batch_limits(device)
    assert (found.sequences, found.bytes) == (sequences, most)
    assert (found == ALONE) == (sequences == 1)


def test_cards_that_share_a_model_have_the_class_of_one_unless_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"cuda:0": "H100", "cuda:1": "H100", "cuda:2": "A100"}
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)
    assert device_class("cuda:0", "cuda:1") == device_class("cuda:1") == "cuda H100"
    assert device_class("cuda:1", "cuda:2") == "cuda H100 + cuda A100"
    assert device_class("cuda:2", "cuda:1") == "cuda A100 + cuda H100"  # other blocks on each


def test_the_smallest_of_several_cards_sets_the_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    built = {"cuda:0": SimpleNamespace(total_memory=85 * 10**9), "cuda:1": SimpleNamespace(total_memory=25 * 10**9)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", built.get)
    assert (default_budget("cuda:0", "cuda:1"), training_budget("cuda:0", "cuda:1")) == (2048, 1024)


def test_a_child_sees_the_cards_of_its_model_alone() -> None:
    assert visible_devices_env(["cuda:3", "cuda:1"], {}) == {"CUDA_VISIBLE_DEVICES": "3,1"}
    assert visible_devices_env(["cuda:1", "cuda:0"], {"CUDA_VISIBLE_DEVICES": "4,6"}) == {"CUDA_VISIBLE_DEVICES": "6,4"}
