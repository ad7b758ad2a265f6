"""A judge's server on loopback that answers each call as a script says, also with bytes that are no answer at all."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fixtures.http import Server as HTTPServer

QUICK = {"retry-after-ms": "1"}
"""Makes the client try again at once."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@dataclass
class Reply:
    text: str = "no"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    model: str = "judge-1"
    body: bytes | None = None
    """Instead of a chat completion."""
    raw: Callable[[socket.socket], None] | None = None
    """Instead of an answer in HTTP."""
    seconds: float = 0.0
    """Before the answer."""

    def encoded(self) -> bytes:
        if self.body is not None:
            return self.body
        if self.status != 200:
            return json.dumps({"error": {"message": self.text, "code": None}}).encode()
        return json.dumps(completion(self.text, self.model)).encode()


Script = Callable[[int, dict[str, Any]], Reply]
"""Number of the call from 1 on, and what is asked -> what is answered."""


def completion(text: Any, model: Any = "judge-1") -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}


def verdict_on(asked: dict[str, Any]) -> str:
    """Yes or no, always the same for the same question."""
    return "yes" if sum(asked["messages"][-1]["content"].encode()) % 3 else "no"


def good(_n: int, asked: dict[str, Any]) -> Reply:
    return Reply(verdict_on(asked))


class Server:
    def __init__(self) -> None:
        self.script: Script = good
        self.headers: list[dict[str, str]] = []
        self.prompts: list[str] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.answer(self)

            def log_message(self, *_args: object) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    @property
    def calls(self) -> int:
        return len(self.prompts)

    def begin(self, script: Script = good) -> None:
        with self._lock:
            self.script, self.headers, self.prompts = script, [], []

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            self.prompts.append(asked["messages"][-1]["content"])
            number, script = len(self.prompts), self.script
        reply = script(number, asked)
        time.sleep(reply.seconds)
        try:
            if reply.raw is not None:
                reply.raw(handler.connection)
                handler.close_connection = True
                return
            content = reply.encoded()
            handler.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)
        except OSError:
            pass  # the client waits no longer


def reset(connection: socket.socket) -> None:
    """End the connection as a crash would."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_closed(connection: socket.socket) -> None:
    """Begin an answer and say that nothing more comes."""
    connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n{")
    connection.shutdown(socket.SHUT_WR)


def drip(connection: socket.socket) -> None:
    """A byte now and then."""
    connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n{")
    for _ in range(100):
        time.sleep(0.2)
        connection.sendall(b" ")


def endless(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n")
    while True:
        connection.sendall(b" " * 65536)
        time.sleep(0.01)


def silent(_connection: socket.socket) -> None:
    time.sleep(20)
