"""Every alias is complete and pinned, and a name means an alias, a folder or a Hub id, in this order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import registry
from bench.api import UserError
from bench.api.protocol import PRESETS
from bench.model import specs

PAPER = ("mmlu-choice", "mmlu-pro-choice", "mmlu-oe")


@pytest.mark.parametrize("name", list(specs.aliases()))
def test_aliases_are_pinned_and_complete(name: str) -> None:
    spec = specs.resolve(name)
    assert spec == specs.resolve(name)
    assert spec.name == name
    assert spec.preset in PRESETS
    assert spec.dtype in {"float32", "bfloat16", "float16"}
    assert set(spec.tasks) <= set(registry.tasks().names())
    assert spec.local == (name == "tiny")
    if spec.local:
        assert spec.tasks
        assert (Path(spec.source) / "config.json").is_file()
        assert spec.revision is None
    else:
        assert spec.tasks == PAPER
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", spec.source)
        assert re.fullmatch(r"[0-9a-f]{40}", spec.revision or "")


def test_aliases_are_those_of_the_paper_and_tiny() -> None:
    assert list(specs.aliases()) == ["tiny", "llama8b", "qwen14b", "mistral24b", "qwen32b"]


def test_names_are_folders_or_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = specs.resolve("org/model")
    assert (spec.local, spec.source, spec.revision, spec.preset, spec.tasks) == (False, "org/model", None, "fixed", ())
    (tmp_path / "org" / "model").mkdir(parents=True)
    for name in (str(tmp_path / "org"), "org", "org/model", "./org"):
        spec = specs.resolve(name)
        assert spec.local
        assert Path(spec.source).resolve() == Path(name).resolve()


def test_aliases_are_found_in_any_case_and_lend_their_hub_id_their_tasks(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert specs.resolve("Llama8B") is specs.aliases()["llama8b"]
    alias = specs.aliases()["llama8b"]
    spec = specs.resolve(alias.source)
    assert (spec.name, spec.revision, spec.tasks) == ("meta-llama/Llama-3.1-8B-Instruct", None, alias.tasks)
    (tmp_path / "Llama8B").mkdir()
    assert specs.resolve("Llama8B").local


@pytest.mark.parametrize("name", ["nothing", "./org/model", "/no/where", "a/b/c", "~/model", "", "../up"])
def test_names_that_are_neither_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"expected an alias \(tiny, .*a Hub id like 'org/model', or an existing"):
        specs.resolve(name)
