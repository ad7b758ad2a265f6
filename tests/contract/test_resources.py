"""Options of a run that reach what it works with: models, judge, cluster, the processes of plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.engine import engines
from bench.grading.judges import JudgeOptions
from bench.model import language_model, server_model, text_pairs
from bench.progress import Silent
from bench.run import pipeline
from bench.run.config import RunConfig
from bench.run.preparation import open_pair_models, open_resources
from bench.run.resolve import judge_options, resolve


class ReachedError(Exception):
    """Raised where an option has arrived, with the arguments beside it."""


def reach(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
    """Have the call of a class or function raise `ReachedError`."""

    def raise_(*arguments: Any, **named: Any) -> None:
        raise ReachedError(arguments, named)

    monkeypatch.setattr(place, name, raise_)


def config(**options: Any) -> RunConfig:
    return RunConfig(methods=("ptrue",), model="tiny", dry_run=True, **options)


def test_a_judge_gets_the_device_the_dtype_and_the_right_to_run_code() -> None:
    options = {"judge": "hf", "judge_model": "some/judge", "dtype": "bfloat16", "trust_remote_code": True}
    assert judge_options(config(device="mps", **options)) == JudgeOptions(
        "hf", "some/judge", None, "mps", "bfloat16", trust_remote_code=True
    )
    assert judge_options(config(devices=("3", "4"), **options)).device == "cuda:3"
    assert judge_options(config(judge="openai", judge_url="http://127.0.0.1:1/v1")).url == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("option", ["nli", "similarity"])
def test_models_that_relate_samples_get_the_device_and_the_right_to_run_code(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    reach(monkeypatch, text_pairs, "PairModel")
    with pytest.raises(ReachedError) as found:
        open_pair_models(config(trust_remote_code=True, **{option: "some/model"}), "cuda:1")
    assert found.value.args[0] == (f"--{option}", "some/model", "cuda:1", True)


def test_the_model_gets_its_options_and_the_cluster_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = config(dtype="bfloat16", device="cpu", trust_remote_code=True, cache=tmp_path, served="b", parallel=2)
    resolved = resolve(options)
    with pytest.MonkeyPatch.context() as patch:
        reach(patch, server_model, "open_model")
        with pytest.raises(ReachedError) as found:
            open_resources(options, resolved, Silent())
    loading = language_model.LoadOptions("cpu", "bfloat16", trust_remote_code=True, cache=str(tmp_path))
    assert found.value.args[0][1:] == (loading, "b", 2)
    reach(monkeypatch, engines, "EngineOptions")
    with pytest.raises(ReachedError) as found:
        open_resources(config(engine="ray", workers=3, address="10.0.0.1:6379"), resolved, Silent())
    assert found.value.args == (("ray", 3, "10.0.0.1:6379"), {"split": False})


def test_the_processes_of_plugins_get_the_limit_of_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reach(monkeypatch, pipeline, "Isolation")
    with (
        pytest.raises(ReachedError) as found,
        pipeline.open_run(config(method_timeout=7.5, cache=tmp_path), Silent()),
    ):
        pass
    assert found.value.args[0][0] == 7.5
