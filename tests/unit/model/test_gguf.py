"""GGUF files as models: the weights and ids of the original, and one sentence for what can't be used."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from gguf import GGUFReader
from tokenizers import pre_tokenizers

from bench.api import UserError
from bench.cli.parameter_counts import config_and_facts
from bench.grading.judges import JudgeOptions, open_judge
from bench.model import gguf, language_model
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import is_gguf, model_label, resolve
from bench.store.disk_cache import Store, digest_file
from bench.store.usage import MODELS
from tests.fixtures import models
from tests.kit.command import bench
from tests.kit.gguf import write_gguf

REAL = Path(os.environ.get("CONFBENCH_GGUF", ""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with an untied head and grouped heads."""
    config = models.llama(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
    return models.save(tmp_path_factory.mktemp("llama"), config)


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a GGUF file."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf", folder)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that keeps what is converted."""
    return tmp_path_factory.mktemp("cache")


def opened(file: Path, cache: Path, **options: Any) -> LanguageModel:
    """Open a file as --model does."""
    return LanguageModel(resolve(str(file)), LoadOptions(device="cpu", cache=str(cache), **options))


# --- the model --------------------------------------------------------------------------------------------------------


def test_gguf_has_the_weights_and_logits_of_its_folder(folder: Path, file: Path, cache: Path) -> None:
    lm = opened(file, cache, dtype="float32")
    original = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    expected, found = original.state_dict(), lm.model.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    ids = torch.tensor([[1, 80, 90, 500, 7000]])
    assert torch.equal(lm.model(ids).logits, original(ids).logits)
    assert lm.stops == {2}


def test_gguf_is_converted_once_and_named_by_its_digest(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = digest_file(file)
    lm = opened(file, cache, dtype="bfloat16")
    assert lm.model.dtype == torch.bfloat16
    assert model_label(str(file)) == f"small.gguf-{sha256[:8]}"
    assert lm.files.weights == sha256
    (note,) = lm.notes
    assert note.startswith(f"the model is the file small.gguf (SHA-256 {sha256[:12]}…), F32, dequantised to bfloat16: ")
    monkeypatch.setattr(gguf, "save_model", None)
    monkeypatch.setattr(gguf, "_mended_tokenizer", None)
    again = opened(file, cache, dtype="bfloat16")
    assert again.fingerprint == lm.fingerprint
    assert torch.equal(again.head.weight, lm.head.weight)


def test_header_is_read_from_a_plain_array(file: Path) -> None:
    """Of a memory map it takes three times as long: a minute for the largest vocabularies."""
    with gguf._alone(file):
        assert type(GGUFReader(file).data) is np.ndarray
    assert type(GGUFReader(file).data) is np.memmap


def test_gguf_is_known_by_its_first_bytes(file: Path, tmp_path: Path) -> None:
    blob = tmp_path / f"sha256-{'a' * 64}"  # as Ollama names its files
    shutil.copy(file, blob)
    assert is_gguf(blob)
    assert model_label(str(blob)) == f"model.gguf-{digest_file(file)[:8]}"
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\3\4")
    with pytest.raises(UserError, match=r"expected a folder or a GGUF file, got a file that doesn't begin with GGUF"):
        resolve(str(other))
    with pytest.raises(UserError, match="is the name of a GGUF file in results; a run needs the file itself"):
        resolve("small.gguf-0123abcd")
    with pytest.raises(
        UserError, match=r"^Unknown model 'models/none.gguf': expected an alias .* existing folder or GGUF"
    ):
        resolve("models/none.gguf")  # of the form of a Hub id


def test_folder_names_its_gguf_files(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "m.gguf")
    (tmp_path / "mmproj-m.gguf").touch()
    with pytest.raises(UserError, match=rf"found none; name one of its GGUF files: {tmp_path}/m\.gguf\.$"):
        opened(tmp_path, tmp_path)


def test_file_that_may_not_be_read_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)  # nothing is denied to a test that root runs
    with pytest.raises(UserError, match=r"small.gguf': expected a file or folder that you may read, permission is den"):
        resolve(str(file))


@pytest.mark.parametrize(
    ("own", "native", "asked", "dtype"),
    [("gguf", True, None, "bfloat16"), ("gguf", False, None, "float32"), ("gguf", True, "float32", "float32"),
     ("float32", True, None, "float32"), ("bfloat16", True, None, "bfloat16"), ("bfloat16", False, None, "float32"),
     ("float16", True, None, "float32")],
)  # fmt: skip
def test_dtype_on_a_cpu_is_bfloat16_where_model_and_cpu_have_it(
    folder: Path, file: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    own: str, native: bool, asked: str | None, dtype: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(language_model, "has_native_bfloat16", lambda: native)
    source = file
    if own != "gguf":
        source = tmp_path / "copy"
        shutil.copytree(folder, source)
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        (source / "config.json").write_text(json.dumps({**config, "dtype": own}), encoding="utf-8")
    assert opened(source, cache, dtype=asked).dtype_name == dtype


# --- tokenizers -------------------------------------------------------------------------------------------------------

TEXT = "Digits: x  2 and y½\n\n1. A\u0301 <|end|> 12345"


def test_smollm_splits_digits_first(folder: Path, file: Path, cache: Path) -> None:
    expected = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    expected.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    chat = opened(file, cache).chat
    assert chat.tokenizer(TEXT)["input_ids"] == expected(TEXT)["input_ids"]
    assert chat.template is None  # that of the file


def test_qwen_normalises_to_nfc(folder: Path, cache: Path, tmp_path: Path) -> None:
    tokenizer = opened(write_gguf(tmp_path / "m.gguf", folder, pre="qwen2"), cache).chat.tokenizer
    assert tokenizer("A\u0301")["input_ids"] == tokenizer("\u00c1")["input_ids"]


def test_llama3_takes_words_whole(folder: Path, cache: Path, tmp_path: Path) -> None:
    lm = opened(write_gguf(tmp_path / "m.gguf", folder, pre="llama-bpe"), cache)
    assert json.loads(lm.chat.tokenizer.backend_tokenizer.to_str())["model"]["ignore_merges"]
    assert len(lm.chat.tokenizer.get_vocab()) == 8192  # without the token that GPT-2's class adds


def test_unknown_splitting_needs_a_tokenizer(folder: Path, cache: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", folder, pre="viking")
    with pytest.raises(
        UserError, match=r"pre-tokenizer 'viking'\) splits words in a way that is unknown here.*--tokenizer"
    ):
        opened(file, cache)
    lm = opened(file, cache, tokenizer=str(folder))
    original = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert lm.chat.tokenizer(TEXT)["input_ids"] == original(TEXT)["input_ids"]
    assert lm.fingerprint != opened(write_gguf(tmp_path / "n.gguf", folder), cache).fingerprint


def test_tokenizer_of_another_vocabulary_is_refused(folder: Path, file: Path, cache: Path, tmp_path: Path) -> None:
    models.words(100).save_pretrained(tmp_path)
    with pytest.raises(
        UserError,
        match=r"\(8,192 tokens\), got another one of 100: token 0 is 'w0', not '<\|pad\|>'",
    ):
        opened(file, cache, tokenizer=str(tmp_path))
    with pytest.raises(UserError, match=r"has a tokenizer of its own; leave the option out"):
        opened(folder, cache, tokenizer=str(folder))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("./none", r"^--tokenizer ./none: expected a folder with a tokenizer .* there is no such folder"),
        ("none", r"^--tokenizer none: expected .* or a Hub id like 'org/model'; there is no such folder"),
        ("small.gguf", r"^--tokenizer small.gguf: expected a folder .* there is no such folder"),
        (".", r"^--tokenizer .: expected a folder with a tokenizer \(tokenizer.json\).*; that folder has none"),
        ("org/none", r"^--tokenizer 'org/none' is not in the local cache .* local folder: --tokenizer FOLDER\.$"),
    ],
)  # fmt: skip
def test_tokenizer_that_is_not_there_is_named_by_its_option(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=sentence):
        opened(file, cache, tokenizer=name)


@pytest.mark.slow
def test_files_beside_a_gguf_file_change_nothing(folder: Path, file: Path, cache: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "m.gguf")
    vocabulary = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(vocabulary.replace('"Ġthe"', '"Ġxthe"'), encoding="utf-8")
    lm = opened(tmp_path / "m.gguf", tmp_path / "cache")
    assert lm.chat.tokenizer.get_vocab() == opened(file, cache).chat.tokenizer.get_vocab()
    for name in ("tokenizer_config.json", "config.json", "adapter_config.json"):
        (tmp_path / name).write_text("{", encoding="utf-8")
    _ = opened(tmp_path / "m.gguf", tmp_path / "other cache").model


def test_parameters_are_counted_without_a_tokenizer(folder: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", folder, pre="viking")
    assert config_and_facts(str(file))[1].projections == config_and_facts(str(folder))[1].projections


def test_judge_is_converted_into_the_cache_of_the_run(
    folder: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "default"))
    judge = open_judge(JudgeOptions("hf", str(file), device="cpu"), tmp_path / "named")
    assert judge.name.startswith(f"hf {file.name}@")
    assert Store(tmp_path / "named").keys(MODELS)
    assert not (tmp_path / "default").exists()
    unknown = write_gguf(tmp_path / "m.gguf", folder, pre="viking")
    judge = open_judge(JudgeOptions("hf", str(unknown), device="cpu"), tmp_path / "named")
    with pytest.raises(UserError, match=r"^--judge-model m.gguf: .* serve the file with llama.cpp: --judge openai"):
        _ = judge.name


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_conversions_at_once_make_one_model(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tie, build, seconds = transformers.PreTrainedModel.tie_weights, transformers.LlamaForCausalLM.__init__, [0.6, 0.3]

    def slowly(model: Any, config: Any) -> None:
        time.sleep(seconds.pop())  # whoever begins last ends last
        build(model, config)

    monkeypatch.setattr(transformers.LlamaForCausalLM, "__init__", slowly)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: opened(file, tmp_path, dtype="float32"), range(2))
        weights = list(pool.map(lambda lm: lm.files.weights_folder(torch.float32), (one, other)))
    assert one.folder == other.folder
    assert weights[0] == weights[1]
    assert transformers.PreTrainedModel.tie_weights is tie, "transformers replaces it while it loads a model"
    assert len(Store(tmp_path).entries(MODELS)) == 2
    assert not list(tmp_path.glob("tmp-*"))


def test_interrupted_conversion_leaves_nothing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = opened(file, tmp_path, dtype="float32")

    def interrupted(_model: object, path: str, **_: object) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gguf, "save_model", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _ = lm.model
    assert not list(tmp_path.glob("tmp-*"))
    assert Store(tmp_path).keys(MODELS) == [lm.folder.name]
    assert lm.model.dtype == torch.float32


@pytest.mark.slow
def test_pruned_model_is_converted_again(file: Path, tmp_path: Path) -> None:
    lm = opened(file, tmp_path, dtype="float32")
    shutil.rmtree(tmp_path / MODELS)
    assert lm.stops == {2}  # all of its ends, though generation_config.json is gone
    assert opened(file, tmp_path).folder == lm.folder
    assert lm.model.dtype == torch.float32


def test_cache_that_cannot_be_written_serves_what_it_has(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(file, tmp_path).folder
    monkeypatch.setattr(Store, "prepare", lambda _: (_ for _ in ()).throw(UserError("The cache can't be written")))
    assert opened(file, tmp_path).folder == folder
    with pytest.raises(UserError, match="The cache can't be written"):
        opened(file, tmp_path / "other")


# --- files that can't be used -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_llama3_rotary_factors_are_restored(folder: Path, cache: Path, tmp_path: Path) -> None:
    scaled = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    source = models.save(tmp_path / "llama3", models.llama(rope_parameters=scaled))
    original = transformers.AutoModelForCausalLM.from_pretrained(source)
    inverse = original.model.rotary_emb.inv_freq
    plain = 1.0 / 500000.0 ** (torch.arange(0, 16, 2) / 16)
    factors = {"rope_freqs.weight": (plain / inverse).numpy()}
    lm = opened(write_gguf(tmp_path / "m.gguf", source, tensors=factors), cache, dtype="float32")
    assert torch.equal(lm.model.model.rotary_emb.inv_freq, inverse)
    factors = {"rope_freqs.weight": np.linspace(1, 2, 8, dtype=np.float32)}
    with pytest.raises(UserError, match="scaled by factors that are unknown here"):
        opened(write_gguf(tmp_path / "n.gguf", source, tensors=factors), cache)


def test_quantisation_is_named_as_the_file_does() -> None:
    found = [gguf._quantisation({"general.file_type": kind}) for kind in (7, 9999, "Q4_K_M")]
    assert found == ["Q8_0", "file type 9999", "file type 'Q4_K_M'"]
    assert gguf._quantisation({}) == "file type -1"


def _cut(file: Path, path: Path) -> None:
    path.write_bytes(file.read_bytes()[:-50])


def _damaged(file: Path, path: Path) -> None:
    content = bytearray(file.read_bytes())
    content[40:60] = b"\xff" * 20
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (_cut, r"bytes of tensors and header, the file has [\d,]+; it was cut, so fetch it again"),
        (lambda file, path: path.write_bytes(file.read_bytes()[:300]), r"expected a whole GGUF file, its header can't"),
        (_damaged, r"expected a whole GGUF file, its header can't be read .*; it was cut or is damaged"),
        ({"fields": {"general.type": "mmproj"}}, r"expected a language model, the GGUF file holds a mmproj"),
        ({"fields": {"split.count": 3}}, r"expected one file, this is one of 3 parts; join them"),
        ({"fields": {"general.alignment": 0}}, r"expected a whole GGUF file, its header can't be read \(integer"),
        ({"arch": "bert"}, r"expected a causal language model of an architecture that transformers .* got 'bert'"),
        ({"fields": {"llama.rope.scaling.type": "yarn"}}, r"would ignore its llama.rope.scaling.type = 'yarn'"),
        (
            {"arch": "qwen35", "fields": {"qwen35.rope.scaling.type": "yarn"}},
            r"would ignore its qwen35.rope.scaling.type = 'yarn'",
        ),
        ({"tensors": {"blk.0.attn_q.bias": np.ones(32, np.float32)}}, r"expected the [\d,]+ weights of its tensors"),
    ],
)  # fmt: skip
def test_file_that_cannot_be_a_model_is_refused(
    folder: Path, file: Path, cache: Path, tmp_path: Path, make: Callable[..., None] | dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "bad.gguf"
    if isinstance(make, dict):
        write_gguf(path, folder, **make)
    else:
        make(file, path)
    with pytest.raises(UserError, match=sentence):
        _ = opened(path, cache).model
    assert not list(cache.glob("tmp-*"))


@pytest.mark.parametrize("architecture", ["qwen35", "qwen35moe"])
def test_fields_of_published_qwen35_files_are_known(architecture: str) -> None:
    names = {
        "block_count", "nextn_predict_layers", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
        "attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.dimension_sections", "rope.freq_base",
        "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size",
        "full_attention_interval", "expert_count", "expert_used_count", "expert_feed_forward_length",
        "expert_shared_feed_forward_length",
    }  # fmt: skip
    metadata = {"general.architecture": architecture, **{f"{architecture}.{name}": 8 for name in names}}
    gguf._check_kind("m.gguf", metadata)
    with pytest.raises(UserError, match=rf"would ignore its {architecture}\.rope\.scaling\.factor = 4\.0, so its"):
        gguf._check_kind("m.gguf", metadata | {f"{architecture}.rope.scaling.factor": 4.0})


def test_file_that_was_replaced_is_refused(folder: Path, file: Path, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    shutil.copy(file, path)
    lm = opened(path, cache, dtype="float32")
    write_gguf(path, folder, {"general.name": "other"})
    with pytest.raises(UserError, match="expected the file that was opened before, found another one in its place"):
        _ = lm.model
    path.unlink()
    with pytest.raises(UserError, match="found another one in its place, or none"):
        _ = lm.model


@pytest.mark.parametrize(
    "change",
    [pytest.param(lambda path: os.truncate(path, 1000), marks=pytest.mark.slow), Path.unlink],
    ids=["cut", "removed"],
)
def test_results_name_the_file_that_was_read(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    path, load = tmp_path / "m.gguf", LanguageModel._load
    label = model_label(shutil.copy(file, path))

    def loaded(self: LanguageModel, attention: str) -> Any:
        model = load(self, attention)
        change(path)
        return model

    monkeypatch.setattr(LanguageModel, "_load", loaded)
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "q.jsonl").write_text('{"question": "?", "choices": ["a", "b"], "answer": 0}\n', encoding="utf-8")
    run = bench(
        "run", "--method", "ptrue", "--model", path, "--task-file", tmp_path / "q.jsonl", "--out", tmp_path / "out"
    )
    assert run.returncode == 0, run.stderr
    (result,) = tmp_path.glob("out/*/*/*.json")
    assert result.parent.parent.name == json.loads(result.read_text(encoding="utf-8"))["model"] == label


def test_room_is_checked_before_anything_is_allocated(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("allocated"))
    lm = opened(file, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "sysconf", lambda _: 10)
        with pytest.raises(UserError, match=r"dequantising takes .* of memory, this machine has 100 B"):
            _ = lm.model
    stat = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([*stat[:3], 0, 0, *stat[5:10]]))
    with pytest.raises(UserError, match=r"of the cache, whose disk has 0 B left; free some, or set CONFBENCH_CACHE"):
        _ = lm.model
