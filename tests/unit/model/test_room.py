"""Where an adapter has room: chosen by shapes and the card as built, and the sentence that refuses what can't fit."""

from __future__ import annotations

import tomllib
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.api import UserError
from bench.model import training_memory
from bench.model.training_memory import TrainingPlan, plan_training

SETTINGS = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))
WHOLE, LESS = TrainingPlan(checkpointing=False), TrainingPlan(checkpointing=True)


def lm(name: str, *devices: str) -> Any:
    """What is asked of a model before its weights are there."""
    config = training_memory.config_from_settings(SETTINGS[name])
    devices = devices or ("cuda:1",)
    spec = SimpleNamespace(name=name)
    return SimpleNamespace(spec=spec, config=config, dtype=torch.bfloat16, device=devices[0], devices=devices)


def on_card(monkeypatch: pytest.MonkeyPatch, gigabytes: int) -> None:
    card = SimpleNamespace(total_memory=gigabytes * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)


@pytest.mark.parametrize(
    ("name", "gigabytes", "plan"),
    [
        ("llama8b", 85, WHOLE), ("llama8b", 25, LESS), ("mistral24b", 141, LESS),
        pytest.param("qwen14b", 85, WHOLE, marks=pytest.mark.slow),
        pytest.param("qwen14b", 42, LESS, marks=pytest.mark.slow),
        pytest.param("qwen32b", 85, LESS, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_less_is_kept_where_a_card_has_no_room_or_the_model_is_large(
    monkeypatch: pytest.MonkeyPatch, name: str, gigabytes: int, plan: TrainingPlan
) -> None:
    on_card(monkeypatch, gigabytes)
    assert plan_training(lm(name), 2048) == plan


def test_where_memory_is_the_computer_s_own_nothing_is_refused() -> None:
    assert plan_training(lm("qwen32b", "cpu"), 2048) == WHOLE
    assert plan_training(lm("qwen32b", "mps"), 2048) == LESS
    assert plan_training(lm("llama8b", "mps"), 2048) == WHOLE


def test_what_does_not_fit_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    on_card(monkeypatch, 40)
    with pytest.raises(
        UserError, match=r"qwen32b takes about 7\d GB .* 2,048 tokens .* cuda:1 has 40 GB: use a smaller"
    ):
        plan_training(lm("qwen32b"), 2048).check()
    on_card(monkeypatch, 17 + 4)
    with pytest.raises(UserError, match=r"llama8b takes .* use fewer tokens a pass \(--training-budget\) or a larger"):
        plan_training(lm("llama8b"), 16_384).check()
    plan_training(lm("llama8b"), 256).check()


def test_cards_that_share_a_model_have_their_room_together(monkeypatch: pytest.MonkeyPatch) -> None:
    on_card(monkeypatch, 40)
    assert plan_training(lm("qwen32b", "cuda:0", "cuda:1"), 2048) == LESS
    on_card(monkeypatch, 25)
    with pytest.raises(UserError, match=r"qwen32b takes about 7\d GB .* cuda:0 \+ cuda:1 has 50 GB: use a smaller"):
        plan_training(lm("qwen32b", "cuda:0", "cuda:1"), 2048).check()


def test_who_can_t_be_followed_on_the_meta_device_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    on_card(monkeypatch, 1)

    def unknown(*_: Any) -> Any:
        raise ValueError("code of its own")

    monkeypatch.setattr(training_memory, "build_on_meta", unknown)
    assert plan_training(lm("llama8b"), 2048) == WHOLE
