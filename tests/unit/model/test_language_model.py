"""A language model: weights go straight to their devices, are released and loaded again, and its head is its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import weakref
from functools import cache
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bench.api import UserError
from bench.model import training_memory
from bench.model.attention import ATTENTION
from bench.model.forward_checks import Probe
from bench.model.language_model import LanguageModel, LoadOptions, build_device_map
from bench.model.session import blocks
from bench.servers.readings import Ability
from tests.fixtures import models
from tests.kit import passes

SETTINGS = tomllib.loads((resources.files("bench.cli") / "configs.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return passes.load(passes.save(tmp_path_factory.mktemp("llama")))


@pytest.mark.parametrize(("cuda", "device"), [(True, "cuda"), (False, "cpu")])
def test_default_device_has_float64(
    llama: LanguageModel, monkeypatch: pytest.MonkeyPatch, cuda: bool, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert LanguageModel(llama.spec, LoadOptions(dtype="float32")).device == device


def test_depths_are_blocks(llama: LanguageModel) -> None:
    assert [llama.block_of(depth) for depth in (0.25, 0.5, 0.75, 0.99, 1.0)] == [1, 2, 3, 3, 4]
    with pytest.raises(UserError, match="depth"):
        llama.block_of(0.1)


def test_head_of_another_model_is_refused(tmp_path: Path) -> None:
    lm = passes.load(passes.save(tmp_path))
    lm.head.weight.mul_(1.5)
    lm.model.lm_head = torch.nn.Linear(64, passes.VOCABULARY, bias=False)
    with pytest.raises(UserError, match="differ from its logits"):
        _ = lm.uses_packs


@pytest.mark.parametrize("devices", [("cpu",), ("cuda",), ("cuda:1",), ("mps",), ("cuda:0", "cuda:2")], ids=repr)
def test_weights_are_loaded_straight_to_their_devices(
    llama: LanguageModel, monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...]
) -> None:
    """The CPU takes the accelerators' place: the same way in, and the same bits."""
    load, asked = transformers.AutoModelForCausalLM.from_pretrained, []

    def recorded(*args: Any, **settings: Any) -> Any:
        asked.append(settings.get("device_map"))
        return load(*args, **settings | ({"device_map": {"": "cpu"}} if "device_map" in settings else {}))

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", recorded)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=10))
    placed = LanguageModel(llama.spec, llama.options)
    placed.devices, placed.dtype = devices, torch.float32
    there = placed._load("sdpa") if len(devices) == 1 else placed.model
    (places,) = asked
    if len(devices) > 1:
        assert {str(device) for device in places.values()} == set(devices)
        assert set(places) >= {"model.embed_tokens", "model.norm", "lm_head", *(f"model.layers.{k}" for k in range(4))}
    else:
        assert places == (None if devices == ("cpu",) else {"": torch.device(*devices)})
    weights = llama.model.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in there.state_dict().items())
    assert not any(hasattr(module, "_hf_hook") for module in there.modules())  # it moves to and fro as it did


@pytest.mark.parametrize("reason", [None, "it refuses the mask of a pack (TypeError)"])
def test_questions_read_alone_are_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: str | None
) -> None:
    """The plan counts packs, so a run that can't make them takes several times as long."""
    lm = passes.load(passes.save(tmp_path))
    monkeypatch.setattr(Probe, "unsupported_reason", lambda _: reason)
    assert lm.no_packs_reason == reason
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    name = lm.spec.name
    assert said == ([] if reason is None else [
        f"{name}: each question is read alone, which takes several times as long as the plan says; {reason}"
    ])  # fmt: skip


def test_weights_come_back_after_release(tmp_path: Path) -> None:
    lm = passes.load(passes.save(tmp_path))
    ids, read = np.arange(5, 30, dtype=np.int32), {lm.blocks: np.arange(25)}
    assert lm.uses_packs
    before = lm.head.logits(lm.session.read_alone(ids, read)[lm.blocks])
    lm.session.read_alone(ids, {**read, ATTENTION: read[lm.blocks]})  # what records queries knows the layers
    gone = [weakref.ref(each) for each in (lm.head.weight, lm.session, *lm.model.modules())]
    layers = lm.layers
    lm.release()
    assert {each() for each in gone} == {None}
    assert (lm.uses_packs, lm.layers) == (True, layers)
    assert "model" not in vars(lm)  # what is known of it needs no weights
    after = lm.head.logits(lm.session.read_alone(ids, read)[lm.blocks])
    assert torch.equal(before, after)


def test_weights_that_changed_after_release_are_refused(tmp_path: Path) -> None:
    lm = passes.load(passes.save(tmp_path))
    lm.model  # noqa: B018 - loads it
    lm.release()
    file = tmp_path / "model.safetensors"
    kept, stat = file.read_bytes(), file.stat()
    file.write_bytes(kept[:-4] + bytes(4))
    with pytest.raises(UserError, match=r"expected the files that were loaded before, found others .* what was comp"):
        lm.model  # noqa: B018
    file.unlink()
    with pytest.raises(UserError, match=r"expected weights as \*.safetensors in its folder, found none"):
        lm.model  # noqa: B018
    file.write_bytes(kept)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert lm.model is not None


@pytest.mark.slow
def test_models_over_two_devices_are_as_on_one() -> None:
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
def test_cards_get_consecutive_blocks_by_size(name: str, sizes: tuple[int, ...]) -> None:
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
    for device, size in zip(devices, sizes, strict=True):
        assert held[device] / sum(held.values()) == pytest.approx(size / sum(sizes), abs=0.03)


def test_head_that_is_the_embedding_lies_with_it(tmp_path: Path) -> None:
    tied = models.llama(num_hidden_layers=4).to_diff_dict() | {"tie_word_embeddings": True}
    model = passes.load(models.save(tmp_path, transformers.Qwen2Config(**tied))).model
    places = build_device_map(model, ["cuda:0", "cuda:1"], [1, 1])
    assert places["lm_head"] == places["model.embed_tokens"] == "cuda:0"
    assert places["model.norm"] == "cuda:1"


def test_context_ends_where_longrope_changes(tmp_path: Path) -> None:
    """Once a text of a pass is longer, all texts of the pass have other factors."""
    factors = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "rope_theta": 1e4}
    config = transformers.Phi3Config(
        **{**passes.SHAPE, "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0},
        original_max_position_embeddings=64, rope_parameters=factors,
    )  # fmt: skip
    models.save(tmp_path / "phi3", config, models.words(passes.VOCABULARY, pad_token="w0"))
    assert passes.load(tmp_path / "phi3").context == 64


def test_layers_that_attend_in_chunks_are_refused(tmp_path: Path) -> None:
    """A pack's mask would let them see beyond their chunk."""
    config = transformers.Llama4TextConfig(
        **passes.SHAPE, num_key_value_heads=2, head_dim=16, intermediate_size_mlp=48, num_local_experts=2
    )
    models.save(tmp_path / "llama4", config, models.words(passes.VOCABULARY, pad_token="w0"))
    with pytest.raises(UserError, match=r"'llama4': expected layers that .*, its layers attend in chunks; use another"):
        _ = passes.load(tmp_path / "llama4").uses_packs


def test_inner_layers_with_several_states_are_refused(tmp_path: Path) -> None:
    """Gemma 3n's have four of each token; its last layer has one."""
    shape = {**passes.SHAPE, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
    config = transformers.Gemma3nTextConfig(
        **shape, num_key_value_heads=2, head_dim=16, hidden_size_per_layer_input=8, laurel_rank=4,
        vocab_size_per_layer_input=passes.VOCABULARY, num_kv_shared_layers=0, activation_sparsity_pattern=[0.0] * 4,
    )  # fmt: skip
    models.save(tmp_path / "gemma3n", config, models.words(passes.VOCABULARY, pad_token="w0"))
    lm = passes.load(tmp_path / "gemma3n")
    reason = "it reads an inner layer, and those of this architecture have several states of each token"
    assert [lm.missing(Ability.STATES, frozenset({depth})) for depth in (0.5, 1.0)] == [reason, None]
    assert lm.uses_packs


@pytest.mark.parametrize(("outer", "text", "expected"), [
    ("float16", "bfloat16", torch.float16), (None, "bfloat16", torch.bfloat16), (None, None, torch.float32),
])  # fmt: skip
def test_dtype_of_a_composite_model_is_its_own(
    tmp_path: Path, outer: str | None, text: str | None, expected: torch.dtype
) -> None:
    lm = passes.load(passes.save(tmp_path))
    lm.config = transformers.Gemma3Config(dtype=outer, text_config={"dtype": text})
    lm.devices = ("cuda",)
    assert lm.dtype == expected
