"""Whole runs with a judge: a real OpenAI-compatible server on loopback that serves `tiny`, and `tiny` itself.

Serving a model takes web frameworks that the project doesn't need, so the server is Python's own; prompts go through
the chat template and answers through `generate`, as everywhere. Its grammar lets the first token be yes or no only,
which servers offer for such uses: on its own `tiny` says other words to a judge's question.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from pyarrow import parquet

from tests.fixtures.http import Server

Command = Callable[..., "subprocess.CompletedProcess[str]"]

TINY = Path(__file__).parents[2] / "bench" / "model" / "tiny"
RUN = ("run", "--method", "ptrue", "--model", "tiny", "--task", "atlas-oe", "--limit", "10")


class Served:
    """`/v1/chat/completions` of one model."""

    def __init__(self) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(TINY)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(TINY).eval()
        self.grammar = True
        self.dies_after = 10**9
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

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.calls += 1
            if handler.path.partition("?")[0] != "/v1/chat/completions":
                status, answer = 404, {"error": {"message": f"no {handler.path} here", "code": None}}
            elif self.calls > self.dies_after:
                status, answer = 401, {"error": {"message": "your trial is over", "code": None}}
            else:
                status, answer = 200, self.completion(asked)
        content = json.dumps(answer).encode()
        handler.send_response(status)
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
        with torch.inference_mode():
            out = self.model.generate(
                **ids,
                max_new_tokens=asked["max_tokens"],
                do_sample=asked["temperature"] > 0,
                **(grammar if self.grammar else {}),
            )[0, length:]
        text = self.tokenizer.decode(out, skip_special_tokens=True)
        return {
            "id": f"chatcmpl-{self.calls}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": f"{asked['model']}-1",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": length, "completion_tokens": len(out), "total_tokens": length + len(out)},
        }

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
    loaded.grammar, loaded.dies_after, loaded.calls = True, 10**9, 0
    for name in ("OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return loaded


@pytest.fixture
def judged(bench: Command, tmp_path: Path) -> Command:
    """A run with judge options; results go to `out`, which may be another folder of the same test."""

    def run(*options: object, out: str = "out") -> subprocess.CompletedProcess[str]:
        return bench(*RUN, *options, "--out", tmp_path / out, env={"CONFBENCH_CACHE": str(tmp_path / "cache")})

    return run


def row_of(folder: Path) -> dict[str, Any]:
    (path,) = folder.rglob("*.json")
    row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return row


def labels_of(folder: Path) -> list[bool]:
    (path,) = folder.rglob("ptrue--*.parquet")
    labels: list[bool] = parquet.read_table(path)["correct"].to_pylist()
    return labels


def openai(server: Served) -> tuple[str, ...]:
    return ("--judge", "openai", "--judge-url", server.url, "--judge-model", "tiny")


def test_a_server_and_the_model_itself_judge_alike_and_are_asked_once(
    server: Served, judged: Command, bench: Command, tmp_path: Path
) -> None:
    many = ("--limit", "28")  # the embedded model says yes to some of these
    first = judged(*openai(server), *many)
    assert first.returncode == 0, first.stderr
    calls = server.calls
    assert 0 < calls <= 28
    assert f"judge atlas-oe/test: {calls} calls to openai tiny at {server.url}, judge/1, about" in first.stderr
    row = row_of(tmp_path / "out")
    name = f"openai tiny-1 at {server.url}, judge/1"
    assert (row["judge"], row["n"], row["n_undecided"]) == (name, 28, 0)
    (kept,) = (tmp_path / "cache" / "verdicts").glob("*.jsonl")
    assert len(kept.read_text(encoding="utf-8").splitlines()) == calls

    second = judged(*openai(server), *many, out="again")
    assert (second.returncode, server.calls) == (0, calls)
    again = row_of(tmp_path / "again")
    ignored = {"timings": 0, "peak_memory_mb": 0, "digest": ""}
    assert {**again, **ignored} == {**row, **ignored}
    assert labels_of(tmp_path / "again") == labels_of(tmp_path / "out")

    local = judged("--judge", "hf", "--judge-model", "tiny", *many, out="local")
    assert (local.returncode, server.calls) == (0, calls)
    assert row_of(tmp_path / "local")["judge"].startswith("hf tiny@")
    assert set(labels_of(tmp_path / "local")) == {True, False}
    # the server says the likelier of two words, and the local judge compares their probabilities
    assert labels_of(tmp_path / "local") == labels_of(tmp_path / "out")
    assert len(list((tmp_path / "cache" / "verdicts").glob("*.jsonl"))) == 2

    table = bench("table", "--results", tmp_path / "out", "--partial", "--format", "md")
    assert f"graded by {name}." in table.stdout


def test_a_server_that_dies_is_paid_once_for_what_it_said(server: Served, judged: Command, tmp_path: Path) -> None:
    server.dies_after = 4
    stopped = judged(*openai(server))
    assert stopped.returncode == 2
    (said,) = [line for line in stopped.stderr.splitlines() if line.startswith("bench: ")]
    assert "refuses the key (401: your trial is over). Set OPENAI_API_KEY" in said
    assert "goes on from the 4 verdicts that are kept" in said
    assert "Traceback" not in stopped.stderr
    assert not list(tmp_path.glob("out/**/*.json"))
    server.dies_after, server.calls = 10**9, 0
    assert judged(*openai(server)).returncode == 0
    assert server.calls == 10 - 4


def test_a_judge_that_says_other_words_is_given_up_with_a_sentence(
    server: Served, judged: Command, tmp_path: Path
) -> None:
    server.grammar = False
    result = judged(*openai(server), "--limit", "2")
    assert result.returncode == 2
    assert "bench: The judge said neither yes nor no in 6 answers" in result.stderr
    assert server.calls == 2 * 3
    assert not list(tmp_path.glob("out/**/*.json"))


def test_an_address_without_its_path_is_said(server: Served, judged: Command) -> None:
    result = judged("--judge", "openai", "--judge-url", server.url.removesuffix("/v1"), "--judge-model", "tiny")
    assert result.returncode == 2
    assert "has no such address or model (404: no /chat/completions here). Correct --judge-url" in result.stderr


def test_a_plan_calls_nobody(server: Served, judged: Command) -> None:
    assert judged(*openai(server), "--dry-run").returncode == 0
    assert server.calls == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--judge", "opnai"), "Unknown judge 'opnai': expected one of match, openai, hf. Did you mean 'openai'?"),
        (("--judge-model", "tiny"), "--judge-model has no use with --judge match"),
        (("--judge", "hf"), "--judge hf: expected a model, got none"),
        (("--judge", "openai", "--judge-url", "localhost"), "--judge-url: expected the base URL of a server"),
        (
            ("--judge", "openai"),
            "--judge openai: expected a key in the environment variable OPENAI_API_KEY, found none",
        ),
    ],
)
def test_bad_options_end_before_any_work(
    server: Served, judged: Command, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    result = judged(*options)
    assert result.returncode == 2
    assert f"bench: {said}" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_result_tells_a_password_or_where_a_model_lies(server: Served, judged: Command, tmp_path: Path) -> None:
    url = server.url.replace("http://", "http://me:hunter2@") + "?token=s3cret"
    result = judged("--judge", "openai", "--judge-url", url, "--judge-model", TINY)
    assert result.returncode == 0
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in (*written, result.stdout.encode(), result.stderr.encode()) if b"hunter2" in text]
    (row,) = tmp_path.glob("out/**/*.json")
    assert not re.search(rf"me:|s3cret|{TINY.parent}", row.read_text(encoding="utf-8"))
