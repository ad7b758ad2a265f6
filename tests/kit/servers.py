"""Servers on this machine: a Hub of data sets with a process that reads from it, and a judge."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fixtures.http import Server

ROOT = Path(__file__).parents[2]
SHA = "0123456789abcdef0123456789abcdef01234567"
NOBODY = "http://127.0.0.1:9"
"""The discard port: refuses connections."""


# --- a Hub ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repository:
    """A data set; `main` is what its main branch holds if that has moved on since commit `SHA`."""

    files: Mapping[str, bytes]
    main: Mapping[str, bytes] | None = None
    branches: tuple[str, ...] = ("main", SHA)
    gated: bool = False


@contextlib.contextmanager
def hub(repositories: Mapping[str, Repository]) -> Iterator[str]:
    """Give the address of a Hub with these data sets, by name."""

    class Hub(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep quiet."""

        def do_GET(self) -> None:
            path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path).removeprefix("/api")
            owner, name, *rest = path.removeprefix("/datasets/").split("/")
            repository = repositories.get(f"{owner}/{name}")
            kind, revision, *below = rest if len(rest) > 1 else ("", "main")
            if repository is None:
                return self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if revision not in repository.branches:
                return self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            moved = repository.main is not None and revision == "main"
            commit, files = ("f" * 40, repository.main or {}) if moved else (SHA, repository.files)
            if kind == "tree":
                return self.send(200, json.dumps(listed(files, "/".join(below))).encode(), {})
            if kind != "resolve":
                names = [{"rfilename": file} for file in files]
                return self.send(
                    200, json.dumps({"id": f"{owner}/{name}", "sha": commit, "siblings": names}).encode(), {}
                )
            data = files.get("/".join(below))
            if repository.gated:
                return self.send(401, b"", {"X-Error-Code": "GatedRepo"})
            if data is None:
                return self.send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            tag = hashlib.sha256(data).hexdigest()
            return self.send(200, data, {"X-Repo-Commit": commit, "ETag": f'"{tag}"'})

        do_HEAD = do_GET  # noqa: N815 - so named in http.server

        def send(self, code: int, data: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(code)
            for key, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def listed(files: Mapping[str, bytes], folder: str) -> list[dict[str, Any]]:
    """Entries of a folder: its files, and folders in it."""
    found: dict[str, dict[str, Any]] = {}
    for path, data in files.items():
        if path.startswith(f"{folder}/" if folder else ""):
            first, _, below = path.removeprefix(folder).strip("/").partition("/")
            name, digest = f"{folder}/{first}".strip("/"), hashlib.sha1(data).hexdigest()  # noqa: S324
            entry = {"type": "directory", "size": 0} if below else {"type": "file", "size": len(data)}
            found[name] = {"path": name, "oid": digest, **entry}
    return list(found.values())


def answer_of(script: str, argument: object, endpoint: str, home: Path, **environment: str) -> Any:
    """What a script prints in JSON that gets an argument in JSON, in a process of its own.

    The Hub's libraries read the environment once, at import.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "CONFBENCH_"))}
    hub = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(argument)], env={**inherited, **hub, **environment}, cwd=ROOT,
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return json.loads(done.stdout)


# --- a judge ----------------------------------------------------------------------------------------------------------


NEWER = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
"""What newer models of OpenAI say."""


@dataclass
class Reply:
    """What the server sends; `status` 0: nothing, ever."""

    text: str | None = "yes"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Instead of a chat completion that says `text`."""
    reported: str | None = "judge-2024-07-18"
    seconds: float = 0.0
    """Before the answer."""
    raw: Callable[[socket.socket], None] | None = None
    """Instead of an answer in HTTP."""

    def encoded(self) -> bytes:
        if self.body is not None:
            return self.body
        if self.status != 200:
            return json.dumps({"error": {"message": self.text, "code": None}}).encode()
        return json.dumps(completion(self.text, self.reported)).encode()


def completion(text: Any, model: Any = "judge-2024-07-18") -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}


@dataclass
class Call:
    """What the server was asked."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        return str(self.body["messages"][-1]["content"])


Script = Callable[[Call, int], Reply]
"""Gets the call and its number, from 1."""


def send(handler: http.server.BaseHTTPRequestHandler, reply: Reply) -> None:
    """Answer a call."""
    if reply.raw is not None:
        handler.close_connection = True
        reply.raw(handler.connection)
        return
    content = reply.encoded()
    handler.send_response(reply.status)
    for name, value in {"Content-Type": "application/json", **reply.headers}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


class JudgeServer:
    """A judge that answers call number n as its script says."""

    def __init__(self, script: Script = lambda _call, _n: Reply()) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.busiest = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.answer(self)

            def log_message(self, *_args: object) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def begin(self, script: Script) -> None:
        """Answer as another script says, and count calls anew."""
        with self._lock:
            self.script, self.calls = script, []

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        call = Call(handler.path, {k.lower(): v for k, v in handler.headers.items()}, body)
        with self._lock:
            self.calls.append(call)
            number, script = len(self.calls), self.script
            self._at_once += 1
            self.busiest = max(self.busiest, self._at_once)
        reply = script(call, number)
        time.sleep(reply.seconds)
        with self._lock:
            self._at_once -= 1
        if reply.status == 0:
            self._over.wait(10)
            return
        with contextlib.suppress(OSError):  # the client waits no longer
            send(handler, reply)

    def stop(self) -> None:
        self._over.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
