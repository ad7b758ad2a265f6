"""Hidden states that vLLM's server writes are those of the model here; faults of server and disk cost nothing.

The server is a stand-in with the files of the connector; the real one is asked where CONFBENCH_VLLM names it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.api import (
    At,
    ChoiceLogits,
    Hidden,
    Of,
    QueryLogits,
    Signal,
    Text,
    TokenIds,
    TokenScores,
    Unembedding,
    UserError,
)
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.specs import resolve
from bench.results.files import read_records
from bench.run.config import HeadSetting
from bench.run.scorers import load_head
from bench.run.scorers.card import read_card
from bench.run.scorers.exporting import export
from bench.run.scorers.scorer import parse_questions
from bench.servers import vllm
from bench.signals.definition import definition
from tests.fixtures.whole_run import WholeRun
from tests.kit import splits
from tests.kit.openai_servers import VLLMServer
from tests.kit.place import Place
from tests.kit.served import columns, served
from tests.kit.servers import NOBODY, Reply

PLACES = [At.PROMPT_END, At.ANSWER_PREDICTING, At.ANSWER_END, At.QUERY_END, At.GOLD_PREDICTING, At.WRONG_PREDICTING]
STATES: set[Signal] = {Hidden(depth, at) for at in PLACES for depth in (0.5, 1.0)}
STATES |= {Hidden(1.0, At.ANSWER_PREDICTING, "mean"), Hidden(0.5, At.ANSWER_END, "mean")}
LETTERS: set[Signal] = {ChoiceLogits(), QueryLogits()}
TRAINED = "ccps,saplma-f,saplma-m,pik,litcab,logistic-probe,relative-mahalanobis"


@pytest.fixture(scope="module")
def tiny() -> LanguageModel:
    return LanguageModel(resolve("tiny"), LoadOptions(device="cpu", dtype="float32"))


@pytest.fixture
def server(tiny: LanguageModel, tmp_path: Path) -> Iterator[VLLMServer]:
    folder = tmp_path / "states"
    folder.mkdir()
    made = VLLMServer(tiny, most=20, layers=[2, 4], folder=folder)
    yield made
    made.stop()


@pytest.mark.parametrize("task", [splits.FiveRivers, splits.FiveOpenRivers])
def test_server_states_are_those_of_the_model(server: VLLMServer, tmp_path: Path, task: Any) -> None:
    scores: set[Signal] = {TokenScores(top=3, divergence=True), TokenScores(Of.OPTIONS)}
    signals = STATES | scores | ({QueryLogits()} if task is splits.FiveOpenRivers else LETTERS)
    signals |= {Hidden(0.5, At.SAMPLE_END)} if task is splits.FiveOpenRivers else set()
    lm = served(server)
    assert "vLLM's server, tier 5" in lm.notes[0]
    there, here = (columns(each, tmp_path / each.label, task, signals) for each in (lm, server.lm))
    for signal in signals - {Hidden(0.5, At.SAMPLE_END)}:
        got, expected = (getattr(side[signal], "values", side[signal]) for side in (there, here))
        if signal in LETTERS:
            got, expected = (each - np.nanmax(each, axis=-1, keepdims=True) for each in (got, expected))
        if hasattr(here[signal], "offsets"):
            assert there[signal].offsets.tolist() == here[signal].offsets.tolist(), signal
        for name in expected.dtype.names or (...,):
            np.testing.assert_allclose(got[name], expected[name], 1e-4, 1e-4, err_msg=f"{signal} {name}")
    if task is splits.FiveOpenRivers:  # samples are drawn by the server
        assert np.isfinite(there[Hidden(0.5, At.SAMPLE_END)]).all()
    head = definition(Unembedding()).column(type("Split", (), {"lm": lm})())  # type: ignore[arg-type]
    assert torch.equal(head.weight, server.lm.head.weight)
    assert head.norm is not None
    assert not [*server.folder.iterdir()], "every file is deleted"
    readings = [body for body in server.completions if "kv_transfer_params" in body]
    assert all(len(body["prompt"]) == 1 for body in readings)
    asked = [str((body["prompt"], body["kv_transfer_params"])) for body in readings[4:]]
    assert len(asked) == len(set(asked)), "no states are asked for twice"


@pytest.mark.slow
@pytest.mark.parametrize("task", ["atlas-choice", "atlas-oe"])
def test_server_states_train_and_use_methods(server: VLLMServer, tmp_path: Path, task: str) -> None:
    place, words = Place(tmp_path), ("--task", task, "--limit", 8, "--train-limit", 12, "--method", f"{TRAINED},it,ct")
    place.run("--model", server.url, *words, "--parallel", 4, out="served")
    place.run("--model", "tiny", "--dtype", "float32", *words, out="local")
    there, here = place.rows("served"), place.rows("local")
    assert "gradients, which train an adapter, which vLLM's server doesn't give" in there["ct"]["reason"]
    assert "gradients" in there["it"]["reason"]
    records = {
        out: {path.name.split("--")[0]: read_records(path) for path in (tmp_path / out).rglob("*.json")
              if not path.name.endswith(".failed.json") and path.parent.name == task}
        for out in ("served", "local")
    }  # fmt: skip
    for name in TRAINED.split(","):
        assert there[name]["status"] == here[name]["status"] == "ok", (name, there[name]["reason"])
        got, expected = records["served"][name].confidence, records["local"][name].confidence
        np.testing.assert_allclose(got, expected, atol=1e-2, err_msg=name)
    assert not [*server.folder.iterdir()]


@pytest.mark.slow
def test_local_head_travels_to_the_server_and_back(server: VLLMServer, tmp_path: Path) -> None:
    place, words = Place(tmp_path), ("--task", "atlas-choice", "--limit", 8, "--train-limit", 12)
    place.run(
        "--model", "tiny", "--dtype", "float32", *words, "--method", "saplma-f", "--save-heads", place / "here", out="a"
    )
    place.run("--model", server.url, *words, "--method", "saplma-f", "--save-heads", place / "there", out="b")
    (here,), (there,) = ([card.parent for card in (tmp_path / side).rglob("head.json")] for side in ("here", "there"))
    checked = place.bench("head", "check", here, "--model", server.url)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "OK: in this setting the head says what it said in its run" in checked.stdout
    (check,) = read_card(here).servers
    assert (check.passed, check.model) == (True, served(server).label)
    assert place.bench("head", "check", there, "--model", "tiny", "--dtype", "float32").returncode == 0
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "Where?", "choices": ["a sea", "a lake"], "given": "b"}))
    of = {
        model: place.bench("score", "--head", here, "--model", model, tmp_path / "q.jsonl")
        for model in ("tiny", server.url)
    }
    a, b = (json.loads(done.stdout)["confidence"] for done in of.values())
    assert a == pytest.approx(b, abs=2e-3)
    server.layers = [4]
    refused = place.bench("head", "check", here, "--model", server.url)
    assert refused.returncode == 2
    assert "Layer 2: expected one that the server writes (4)" in refused.stderr


def test_layers_that_the_server_does_not_write_are_named(server: VLLMServer) -> None:
    server.layers = [4]
    lm = served(server)
    spec = definition(Hidden(0.5, At.ANSWER_END))
    assert lm.missing(spec.needs(splits.FiveRivers.format), spec.depths) == (
        "it reads the states of layer 2, and the server writes those of 4; bench doctor prints the command for all"
    )
    assert lm.missing(definition(Hidden()).needs(splits.FiveRivers.format), definition(Hidden()).depths) is None


def test_heads_need_a_server_of_both_layers(server: VLLMServer, tmp_path: Path) -> None:
    """Otherwise a run of hours would read all its answers, and end without a head."""
    server.layers = [4]
    words = ("run", "--model", server.url, "--task", "atlas-choice", "--limit", 2, "--train-limit", 12)
    assert (
        "states a head can keep, of the middle and the last layer; it reads the states of layer 2, and the server"
        " writes those of 4; bench doctor prints the command for all. Leave it out."
    ) in Place(tmp_path).refused(*words, "--method", "pik", "--save-heads", "heads")


@pytest.mark.parametrize(
    ("layers", "root", "note"),
    [
        ([1, 2], None, r"of the layers \[1, 2\], none is the last, 4; name it, too"),
        ([2, 4], "nobody/nothing", "nobody/nothing is not in the Hub's cache of this machine"),
        ([2, 4], "./gone", "Unknown model './gone'"),
    ],
)
def test_states_without_a_head_are_not_used(server: VLLMServer, layers: list[int], root: str | None, note: str) -> None:
    server.layers, server.root = layers, root or server.root
    lm = served(server)
    assert "it reads hidden states or the output head" in str(
        lm.missing(definition(Hidden()).needs(splits.FiveRivers.format))
    )
    (found,) = [each for each in lm.notes if "can't be used" in each]
    assert re.search(note, found)


def test_states_are_not_taken_from_what_was_read_without_them(server: VLLMServer, tmp_path: Path) -> None:
    root, server.root, server.most = server.root, "nobody/nothing", -1
    columns(
        served(server), tmp_path, splits.FiveRivers, {Text(Of.SAMPLES)}
    )  # of log-probabilities at the prompts' ends
    server.root = root
    states = Hidden(1.0, At.PROMPT_END)
    there = columns(served(server), tmp_path, splits.FiveRivers, {states})[states]
    here = columns(server.lm, tmp_path, splits.FiveRivers, {states})[states]
    np.testing.assert_allclose(there, here, 1e-4, 1e-4)


def test_mean_state_of_an_empty_answer_is_none(server: VLLMServer, tmp_path: Path) -> None:
    ends = itertools.cycle((True, False))  # not the server's count of requests: it holds those still in flight

    def end_every_other(answer: dict[str, Any]) -> None:
        (choice,) = answer["choices"]
        if len(choice["logprobs"]["tokens"]) > 1 and next(ends):
            choice["finish_reason"], told = "stop", choice["logprobs"]
            choice["logprobs"] = {name: values[:1] for name, values in told.items()}

    lm = served(server)
    server.change = end_every_other
    signals: set[Signal] = {Hidden(0.5, At.ANSWER_END, "mean"), Hidden(1.0, At.ANSWER_PREDICTING, "mean")}
    found = columns(lm, tmp_path, splits.FiveOpenRivers, {*signals, TokenIds(Of.ANSWER)})
    empty = found.pop(TokenIds(Of.ANSWER)).lengths == 0
    assert 0 < empty.sum() < len(empty)
    for values in found.values():
        assert np.isnan(values).any(axis=1).tolist() == empty.tolist()


def test_other_weights_than_the_server_has_are_not_used(
    server: VLLMServer, tiny: LanguageModel, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny.folder, tmp_path / "other")
    path = next(folder.glob("*.safetensors"))
    weights = load_file(path)
    save_file(
        {k: v * (1.5 if "embed" in k or "lm_head" in k else 1) for k, v in weights.items()}, path, {"format": "pt"}
    )
    server.root = str(folder)
    assert "gives other log-probabilities than the server" in served(server).notes[-1]


# --- confidences beside replies ---------------------------------------------------------------------------------------

PROXY = Path(__file__).parents[2] / "docs" / "serve_confidence.py"


def ask(url: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    data, key = None if body is None else json.dumps(body).encode(), {"Authorization": "Bearer of-the-client"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, key), timeout=60) as reply:  # noqa: S310
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@contextmanager
def proxy(exported: Path, server: VLLMServer) -> Iterator[str]:
    words = [sys.executable, str(PROXY), str(exported), server.url, "--port", "0"]
    env = {**os.environ, "http_proxy": NOBODY, "no_proxy": ""}  # which questions must not go through
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as running:
        assert running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.terminate()


def test_proxy_serves_the_confidence_of_the_head(server: VLLMServer, whole_run: WholeRun, tmp_path: Path) -> None:
    asked = {"question": "Where do ships wait?", "choices": ["in a harbour", "on a hill"], "subject": "harbour_law"}
    for name in ("pik--demo--s0", "logistic-probe--demo--s0", "saplma-m--demo--s0"):
        folder, exported = whole_run.head(name), tmp_path / name
        export(folder, exported, HeadSetting(server.url if name.startswith("pik") else None, "cpu"))
        head = load_head(folder, device="cpu")
        scored = head.score_questions(head_questions(head, asked), {})
        ((prompt, answer),) = scored.data_by_split[0].pairs()
        with proxy(exported, server) as url:
            body = {"model": "m", "prompt": [prompt.tolist()], "max_tokens": 1, "temperature": 0}
            status, reply = ask(f"{url}/completions", body)
            assert status == 200, reply
            (choice,) = reply["choices"]
            assert choice["confidence"] == pytest.approx(float(scored.confidence[0]), abs=1e-5)
            assert choice["trusted"] is None
            assert not {"token_ids", "prompt_token_ids"} & choice.keys()
            assert server.completions[-1]["prompt"] == [[*prompt.tolist(), *answer.tolist()]]
    assert not [*server.folder.iterdir()], "every file is deleted"


def head_questions(head: Any, asked: dict[str, Any]) -> list[Any]:
    return parse_questions([asked], None, "", head.format)[0]


def test_proxy_adds_a_confidence_to_chats_and_says_why_not(
    server: VLLMServer, whole_run: WholeRun, tmp_path: Path
) -> None:
    exported = tmp_path / "exported"
    export(whole_run.head("logistic-probe--demo--s0"), exported, HeadSetting(None, "cpu"))
    page = runpy.run_path(str(exported / "confidence.py"))
    chat = {"model": "m", "messages": [{"role": "user", "content": "Which river?"}], "max_tokens": 4, "temperature": 0}
    with proxy(exported, server) as url:
        assert ask(f"{url}/models")[1]["data"][0]["id"] == server.alias
        status, reply = ask(f"{url}/chat/completions", chat)
        assert status == 200, reply
        assert {*reply} == {"model", "choices"}
        assert {call.headers["authorization"] for call in server.calls[-2:]} == {"Bearer of-the-client"}
        assert ask(f"{url}/responses", chat)[0] == 400
        sent = server.completions[-1]
        (ids,), (row,) = sent["prompt"], sent["kv_transfer_params"]["rows"]
        assert row == len(ids) - 1
        with torch.inference_mode():
            last = server.lm.model.base_model(torch.tensor([ids])).last_hidden_state[0, -1:].numpy()
        confidence = reply["choices"][0]["confidence"]
        assert confidence == pytest.approx(page["confidence"](last), abs=1e-5)
        server.write = lambda tensors, path: save_file(
            {**tensors, "hidden_states": tensors["hidden_states"].bfloat16()}, path
        )
        assert ask(f"{url}/chat/completions", chat)[1]["choices"][0]["confidence"] == pytest.approx(
            confidence, abs=0.05
        )
        server.write = full_disk
        for change, code, told in (({}, 502, "did not write"), ({"stream": True}, 400, "ask without stream")):
            status, reply = ask(f"{url}/chat/completions", {**chat, **change})
            assert (status, told in reply["error"]["message"]) == (code, True)
        status, reply = ask(f"{url}/completions", {"prompt": [[1]], "stop_token_ids": [10**6]})
        assert status == 400
        assert "out-of-vocab" in reply["error"]["message"]
        server.layers = [2]
        status, reply = ask(f"{url}/chat/completions", chat)
        assert (status, reply["error"]["message"]) == (502, "vLLM writes states of layers [2]; start it with layer 4")


# --- faults -----------------------------------------------------------------------------------------------------------


def states_after(server: VLLMServer, tmp_path: Path) -> Any:
    return columns(served(server), tmp_path / "store", splits.FiveRivers, {Hidden(0.5, At.ANSWER_END)})


def failing(server: VLLMServer, write: Any, after: int) -> None:
    """Write states by another function after some files."""

    def either(tensors: dict[str, torch.Tensor], path: Path) -> None:
        (write if server.written > after else save_file)(tensors, path)

    server.write = either


def no_file(_tensors: object, _path: Path) -> None:
    pass


def full_disk(_tensors: object, path: Path) -> None:
    path.with_suffix(".error").touch()


def half_a_file(tensors: dict[str, torch.Tensor], path: Path) -> None:
    save_file(tensors, path)
    path.write_bytes(path.read_bytes()[:-100])


def another_prompts(tensors: dict[str, torch.Tensor], path: Path) -> None:
    save_file({**tensors, "token_ids": tensors["token_ids"] + 1}, path)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        pytest.param(
            no_file, r"wrote no hidden states within 0.2 s to .*states\. Start it with a shared_storage_path",
            marks=pytest.mark.slow,
        ),
        (full_disk, r"can't write hidden states to .*states \(no space left\)\. Free some disk space\."),
        (half_a_file, r"wrote hidden states that can't be read"),
        pytest.param(
            another_prompts, r"expected 2 states of each of 2 layers of a prompt, got others in", marks=pytest.mark.slow
        ),
    ],
)  # fmt: skip
def test_run_goes_on_after_states_failed(
    server: VLLMServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, sentence: str
) -> None:
    monkeypatch.setattr(vllm, "_WAIT_S", 0.2)
    failing(server, write, after=7)
    with pytest.raises(UserError, match=sentence):
        states_after(server, tmp_path)
    failing(server, write, after=1 << 30)
    before, probes = server.written, 4
    (values,) = states_after(server, tmp_path).values()
    assert server.written - before == probes + 5 - (7 - probes), "what was read is not read again"
    (expected,) = columns(server.lm, tmp_path / "here", splits.FiveRivers, {Hidden(0.5, At.ANSWER_END)}).values()
    np.testing.assert_allclose(values, expected, 1e-4, 1e-4)


@pytest.mark.slow
def test_mixed_run_goes_on_after_either_server_failed(server: VLLMServer, tiny: LanguageModel, tmp_path: Path) -> None:
    writer, place = VLLMServer(tiny, most=20), Place(tmp_path)
    words = (
        "--model", server.url, "--answers", writer.url, "--task", "atlas-choice", "--limit", 8, "--train-limit", 12,
        "--method", "saplma-f,pik",
    )  # fmt: skip
    try:
        for failing_one in (writer, server):
            begun = len(failing_one.completions)
            failing_one.fault = lambda _call, n, begun=begun: Reply("gone", 500) if n > begun + 20 else None
            stopped = place.bench("run", *words, "--out", "out")
            assert stopped.returncode == 2, stopped.stdout + stopped.stderr
            failing_one.fault = lambda _call, _n: None
        place.run(*words, out="out")
        asked = [
            str(body["prompt"])
            for body in server.completions
            if "kv_transfer_params" in body and len(body["prompt"][0]) > 20  # not a fixed prompt
        ]
        again = [each for each in set(asked) if asked.count(each) > 2]
        assert len(again) <= 2, "states are asked for by the comparison, then by the run, and again where that failed"
        place.run("--model", "tiny", "--dtype", "float32", *words[4:], out="local")
        for name in ("saplma-f", "pik"):
            got, expected = (place.records(name, out).confidence for out in ("out", "local"))
            np.testing.assert_allclose(got, expected, atol=1e-2, err_msg=name)
    finally:
        writer.stop()


def test_server_restarted_with_other_layers_is_refused(server: VLLMServer, tmp_path: Path) -> None:
    lm = served(server)
    server.layers = [1, 4]
    with pytest.raises(UserError, match=r"writes states of layers \[1, 4\] now, not of \[2, 4\]"):
        columns(lm, tmp_path, splits.FiveRivers, {Hidden(0.5, At.ANSWER_END)})
