"""`bench doctor --model`: what a model is and needs, with no weights loaded or fetched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import transformers
from huggingface_hub.hf_api import ModelInfo

from bench.api import UserError
from bench.cli import doctor
from bench.cli.doctor_model import check_model
from bench.cli.finding import Finding, State
from bench.model import language_model
from bench.model.folder import ModelFolder
from bench.model.language_model import LanguageModel
from bench.model.specs import aliases
from tests.fixtures import models
from tests.kit.command import bench
from tests.kit.gguf import write_gguf

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _no_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(LanguageModel, "_load", lambda *_: pytest.fail("loaded"))


def found(*arguments: Any) -> dict[str, Finding]:
    return {finding.about: finding for finding in check_model(*arguments)}


@pytest.mark.slow
def test_folder_and_gguf_file_are_described(tmp_path: Path) -> None:
    folder = models.save(tmp_path / "llama", models.llama(tie_word_embeddings=False))
    file = write_gguf(tmp_path / "m.gguf", folder)
    for name in (str(folder), str(file)):
        about = found(name, None, ["atlas-choice", "atlas-oe"])
        n = sum(p.numel() for p in transformers.LlamaForCausalLM(models.llama(tie_word_embeddings=False)).parameters())
        assert f"LlamaForCausalLM, 2 blocks of width 32, context 4,096, {n:,} weights" in about["architecture"].what
        assert about["architecture"].what.endswith("embedding and output head not tied")
        assert about["tokenizer"].what == "8,192 tokens, the model's own"
        assert {finding.state for finding in about.values()} == {State.OK}
        assert ("file" in about) is (name == str(file))
    assert found(str(file), str(folder), ())["tokenizer"].what.endswith("named by --tokenizer")


def test_what_stops_a_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = models.save(tmp_path / "llama", models.llama())
    unknown = found(str(write_gguf(tmp_path / "m.gguf", folder, pre="viking")), None, ())
    assert unknown["model"].state is State.BAD
    assert "--tokenizer ORGANISATION/MODEL" in unknown["model"].what
    (folder / "chat_template.jinja").write_text(
        "{{ messages[0].content }}{% if add_generation_prompt %}<think>{% endif %}"
    )
    monkeypatch.setattr("bench.cli.doctor_model.free_memory", lambda: 1e6)
    about = found(str(folder), None, ["atlas-choice"])
    assert (about["template"].state, about["task"].state) == (State.NOTE, State.BAD)
    assert "opens a reasoning trace" in about["task"].what
    assert about["dtype, memory"].fix.startswith("only 1.0 MB are free")
    assert found("nowhere", None, ())["model"].what.startswith("Unknown model 'nowhere'")


@pytest.mark.parametrize(("gated", "cached"), [(False, ()), ("manual", ()), (False, ("config.json",))])
def test_hub_is_asked_what_a_run_would_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gated: Any, cached: tuple[str, ...]
) -> None:
    folder = models.save(tmp_path / "llama", models.llama())
    (folder / "model.safetensors").unlink()
    sizes = {"config.json": 600, "model.safetensors": 2_000_000, "pytorch_model.bin": 9_000_000, "m.gguf": 9_000_000,
             "original/model.safetensors": 5_000_000}  # fmt: skip
    info = ModelInfo(id="org/m", sha=SHA, gated=gated, siblings=[{"rfilename": n, "size": s} for n, s in sizes.items()])
    asked = []

    def answer(*args: Any, **options: Any) -> ModelInfo:
        asked.append((*args, options["revision"], options["files_metadata"]))
        return info

    monkeypatch.setattr(huggingface_hub, "model_info", answer)
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache",
        lambda _, file, *, revision="main": "there" if file in cached and revision == SHA else None,
    )  # fmt: skip
    monkeypatch.setattr(language_model, "download_texts", lambda spec: ModelFolder(spec.name, folder, SHA, spec.source))
    about = found("org/m", None, ())
    to_fetch = "1 to fetch, 2.0 MB" if cached else "2 to fetch, 2.0 MB"
    said = f"org/m at 01234567 of main: 2 files, 2.0 MB; {to_fetch}; {'gated' if gated else 'not gated'}"
    assert about["files"].what == said
    assert about["files"].fix == ("accept its licence on the Hub and set HF_TOKEN" if gated else "")
    assert about["architecture"].state is State.OK
    pinned = aliases()["llama8b"]
    assert (
        f"{pinned.source} at {str(pinned.revision)[:8]} (pinned): 2 files" in found("llama8b", None, ())["files"].what
    )
    assert asked == [("org/m", None, True), (pinned.source, pinned.revision, True)]


def test_hub_without_safetensors_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [{"rfilename": "config.json", "size": 600}, {"rfilename": "pytorch_model.bin", "size": 9_000_000}]
    info = ModelInfo(id="org/m", sha=SHA, gated=False, siblings=files)
    monkeypatch.setattr(huggingface_hub, "model_info", lambda *_, **__: info)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: None)

    def fails(_: object) -> ModelFolder:
        raise UserError("nothing to load")

    monkeypatch.setattr(language_model, "download_texts", fails)
    about = found("org/m", None, ())
    assert (about["files"].state, about["files"].fix) == (State.BAD, "name a repository that has them")
    assert about["files"].what.endswith("1 files, 600 B; 1 to fetch, 600 B; not gated; without *.safetensors")


def test_hub_that_cannot_be_asked_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    about = found("org/none", None, ())
    assert about["files"].state is State.NOTE
    assert "org/none at main: the Hub can't be asked what a run would fetch (" in about["files"].what
    assert "is not in the local cache and the Hub can't be reached" in about["model"].what


def test_options_of_a_model_need_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "run_checks", lambda _: [])
    refused = bench("doctor", "--task", "atlas-choice")
    assert (refused.returncode, "expected --model as well" in refused.stderr) == (2, True)
    shown = bench("doctor", "--model", "tiny", "--task", "atlas-choice")
    assert shown.returncode == 0
    assert "a, b, c, d are one token each" in shown.stdout
    assert bench("doctor", "--model", str(shutil.copy(__file__, tmp_path))).returncode == 1
