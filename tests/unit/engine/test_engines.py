"""What `--engine`, `--workers` and `--devices` ask for: a card for each worker, and refusals before anything starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.api import UserError
from bench.engine import engines
from bench.engine.engines import EngineOptions, build_engines


def test_workers_have_a_card_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setattr(engines.WorkerSpec, "of", lambda *_: None)
    lm: Any = SimpleNamespace(device="cuda")
    store: Any = None
    pool: Any = build_engines(EngineOptions(workers=3), lm, store).readers
    assert pool.group.devices == ["cuda:0", "cuda:1", "cuda:2"]
    with pytest.raises(UserError, match="--workers 4: this machine has 3 cards, and each worker needs one"):
        build_engines(EngineOptions(workers=4), lm, store)


@pytest.mark.parametrize("device", ["mps", "cuda:0"])
def test_one_device_has_one_worker(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(engines.WorkerSpec, "of", lambda *_: None)
    lm: Any = SimpleNamespace(device=device)
    store: Any = None
    pool: Any = build_engines(EngineOptions(workers=1), lm, store).readers
    assert pool.group.devices == [device]
    with pytest.raises(UserError, match=f"--workers 2: expected --device cuda for all cards, or cpu; got {device}"):
        build_engines(EngineOptions(workers=2), lm, store)


@pytest.mark.parametrize(
    ("found", "split", "says"),
    [(None, False, r"pip install 'confbench\[ray\]'"), (object(), True, "neither --workers nor --engine ray")],
)
def test_ray_without_its_package_or_with_devices_is_refused(
    monkeypatch: pytest.MonkeyPatch, found: object, split: bool, says: str
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda _: found)
    with pytest.raises(UserError, match=says):
        EngineOptions("ray", split=split)
