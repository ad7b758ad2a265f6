"""A model over two devices: its numbers are those on one, and nothing is left where it can't be used."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from bench.api import UserError
from bench.model import training_memory
from bench.model.language_model import LanguageModel, LoadOptions, build_device_map, gpu_devices
from bench.model.session import blocks
from bench.model.specs import ModelSpec
from tests.fixtures import models

SETTINGS = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(tmp_path_factory.mktemp("llama"), models.llama(num_hidden_layers=4))


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = transformers.Qwen2Config(
        **models.llama(num_hidden_layers=4).to_diff_dict() | {"tie_word_embeddings": True}
    )
    return models.save(tmp_path_factory.mktemp("tied"), config)


def load(folder: Path) -> LanguageModel:
    return LanguageModel(ModelSpec("llama", str(folder), local=True), LoadOptions(device="cpu"))


@pytest.mark.slow
def test_a_model_over_two_devices_reads_and_trains_as_on_one() -> None:
    """In a process of its own, to which a second device is given: see `two_devices.py`."""
    cases = Path(__file__).with_name("two_devices.py")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(cases)]
    done = subprocess.run(run, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout


@cache
def likeness(name: str) -> Any:
    return training_memory.build_on_meta(training_memory.config_from_settings(SETTINGS[name]), torch.bfloat16)


@pytest.mark.parametrize("sizes", [(85, 85), (48, 24), (24, 24, 24, 24)])
@pytest.mark.parametrize("name", ["llama8b", "mistral24b"])
def test_cards_get_consecutive_blocks_in_proportion_to_their_sizes(name: str, sizes: tuple[int, ...]) -> None:
    model = likeness(name)
    devices = [f"cuda:{k}" for k in range(len(sizes))]
    places = build_device_map(model, devices, sizes)
    homes = [places[f"model.layers.{k}"] for k in range(len(blocks(model)))]
    assert homes == sorted(homes)
    assert (places["model.embed_tokens"], places["lm_head"]) == (devices[0], devices[-1])
    held = dict.fromkeys(devices, 0)
    for path, parameter in model.named_parameters():
        (part,) = (part for part in places if path.startswith(f"{part}."))
        held[places[part]] += parameter.nbytes
    whole = sum(held.values())
    for device, size in zip(devices, sizes, strict=True):
        assert held[device] / whole == pytest.approx(size / sum(sizes), abs=0.03)


def test_a_head_that_is_the_embedding_lies_with_it(tied: Path) -> None:
    model = load(tied).model
    places = build_device_map(model, ["cuda:0", "cuda:1"], [1, 1])
    assert places["lm_head"] == places["model.embed_tokens"] == "cuda:0"
    assert places["model.norm"] == "cuda:1"


def test_weights_are_loaded_straight_to_their_cards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU takes the cards' place; nothing moves the model afterwards."""
    load_, asked = transformers.AutoModelForCausalLM.from_pretrained, []

    def recorded(*args: Any, **settings: Any) -> Any:
        asked.append(settings.pop("device_map"))
        return load_(*args, **settings)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", recorded)
    size = {"cuda:0": 10, "cuda:2": 10}
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=size[str(device)])
    )
    lm = load(folder)
    lm.devices, lm.dtype = ("cuda:0", "cuda:2"), torch.float32
    assert lm.model.device.type == "cpu"
    ((place,),) = [asked]
    assert {str(device) for device in place.values()} == {"cuda:0", "cuda:2"}
    assert set(place) >= {"model.embed_tokens", "model.norm", "lm_head", *(f"model.layers.{k}" for k in range(4))}


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
)  # fmt: skip
def test_wrong_cards_are_one_sentence(
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
