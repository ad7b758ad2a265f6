"""Every alias is complete and pinned, and a name means an alias, a folder or a Hub id, in this order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import registry
from bench.api import UserError
from bench.api.protocol import PRESETS
from bench.model import specs


@pytest.mark.parametrize("name", list(specs.aliases()))
def test_every_alias_is_pinned_and_complete(name: str) -> None:
    spec = specs.resolve(name)
    assert spec.name == name
    assert spec.preset in PRESETS
    assert spec.dtype in {"float32", "bfloat16", "float16"}
    assert spec.tasks
    if spec.local:
        assert (Path(spec.source) / "config.json").is_file()
        assert spec.revision is None
    else:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", spec.source)
        assert re.fullmatch(r"[0-9a-f]{40}", spec.revision or "")


def test_the_models_of_the_paper_and_the_embedded_one_are_there() -> None:
    assert list(specs.aliases()) == ["tiny", "llama8b", "qwen14b", "mistral24b", "qwen32b"]
    assert specs.resolve("tiny").local


def test_models_of_the_paper_run_its_three_benchmarks_unless_told_otherwise() -> None:
    for name in ("llama8b", "qwen14b", "mistral24b", "qwen32b"):
        assert specs.resolve(name).tasks == ("mmlu-choice", "mmlu-pro-choice", "mmlu-oe")


def test_tasks_of_every_alias_are_registered() -> None:
    assert {task for name in specs.aliases() for task in specs.resolve(name).tasks} <= set(registry.tasks().names())


def test_asking_twice_gives_the_same() -> None:
    assert specs.resolve("llama8b") == specs.resolve("llama8b")


def test_a_folder_is_itself_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in (str(tmp_path / "org"), "org", "org/model", "./org"):
        spec = specs.resolve(name)
        assert spec.local
        assert Path(spec.source).resolve() == Path(name).resolve()


def test_two_words_with_a_slash_are_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = specs.resolve("org/model")
    assert (spec.local, spec.source, spec.revision, spec.preset, spec.tasks) == (False, "org/model", None, "fixed", ())


@pytest.mark.parametrize("name", ["nothing", "./org/model", "/no/where", "a/b/c", "~/model", "", "../up"])
def test_what_is_neither_is_refused_with_all_three_ways_out(name: str) -> None:
    with pytest.raises(UserError, match=r"expected an alias \(tiny, .*a Hub id like 'org/model', or an existing"):
        specs.resolve(name)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(UserError, match="Did you mean 'llama8b'"):
        specs.resolve("lama8b")
