"""Models that can't be built or used, and models that are not what they were when their answers were kept."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults import workload
from tests.faults.commands import Outcome, Ran, bench, cells, require, same
from tests.fixtures.models import TINY

TITLE = "models that are broken, or changed under a cache"

_FILES = (
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    "chat_template.jinja",
)  # fmt: skip
_DEEP = "[" * 200_000
_LOOP = "{% for a in range(90000) %}{% for b in range(90000) %}{% for c in range(90000) %}{% endfor %}{% endfor %}"
_ESCAPE = "{{ ''.__class__.__mro__[1].__subclasses__() }}"

Damage = Callable[[Path], object]


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    file = workload.questions_file(folder, sizes={"test": 4})
    for name, damage in {**_CONFIGS, **_OTHERS}.items():
        yield name, partial(_refused, folder / name.replace(" ", "-"), file, damage)
    for name, change in _CHANGES.items():
        yield f"changed under a cache: {name}", partial(_noticed, folder / name.replace(" ", "-"), file, change)


def _model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in _FILES:
        shutil.copyfile(TINY / name, folder / name)
    return folder


def _run(folder: Path, file: Path) -> Ran:
    words = [str(folder / "model") if word == "tiny" else word for word in workload.command(file, folder, "ptrue")]
    return bench(*words, folder=folder, env=workload.cache(folder))


def _refused(folder: Path, file: Path, damage: Damage) -> None:
    damage(_model(folder / "model"))
    _run(folder, file).refused()
    require(not any((folder / "out").rglob("*.parquet")), Outcome.WRONG, "results of a model that can't be used")


def _noticed(folder: Path, file: Path, change: Damage) -> None:
    """The answers after a change must be those of a fresh cache."""

    def found() -> dict[str, Any]:
        _run(folder, file).expect(0)
        return cells(folder / "out")

    copy = _model(folder / "model")
    before = found()
    change(copy)
    kept = found()
    shutil.rmtree(folder / "cache")
    fresh = found()
    if fresh == before:
        raise ValueError("the change changes no answer, so nothing was tried")
    same(kept, fresh)


def _set(**values: Any) -> Damage:
    return partial(_update, name="config.json", values=values)


def _update(folder: Path, name: str, values: dict[str, Any]) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def _text(name: str, text: str) -> Damage:
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def _gone(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def _cut(name: str, share: float) -> Damage:
    return lambda folder: os.truncate(folder / name, int((folder / name).stat().st_size * share))


def _indexed(target: str) -> Damage:
    """The weights moved out of the folder, and an index that names them."""

    def move(folder: Path) -> None:
        outside = folder.parent / "outside.safetensors"
        (folder / "model.safetensors").rename(outside)
        named = target.replace("ABSOLUTE", str(outside))
        if target == "link.safetensors":
            (folder / target).symlink_to(outside)
        else:
            (folder / "other.safetensors").write_bytes(outside.read_bytes())
        index = {"metadata": {}, "weight_map": {"lm_head.weight": named, "model.norm.weight": named}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    return move


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


_CONFIGS: dict[str, Damage] = {
    "no heads": _set(num_attention_heads=0),
    "negative heads": _set(num_attention_heads=-4),
    "heads that don't divide": _set(num_attention_heads=7),
    "layers as text": _set(num_hidden_layers="four"),
    "a million layers": _set(num_hidden_layers=10**6),
    "more layers than weights": _set(num_hidden_layers=9_000),
    "no layers": _set(num_hidden_layers=0),
    "layers null": _set(num_hidden_layers=None),
    "half a layer": _set(num_hidden_layers=1.5),
    "hidden size 10^9": _set(hidden_size=10**9),
    "hidden size 10^30": _set(hidden_size=10**30),
    "hidden size negative": _set(hidden_size=-256),
    "vocabulary 10^9": _set(vocab_size=10**9),
    "other vocabulary": _set(vocab_size=999),
    "intermediate size 10^9": _set(intermediate_size=10**9),
    "unknown architecture": _set(model_type="lama"),
    "no architecture": _set(model_type=None),
    "model type is a list": _set(model_type=["llama"]),
    "an encoder": _set(model_type="t5", architectures=["T5Model"]),
    "activation unknown": _set(hidden_act="magic"),
    "deep configuration": _text("config.json", _DEEP),
    "configuration is a list": _text("config.json", "[]"),
    "configuration is cut off": _cut("config.json", 0.5),
    "configuration is 1e999": _text("config.json", '{"model_type": "llama", "hidden_size": 1e999}'),
    "code that is not trusted": _set(
        auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}, model_type="evil"
    ),
}
_OTHERS: dict[str, Damage] = {
    "template without an end": _text("chat_template.jinja", _LOOP + "{% endfor %}"),
    "template that leaves the sandbox": _text("chat_template.jinja", _ESCAPE),
    "template with an error": _text("chat_template.jinja", "{{ messages[7].content.x.y }}"),
    "template that divides by nothing": _text("chat_template.jinja", "{{ 1 // 0 }}"),
    "template cut off": _text("chat_template.jinja", "{% for m in messages %}{{ m"),
    "weights cut off": _cut("model.safetensors", 0.7),
    "weights empty": _cut("model.safetensors", 0.0),
    "weights gone": _gone("model.safetensors"),
    "weights are text": _text("model.safetensors", "version https://git-lfs.github.com/spec/v1\nsize 3807448\n"),
    "weights as a pickle only": _pickled,
    "tokenizer gone": _gone("tokenizer.json"),
    "tokenizer cut off": _cut("tokenizer.json", 0.9),
    "tokenizer empty": _text("tokenizer.json", "{}"),
    "tokenizer deep": _text("tokenizer.json", _DEEP),
    "tokenizer configuration deep": _text("tokenizer_config.json", _DEEP),
    "generation configuration deep": _text("generation_config.json", _DEEP),
    "index leads up": _indexed("../outside.safetensors"),
    "index is absolute": _indexed("ABSOLUTE"),
    "index names a link to the outside": _indexed("link.safetensors"),
}


def _other_template(folder: Path) -> None:
    path = folder / "chat_template.jinja"
    path.write_text("Be brief.\n" + path.read_text(encoding="utf-8"), encoding="utf-8")


def _other_word(folder: Path) -> None:
    """Two words of the vocabulary that answers are decoded by change places."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    words = content["model"]["vocab"]
    first, second = [word for word in words if word.strip() in {"a", "b"}][:2]
    words[first], words[second] = words[second], words[first]
    path.write_text(json.dumps(content), encoding="utf-8")


def _bit(folder: Path) -> None:
    """A bit of the exponent of some weights."""
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    for at in range(100_001, 160_001, 2):
        content[at] ^= 0x08
    path.write_bytes(bytes(content))


_CHANGES: dict[str, Damage] = {
    "stop tokens": partial(_update, name="generation_config.json", values={"eos_token_id": list(range(3, 400))}),
    "tokenizer": _other_word,
    "template": _other_template,
    "weights": _bit,
}
