"""Whole runs with a judge: a real OpenAI-compatible server on loopback that serves `tiny`, and `tiny` itself.

Serving a model takes web frameworks that the project doesn't need, so the server is Python's own; prompts go through
the chat template and answers through `generate`, as everywhere. Its grammar lets the first token be yes or no only,
which servers offer for such uses. What servers do otherwise is in `tests/unit/grading/test_openai.py`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import torch
import transformers

from tests.fixtures.http import Server
from tests.integration.conftest import ROOT
from tests.kit.place import Place

TINY = ROOT / "bench" / "model" / "tiny"
RUN = ("--method", "ptrue", "--model", "tiny", "--task", "atlas-oe", "--limit")


class Served:
    """`/v1/chat/completions` of one model."""

    def __init__(self) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(TINY)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(TINY).eval()
        self.calls = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.respond(self)

            def log_message(self, *_args: object) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--judge", "openai", "--judge-url", self.url, "--judge-model", "tiny")

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.calls += 1
            content = json.dumps(self.completion(asked)).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def completion(self, asked: dict[str, Any]) -> dict[str, Any]:
        ids = self.tokenizer.apply_chat_template(
            asked["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        length = ids["input_ids"].shape[1]
        words = [self.tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no")]
        end = [self.tokenizer.eos_token_id]
        grammar = {"prefix_allowed_tokens_fn": lambda _row, so_far: words if len(so_far) == length else end}
        options = {"max_new_tokens": asked["max_tokens"], "do_sample": asked["temperature"] > 0}
        with torch.inference_mode():
            out = self.model.generate(**ids, **options, **grammar)[0, length:]
        message = {"role": "assistant", "content": self.tokenizer.decode(out, skip_special_tokens=True)}
        return {
            "id": f"chatcmpl-{self.calls}", "object": "chat.completion", "created": int(time.time()),
            "model": f"{asked['model']}-1",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": length, "completion_tokens": len(out), "total_tokens": length + len(out)},
        }  # fmt: skip

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def loaded() -> Iterator[Served]:
    served = Served()
    yield served
    served.stop()


@pytest.fixture
def server(loaded: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    loaded.calls = 0
    for name in ("OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return loaded


def test_server_and_model_itself_judge_alike_once(server: Served, place: Place) -> None:
    asked = (*RUN, 28)  # the embedded model says yes to some of these
    first = place.run(*asked, *server.options)
    calls, row = server.calls, place.row()
    assert 0 < calls <= 28
    assert f"judge atlas-oe/test: {calls} calls to openai tiny at {server.url}, judge/1, about" in first.stderr
    name = f"openai tiny-1 at {server.url}, judge/1"
    assert (row["judge"], row["n"], row["n_undecided"]) == (name, 28, 0)
    (kept,) = (place / "cache" / "verdicts").glob("*.jsonl")
    assert len(kept.read_text(encoding="utf-8").splitlines()) == calls

    place.run(*asked, *server.options, out="again")
    assert server.calls == calls
    ignored = {"timings": 0, "peak_memory_mb": 0, "digest": ""}
    assert {**place.row("again"), **ignored} == {**row, **ignored}
    labels = place.records("ptrue").correct.tolist()
    assert place.records("ptrue", "again").correct.tolist() == labels

    place.run(*asked, "--judge", "hf", "--judge-model", "tiny", out="local")
    assert server.calls == calls
    assert place.row("local")["judge"].startswith("hf tiny@")
    # the server says the likelier of two words, and the local judge compares their probabilities
    assert place.records("ptrue", "local").correct.tolist() == labels
    assert set(labels) == {True, False}
    assert len(list((place / "cache" / "verdicts").glob("*.jsonl"))) == 2
    table = place.bench("table", "--results", place / "out", "--partial", "--format", "md")
    assert f"graded by {name}." in table.stdout


def test_plan_calls_no_judge(server: Served, place: Place) -> None:
    place.run(*RUN, 10, *server.options, "--dry-run")
    assert server.calls == 0


def test_results_tell_no_password_and_no_model_folder(server: Served, place: Place) -> None:
    url = server.url.replace("http://", "http://me:hunter2@") + "?token=s3cret"
    result = place.run(*RUN, 10, "--judge", "openai", "--judge-url", url, "--judge-model", TINY)
    written = [path.read_bytes() for path in place.folder.rglob("*") if path.is_file()]
    assert not [text for text in (*written, result.stdout.encode(), result.stderr.encode()) if b"hunter2" in text]
    (row,) = (place / "out").rglob("*.json")
    assert not re.search(rf"me:|s3cret|{TINY.parent}", row.read_text(encoding="utf-8"))
