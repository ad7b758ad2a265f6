"""Whole runs with a judge: a real OpenAI-compatible server on loopback that serves `tiny`, and `tiny` itself.

Serving a model takes web frameworks that the project doesn't need, so the server is Python's own; prompts go through
the chat template and answers through `generate`, as everywhere. Its grammar lets the first token be yes or no only,
which servers offer for such uses. What servers do otherwise is in `tests/unit/grading/test_openai.py`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
import torch
import transformers

from tests.integration.conftest import ROOT
from tests.kit.place import Place
from tests.kit.servers import Call, JudgeServer, Reply

TINY = ROOT / "bench" / "model" / "tiny"
RUN = ("--method", "ptrue", "--model", "tiny", "--task", "atlas-oe", "--limit")


class Tiny:
    """Answers of the embedded model to what a judge is asked."""

    def __init__(self) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(TINY)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(TINY).eval()
        self._lock = threading.Lock()

    def __call__(self, call: Call, _n: int) -> Reply:
        ids = self.tokenizer.apply_chat_template(
            call.body["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        length = ids["input_ids"].shape[1]
        words = [self.tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no")]
        end = [self.tokenizer.eos_token_id]
        grammar = {"prefix_allowed_tokens_fn": lambda _row, so_far: words if len(so_far) == length else end}
        options = {"max_new_tokens": call.body["max_tokens"], "do_sample": call.body["temperature"] > 0}
        with self._lock, torch.inference_mode():
            out = self.model.generate(**ids, **options, **grammar)[0, length:]
        said = self.tokenizer.decode(out, skip_special_tokens=True)
        return Reply(said, reported=f"{call.body['model']}-1")


def options(url: str) -> tuple[str, ...]:
    return ("--judge", "openai", "--judge-url", url, "--judge-model", "tiny")


@pytest.fixture(scope="module")
def loaded() -> Iterator[JudgeServer]:
    served = JudgeServer(Tiny())
    yield served
    served.stop()


@pytest.fixture
def server(loaded: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> JudgeServer:
    loaded.calls.clear()
    for name in ("OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return loaded


@pytest.mark.slow
def test_server_and_model_itself_judge_alike_once(server: JudgeServer, place: Place) -> None:
    asked = (*RUN, 28)  # the embedded model says yes to some of these
    first = place.run(*asked, *options(server.url))
    calls, row = len(server.calls), place.row()
    said = {
        what: int(n)
        for what, n in re.findall(r"(measure the judge on|judge) atlas-oe/test: (\d+) calls to", first.stderr)
    }
    assert sum(said.values()) == calls
    assert 0 < said["judge"] <= 28 < said["measure the judge on"]
    assert (
        f"judge atlas-oe/test: {said['judge']} calls to openai tiny-1 at {server.url}, judge/1, about" in first.stderr
    )
    measured = {what: n for what, n in row["counts"].items() if "options" in what}
    assert [re.sub(r"\d+$", "", what) for what in measured] == [
        "atlas-oe/test: right options that the judge accepts, of ",
        "atlas-oe/test: wrong options that it refuses, of ",
    ]
    name = f"openai tiny-1 at {server.url}, judge/1"
    assert (row["judge"], row["n"], row["n_undecided"]) == (name, 28, 0)
    (kept,) = (place / "cache" / "verdicts").glob("*.jsonl")
    assert len(kept.read_text(encoding="utf-8").splitlines()) == calls

    place.run(*asked, *options(server.url), out="again")
    assert len(server.calls) == calls
    ignored = {"timings": 0, "peak_memory_mb": 0, "digest": ""}
    assert {**place.row("again"), **ignored} == {**row, **ignored}
    labels = place.records("ptrue").correct.tolist()
    assert place.records("ptrue", "again").correct.tolist() == labels

    place.run(*asked, "--judge", "hf", "--judge-model", "tiny", out="local")
    assert len(server.calls) == calls
    assert place.row("local")["judge"].startswith("hf tiny@")
    # the server says the likelier of two words, and the local judge compares their probabilities
    assert place.records("ptrue", "local").correct.tolist() == labels
    assert set(labels) == {True, False}
    assert len(list((place / "cache" / "verdicts").glob("*.jsonl"))) == 2
    table = place.bench("table", "--results", place / "out", "--partial", "--format", "md")
    assert f"graded by {name}." in table.stdout
    assert " right options that the judge accepts, of 28." in table.stdout


def test_plan_calls_no_judge(server: JudgeServer, place: Place) -> None:
    place.run(*RUN, 10, *options(server.url), "--dry-run")
    assert not server.calls


def test_results_tell_no_password_and_no_model_folder(server: JudgeServer, place: Place) -> None:
    url = server.url.replace("http://", "http://me:hunter2@") + "?token=s3cret"
    result = place.run(*RUN, 3, "--judge", "openai", "--judge-url", url, "--judge-model", TINY)
    written = [path.read_bytes() for path in place.folder.rglob("*") if path.is_file()]
    assert not [text for text in (*written, result.stdout.encode(), result.stderr.encode()) if b"hunter2" in text]
    (row,) = (place / "out").rglob("*.json")
    assert not re.search(rf"me:|s3cret|{TINY.parent}", row.read_text(encoding="utf-8"))
