"""A model behind a server gives the numbers that the same model gives here; faults of the server cost nothing.

The servers have the dialect of llama.cpp, of vLLM, or OpenAI's chat completions alone, and our model `tiny`, so equal
answers must give equal numbers.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import json
import math
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import (
    ChoiceLogits,
    Followup,
    Of,
    QueryLogits,
    Question,
    Samples,
    Signal,
    Split,
    Text,
    TokenIds,
    TokenScores,
    UserError,
)  # fmt: skip
from bench.api.question import Message, Prompt
from bench.cli import doctor
from bench.model import server_model, token_sampling
from bench.model.language_model import LanguageModel, LoadOptions
from bench.model.server_model import ServerModel
from bench.model.specs import resolve
from bench.prompts.chat import Chat
from bench.prompts.traces import TraceEnd
from bench.results.files import read_records
from bench.run.scorers.card import ModelCard
from bench.servers import client
from bench.signals.definition import definition
from bench.store.disk_cache import Store
from bench.store.lines import append_line
from bench.store.pruning import prune, select_entries
from bench.store.usage import list_usage
from tests.fixtures import models
from tests.kit import splits
from tests.kit.llama_cpp import BUILT_IN, LlamaServer
from tests.kit.model_server import ModelServer
from tests.kit.openai_servers import ChatOnly, ChatServer, VLLMServer
from tests.kit.place import Place
from tests.kit.real_servers import llama_server, vllm_server
from tests.kit.served import columns, reader_of, served
from tests.kit.servers import NEWER, Call, Reply, send

HOW = "How sure are you?"
CHOICE: set[Signal] = {
    ChoiceLogits(), QueryLogits(), Followup(HOW, words=("a", "b")), Followup(HOW, say=3), Text(Of.SAMPLES),
    TokenScores(top=3, divergence=True), TokenScores(Of.OPTIONS, top=2), Samples(3), TokenIds(Of.ANSWER),
}  # fmt: skip
OPEN: set[Signal] = {
    QueryLogits(), Followup(HOW, say=3), TokenScores(top=3, divergence=True), TokenScores(Of.OPTIONS),
    TokenScores(Of.GOLD), Samples(3, 0.7, 0.9), TokenIds(Of.ANSWER),
}  # fmt: skip
KINDS: dict[str, tuple[dict[str, Any], int | None]] = {
    "llama.cpp, three at once": ({"kind": LlamaServer, "slots": 3}, 3), "llama.cpp": ({"kind": LlamaServer}, None),
    "vLLM": ({"kind": VLLMServer}, None), "vLLM, three at once": ({"kind": VLLMServer}, 3),
}  # fmt: skip
FAR = Followup(HOW, words=("a", "b", "x", "z"))
"""Words of which not all are likely."""
FEW: frozenset[Signal] = frozenset({ChoiceLogits(), QueryLogits()})
TIER = (
    "sequence-probability,perplexity,token-margin,mean-token-entropy,self-certainty,ptrue,verbalised,self-consistency,"
    "semantic-entropy,degree-matrix,eccentricity,eigenvalues,cocoa,sentence-sar,lts,combined"
)


@pytest.fixture(scope="module")
def tiny() -> LanguageModel:
    return LanguageModel(resolve("tiny"), LoadOptions(device="cpu", dtype="float32"))


OWN = BUILT_IN.replace("messages -%}", "messages if message.content -%}", 1)
"""A model's own template, which looks like llama.cpp's built-in one."""


class NoSystem(VLLMServer):
    """Its template refuses system turns."""

    def answer(self, call: Call) -> dict[str, Any] | str | None:
        system = any(turn["role"] == "system" for turn in call.body.get("messages", ()))
        return "System role not supported" if system else super().answer(call)


class Sums(splits.FiveRivers):
    """Questions of many digits, each of which is a token."""

    def questions(self, split: Split) -> Iterator[Question]:
        """The same, after a long sum."""
        for question in super().questions(split):
            yield replace(question, text=f"What is {'1734 + ' * 300}0") if split == "test" else question


class Loading(LlamaServer):
    """It lists its model before it has loaded it."""

    refused = 2

    def handle(self, handler: Any, body: dict[str, Any]) -> None:
        if not self.refused:
            super().handle(handler, body)
        elif handler.path == "/v1/models":
            send(handler, Reply(body=json.dumps({"data": [{"id": self.alias, "meta": None}]}).encode()))
        else:
            self.refused -= 1
            send(handler, Reply(status=503, body=b'{"error": {"message": "Loading model"}}'))


class Outage(LlamaServer):
    """A proxy answers for it, by some status, the nth call of a path; or each from the nth on."""

    path, since, status, stays, seen = "/apply-template", 0, 503, False, 0

    def handle(self, handler: Any, body: dict[str, Any]) -> None:
        self.seen += handler.path == self.path
        if handler.path == self.path and (self.seen == self.since or (self.stays and self.seen > self.since)):
            send(handler, Reply("bad gateway", self.status))
        else:
            super().handle(handler, body)


@pytest.fixture
def server(tiny: LanguageModel) -> Iterator[LlamaServer]:
    made = LlamaServer(tiny)
    yield made
    made.stop()


@pytest.fixture
def start(tiny: LanguageModel) -> Iterator[Any]:
    """A function that starts a server of some kind before the model."""
    started: list[ModelServer] = []

    def begin(kind: Any, **settings: Any) -> Any:
        started.append(kind(tiny, **settings))
        return started[-1]

    yield begin
    for each in started:
        each.stop()


def seed_of(seed: int, question: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{question}\0{number}".encode()).digest()[:4], "big") & 0x7FFFFFFF


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local model draws with the numbers that the server takes from each seed."""

    def numbers(seed: int, question: str, n: int, length: int) -> Any:
        return np.stack([np.random.default_rng(seed_of(seed, question, j)).random(length) for j in range(n)])

    monkeypatch.setattr(token_sampling, "uniform_numbers", numbers)


def shares(logits: Any) -> Any:
    weights = np.exp(logits - np.nanmax(logits, axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("kind", "at_once", "task", "signals"),
    [
        pytest.param(*kind, *asked, id=f"{name}-{asked[0].name}", marks=pytest.mark.slow if (i + k) % 2 else ())
        for i, (name, kind) in enumerate(KINDS.items())
        for k, asked in enumerate([(splits.FiveRivers, CHOICE), (splits.FiveOpenRivers, OPEN)])
    ],
)
def test_server_signals_are_those_of_the_model(
    start: Any, same_draws: None, tmp_path: Path, task: Any, signals: set[Signal], kind: Any, at_once: int | None
) -> None:
    server = start(**kind)
    here = columns(server.lm, tmp_path / "here", task, signals)
    there = columns(served(server, at_once), tmp_path / "there", task, signals)
    for signal, expected in here.items():
        got = there[signal]
        if isinstance(signal, ChoiceLogits | QueryLogits) or (isinstance(signal, Followup) and not signal.say):
            np.testing.assert_allclose(shares(got), shares(expected), atol=1e-5, equal_nan=True)  # less a constant
            continue
        if not hasattr(expected, "offsets"):
            assert got.tolist() == expected.tolist(), signal
            continue
        assert got.offsets.tolist() == expected.offsets.tolist(), signal
        for name in expected.values.dtype.names or ():
            if name == "entropy" and isinstance(signal, TokenScores) and signal.of is Of.SAMPLES:
                continue
            np.testing.assert_allclose(got.values[name], expected.values[name], 1e-5, 1e-5, err_msg=f"{signal} {name}")
    asked = requests(server)
    if isinstance(server, LlamaServer):
        forced = any('"grammar"' in body for body in asked)
        assert forced == (task is splits.FiveOpenRivers), "texts of options are forced, letters are read at once"
        assert len(asked) == len(set(asked)), "nothing is asked twice"
    elif at_once:
        assert not any("logprob_token_ids" in body for body in asked), "vLLM mixes them up with requests beside them"


@pytest.mark.slow
@pytest.mark.parametrize("task", ["atlas-choice", "atlas-oe"])
def test_server_methods_have_the_confidences_of_the_model(
    server: LlamaServer, same_draws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setattr(server_model.ServedFiles, "weights", server.lm.files.weights)  # seeds of fits follow from it
    place, words = Place(tmp_path), ("--task", task, "--limit", 8, "--train-limit", 10)
    done = place.run("--model", server.url, *words, "--method", f"{TIER},pik,ccps,it", out="served")
    place.run("--model", "tiny", "--dtype", "float32", *words, "--method", TIER, out="local")
    there, here = place.rows("served"), place.rows("local")
    states = "hidden states or the output head, which llama.cpp's server doesn't give"
    for name, words in (
        ("pik", states),
        ("ccps", states),
        ("it", "gradients, which train an adapter, which llama.cpp"),
    ):
        assert words in there[name]["reason"]
    records = {
        out: {path.name.split("--")[0]: read_records(path) for path in (tmp_path / out).rglob("*.json")
              if not path.name.endswith(".failed.json") and path.parent.name == task}
        for out in ("served", "local")
    }  # fmt: skip
    for name, row in here.items():
        assert row["status"] == there[name]["status"] == "ok", (name, there[name]["reason"])
        got, expected = records["served"][name], records["local"][name]
        assert (got.answer, got.correct.tolist()) == (expected.answer, expected.correct.tolist())
        np.testing.assert_allclose(got.confidence, expected.confidence, atol=1e-5, err_msg=name)
        if expected.score is not None:
            np.testing.assert_allclose(got.score, expected.score, atol=1e-5, err_msg=name)
    assert "llama.cpp's server, tier 4; requests one at a time, each read anew" in done.stdout + done.stderr
    assert there["ptrue"]["model"].startswith("tiny.served-")
    assert "127.0.0.1" not in (next((tmp_path / "served").rglob("ptrue*.json"))).read_text()


# --- answers for a model that is loaded here --------------------------------------------------------------------------


@pytest.mark.slow
def test_answers_of_a_server_are_read_here_after_a_comparison(
    server: LlamaServer, same_draws: None, tmp_path: Path
) -> None:
    place, methods = Place(tmp_path), ("ptrue", "sequence-probability", "self-consistency")
    words = ("--model", "tiny", "--dtype", "float32", "--task", "atlas-oe", "--limit", 6, "--method", ",".join(methods))
    done = place.run(*words, "--answers", server.url, out="served")
    asked = requests(server)
    assert len(asked) == len(set(asked)) + 6, "only the compared answers are asked twice"
    place.run(*words, "--answers", server.url, out="served")
    assert len(requests(server)) == len(asked), "another run asks nothing"
    place.run(*words, out="local")
    for name in methods:
        row, records, expected = place.rows("served")[name], place.records(name, "served"), place.records(name, "local")
        assert (records.answer, records.correct.tolist()) == (expected.answer, expected.correct.tolist())
        np.testing.assert_allclose(records.confidence, expected.confidence, atol=1e-5, err_msg=name)
        assert row["answers_source"] == row["config"]["answers"]
        assert row["answers_source"].startswith("server:tiny.served-")
        note = row["notes"][0]
        assert "6 of the first 6 of atlas-oe/test are those of the model here, too; log-prob" in note
        assert note in done.stdout + done.stderr
    assert "127.0.0.1" not in next((tmp_path / "served").rglob("ptrue*.json")).read_text()


def test_answers_of_another_model_are_refused(server: LlamaServer, other: Any, tmp_path: Path) -> None:
    server.lm = copy.copy(other)
    vars(server.lm)["head"] = copy.copy(other.head).__class__(other.head.weight * 0.2)
    said = Place(tmp_path).done(
        "run", "--model", "tiny", "--answers", server.url, "--task", "atlas-choice", "--limit", 4, "--method", "ptrue",
        code=2,
    ).stderr  # fmt: skip
    assert "bench: --answers: answers are written by tiny.served-" in said
    assert "Two engines of one model differ by less; bench drift A B says why." in said
    assert not list((tmp_path / "out").rglob("*.json"))


# --- reasoning traces -------------------------------------------------------------------------------------------------

TRACED: set[Signal] = {
    QueryLogits(), TokenScores(top=3), TokenScores(Of.TRACE, mean_of=4), TokenIds(Of.TRACE), TokenIds(Of.QUERY),
    Followup(HOW, say=3), Text(Of.SAMPLES, samples=Samples(2, 1e-3)),
}  # fmt: skip
FORCED: set[Signal] = {ChoiceLogits(), ChoiceLogits((0.25, 0.5, 0.75))}
SPOKEN = 10
"""Budget of traces."""


def reasoning(lm: LanguageModel, marker: int | None, budget: int = SPOKEN) -> LanguageModel:
    """The same model, which reasons first: by an instruction, or up to a token that its traces happen to have."""
    changed = copy.copy(lm)
    vars(changed)["chat"] = Chat(lm.chat.tokenizer)
    changed.chat.think(budget, lm.context)
    if marker is not None:
        assert changed.chat.thinking is not None
        closed = np.concatenate([[marker], changed.chat.thinking.closed]).astype(np.int32)
        changed.chat.thinking = replace(changed.chat.thinking, marker_id=marker, closed=closed)
    return changed


def trace_ends(lm: LanguageModel, cache: Path, task: Any) -> list[tuple[list[int], TraceEnd]]:
    reader = reader_of(lm, cache)
    done = reader.read(splits.opened(reader, task), frozenset({TokenIds(Of.TRACE)}))
    return [([*map(int, text.trace)], text.end) for (text,) in done.generated[None]]


@pytest.mark.parametrize(
    ("task", "way", "kind"),
    [
        (splits.FiveRivers, "instructed", LlamaServer),
        pytest.param(splits.FiveRivers, "instructed", VLLMServer, marks=pytest.mark.slow),
        pytest.param(splits.FiveOpenRivers, "marked", LlamaServer, marks=pytest.mark.slow),
        (splits.FiveOpenRivers, "marked", VLLMServer),
        (splits.FiveRivers, "empty", LlamaServer),
        pytest.param(splits.FiveRivers, "empty", VLLMServer, marks=pytest.mark.slow),
    ],
)
def test_server_signals_after_traces_are_those_of_the_model(
    start: Any, tiny: LanguageModel, tmp_path: Path, task: Any, kind: Any, way: str
) -> None:
    server, marker = start(kind, **({"slots": 3} if kind is LlamaServer else {})), None
    if way != "instructed":
        said = [ids for ids, _ in trace_ends(reasoning(tiny, len(tiny.chat.tokenizer) + 1), tmp_path / "said", task)]
        marker = said[0][0]
        if way != "empty":
            tokens = {token for ids in said for token in ids[1:]}
            marker = next(token for token in sorted(tokens) if any(token not in ids for ids in said))
    here, there = reasoning(tiny, marker), reasoning(served(server, 3), marker)
    expected_ends, ends = (trace_ends(lm, tmp_path / name, task) for lm, name in ((here, "here"), (there, "there")))
    assert ends == expected_ends
    assert len({end for _, end in ends}) > 1 or way == "empty"
    assert any(not ids for ids, _ in ends) == (way == "empty")
    signals = TRACED | (FORCED if task is splits.FiveRivers else set())
    expected, got = columns(here, tmp_path / "here", task, signals), columns(there, tmp_path / "there", task, signals)
    for signal in signals:
        one, other = got[signal], expected[signal]
        if isinstance(signal, ChoiceLogits | QueryLogits):
            np.testing.assert_allclose(shares(one), shares(other), atol=1e-5, equal_nan=True, err_msg=repr(signal))
        elif isinstance(signal, TokenScores):
            assert one.offsets.tolist() == other.offsets.tolist(), signal
            for name in {*(one.values.dtype.names or ())} - {"entropy" if signal.of is Of.TRACE else ""}:
                np.testing.assert_allclose(one.values[name], other.values[name], 1e-4, 1e-4, err_msg=f"{signal} {name}")
        else:
            values = [np.asarray(getattr(each, "values", each)).tolist() for each in (one, other)]
            assert values[0] == values[1], signal
    assert len(requests(server)) == len(set(requests(server))), "nothing is asked twice"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LlamaServer, VLLMServer])
def test_server_methods_after_traces_have_the_confidences_of_the_model(start: Any, tmp_path: Path, kind: Any) -> None:
    place, server = Place(tmp_path), start(kind)
    same = ("ptrue", "sequence-probability", "verbalised", "trace-length", "deepconf-mean", "answer-stability")
    methods = f"{','.join(same)},self-consistency"
    words = ("--task", "atlas-choice", "--limit", 4, "--train-limit", "6+6", "--think-budget", 6, "--method", methods,
             "--set", "self-consistency.n=2")  # fmt: skip
    place.run("--model", "tiny", "--dtype", "float32", *words, out="local")
    said = place.run("--model", server.url, *words, out="served").stderr
    assert "this model reasons before each answer, in at most 6 tokens, by an instruction" in said
    place.run("--model", "tiny", "--dtype", "float32", *words, "--answers", server.url, out="read")
    here = place.rows("local")
    for out in ("served", "read"):
        there = place.rows(out)
        for name, row in here.items():
            assert there[name]["status"] == row["status"] == "ok", (name, there[name]["reason"])
            own, counts = (
                {what: n for what, n in each["counts"].items() if "entropies" not in what and "sampled" not in what}
                for each in (there[name], row)
            )
            assert own == counts
            assert there[name]["answers_source"].endswith(" after traces of at most 6 tokens")
            if out == "served" and name != "self-consistency":
                assert there[name]["test_generated_tokens"] == row["test_generated_tokens"]
        for name in same:
            got, expected = place.records(name, out), place.records(name, "local")
            assert (got.answer, got.correct.tolist()) == (expected.answer, expected.correct.tolist())
            np.testing.assert_allclose(got.confidence, expected.confidence, atol=1e-4, err_msg=f"{out} {name}")
    asked = len(server.completions)
    place.run("--model", server.url, *words, out="again")
    assert len(server.completions) < asked + 20, "only the probe is asked again"


@pytest.mark.parametrize(
    ("kind", "budget", "says"),
    [
        (ChatServer, 8, "it reads reasoning traces, which this OpenAI-compatible server doesn't give, as it takes no"),
        (VLLMServer, 16384, "--think-budget 16384: expected fewer tokens than this model's context of 16,383"),
    ],
)
def test_server_traces_that_can_not_be_are_refused(
    start: Any, tmp_path: Path, kind: Any, budget: int, says: str
) -> None:
    url, place = start(kind).url, Place(tmp_path)
    words = ("run", "--task", "atlas-choice", "--method", "ptrue", "--think-budget", budget)
    assert says in place.refused(*words, "--model", url)
    if kind is ChatServer:
        assert says in place.refused(*words, "--model", "tiny", "--answers", url)


# --- faults -----------------------------------------------------------------------------------------------------------


def values(server: LlamaServer, cache: Path) -> list[Any]:
    found = columns(served(server), cache, splits.FiveRivers, set(FEW))
    return [found[signal].tolist() for signal in sorted(FEW, key=repr)]


@pytest.fixture
def read(server: LlamaServer, tmp_path: Path) -> Any:
    """A function that reads signals from the server into one store, and returns their values."""
    return lambda cache="cache": values(server, tmp_path / cache)


@pytest.fixture(scope="module")
def expected(tiny: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Values of an undisturbed server."""
    server = LlamaServer(tiny)
    yield values(server, tmp_path_factory.mktemp("undisturbed"))
    server.stop()


def test_vllm_ends_texts_where_the_template_ends_turns(tmp_path: Path) -> None:
    prompt, token, texts = np.arange(3, 9, dtype=np.int32), None, []
    for name in ("long", "short"):
        lm = LanguageModel(resolve(str(models.chatml(tmp_path / name, token))), LoadOptions(device="cpu"))
        server = VLLMServer(lm)
        made = served(server)
        texts.append(made.dialect.complete(prompt, 8).ids.tolist())
        assert made.added_stops == lm.added_stops == {8192}
        vars(lm)["added_stops"], vars(lm)["stops"] = frozenset(), lm.stops  # now the server stops there by itself
        assert served(server).added_stops == frozenset()
        server.stop()
        token = texts[0][2]
    assert texts[1] == texts[0][: texts[0].index(token)]


def requests(server: ModelServer) -> list[str]:
    """Calls for completions that are about questions, not the probe's."""
    bodies = [{name: value for name, value in body.items() if name != "cache_salt"} for body in server.completions]
    texts = (
        json.dumps(body, sort_keys=True) for body in bodies if len(str(body.get("prompt", body.get("messages")))) > 150
    )
    return [text for text in texts if " a a a a" not in text]  # what tells whether prompts are cut


def test_server_killed_in_mid_run_loses_and_repeats_nothing(
    server: LlamaServer, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, whole = read("undisturbed"), requests(server)
    monkeypatch.setattr(client, "RETRIES", 0)
    server.calls.clear()

    def fault(_call: Any, number: int) -> Reply | None:
        return Reply(raw=lambda connection: connection.close()) if number > 22 else None

    server.fault = fault
    with pytest.raises(UserError, match=r"can't be reached in 1 tries \(.*\)\. Start it, or correct --model\.$"):
        read()
    answered = [json.dumps(b, sort_keys=True) for b in server.completions[:22] if len(b["prompt"]) > 20]
    server.stop()
    server.fault = lambda *_: None
    server.start()
    server.calls.clear()
    assert read() == expected
    assert len(answered) > 3
    assert set(answered).isdisjoint(requests(server)), "what was answered is not asked again"
    assert sorted([*answered, *requests(server)]) == sorted(whole)


@pytest.mark.parametrize(
    "reply",
    [
        Reply("slow down", 429, {"retry-after-ms": "1"}),
        Reply(seconds=0.6),
    ],
    ids=["429", "slow"],
)
def test_server_that_fails_for_a_while_is_asked_again(
    server: LlamaServer, expected: list[Any], read: Any, monkeypatch: pytest.MonkeyPatch, reply: Reply
) -> None:
    if reply.seconds:
        monkeypatch.setattr(client, "TIMEOUT_S", 0.5)
    # after what names no time, each further try waits twice as long
    server.fault = lambda _call, number: reply if number in ({14, 15, 19} if reply.headers else {14}) else None
    assert read() == expected


def test_llama_cpp_is_waited_for_while_it_loads(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(start(Loading)).dialect.name == "llama.cpp"
    monkeypatch.setattr(client, "RETRIES", 1)
    with pytest.raises(UserError, match=r"failed in 2 tries \(503: .*Loading model.*Wait"):
        served(start(Loading))


@pytest.mark.parametrize("template", [None, OWN])
def test_llama_model_without_template_is_asked_plainly(
    start: Any, tiny: LanguageModel, template: str | None
) -> None:  # fmt: skip
    """As its file is here; llama.cpp falls back to a template that the model never saw, and doesn't say so."""
    server, tokenizer = start(LlamaServer), copy.deepcopy(tiny.chat.tokenizer)
    server.lm, tokenizer.chat_template = copy.copy(tiny), template
    vars(server.lm)["chat"] = Chat(tokenizer)
    prompt = Prompt((Message("system", "Be brief."), Message("user", "Which river?")))
    here, letters = server.lm.chat.prompts([prompt])[0].tolist(), server.lm.chat.letters(prompt, "abc").tolist()
    lm = served(server)
    assert lm.chat.prompts([prompt])[0].tolist() == here
    assert lm.chat.letters(prompt, "abc").tolist() == letters
    assert any("has no chat template: it was asked with a plain one" in note for note in lm.notes) is (template is None)


@pytest.mark.parametrize("since", [1, 2, 3])
def test_server_outage_is_not_taken_for_its_template(start: Any, monkeypatch: pytest.MonkeyPatch, since: int) -> None:
    """Its first calls tell whether the template takes a system turn, then whether it takes `enable_thinking`."""
    monkeypatch.setattr(client, "RETRIES", 0)
    server = start(Outage)
    expected, server.seen, server.since = served(server).chat, 0, since
    chat = served(server).chat
    assert (chat._takes_system, chat.takes_thinking) == (expected._takes_system, expected.takes_thinking)
    server.seen, server.stays = 0, True
    with pytest.raises(UserError, match=r"^The server http.* failed in 1 tries \(503: bad gateway\)\. Wait"):
        served(server)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply("out of memory", 500), r"failed \(500: out of memory\)\. Wait, or see whether it is well"),
        (Reply(body=b"<html>"), r"answered completion otherwise than expected \(.*<html>\)\. Correct --model"),
        (
            Reply(status=400, body=b'{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}'),
            r"refused the call \(400: too long\)\. Start the server with the context that it had, or a larger one",
        ),
    ],
    ids=["500", "no JSON", "context"],
)
def test_server_fault_that_stays_is_one_sentence(
    server: LlamaServer, expected: list[Any], read: Any, reply: Reply, says: str
) -> None:
    server.fault = lambda _call, number: reply if number > 17 else None
    with pytest.raises(UserError, match=says):
        read()
    server.fault = lambda *_: None
    assert read() == expected


def fewer(answer: dict[str, Any]) -> None:
    for entry in answer["completion_probabilities"]:
        for name in ("top_logprobs", "top_probs"):
            entry[name] = entry.get(name, [])[:4]


def none(answer: dict[str, Any]) -> None:
    answer["completion_probabilities"] = []


def other_tokens(answer: dict[str, Any]) -> None:
    answer["tokens"] = [token + 1 for token in answer["tokens"]]


def impossible(answer: dict[str, Any]) -> None:
    for entry in answer["completion_probabilities"]:
        entry["logprob"] = 0.5


def cut(answer: dict[str, Any]) -> None:
    answer["tokens_evaluated"] -= 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (fewer, r"each of the answer with 8192 log-probabilities, got . read, and 1 of 1 with \[4\]"),
        (none, "got . read, and 0 of 1 with none"),
        (other_tokens, "answers otherwise than it is asked"),
        (impossible, r"expected log-probabilities, got \[0\.5\]"),
        (cut, "expected . tokens read, .* got . read"),
    ],
)
def test_server_without_the_log_probabilities_is_refused_at_once(server: LlamaServer, change: Any, says: str) -> None:
    server.change = change
    with pytest.raises(UserError, match=says):
        served(server)


@pytest.mark.parametrize(
    ("path", "changes", "says"),
    [
        ("/props", {"default_generation_settings": None}, r"says otherwise of itself than llama.cpp \(TypeError\("),
        ("/v1/models", {"data": [{"id": "m", "meta": {}}]}, r"than llama.cpp \(KeyError\('n_vocab'\)\)\. Update it\."),
        ("/tokenize", {"tokens": None}, "answered tokenize otherwise than expected"),
        ("/apply-template", {"prompt": None}, "answered apply-template otherwise than expected"),
    ],
)
def test_server_that_says_odd_things_of_itself_is_refused(
    server: LlamaServer, monkeypatch: pytest.MonkeyPatch, path: str, changes: Any, says: str
) -> None:
    def answer(call: Call) -> Any:
        said = LlamaServer.answer(server, call)
        return {**said, **changes} if call.path == path and isinstance(said, dict) else said

    monkeypatch.setattr(server, "answer", answer)
    with pytest.raises(UserError, match=says):
        served(server)


def test_server_that_reports_sampled_probabilities_is_refused(
    server: LlamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sampled(body: dict[str, Any]) -> dict[str, Any]:
        """Log-probabilities at the temperature, as some servers report them."""
        answer = LlamaServer.complete(server, body)
        for entry in answer["completion_probabilities"] if body["temperature"] > 0 else ():
            for each in entry.get("top_logprobs", []):
                each["logprob"] /= body["temperature"]
        return answer

    monkeypatch.setattr(server, "complete", sampled)
    with pytest.raises(UserError, match="log-probabilities of the model itself, got others with another temperature"):
        served(server)


def test_server_of_an_old_kind_lacks_given_texts(server: LlamaServer) -> None:
    server.fault = lambda call, _n: Reply("failed to parse grammar", 400) if "grammar" in call.body else None
    model = served(server)
    assert model.missing(definition(QueryLogits()).needs(splits.FiveRivers.format)) is None
    assert model.missing(definition(TokenScores()).needs(splits.FiveOpenRivers.format)) is None
    assert model.missing(definition(TokenScores(Of.GOLD)).needs(splits.FiveOpenRivers.format)) == (
        "it reads log-probabilities of given texts, which llama.cpp's server doesn't give"
    )
    assert any("which needs a newer server" in note for note in model.notes)


@pytest.fixture
def other(tiny: LanguageModel) -> Any:
    """The same model with other weights."""
    changed = copy.copy(tiny)
    head = tiny.head
    vars(changed)["head"] = copy.copy(head).__class__(head.weight * 1.1, head.bias, head.scale, head.softcap, head.norm)
    return changed


def test_server_with_another_model_after_a_restart_is_noticed(
    server: LlamaServer, tiny: LanguageModel, expected: list[Any], read: Any, other: Any
) -> None:

    def restart(_call: Any, number: int) -> Reply | None:
        if number == 16:
            server.stop()
            server.lm = other
            server.start()
            server.fault = lambda *_: None
            return Reply(raw=lambda connection: connection.close())
        return None

    server.fault = restart
    told = r"answers otherwise than before: during the run log-probabilities of '/models/tiny.gguf' after fixed prompts"
    with pytest.raises(UserError, match=told):
        read()
    with pytest.raises(UserError, match=r"since it was first read .* differ by up to .*; it has another model"):
        read()
    server.lm = tiny
    assert read() == expected, "nothing of the other model is kept"


def test_server_whose_model_has_another_name_is_another_model(
    server: LlamaServer, expected: list[Any], read: Any, other: Any
) -> None:
    assert read() == expected
    server.lm, server.alias = other, "other"
    assert read() != expected


def test_server_that_is_silent_on_tokens_within_a_character_is_asked_for_them(server: LlamaServer) -> None:
    """Of a character of several tokens llama.cpp gives the last one's probabilities alone."""
    (prompt,) = server.lm.chat.encode([server.lm.chat.render([Message("user", "Which river is long?")])])
    expected = served(server).dialect.complete(prompt, 4)
    part = int(expected.ids[1])
    assert part != expected.ids[2]
    server.bytes[part] = [0xE2]

    def silent(answer: dict[str, Any]) -> None:
        entries = answer["completion_probabilities"]
        answer["completion_probabilities"] = [entry for entry in entries if entry["id"] != part]

    server.change = silent
    got = served(server).dialect.complete(prompt, 4)
    for name in ("ids", "log_probability", "top_ids", "top_log_probabilities"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=1e-5)


@pytest.mark.parametrize("kind", [LlamaServer, VLLMServer, ChatServer])
def test_server_takes_little_processor_time_of_the_client(start: Any, kind: Any) -> None:
    """Some 4 ms a request, with that of the server's thread, which answers at once."""
    server = start(kind)
    lm = served(server)
    (prompt,) = lm.chat.encode([lm.chat.render([Message("user", "Which river is long? " * 40)])])
    before = lm.dialect.complete(prompt, 8)
    body = json.dumps(server.answer(server.calls[-1])).encode()
    server.fault = lambda _call, _n: Reply(body=body)
    started, n = time.process_time(), 50
    for _ in range(n):
        assert lm.dialect.complete(prompt, 8).ids.tolist() == before.ids.tolist()
    took = (time.process_time() - started) / n
    assert took < 0.015, f"{1e3 * took:.1f} ms of processor time a request"


def test_server_is_asked_many_questions_at_once(start: Any, tmp_path: Path) -> None:
    server = start(LlamaServer, slots=4)
    reader = reader_of(served(server, parallel=4), tmp_path)
    opened = splits.opened(reader, splits.FiveOpenRivers)
    together, numbers, waited = threading.Barrier(4), itertools.count(), []

    def wait(call: Call, _number: int) -> None:
        if len(call.body["prompt"]) > 20 and next(numbers) < 4:  # of a question, not of the probe
            waited.append(together.wait(10))

    server.fault = wait
    reader.read(opened, frozenset({QueryLogits()}))
    assert sorted(waited) == [0, 1, 2, 3]


def test_server_that_closes_idle_connections_is_compared_once(server: LlamaServer, tmp_path: Path) -> None:
    lm, store = served(server), Store(tmp_path)
    store.prepare()
    lm.check_identity(store)
    for ask in (lambda: lm.dialect.tokenise("x", special=True), lm.check_link):
        for connection in server.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        ask()
    asked = len(server.completions)
    lm.check_link()
    assert len(server.completions) == asked


def test_server_probe_beside_other_requests_may_differ(start: Any, tmp_path: Path) -> None:
    for parallel, added, same in ((4, 0.3, True), (4, 0.7, False), (1, 0.3, False), (None, 0.3, False)):
        server = start(LlamaServer, slots=4)
        lm, store = served(server, parallel), Store(tmp_path / str((parallel, added)))
        store.prepare()
        lm.check_identity(store)
        for values in lm._probed:
            values.update({token: value - added for token, value in values.items()})
        for connection in server.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        lm.dialect.tokenise("x", special=True)
        with contextlib.nullcontext() if same else pytest.raises(UserError, match="during the run log-probabilities"):
            lm.check_link()


def test_server_that_others_use_is_told_from_one_that_samples(server: LlamaServer) -> None:
    numbers = itertools.count()

    def change(answer: dict[str, Any]) -> None:
        noise = 0.1 * next(numbers)
        for entry in answer["completion_probabilities"]:
            for each in entry.get("top_logprobs", []):
                each["logprob"] -= noise

    server.change = change
    with pytest.raises(UserError, match=r"log-probabilities each time, as it does when others use it, too\. Wait"):
        served(server)


def test_server_log_probabilities_are_kept_line_by_line(tmp_path: Path) -> None:
    from bench.signals.server_extractor import Journal

    path = tmp_path / "asked.jsonl"
    journal = Journal(path, lambda: None)
    assert [journal.get({"a": 1}, lambda: 0.1), journal.get({"a": 1}, lambda: math.nan)] == [0.1, 0.1]
    with path.open("ab") as file:
        file.write(b'{"key": "half')
    again = Journal(path, lambda: None)
    assert again.get({"a": 1}, lambda: 2) == 0.1
    append_line(path, {"key": "k", "value": 3})
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--served", "x"), "doesn't serve the model 'x'; it serves /models/tiny.gguf. Correct --served."),
        (
            ("--parallel", 4),
            "--parallel 4: this server takes at most 1 at once; name no more, or start it with more slots",
        ),
        (("--dtype", "float32"), "--dtype: expected a model that is loaded here, got a server's as --model"),
        (("--save-heads", "heads"), "--save-heads: expected a model whose hidden states a head can keep"),
    ],
)
def test_server_options_that_do_not_fit_are_refused(
    server: LlamaServer, tmp_path: Path, words: tuple[Any, ...], says: str
) -> None:
    common = ("run", "--model", server.url, "--task", "atlas-choice", "--method", "ptrue")
    assert says in Place(tmp_path).refused(*common, *words)


@pytest.fixture
def machine_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is examined of a machine takes seconds, and is not what a server gives."""
    monkeypatch.setattr(doctor, "run_checks", lambda _: [])


@pytest.mark.usefixtures("machine_unseen")
def test_server_is_described_by_doctor(server: LlamaServer, tmp_path: Path) -> None:
    said = Place(tmp_path).done("doctor", "--model", server.url, "--task", "atlas-choice").stdout
    assert "llama.cpp with tiny.served-" in said
    assert "read by:       tier 4: text, log-probabilities of the likeliest tokens" in said
    assert "choice tasks:  answer-stability (of traces), cocoa, combined, deepconf-lowest (of traces)," in said
    assert (
        "left out:      attention-score, lookback-lens, rauq: each reads attention weights, which llama.cpp's" in said
    )
    assert "left out:      ccps, eigenscore, litcab, " in said
    assert "left out:      ct, it: each reads gradients, which train an adapter" in said
    assert "left out:      kernel-language-entropy: letters are equal or not" in said, "its own rule"
    assert "open tasks" not in said
    assert "atlas-choice: dev 40" in said


def test_server_of_several_models_needs_a_name(server: LlamaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = server.answer

    def answer(call: Call) -> Any:
        found: Any = alone(call)
        return {"data": [{"id": "other", "meta": {}}, *found["data"]]} if call.path == "/v1/models" else found

    monkeypatch.setattr(server, "answer", answer)
    with pytest.raises(UserError, match=r"serves 2 models \(other, .*\)\. Name one of them with --served\."):
        served(server)
    lm = ServerModel(resolve(server.url), LoadOptions(device="cpu"), server.alias, None)
    assert lm.label.startswith("tiny.served-")


def test_options_of_servers_need_one(tmp_path: Path) -> None:
    said = Place(tmp_path).refused("run", "--model", "tiny", "--method", "ptrue", "--served", "x")
    assert said == "--served x: expected the URL of a server as --model, got 'tiny'."
    closed = Place(tmp_path).refused("params", "--model", "http://me:secret@127.0.0.1:9/v1")
    assert closed.startswith("Model 'http://127.0.0.1:9/v1': expected an alias, Hub id, folder or GGUF file here")


# --- vLLM that gives less ---------------------------------------------------------------------------------------------


def test_vllm_without_whole_distributions_bounds_entropies(start: Any, tiny: LanguageModel, tmp_path: Path) -> None:
    signals: set[Signal] = {QueryLogits(), TokenScores(top=3), TokenScores(Of.GOLD)}
    lm = served(start(VLLMServer, most=20))
    assert lm.notes[1] == "whole distributions need --max-logprobs -1, with which vLLM can be started"
    assert lm.missing(definition(TokenScores(divergence=True)).needs(splits.FiveOpenRivers.format)) == (
        "it reads whole distributions, which vLLM's server doesn't give"
    )
    there = columns(lm, tmp_path / "there", splits.FiveOpenRivers, signals)
    here = columns(tiny, tmp_path / "here", splits.FiveOpenRivers, signals)
    np.testing.assert_allclose(shares(there[QueryLogits()]), shares(here[QueryLogits()]), atol=1e-5, equal_nan=True)
    for signal in (TokenScores(top=3), TokenScores(Of.GOLD)):
        got, expected = there[signal].values, here[signal].values
        np.testing.assert_allclose(got["log_probability"], expected["log_probability"], 1e-5, 1e-5)
        assert (got["entropy"] <= expected["entropy"] + 1e-4).all()
        assert (got["entropy"] < expected["entropy"] - 1e-3).any()


def test_vllm_that_gives_more_after_a_restart_is_asked_anew(start: Any, tiny: LanguageModel, tmp_path: Path) -> None:
    server, scores = start(VLLMServer, most=20), TokenScores()
    columns(served(server), tmp_path, splits.FiveOpenRivers, {scores})
    server.most = -1
    there, here = (columns(lm, tmp_path, splits.FiveOpenRivers, {scores})[scores] for lm in (served(server), tiny))
    np.testing.assert_allclose(there.values["entropy"], here.values["entropy"], 1e-4, 1e-4)


def test_vllm_whose_template_takes_no_system_turn_is_read_as_any(start: Any, tmp_path: Path) -> None:
    server = start(NoSystem)
    lm = served(server)
    assert "vLLM's server, tier 4" in lm.notes[0]
    there = columns(lm, tmp_path, splits.FiveRivers, {ChoiceLogits()})[ChoiceLogits()]
    assert np.isfinite(there).any(axis=1).all()


def test_vllm_reads_prompts_that_fill_its_context(start: Any, tiny: LanguageModel, tmp_path: Path) -> None:
    reader = reader_of(tiny, tmp_path)
    done = splits.opened(reader, splits.FiveRivers)
    longest = max(len(prompt) for shard in done.shards for prompt in shard.prompts)
    small = copy.copy(tiny)
    small.context = longest + 1 + len(reader.prompt_settings(done).suffix)
    server = start(VLLMServer)
    server.lm = small
    there = columns(served(server), tmp_path, splits.FiveRivers, {QueryLogits()})[QueryLogits()]
    assert np.isfinite(there).all()


@pytest.mark.parametrize(
    "change",
    [
        {"choices": []}, {"choices": [{"index": 0, "logprobs": {"tokens": [" Paris"]}}]}, {"max_model_len": "8k"},
        {"tokens": ["x"]},
    ],
    ids=["no choice", "as SGLang", "no number", "texts"],
)  # fmt: skip
def test_vllm_that_answers_otherwise_is_read_by_chats(
    start: Any, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    server = start(VLLMServer)
    monkeypatch.setattr(client, "RETRIES", 0)

    def answer(call: Call) -> Any:
        said: Any = VLLMServer.answer(server, call)
        if call.path == "/v1/models":
            said["data"][0].update(change)
        elif "chat" not in call.path:
            said.update({name: value for name, value in change.items() if name in said})
        return said

    monkeypatch.setattr(server, "answer", answer)
    lm = served(server)
    assert lm.dialect.name == "OpenAI-compatible"
    assert "it has vLLM's endpoints, but not all that is needed of them" in lm.notes[-1]


def test_vllm_that_others_use_is_not_read_by_chats(start: Any) -> None:
    server, numbers = start(VLLMServer), itertools.count()

    def change(answer: dict[str, Any]) -> None:
        for choice in answer.get("choices", []):
            for row in (choice.get("logprobs") or {}).get("top_logprobs") or []:
                row.update({token: score - 0.1 * next(numbers) for token, score in row.items()})

    server.change = change
    with pytest.raises(UserError, match=r"as it does when others use it, too\. Wait until it is free\."):
        served(server)


def test_vllm_that_is_busy_at_the_start_is_not_read_by_chats(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(VLLMServer)
    monkeypatch.setattr(client, "RETRIES", 0)
    server.fault = lambda _call, number: Reply("loading", 503) if number == 2 else None
    with pytest.raises(UserError, match="503: loading"):
        served(server)


@pytest.mark.parametrize(
    ("kind", "asks", "fails"),
    [(VLLMServer, "logprobs", -1), (ChatServer, "top_logprobs", 20)],
    ids=["whole distributions", "likeliest tokens"],
)
def test_server_that_is_busy_at_the_start_lacks_nothing(
    start: Any, monkeypatch: pytest.MonkeyPatch, kind: Any, asks: str, fails: int
) -> None:
    server = start(kind)
    monkeypatch.setattr(client, "RETRIES", 0)
    server.fault = lambda call, _n: Reply("loading", 503) if call.body.get(asks) == fails else None
    with pytest.raises(UserError, match="503: loading"):
        served(server)


def test_server_that_is_not_recognised_while_busy_is_noted(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRIES", 0)
    server = start(Outage)
    server.path, server.since = "/props", 1
    monkeypatch.setattr(server, "answer", start(ChatServer).answer)
    assert "a server of another kind may give more, but was not recognised" in served(server).notes[-1]


def test_server_readings_that_disagree_are_noted(server: LlamaServer) -> None:
    def change(answer: dict[str, Any]) -> None:
        for entry in answer["completion_probabilities"]:
            if "top_probs" in entry:
                first, second = entry["top_probs"][:2]
                first["prob"], second["prob"] = second["prob"], first["prob"]

    server.change = change
    notes = served(server).notes
    assert "log-probabilities of chosen tokens are not read, as they are others than the likeliest tokens'" in notes


def test_vllm_of_an_old_kind_reads_words_as_given_texts(start: Any, tiny: LanguageModel, tmp_path: Path) -> None:
    server = start(VLLMServer, most=20, old=True)
    there = columns(served(server), tmp_path / "there", splits.FiveRivers, set(FEW))
    here = columns(tiny, tmp_path / "here", splits.FiveRivers, set(FEW))
    for signal in FEW:
        np.testing.assert_allclose(shares(there[signal]), shares(here[signal]), atol=1e-5, equal_nan=True)


def test_chat_server_without_weights_is_refused(start: Any, tiny: LanguageModel) -> None:
    server = start(ChatServer)
    server.lm = copy.copy(tiny)
    vars(server.lm)["head"] = copy.copy(tiny.head).__class__(tiny.head.weight * 0)
    with pytest.raises(UserError, match="finds all tokens equally likely"):
        served(server)


# --- OpenAI's chat completions alone ----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [splits.FewRivers, splits.OpenRivers])
def test_chat_server_scores_its_own_answers_and_bounds_words(
    start: Any, tiny: LanguageModel, same_draws: None, tmp_path: Path, task: Any
) -> None:
    signals: set[Signal] = {QueryLogits(), TokenScores(top=3), FAR}
    signals |= {Samples(3), Text(Of.SAMPLES)} if task is splits.OpenRivers else {ChoiceLogits()}
    lm = served(start(ChatServer))
    reader = reader_of(lm, tmp_path / "there")
    done = reader.read(splits.opened(reader, task), frozenset(signals))
    there = {signal: definition(signal).column(reader.stored(done)) for signal in signals}
    here = columns(tiny, tmp_path / "here", task, signals)
    scored = there[TokenScores(top=3)]
    assert scored.offsets.tolist() == here[TokenScores(top=3)].offsets.tolist()
    for name in ("log_probability", "top_log_probabilities"):
        np.testing.assert_allclose(scored.values[name], here[TokenScores(top=3)].values[name], 1e-5, 1e-5)
    if task is splits.OpenRivers:
        assert there[Text(Of.SAMPLES)].tolist() == here[Text(Of.SAMPLES)].tolist()
        for name in ("log_probability", "ended"):
            np.testing.assert_allclose(there[Samples(3)].values[name], here[Samples(3)].values[name], 1e-5, 1e-5)
    ids = [done.questions[row].id for shard in done.shards for row in shard.rows]
    bounds = {question: missing for question, missing, _ in done.bounds(FAR)}
    widths = [width for _, _, width in done.bounds(FAR)]
    assert 0 < np.mean(widths) <= 1
    for question, got, expected in zip(ids, shares(there[FAR]), shares(here[FAR]), strict=True):
        assert 0 < bounds.get(question, 0) < len(FAR.words) or np.isnan(expected).all()
        assert not expected.max() > got.max() + max(widths)
    for signal in signals & {QueryLogits(), ChoiceLogits()}:
        rows = [question not in {found for found, _, _ in done.bounds(signal)} for question in ids]
        np.testing.assert_allclose(shares(there[signal])[rows], shares(here[signal])[rows], atol=1e-5, equal_nan=True)
        assert sum(rows) > len(rows) / 2


def test_chat_server_words_count_with_a_blank_before(start: Any, tmp_path: Path) -> None:
    found = {}
    for blank in (False, True):
        server = start(ChatServer)
        server.blank = blank
        lm = served(server)
        assert ("blank" in lm.dialect.identity) == blank
        reader = reader_of(lm, tmp_path / str(blank))
        done = reader.read(splits.opened(reader, splits.FewRivers), FEW)
        stored = reader.stored(done)
        found[blank] = {signal: (definition(signal).column(stored), done.bounds(signal)) for signal in FEW}
    for signal in FEW:
        (plain, bounds), (blanked, also) = found[False][signal], found[True][signal]
        exact = ~np.isin(
            [done.questions[row].id for shard in done.shards for row in shard.rows], [b[0] for b in bounds]
        )
        np.testing.assert_allclose(shares(plain)[exact], shares(blanked)[exact], atol=1e-6, equal_nan=True)
        assert sum(exact) > len(exact) / 2
        assert [each[:2] for each in also] == [each[:2] for each in bounds]


@pytest.mark.parametrize("given", [None, 0], ids=["told", "untold"])
def test_chat_server_may_reply_with_nothing(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int | None
) -> None:
    server = start(ChatServer)
    server.given = given
    lm = served(server)
    monkeypatch.setattr(server, "complete", lambda body: {
        "model": server.alias, "usage": {}, "choices": [{"message": {"content": ""}, "logprobs": {"content": []}}],
    })  # fmt: skip
    signals: set[Signal] = {
        TokenIds(Of.ANSWER),
        Text(Of.SAMPLES),
        *({Samples(3), TokenScores()} if given is None else ()),
    }
    found = columns(lm, tmp_path, splits.FiveOpenRivers, signals)
    assert found[TokenIds(Of.ANSWER)].lengths.tolist() == [0] * 5
    assert {text for texts in found[Text(Of.SAMPLES)].tolist() for text in texts} == {""}


def test_chat_server_is_asked_nothing_twice_for_another_signal(start: Any, tmp_path: Path) -> None:
    server = start(ChatServer)
    columns(served(server), tmp_path, splits.FiveOpenRivers, {Samples(3)})
    asked = set(requests(server))
    server.calls.clear()
    found = columns(served(server), tmp_path, splits.FiveOpenRivers, {Samples(3), TokenScores(), QueryLogits()})
    assert asked.isdisjoint(set(requests(server)))
    assert np.isfinite(found[TokenScores()].values["log_probability"]).all()
    (codes,) = (tmp_path / "asked").glob("tokens-*.jsonl")
    codes.unlink()
    with pytest.raises(UserError, match=r"The cache lacks the texts of tokens of 'tiny', which its .* had"):
        columns(served(server), tmp_path, splits.FiveOpenRivers, {Text(Of.SAMPLES), Samples(3)})


def test_served_model_has_no_files_of_the_current_folder(
    server: LlamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = ModelCard.of(served(server), "tiny")
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert ModelCard.of(served(server), "tiny") == card


def test_chat_server_that_names_no_model_has_the_served_one(start: Any) -> None:
    server = start(ChatServer)
    server.change = lambda answer: answer.update(model=None)
    lm = served(server)
    assert lm.label.startswith("tiny.served-")
    server.change = lambda answer: answer.update(model="tiny-2026")
    lm.dialect.complete(lm.dialect.encode("Well?"), 2)
    server.change = lambda answer: answer.update(model="another")
    with pytest.raises(UserError, match="has the model 'another' now, not 'tiny-2026'"):
        lm.dialect.complete(lm.dialect.encode("Well?"), 2)


def test_chat_server_may_say_nothing_of_its_model(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(ChatServer)
    card = {"data": [{"id": "tiny", "meta": None}]}
    answer = server.answer
    monkeypatch.setattr(server, "answer", lambda call: card if call.path == "/v1/models" else answer(call))
    assert "this OpenAI-compatible server, tier 1" in served(server).notes[0]


@pytest.mark.parametrize(
    ("oddity", "tier", "says"),
    [
        ({}, 1, "log-probabilities are of the 20 likeliest tokens: others get their upper bound"),
        ({"most": 10}, 1, "of the 5 likeliest tokens"),
        ({"given": 0}, 0, r"no log-probabilities that could be used \(null\)"),
        ({"given": 3}, 0, r"no log-probabilities that could be used \(3 where 5 are asked for\)"),
        ({"most": 4}, 0, r"could be used \(.*top_logprobs must be at most 4"),
        ({"scaled": True}, 1, "it scales log-probabilities by the temperature: samples at others than 1 have none"),
        ({"top_k": 15}, 1, "its own samplers cut what it samples: of 32 tokens at temperature 2 32 are among the 20"),
        ({"untold": True}, 1, "it doesn't score what it samples outside these"),
        ({"thinks": True}, 1, "of the 20 likeliest"),
        ({"strict": True}, 1, "of the 20 likeliest"),
        ({"newer": True}, 1, "of the 20 likeliest"),
    ],
    ids=lambda value: next(iter(value), "none") if isinstance(value, dict) else "",
)
def test_chat_server_is_read_as_far_as_it_tells(start: Any, oddity: Any, tier: int, says: str) -> None:
    server = start(ChatServer)
    vars(server).update(oddity)
    lm = served(server)
    notes = "\n".join(lm.notes)
    assert f"those of this OpenAI-compatible server, tier {tier}; requests one at a time" in notes
    assert re.search(says, notes), notes
    lm.dialect.complete(lm.dialect.encode("Well?"), 2)
    last = server.completions[-1]
    assert (last.get("chat_template_kwargs") == {"enable_thinking": False}) == server.thinks
    assert ("top_k" in last) != server.strict
    assert ("logprobs" in last) == (tier > 0)


def test_chat_server_limit_is_named_as_the_server_wants(start: Any) -> None:
    """Two calls are refused at once, each of which is sent again; what was learned stays."""
    server = start(ChatServer)
    dialect = served(server).dialect
    prompt, both = dialect.encode("Well?"), threading.Barrier(2)
    expected, before = dialect.complete(prompt, 2).ids.tolist(), len(server.completions)

    def refuse(call: Call, _number: int) -> Reply | None:
        if "max_tokens" not in call.body:
            return None
        both.wait(20)
        return Reply(status=400, body=json.dumps({"error": {"message": NEWER}}).encode())

    server.fault, server.newer = refuse, True
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda _: dialect.complete(prompt, 2).ids.tolist(), range(2)))
    assert [*got, dialect.complete(prompt, 2).ids.tolist()] == [expected] * 3
    assert ["max_tokens" in body for body in server.completions[before:]] == [True, True, False, False, False]


def test_chat_server_reply_is_quoted_without_the_key(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecret")
    server = start(ChatServer)
    body = json.dumps({"error": {"message": f"{'x' * 120} key sk-verysecret may not"}}).encode()
    server.fault = lambda call, _n: Reply(body=body) if "logprobs" in call.body else None
    notes = "\n".join(served(server).notes)
    assert "got {'error': {'message': 'xxx" in notes
    assert "very" not in notes


@pytest.mark.parametrize(("task", "room"), [(splits.FiveRivers, 60), (Sums, 1200)])
def test_chat_server_that_cuts_prompts_is_refused(start: Any, tmp_path: Path, task: Any, room: int) -> None:
    server = start(ChatServer)
    server.room = room
    with pytest.raises(
        UserError, match=rf"cuts prompts: of [\d,]+ words, .* it read {room:,} tokens.*Start it with a longer context"
    ):
        columns(served(server), tmp_path, task, set(FEW))
    assert not requests(server), "no question was asked"


@pytest.mark.parametrize(("text", "most"), [("河" * 600, 1200), ("река " * 200, 1400), ("five rivers " * 200, 800)])
def test_chat_server_has_room_for_other_scripts(start: Any, text: str, most: int) -> None:
    """Three bytes of theirs count as two tokens; the room is an upper bound, as the message says."""
    server = start(ChatServer)
    dialect: Any = served(server).dialect
    prompt, server.room = dialect.encode(text), most + 40
    dialect.check_room([prompt], 8)
    with pytest.raises(UserError, match=r"of [\d,]+ words, an upper bound for the longest question, it read"):
        dialect.check_room([prompt], 40)


def test_chat_server_pruned_answers_come_from_no_journal(start: Any, tmp_path: Path, other: Any) -> None:
    server, signal = start(ChatServer), TokenIds(Of.ANSWER)
    before = columns(served(server), tmp_path, splits.FiveOpenRivers, {signal})[signal].values.tolist()
    vars(other)["head"].weight.mul_(-1)
    server.lm = other
    prune(tmp_path, select_entries(tmp_path, list_usage(tmp_path)).gone)
    after, anew = (
        columns(served(server), cache, splits.FiveOpenRivers, {signal})[signal].values.tolist()
        for cache in (tmp_path, tmp_path / "anew")
    )
    assert after == anew != before


@pytest.mark.parametrize(
    ("ended", "used", "says"),
    [
        ("error", {}, "broke off an answer after 2 of 2 tokens (error). See its log"),
        ("length", {"completion_tokens": 1}, "after 1 of 2 tokens (length). Start it with a longer context"),
        ("length", {"completion_tokens": 2}, ""),
        ("eos", None, ""),
    ],
)
def test_chat_server_answer_that_was_broken_off_is_none(start: Any, ended: str, used: Any, says: str) -> None:
    server = start(ChatServer)
    dialect = served(server).dialect

    def change(answer: dict[str, Any]) -> None:
        answer["choices"][0]["finish_reason"], answer["usage"] = ended, used

    server.change = change
    with contextlib.ExitStack() as stack:
        if says:
            stack.enter_context(pytest.raises(UserError, match=re.escape(says)))
        dialect.complete(dialect.encode("Well?"), 2)


@pytest.mark.parametrize("refused", [False, True])
def test_chat_server_answer_that_was_filtered_is_empty(start: Any, *, refused: bool) -> None:
    server = start(ChatServer)
    dialect = served(server).dialect
    if refused:
        server.fault = lambda _call, _number: Reply(status=400, body=b'{"error": {"code": "content_filter"}}')
    else:
        server.change = lambda answer: answer["choices"][0].update(finish_reason="content_filter")
    assert dialect.complete(dialect.encode("Well?"), 2).ids.size == 0


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ({"reasoning": "Well"}, {}),
        ({"content": "[THINK]Well"}, {}),
        ({"content": "<|channel|>analysis<|message|>Well"}, {}),
        ({"content": None}, {"completion_tokens_details": {"reasoning_tokens": 8}}),
    ],
)
def test_chat_server_whose_reasoning_stays_on_is_refused(start: Any, said: Any, used: Any) -> None:
    server = start(ChatServer)

    def change(answer: dict[str, Any]) -> None:
        answer["choices"][0]["message"].update(said)
        answer["usage"].update(used)

    server.change = change
    with pytest.raises(UserError, match="has a model, 'tiny', that reasons before it answers"):
        served(server)


def test_chat_server_with_another_model_is_noticed(start: Any, tmp_path: Path, other: Any) -> None:
    server = start(ChatServer)
    columns(served(server), tmp_path, splits.FiveRivers, set(FEW))
    vars(other)["head"].weight.mul_(-1)
    server.lm = other
    with pytest.raises(UserError, match="answers otherwise than before: since it was first read"):
        columns(served(server), tmp_path, splits.FiveRivers, set(FEW))
    server.lm = start(ChatServer).lm
    lm = served(server)
    server.change = lambda answer: answer.update(model="another")
    with pytest.raises(UserError, match="has the model 'another' now, not 'tiny'"):
        columns(lm, tmp_path / "anew", splits.FiveRivers, set(FEW))


@pytest.mark.usefixtures("machine_unseen")
def test_chat_server_is_described_by_doctor(start: Any, tmp_path: Path) -> None:
    said = Place(tmp_path).done("doctor", "--model", start(ChatServer).url, "--task", "atlas-choice").stdout
    assert "OpenAI-compatible with tiny.served-" in said
    assert "tier 1: text, log-probabilities of the likeliest tokens" in said
    assert "lts (by bounds), mean-token-entropy, perplexity, ptrue (by bounds), sequence-probability" in said
    assert ", self-certainty, self-consistency" in said.split("left out:", 1)[1]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["atlas-choice", "atlas-oe"])
def test_chat_server_methods_have_the_confidences_of_the_model(start: Any, tmp_path: Path, task: str) -> None:
    place, words = Place(tmp_path), ("--task", task, "--limit", 8, "--train-limit", 10)
    place.run("--model", start(ChatServer).url, *words, "--method", f"{TIER},pik", out="served")
    place.run("--model", "tiny", "--dtype", "float32", *words, "--method", TIER, out="local")
    there = place.rows("served")
    for name in ("sequence-probability", "perplexity", "token-margin", "ptrue", "lts", "verbalised"):
        assert there[name]["status"] == "ok", there[name]["reason"]
        (got, expected) = (next((tmp_path / out).rglob(f"{name}--*.json")) for out in ("served", "local"))
        one, other = read_records(got), read_records(expected)
        assert (one.answer, one.correct.tolist()) == (other.answer, other.correct.tolist())
        np.testing.assert_allclose(one.confidence, other.confidence, atol=1e-5, err_msg=name)
    for name in ("self-certainty", "pik", *(["self-consistency"] if task == "atlas-choice" else [])):
        assert "which this OpenAI-compatible server doesn't give" in there[name]["reason"]
    row = there["mean-token-entropy"]
    assert row["counts"][f"{task}/test: questions whose entropies, if they are used, are lower bounds"] == 8
    assert any("true ones may be higher by, in nats," in note for note in row["notes"])


# --- the real one -----------------------------------------------------------------------------------------------------

W3 = (
    "1 9690 198 21350 351 582 4386 30 2 198 1 4093 198 14413 314 253 4354 47 198 24 81 727 1076 198 24 82 727 11977 198"
    " 24 83 727 5692 198 24 84 727 6376 198 21350 42 2 198 1 520 9531 198"
)
W5 = "1 9690 198 21350 13099 30 2 198 1 4093 198 5820 260 3575 282 4617 30 2 198 1 520 9531 198"


def gguf_file() -> Path:
    """SmolLM2 of the folder that CONFBENCH_GGUF names."""
    file = Path(os.environ.get("CONFBENCH_GGUF", "")) / "smollm2-135m-instruct-q4_1.gguf"
    if not os.environ.get("CONFBENCH_GGUF") or not file.is_file():
        pytest.skip(f"CONFBENCH_GGUF names no folder with {file.name}")
    return file


def llama() -> Any:
    """llama.cpp's server with SmolLM2."""
    file = gguf_file()
    pytest.importorskip("xllamacpp")
    return llama_server(file)


@pytest.mark.slow
def test_llama_cpp_gives_its_own_numbers_and_those_of_the_file_within_its_noise() -> None:
    """Values of one CPU, on which transformers in float32 has shares of .2311, .1238, .3803, .2648."""
    running = llama()
    lm = ServerModel(resolve(f"{running.listening_address}/v1"), LoadOptions(device="cpu"), None, None)
    assert lm.label.startswith("smollm2-135m-instruct-q4_1.served-")
    turns = [Message("system", "Answer briefly."), Message("user", "Name the capital of Australia.")]
    question, asked = (np.asarray(list(map(int, text.split())), dtype=np.int32) for text in (W3, W5))
    assert lm.chat.encode([lm.chat.render(turns)])[0].tolist() == asked.tolist()
    letters = lm.dialect.chosen(question, np.asarray([81, 82, 83, 84], dtype=np.int32))
    np.testing.assert_allclose(np.exp(letters), [0.2391, 0.1154, 0.3791, 0.2664], atol=0.08)
    whole = lm.dialect.complete(question, 1, whole=True).first
    assert whole is not None
    np.testing.assert_allclose(shares(whole[81:85]), np.exp(letters), atol=1e-4)
    text = np.asarray([7306, 38024, 314, 260, 3575, 282, 4617, 30], dtype=np.int32)
    assert lm.dialect.given(asked, text).log_probability.sum() == pytest.approx(-8.97, abs=0.6)
    answer = lm.dialect.complete(asked, 20)
    assert lm.chat.decode(answer.ids.tolist()) == "The capital of Australia is Canberra."
    assert lm.dialect.complete(asked, 20, scored=False).ids.tolist() == answer.ids.tolist()
    forced = lm.dialect.given(asked, answer.ids, whole=True)
    np.testing.assert_allclose(forced.log_probability, answer.log_probability, atol=2e-3)


@pytest.mark.slow
def test_llama_cpp_by_chat_completions_alone_is_bounded_rightly(tmp_path: Path) -> None:
    running = llama()
    proxy = ChatOnly(running.listening_address)
    try:
        chat = ServerModel(resolve(proxy.url), LoadOptions(device="cpu"), None, None)
        native = ServerModel(resolve(f"{running.listening_address}/v1"), LoadOptions(device="cpu"), None, None)
        assert "this OpenAI-compatible server, tier 1; requests one at a time" in chat.notes[0]
        assert not any("samplers cut" in note or "scales" in note for note in chat.notes)
        signals: set[Signal] = {QueryLogits(), FAR, TokenScores(top=3)}
        reader = reader_of(chat, tmp_path / "chat")
        done = reader.read(splits.opened(reader, splits.FiveOpenRivers), frozenset(signals))
        got = {signal: definition(signal).column(reader.stored(done)) for signal in signals}
        expected = columns(native, tmp_path / "native", splits.FiveOpenRivers, signals)
        one, other = got[TokenScores(top=3)], expected[TokenScores(top=3)]
        assert one.offsets.tolist() == other.offsets.tolist()
        np.testing.assert_allclose(one.values["log_probability"], other.values["log_probability"], atol=0.02)
        assert (one.values["entropy"] <= other.values["entropy"] + 0.01).all()
        widths = {question: width for question, _, width in done.bounds(FAR)}
        assert widths
        for row, question in enumerate(done.questions[r].id for shard in done.shards for r in shard.rows):
            likeliest = int(np.argmax(got[FAR][row]))
            high = shares(got[FAR])[row, likeliest] if question not in widths else 1.0
            assert shares(expected[FAR])[row, likeliest] <= high + 0.02
    finally:
        proxy.stop()


@pytest.mark.slow
def test_vllm_gives_the_numbers_of_the_local_engine(tmp_path: Path) -> None:
    python, file = os.environ.get("CONFBENCH_VLLM", ""), gguf_file()
    if not python:
        pytest.skip("CONFBENCH_VLLM names no Python with vLLM (make vllm)")
    with vllm_server(python, file, tmp_path) as (url, here):
        lm = ServerModel(resolve(url), LoadOptions(device="cpu"), None, None)
        assert "vLLM's server, tier 4; requests one at a time, each read anew" in lm.notes[0]
        scores = TokenScores(top=3, divergence=True)
        for task, signals in (
            (splits.FiveRivers, {ChoiceLogits(), QueryLogits(), scores, Samples(3)}),
            (splits.FiveOpenRivers, {QueryLogits(), scores, TokenScores(Of.GOLD)}),
        ):
            there = columns(lm, tmp_path / "there", task, signals)
            own = columns(here, tmp_path / "here", task, signals)
            assert there[scores].offsets.tolist() == own[scores].offsets.tolist()
            for signal in signals & {ChoiceLogits(), QueryLogits()}:
                np.testing.assert_allclose(shares(there[signal]), shares(own[signal]), atol=1e-3, equal_nan=True)
            for signal in signals - {ChoiceLogits(), QueryLogits(), Samples(3)}:
                for name in own[signal].values.dtype.names:
                    np.testing.assert_allclose(there[signal].values[name], own[signal].values[name], atol=1e-3)
        first, scored = (reasoning(each, None) for each in (lm, here)), TokenScores(Of.TRACE, mean_of=20)
        got, own = (
            columns(each, tmp_path / f"traces {i}", splits.FiveRivers, {ChoiceLogits((0.5,)), ChoiceLogits(), scored})
            for i, each in enumerate(first)
        )
        assert got[scored].offsets.tolist() == own[scored].offsets.tolist()
        np.testing.assert_allclose(got[scored].values["top_mean"], own[scored].values["top_mean"], atol=1e-3)
        for signal in (ChoiceLogits(), ChoiceLogits((0.5,))):
            np.testing.assert_allclose(shares(got[signal]), shares(own[signal]), atol=1e-3, equal_nan=True)
