"""A device has a kind, and a child process can be shown one card alone."""

from __future__ import annotations

import pytest

from bench.backbone.devices import alone_visible, class_of, kind_of


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
    assert alone_visible(device, environment) == expected


def test_kinds_have_no_number() -> None:
    assert [kind_of(device) for device in ("cpu", "cuda", "cuda:1", "mps")] == ["cpu", "cuda", "cuda", "mps"]
    assert class_of("cpu") == "cpu"
