"""A model's folder: all that answers depend on is in its fingerprint, and what can't be a model is refused at once."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file

from bench.api import UserError
from bench.api.protocol import FIXED
from bench.api.question import Message, Prompt
from bench.grading.grade import JudgeCase
from bench.grading.judges import JudgeOptions, open_judge
from bench.model import folder as module
from bench.model.folder import ModelFolder, find_model_folder
from bench.model.specs import ModelSpec, aliases
from bench.progress import Silent
from bench.prompts import chat
from bench.run import pipeline
from bench.run.config import RunConfig
from bench.signals.reader import Reader
from bench.store.disk_cache import Store
from tests.fixtures import models
from tests.fixtures.models import TINY
from tests.kit.passes import load

FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of `tiny`."""
    folder = tmp_path / "snapshots" / "model"
    folder.mkdir(parents=True)
    for name in (*FILES, "model.safetensors"):
        shutil.copyfile(TINY / name, folder / name)
    return folder


def found_in(folder: Path, *, trusted: bool = False) -> ModelFolder:
    return find_model_folder(ModelSpec(folder.name, str(folder), local=True), trust_remote_code=trusted)


def identity(folder: Path, *, trusted: bool = False) -> tuple[str, str]:
    found = found_in(folder, trusted=trusted)
    return found.weights, found.fingerprint


def edit_config(model: Path, values: dict[str, object]) -> None:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


# --- fingerprint ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *FILES[1:], "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model",
        "chat_template.json", "additional_chat_templates/tool.jinja",
    ],
)  # fmt: skip
def test_fingerprint_changes_with_files_but_weights_do_not(model: Path, name: str) -> None:
    weights, before = identity(model)
    path = model / name
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(" ")
    assert identity(model)[0] == weights
    assert identity(model)[1] != before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_weights_change_with_their_files(model: Path, name: str) -> None:
    before = identity(model)
    content = bytearray((model / name).read_bytes())
    content[-2] ^= 1
    (model / name).write_bytes(content)
    assert not set(before) & set(identity(model))


def test_fingerprint_has_the_code_that_runs(model: Path) -> None:
    plain, trusted = identity(model), identity(model, trusted=True)
    (model / "modeling_own.py").write_text("x = 1\n", encoding="utf-8")
    assert identity(model) == plain
    assert identity(model, trusted=True)[1] != trusted[1]


def test_fingerprint_knows_names_of_files(model: Path) -> None:
    found = []
    for one, other in ("12", "21"):
        (model / "a.txt").write_text(one, encoding="utf-8")
        (model / "b.txt").write_text(other, encoding="utf-8")
        found.append(identity(model)[1])
    assert found[0] != found[1]


def test_weights_are_hashed_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    digest = module.digest_file

    def noted(path: Path) -> str:
        hashed.append(path.name)
        return digest(path)

    monkeypatch.setattr(module, "digest_file", noted)
    found = found_in(model)
    assert len({found.weights, found.fingerprint, found.weights, found.fingerprint}) == 2
    assert hashed.count("model.safetensors") == 1


def test_fingerprint_of_the_hub_is_its_commit(model: Path) -> None:
    found = ModelFolder("org/m", model, "0" * 40, "org/m")
    assert found.weights == found.fingerprint == f"org/m@{'0' * 40}"


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_fingerprint_of_the_hub_says_if_code_runs(model: Path, name: str) -> None:
    def identities() -> list[str]:
        return [ModelFolder("org/m", model, "0" * 40, "org/m", trusted).fingerprint for trusted in (False, True)]

    plain, trusted = identities()
    assert plain == trusted  # as in older versions
    path = model / name
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"AutoModel": "own.M"}}), encoding="utf-8")
    assert identities() == [plain, f"{plain}+code"]


# --- files of the Hub -------------------------------------------------------------------------------------------------

MAIN = "c" * 40
"""The commit of every main branch."""
READ = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "additional_chat_templates/tool_use.jinja",
    "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
}  # fmt: skip
CODE = {"modeling_own.py", "configuration_own.py"}
UNREAD = {
    ".gitattributes", "README.md", "LICENSE",
    "consolidated.safetensors", "consolidated.safetensors.index.json", "consolidated.00.pth",
    "original/consolidated.00.pth", "original/model.safetensors", "original/params.json", "original/tokenizer.model",
    "pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "own-q4_k_m.gguf",
    "onnx/model.onnx",
}  # fmt: skip
"""Second copies of the weights, and what loading doesn't ask for."""


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModelFolder]:
    """`find`, of models that lie on a Hub."""

    def snapshot_download(
        repo_id: str, *, revision: str | None, allow_patterns: Sequence[str], ignore_patterns: Sequence[str]
    ) -> str:
        snapshot = tmp_path / repo_id / "snapshots" / (revision or MAIN)
        listed = READ | CODE | UNREAD
        for name in filter_repo_objects(listed, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns):
            (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / name).touch()
        return str(snapshot)

    monkeypatch.setattr(module, "snapshot_download", snapshot_download)
    return find_model_folder


@pytest.mark.parametrize(("trusted", "wanted"), [(False, READ), (True, READ | CODE)])
def test_hub_files_are_those_that_loading_reads(
    fetch: Callable[..., ModelFolder], trusted: bool, wanted: set[str]
) -> None:
    folder = fetch(ModelSpec("org/m", "org/m", local=False), trust_remote_code=trusted).path
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == wanted


@pytest.mark.parametrize("alias", [name for name, spec in aliases().items() if not spec.local])
def test_hub_models_are_fetched_at_their_pin(fetch: Callable[..., ModelFolder], alias: str) -> None:
    pinned, newest = aliases()[alias], ModelSpec("own", aliases()[alias].source, local=False)
    for spec, commit in ((pinned, pinned.revision), (newest, MAIN)):
        found = fetch(spec, trust_remote_code=False)
        assert found.commit == commit
        assert found.weights == f"{spec.source}@{commit}"


# --- what can't be a model --------------------------------------------------------------------------------------------


def one_weight_missing(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda model: (model / "model.safetensors").unlink(), ["*.safetensors", "found none"]),
        (lambda model: (model / "tokenizer.json").unlink(), ["tokenizer.json", "found none"]),
        (lambda model: (model / "config.json").unlink(), ["config.json", "found none"]),
        (lambda model: os.truncate(model / "config.json", 30), ["config.json can't be used"]),
        (lambda model: os.truncate(model / "tokenizer.json", 1_000), ["tokenizer can't be loaded"]),
        (lambda model: os.truncate(model / "model.safetensors", 500_000), ["can't be loaded"]),
        *(
            (lambda model, name=name: (model / name).write_text("[" * 100_000), ["maximum recursion depth"])
            for name in ("config.json", "tokenizer.json", "tokenizer_config.json")
        ),
        (one_weight_missing, ["1 weights are missing", "model.layers.1.mlp.up_proj.weight"]),
        (lambda model: edit_config(model, {"intermediate_size": 64}), ["can't be loaded"]),
    ],
)
def test_folder_that_is_not_whole_is_refused(model: Path, harm: Callable[[Path], None], words: list[str]) -> None:
    harm(model)
    with pytest.raises(UserError, match="'model'") as raised:
        load(model).model  # noqa: B018 - loads it
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_attention_heads": 0}, "at least 1 as num_attention_heads, got 0"),
        ({"num_hidden_layers": "four"}, "from 1 to 10,000 as num_hidden_layers, got 'four'"),
        ({"num_hidden_layers": 10**6}, "from 1 to 10,000 as num_hidden_layers, got 1000000"),
        ({"num_hidden_layers": 9_000}, "9,000 layers are more than the 38 tensors"),
        ({"hidden_size": 10**9}, "hidden_size 1,000,000,000 is more than its weight files"),
        ({"vocab_size": True}, "as vocab_size, got True"),
        ({"intermediate_size": [48, -1]}, "as intermediate_size, got -1"),
        ({"text_config": {"num_hidden_layers": -1}}, "as num_hidden_layers, got -1"),
        ({"model_type": ["llama"]}, "config.json can't be used"),
    ],
)
def test_configuration_of_no_model_is_refused(model: Path, values: dict[str, object], words: str) -> None:
    edit_config(model, values)
    with pytest.raises(UserError, match="its config") as raised:
        load(model)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages[7].content.x }}", "UndefinedError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{% for m in messages %}", "TemplateSyntaxError"),
        ("{% for a in range(3000) %}{% for b in range(3000) %}{% endfor %}{% endfor %}", "took more than 0 s"),
    ],
)
def test_template_that_fails_or_never_ends_is_refused(
    model: Path, template: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "took" in words:
        monkeypatch.setattr(chat, "_SECONDS", 0.05)
    (model / "chat_template.jinja").write_text(template, encoding="utf-8")
    with pytest.raises(UserError, match=words):
        load(model)


def test_template_may_refuse_a_system_turn(model: Path) -> None:
    (model / "chat_template.jinja").write_text(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[0].content }}",
        encoding="utf-8",
    )
    assert load(model).chat._takes_system is False


_TURNS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>"
_EMPTY_BLOCK = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
_OFF_IN_SYSTEM = "{% if not enable_thinking %}/no_think{% endif %}{% if enable_thinking %}/think{% endif %}"


@pytest.mark.parametrize(
    ("template", "thinking", "trace"),
    [
        (f"{_TURNS}{{% endif %}}", False, False),
        (f"{_TURNS}{_EMPTY_BLOCK}", True, False),
        (f"{_OFF_IN_SYSTEM}{_TURNS}{{% endif %}}", True, False),
        (f"{_TURNS}<think>\n{{% endif %}}", False, True),
        (f"{_TURNS}[THINK]{{% endif %}}", False, True),
        (f"{_TURNS}{{% if enable_thinking %}}Well,{{% endif %}}<think>{{% endif %}}", True, True),
        (f"Think in <think>…</think>.\n{_TURNS}{{% endif %}}", False, False),
        (f"{_TURNS}I <think{{% endif %}}", False, False),
    ],
)  # fmt: skip
def test_traces_of_a_template_are_off_or_told(model: Path, template: str, thinking: bool, trace: bool) -> None:
    (model / "chat_template.jinja").write_text(template, encoding="utf-8")
    loaded, turns = load(model).chat, [Message("user", "x")]
    assert (loaded.takes_thinking, loaded.opens_trace) == (thinking, trace)
    settings = {"enable_thinking": False} if thinking else {}
    expected = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], tokenize=False, add_generation_prompt=True, **settings
    )
    assert loaded.render(turns) == expected
    notes = ["enable_thinking off" in note for note in loaded.notes if "trace" in note]
    assert notes == [True] * thinking + [False] * trace
    reader = Reader(load(model), Store(model / "cache"), FIXED, 64, Silent())
    assert reader.nondefault_settings == settings
    if trace:
        with pytest.raises(UserError, match="opens a reasoning trace, so the first token is no answer"):
            loaded.letters(Prompt(tuple(turns)), "ab")


def test_choice_tasks_are_refused_where_a_template_opens_a_trace(model: Path, tmp_path: Path) -> None:
    (model / "chat_template.jinja").write_text(f"{_TURNS}<think>\n{{% endif %}}", encoding="utf-8")
    config = RunConfig(("ptrue",), str(model), ("atlas-oe", "atlas-choice"), out=tmp_path, cache=tmp_path, device="cpu")
    with pytest.raises(UserError, match=r"^atlas-choice: expected a model that answers with a letter; .* or open"):
        pipeline.run(config)
    report = pipeline.run(replace(config, tasks=("atlas-oe",), limit=2, dry_run=True))
    assert any("the trace is taken as its answer" in note for note in report.notes)
    judge = open_judge(JudgeOptions("hf", str(model), device="cpu"), tmp_path)
    with pytest.raises(UserError, match=r"^--judge-model .*: this model's chat template opens a reasoning trace"):
        judge.verdicts([JudgeCase("q", "gold", "answer")], "judge", Silent())


def test_code_of_a_folder_runs_where_it_is_trusted(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", [*sys.path])
    code = "from transformers import LlamaConfig\n\nclass Own(LlamaConfig):\n    model_type = 'own'\n"
    (model / "own.py").write_text(code, encoding="utf-8")
    edit_config(model, {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}})
    with pytest.raises(UserError, match=r"contains custom code .* Run it with --trust-remote-code"):
        found_in(model).config()
    assert not (tmp_path / "modules").exists()
    assert type(found_in(model, trusted=True).config()).__name__ == "Own"


# --- an index of weights ----------------------------------------------------------------------------------------------


def indexed(model: Path, name: object) -> ModelFolder:
    index = {"metadata": {}, "weight_map": {"lm_head.weight": name}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return found_in(model)


@pytest.mark.parametrize("name", ["../out.safetensors", "/out.safetensors", "sub/model.safetensors", "weights.bin", 7])
def test_index_names_files_beside_it_alone(model: Path, name: object) -> None:
    with pytest.raises(UserError, match=r"expected names of \.safetensors files in the same folder"):
        indexed(model, name).check_weights()


def moved(model: Path, where: Path) -> ModelFolder:
    where.parent.mkdir(exist_ok=True)
    (model / "model.safetensors").rename(where)
    (model / "link.safetensors").symlink_to(where)
    return indexed(model, "link.safetensors")


def test_index_may_not_link_outside(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"link\.safetensors links to a file outside the folder"):
        moved(model, tmp_path / "out.safetensors").check_weights()


def test_index_may_name_files_and_hub_links(model: Path, tmp_path: Path) -> None:
    indexed(model, "model.safetensors").check_weights()
    moved(model, tmp_path / "blobs" / "abc").check_weights()
    indexed(model, "link.safetensors").check_weights()


def test_ends_of_answers_outlive_their_file(model: Path) -> None:
    """`bench cache prune` may remove a converted file's folder once a model is opened."""
    path = model / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [2, 5, 7]}), encoding="utf-8")
    lm = load(model)
    shutil.rmtree(model)
    assert lm.stops == {2, 5, 7}


def test_end_of_turns_is_a_stop_that_is_noted(tmp_path: Path) -> None:
    folder = models.chatml(tmp_path / "chatml")
    lm = load(folder)
    assert (lm.stops, lm.added_stops) == ({2, 8192}, {8192})
    assert "ends turns with <|im_end|>, which its files don't name as an end" in lm.notes[-1]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 8192]}), encoding="utf-8")
    lm = load(folder)
    assert (lm.stops, lm.added_stops, lm.notes) == ({2, 8192}, set(), [])
