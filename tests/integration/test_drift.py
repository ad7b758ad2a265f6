"""Two ways to run one model: what was changed between them is found by name, and where nothing was, that is said.

A model is `tiny`, or a copy of its folder with one change; a server has llama.cpp's dialect.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.server_model import ServerModel
from bench.model.specs import resolve
from bench.progress import Silent
from bench.run.config import RunConfig
from bench.run.drift import Side, compare_sides, read_sides
from tests.kit.llama_cpp import LlamaServer
from tests.kit.place import Place

TINY = Path(resolve("tiny").source)


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    made = LlamaServer(LanguageModel(resolve("tiny"), LoadOptions(device="cpu", dtype="float32")))
    yield made
    made.stop()


def edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return edit


def rounded(folder: Path) -> None:
    """The weights on a grid of some four bits."""
    tensors = load_file(folder / "model.safetensors")
    for name, values in tensors.items():
        step = values.abs().amax() / 8
        tensors[name] = (values / step).round() * step if values.dim() > 1 else values
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def read(tmp_path: Path, *models: object, task: str = "atlas-choice", **options: Any) -> list[Side]:
    common = RunConfig(("ptrue",), "", (task,), preset="fixed", limit=12, cache=tmp_path / "cache", dtype=None)
    return read_sides([replace(common, model=str(model), **options) for model in models], Silent())


@pytest.mark.parametrize(
    ("change", "causes", "says"),
    [
        (lambda _: None, [], ""),
        (
            edited("chat_template.jinja", "message['role'] + '|>'", "message['role'] + '|> '"),
            ["template"],
            "12 of 12 prompts differ as text: A has '<|system|>",
        ),
        (
            edited("chat_template.jinja", "{{ bos_token }}", "{{ bos_token }}{{ bos_token }}"),
            ["BOS"],
            "A's prompts begin with up to 1 begin tokens, B's with up to 2",
        ),
        (edited("chat_template.jinja", "{{ bos_token }}", ""), ["BOS"], "B's with up to 0"),
        (
            edited("tokenizer.json", r"\\p{L}+ ?|", r"\\p{L}+|"),
            ["tokenizer"],
            "prompts have other token ids for the same text",
        ),
        (rounded, ["weights or precision"], "with weights in float32 and float32; compare SHA-256"),
        (
            edited("config.json", '"max_position_embeddings": 16384', '"max_position_embeddings": 260'),
            ["cut context"],
            "prompts show other exemplars; A's context holds 16,384 tokens, B's 260",
        ),
    ],
    ids=["none", "template", "two begin tokens", "no begin token", "tokenizer", "weights", "context"],
)
def test_drift_names_the_change(tmp_path: Path, change: Any, causes: list[str], says: str) -> None:
    shutil.copytree(TINY, tmp_path / "copy")
    change(tmp_path / "copy")
    found = compare_sides(*read(tmp_path, TINY, tmp_path / "copy"))
    assert list(found["causes"]) == causes
    assert says in "".join(found["causes"].values())
    assert found["steps"]["prompts"]["equal"] == (
        12 if not causes or causes[0] not in {"template", "cut context"} else 0
    )
    (method,) = found["methods"]
    assert (method["worst"] == 0) == (not causes)


@pytest.mark.parametrize(
    ("task", "change", "says"),
    [
        ("atlas-oe", {"temperature": 0.05}, "tokens of B's own samples are +"),
        ("atlas-choice", {"logit_bias": [[81, -100], [82, -100]]}, ""),
    ],
    ids=["temperature of samples", "greedy with a penalty"],
)
def test_drift_finds_another_sampler(
    tmp_path: Path, server: LlamaServer, monkeypatch: pytest.MonkeyPatch, task: str, change: Any, says: str
) -> None:
    letters = server.lm.chat.tokenizer(["a", "b"])["input_ids"]
    bias = [[ids[0], -100] for ids in letters]

    def complete(body: dict[str, Any]) -> dict[str, Any]:
        is_changed = "seed" in body if "temperature" in change else body["temperature"] == 0 and "grammar" not in body
        return LlamaServer.complete(
            server, {**body, **(change if "temperature" in change else {"logit_bias": bias})} if is_changed else body
        )

    monkeypatch.setattr(server, "complete", complete)
    found = compare_sides(*read(tmp_path, "tiny", server.url, task=task, limit=14))
    print(json.dumps(found["steps"]))
    assert list(found["causes"]) == ["sampler"]
    assert says in found["causes"]["sampler"]
    print(found["causes"])
