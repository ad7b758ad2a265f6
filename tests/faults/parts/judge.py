"""Faults of a judge: of its server, of what runs share, of its cache, and of how it is named."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bench.grading.openai import OpenAIJudge
from bench.run.config import RunConfig
from tests.faults import commands
from tests.faults.commands import Outcome, Ran, require, same
from tests.faults.workload import QUICK as SHORT
from tests.faults.workload import cache
from tests.kit.servers import Call, JudgeServer, Reply, Script, completion

TITLE = "a judge and its server"
PARALLEL = 8
LIMIT = 24
SECRET = "sk-planted-SECRET123XYZ"  # noqa: S105 - planted, to be looked for
RUN = ("run", "--method", "ptrue", "--model", "tiny", "--task", "atlas-oe", "--limit", str(LIMIT), *SHORT)
TOLD = f"calls that were under way, at most {PARALLEL}, may have been paid for and are made again"
NONSENSE = "answered no chat completion"
QUICK = {"retry-after-ms": "1"}
"""Makes the client try again at once."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
STEERING = set("\x1b\x07\u202e\x9b")


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    world = _World(folder, JudgeServer(good), JudgeServer(good))
    for name, (script, code, calls, words) in _servers(world).items():
        yield name, partial(_server_fault, world, name, script, (code, calls, words))
    for sign in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        yield f"{sign.name} with calls under way", partial(_stopped, world, sign)
    for trial in (_at_once, _key_in_clear, _password_in_clear, _environment, _hostile_model_name, _table_of_it):
        yield trial.__name__.strip("_").replace("_", " "), partial(trial, world)
    for name, harm in _HARMS.items():
        yield f"verdicts: {name}", partial(_harmed, world, name, harm)
    for name in ("m\ud800", "m\x1b[2J\x07", "m\u202ex", "", "x" * 10_000):
        yield f"--judge-model {name[:10]!r}", partial(_named, world, name)


@dataclass
class _World:
    """A server that is meant, one that isn't, and a run without fault."""

    folder: Path
    server: JudgeServer
    other: JudgeServer
    made: int = 0

    @cached_property
    def read(self) -> Path:
        """A cache with the model's answers and no verdict; made in this process, which has then loaded all."""
        from bench.grading import connection  # noqa: F401 - loaded here
        from bench.run.pipeline import run

        folder = self.folder / "read"
        out, cache = folder / "out", folder / "cache"
        run(RunConfig(("ptrue",), "tiny", ("atlas-oe",), limit=LIMIT, overrides=(SHORT[1],), out=out, cache=cache))
        return folder / "cache"

    @cached_property
    def undisturbed(self) -> tuple[int, Mapping[str, Any]]:
        folder = self.fresh()
        self.server.begin(good)
        self.run(folder).expect(0)
        return len(self.server.calls), commands.cells(folder / "out")

    def same(self, folder: Path) -> None:
        same(commands.cells(folder / "out"), self.undisturbed[1])

    def fresh(self) -> Path:
        self.made += 1
        folder = self.folder / f"case-{self.made}"
        shutil.copytree(self.read, folder / "cache")
        return folder

    def arguments(self, folder: Path, *more: object, url: str | None = None) -> list[object]:
        judge = ("--judge", "openai", "--judge-url", url or self.server.url)
        named = () if "--judge-model" in more else ("--judge-model", "judge")
        return [*RUN, *judge, *named, "--out", folder / "out", *more]

    def run(self, folder: Path, *more: object, url: str | None = None, **options: Any) -> Ran:
        """A run with the judge; whoever sees the key in what it says has found a fault."""
        env = {**cache(folder), "OPENAI_API_KEY": SECRET, **options.pop("env", {})}
        ran = commands.bench(*self.arguments(folder, *more, url=url), folder=folder, env=env, first=_hurried, **options)
        self.check(folder, ran)
        return ran

    def check(self, folder: Path, ran: Ran) -> None:
        """Refuse what holds the key or commands a terminal."""
        _quiet(ran)
        for path in (path for path in folder.rglob("*") if path.is_file()):
            require(SECRET.encode() not in path.read_bytes(), Outcome.WRONG, f"the key stands in {path.name}")

    def goes_on(self, folder: Path, expected: int) -> Ran:
        """The same command with a server without fault, which is asked so often and gives the right result."""
        self.server.begin(good)
        ran = self.run(folder).expect(0)
        self.called(expected, expected)
        self.same(folder)
        return ran

    def called(self, fewest: int, most: int) -> None:
        """Refuse other numbers of calls, none of which may go to the server that isn't meant."""
        calls = len(self.server.calls)
        outcome = Outcome.PAID if calls > most else Outcome.WRONG
        require(fewest <= calls <= most, outcome, f"{calls} calls, not {fewest} to {most}")
        require(not self.other.calls, Outcome.WRONG, "a server that was not named was called")


def _hurried() -> None:
    """Shorter limits of the same kind, so that a fault takes seconds."""
    OpenAIJudge.timeout_s, OpenAIJudge.retries = 1.5, 1


def _quiet(ran: Ran) -> None:
    text = ran.out + ran.err
    require(SECRET not in text and "hunter2" not in text, Outcome.WRONG, "a secret is shown")
    require(not STEERING & {*text}, Outcome.WRONG, "text of others commands the terminal")


def _says(ran: Ran, words: str) -> None:
    require(words in " ".join(ran.err.split()), Outcome.WRONG, f"no {words!r} in {ran.err[-200:]!r}")


def good(call: Call, _n: int) -> Reply:
    """Yes or no, always the same for the same question."""
    return Reply("yes" if sum(call.text.encode()) % 3 else "no")


def _slowly(seconds: Callable[[int], float]) -> Script:
    return lambda call, n: replace(good(call, n), seconds=seconds(n))


# --- servers ----------------------------------------------------------------------------------------------------------


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


Expected = tuple[int, tuple[int, int], str]
"""Exit code, fewest and most calls, words that are said."""


def _servers(world: _World) -> dict[str, tuple[Script, int, tuple[int, int], str]]:
    """Name -> script, exit code, fewest and most calls, words that are said."""
    n = world.undisturbed[0]

    def always(reply: Reply) -> Script:
        return lambda _call, _n: reply

    def after(k: int, reply: Reply) -> Script:
        return lambda call, n: good(call, n) if n <= k else reply

    def every_second(status: int) -> Script:
        seen: set[str] = set()

        def script(call: Call, n: int) -> Reply:
            if call.text in seen:
                return good(call, n)
            seen.add(call.text)
            return Reply("later", status, QUICK)

        return script

    def body(value: Any, old: str = "", new: str = "") -> Script:
        return always(Reply(body=json.dumps(value).replace(old, new).encode()))

    elsewhere = {"Location": f"{world.other.url}/chat/completions"}
    few = (1, 1)
    return {
        "429 at first": (every_second(429), 0, (2 * n, 2 * n), ""),
        "500 at first": (every_second(500), 0, (2 * n, 2 * n), ""),
        "503 at first": (every_second(503), 0, (2 * n, 2 * n), ""),
        "429 always": (always(Reply("quota", 429, QUICK)), 2, (2, 2), "turned the call away"),
        "429 for an hour": (always(Reply("quota", 429, {"Retry-After": "3600"})), 2, (1, 2), "turned the call away"),
        "429 after five": (after(5, Reply("quota", 429, QUICK)), 2, (7, 5 + 2 * PARALLEL), "from the 5 verdicts"),
        "500 after five": (after(5, Reply("dead", 500, QUICK)), 2, (7, 5 + 2 * PARALLEL), "from the 5 verdicts"),
        "401 that repeats the key": (always(Reply(f"bad key {SECRET}", 401)), 2, few, "refuses the key (401: bad key"),
        "reset": (always(Reply(raw=reset)), 2, (2, 2), "can't be reached"),
        "reset after five": (after(5, Reply(raw=reset)), 2, (7, 5 + 2 * PARALLEL), "from the 5 verdicts"),
        "half closed": (always(Reply(raw=half_closed)), 2, (2, 2), "can't be reached"),
        "drip": (always(Reply(raw=drip)), 2, few, "gave no whole answer within"),
        "silence": (always(Reply(raw=silent)), 2, (2, 2), "gave no whole answer within"),
        "endless": (always(Reply(raw=endless)), 2, few, "gave no whole answer within"),
        "307 to another port": (always(Reply("", 307, elsewhere)), 2, few, "sends the call elsewhere"),
        "302 to another port": (always(Reply("", 302, elsewhere)), 2, few, "sends the call elsewhere"),
        "HTML": (always(Reply(body=b"<html>hi</html>", headers={"Content-Type": "text/html"})), 2, few, NONSENSE),
        "null": (always(Reply(body=b"null")), 2, few, NONSENSE),
        "deep JSON": (always(Reply(body=b"[" * 100_000)), 2, few, NONSENSE),
        "1e999": (body(completion(7), "7", "1e999"), 2, few, NONSENSE),
        "a huge integer": (body(completion("no"), '"created": 1', f'"created": {"9" * 5000}'), 2, few, NONSENSE),
        "a number as its model": (body(completion("no", 7)), 2, few, NONSENSE),
        "an object of choices": (body({**completion("no"), "choices": {"0": 1}}), 2, few, NONSENSE),
        "no UTF-8": (always(Reply(body=b"\xff\xfe\x00")), 2, few, NONSENSE),
        "half characters": (body(completion("\ud800")), 2, (20, 20 + PARALLEL - 1), "neither yes nor no"),
        "null as text": (body(completion(None)), 2, (20, 20 + PARALLEL - 1), "neither yes nor no"),
        "never yes or no": (always(Reply("Perhaps")), 2, (20, 20 + PARALLEL - 1), "neither yes nor no"),
        "another model after five": (after(5, Reply("no", reported="judge-2")), 2, (6, 5 + PARALLEL), "judge changed"),
        "commands in an error": (always(Reply("\x1b]0;x\x07\x1b[2J\u202e\x9b", 400)), 2, few, r"400: \x1b]0;x\x07"),
    }  # fmt: skip


def _server_fault(world: _World, name: str, script: Script, expected: Expected) -> None:
    code, (fewest, most), words = expected
    n, folder = world.undisturbed[0], world.fresh()
    world.other.begin(good)
    world.server.begin(script)
    ran = world.run(folder).expect(code)
    world.called(fewest, most)
    _says(ran, words)
    if code == 0:
        world.same(folder)
        world.goes_on(folder, 0)
    elif name != "another model after five":  # that one's verdicts are rightly not used with those of the first
        world.goes_on(folder, n - len(_lines(folder)))


def _stopped(world: _World, sign: signal.Signals) -> None:
    n, folder = world.undisturbed[0], world.fresh()
    world.server.begin(_slowly(lambda number: 0.0 if number <= n // 2 else 30.0))
    env = {**cache(folder), "OPENAI_API_KEY": SECRET}
    running = commands.started(*world.arguments(folder), folder=folder, env=env)
    end = time.monotonic() + 60
    while len(world.server.calls) < n // 2 + PARALLEL:
        require(time.monotonic() < end, Outcome.HUNG, "the calls don't come")
        time.sleep(0.01)
    ran = commands.finished(running, time.monotonic() - running.since, sign)
    world.check(folder, ran)
    ran.expect(*{signal.SIGKILL: (-9,), signal.SIGINT: (130,), signal.SIGTERM: (143, -15)}[sign])
    kept = len(_lines(folder))
    require(kept >= n // 2, Outcome.LOST, f"{kept} verdicts are kept of {n // 2}")
    after = world.goes_on(folder, n - kept)
    _says(after if sign == signal.SIGKILL else ran, TOLD)


def _at_once(world: _World) -> None:
    n, folder = world.undisturbed[0], world.fresh()
    world.server.begin(_slowly(lambda _: 0.2))
    env = {**cache(folder), "OPENAI_API_KEY": SECRET}
    outs = [folder / "one", folder / "two"]
    running = [commands.started(*world.arguments(out), folder=out, env=env) for out in outs]
    for one, out in zip(running, outs, strict=True):
        world.check(folder, commands.finished(one).expect(0))
        world.same(out)
    world.called(n, n)
    require(len({call.text for call in world.server.calls}) == n, Outcome.PAID, "a question was asked twice")


# --- keys, environment, names -----------------------------------------------------------------------------------------


def _key_in_clear(world: _World) -> None:
    _says(world.run(world.fresh(), url="http://judge.invalid/v1").expect(2), "the key in OPENAI_API_KEY over http")


def _password_in_clear(world: _World) -> None:
    ran = world.run(world.fresh(), url="http://me:hunter2@judge.invalid/v1", env={"OPENAI_API_KEY": ""}).expect(2)
    _says(ran, "the user and password in --judge-url over http")


def _environment(world: _World) -> None:
    """Organisation and project are nobody else's; neither a base URL nor a proxy there redirects."""
    n, folder = world.undisturbed[0], world.fresh()
    proxy = world.other.url.removesuffix("/v1")
    planted = {f"OPENAI_{name}": "planted-id" for name in ("ORG_ID", "PROJECT_ID", "ADMIN_KEY", "API_VERSION")}
    planted |= {"OPENAI_BASE_URL": world.other.url, "http_proxy": proxy, "HTTP_PROXY": proxy, "ALL_PROXY": proxy}
    world.server.begin(good)
    world.other.begin(good)
    world.run(folder, env=planted).expect(0)
    world.called(n, n)
    told = "planted-id" in str([call.headers for call in world.server.calls])
    require(not told, Outcome.WRONG, "the server learned of an organisation or a project")
    world.same(folder)


def _hostile_model_name(world: _World) -> None:
    """A model that is called by commands to a terminal, halves of characters, and 10,000 letters."""
    _hostile_results(world)


def _table_of_it(world: _World) -> None:
    folder = _hostile_results(world)

    def shown(command: str, *more: object) -> Ran:
        words = (command, "--partial", "--deviations", "--results", folder / "out", *more)
        return commands.bench(*words, folder=folder, env=cache(folder)).expect(0)

    for kind in ("terminal", "md", "csv", "tex", "json"):
        _quiet(shown("table", "--format", kind))
    shown("report", "--out", folder / "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    require(not STEERING & {*page}, Outcome.WRONG, "the page holds commands")


def _hostile_results(world: _World) -> Path:
    folder = world.fresh()
    name = "judge\x1b]0;x\x07\u202e\ud800\x9b" + "x" * 10_000
    world.server.begin(lambda call, n: replace(good(call, n), reported=name))
    world.run(folder).expect(0)
    for row in commands.cells(folder / "out").values():
        plain = row["judge"].isprintable() and len(row["judge"]) <= 300
        require(plain, Outcome.WRONG, "the result holds what the server called itself")
    return folder


def _named(world: _World, name: str) -> None:
    world.server.begin(good)
    ran = world.run(world.fresh(), "--judge-model", name).expect(2)
    halved = "\ud800" in name  # nothing of a command line may be that
    _says(ran, "expected text that UTF-8 can hold" if halved else "--judge-model: expected a name of 1 to 255")
    require(not world.server.calls, Outcome.PAID, "the server was called")


# --- the cache of verdicts --------------------------------------------------------------------------------------------


def _lines(folder: Path) -> list[str]:
    found = list((folder / "cache" / "verdicts").glob("*.jsonl"))
    return found[0].read_text(encoding="utf-8").splitlines() if found else []


def _flipped(where: float, bit: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        place = int(len(data) * where)
        place += data[place] == ord("\n")
        return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]

    return flip


_HARMS: Mapping[str, Callable[[bytes], bytes]] = {
    "another verdict": lambda data: data.replace(b'"verdict": true', b'"verdict": false', 1),
    "a bit early": _flipped(0.05, 0),
    "a bit in the middle": _flipped(0.5, 2),
    "a bit late": _flipped(0.95, 5),
    "cut in the middle of its last line": lambda data: data[:-40],
    "emptied": lambda _data: b"",
    "a line of something else": lambda data: b"[" * 100_000 + b"\n" + data,
    "unreadable": lambda data: data,
}


def _harmed(world: _World, name: str, harm: Callable[[bytes], bytes]) -> None:
    n, _ = world.undisturbed
    folder = world.fresh()
    world.goes_on(folder, n)
    (path,) = (folder / "cache" / "verdicts").glob("*.jsonl")
    whole = path.read_bytes()
    if name == "unreadable":
        path.unlink()
        path.mkdir()  # root reads whatever has no rights
        world.server.begin(good)
        _says(world.run(folder).expect(2), "The cache of verdicts could not be read")
        path.rmdir()
        path.write_bytes(whole)
        world.goes_on(folder, 0)
        return
    harmed = harm(whole)
    path.write_bytes(harmed)
    lost = len({*whole.splitlines()} - {*harmed.splitlines()})
    ran = world.goes_on(folder, lost)
    if harmed:
        _says(ran, "damaged lines of the cache of verdicts are not used")
