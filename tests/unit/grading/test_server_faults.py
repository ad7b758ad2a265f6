"""A judge's server that drips, never ends, sends nonsense, points elsewhere or repeats commands to a terminal."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.api import UserError
from bench.grading.grade import JudgeCase
from bench.progress import Silent
from tests.kit.servers import JudgeServer, Reply
from tests.unit.grading.test_openai import COMPLETION, RIVERS, ask, judge, quick

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def raw(respond: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers with bytes as it likes; gives its URL and what it was asked."""
    listening = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def one(connection: socket.socket) -> None:
        with connection:
            try:
                while (got := connection.recv(65536)) and b"explanation" not in got:
                    pass
                asked.append(got)
                respond(connection)
            except OSError:
                pass  # the client waits no longer

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", asked
    finally:
        listening.close()


def drip(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n{")
    for _ in range(200):
        time.sleep(0.1)
        connection.sendall(b" ")


def drip_head(connection: socket.socket) -> None:
    for byte in HEAD * 9:
        connection.sendall(bytes([byte]))
        time.sleep(0.1)


def endless(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n")
    while True:
        connection.sendall(b" " * 65536)
        time.sleep(0.01)


def half_closed(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n{")
    connection.shutdown(socket.SHUT_WR)


def deaf(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RD)
    time.sleep(5)


@pytest.mark.parametrize(
    ("respond", "said", "tries"),
    [
        (drip, r"gave no whole answer within 1\.6 s\.", 1),
        pytest.param(drip_head, r"gave no whole answer within 1\.6 s\.", 1, marks=pytest.mark.slow),
        pytest.param(endless, r"gave no whole answer within 1\.6 s\.", 1, marks=pytest.mark.slow),
        (deaf, r"gave no whole answer within 0\.4 s in 2 tries", 2),
        (half_closed, r"can't be reached in 2 tries", 2),
    ],
)
def test_answers_have_a_total_time(tmp_path: Path, respond: Any, said: str, tries: int) -> None:
    with raw(respond) as (url, asked):
        one = quick(url, tmp_path, timeout_s=30.0 if respond is half_closed else 0.4, retries=1)
        with pytest.raises(UserError, match=said):
            one.verdicts(RIVERS[:1], "judge", Silent())
    assert len(asked) == tries


def test_half_characters_and_infinity_do_no_harm(server: JudgeServer, tmp_path: Path) -> None:
    infinite = json.dumps({**COMPLETION, "created": 1}).replace('"created": 1', '"created": 1e999').encode()
    server.script = lambda _call, n: Reply("\ud800") if n == 1 else Reply(body=infinite)
    for _ in range(2):
        assert ask(judge(server, tmp_path), [JudgeCase("q\ud800", "g", "a\udfff")]) == [True]
    assert len(server.calls) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_not_followed(
    server: JudgeServer, tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecret")
    other = JudgeServer()
    try:
        place = {"Location": f"{other.url}/chat/completions"}
        server.script = lambda _call, _n: Reply("moved", status, place)
        with pytest.raises(UserError, match=rf"sends the call elsewhere.*\({status}.*--judge-url"):
            ask(judge(server, tmp_path))
        assert (len(server.calls), other.calls) == (1, [])
    finally:
        other.stop()


def test_terminal_commands_are_shown_not_obeyed(server: JudgeServer, tmp_path: Path, heard: Any) -> None:
    server.script = lambda _call, _n: Reply("\x1b]0;owned\x07\u202eno", status=400)
    with pytest.raises(UserError) as refused:
        ask(judge(server, tmp_path))
    assert r"\x1b]0;owned\x07\u202eno" in str(refused.value)
    server.script = lambda _call, _n: Reply(reported="m\x1b[2J\u202e\ud800" + "x" * 10_000)
    one = judge(server, tmp_path)
    ask(one, heard=heard)
    assert r"openai m\x1b[2J\u202e\ud800xx" in one.name
    assert len(one.name) < 250
    one.name.encode()
    assert judge(server, tmp_path).name == one.name


def test_variables_of_openai_stay_with_openai(
    server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = JudgeServer()
    try:
        names = ("ORG_ID", "PROJECT_ID", "ADMIN_KEY", "WEBHOOK_SECRET", "API_TYPE", "API_VERSION")
        for name in names:
            monkeypatch.setenv(f"OPENAI_{name}", "planted")
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-planted: planted")
        for scheme in ("http", "https", "all"):
            monkeypatch.setenv(f"{scheme}_proxy", other.url.removesuffix("/v1"))
        ask(judge(server, tmp_path))
    finally:
        other.stop()
    assert len(server.calls) == 12
    assert other.calls == []
    assert "planted" not in str([call.headers for call in server.calls])
