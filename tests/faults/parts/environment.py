"""Signals, streams, locales, clocks, paths and rights around a command: the same results, or one sentence."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults import commands, workload
from tests.faults.ledger import Case, FaultError, Outcome

TITLE = "signals, streams, locales, clocks and odd paths"

_SOON = 5.0
"""Seconds within which a command ends after a signal."""
_SENTENCE = "run the same command to go on"

First = Callable[[], None]


@dataclass(frozen=True)
class Place:
    """Where the cases work, and what an undisturbed run gave."""

    folder: Path
    file: Path

    def undisturbed(self) -> dict[str, object]:
        """The cells of a run that nothing disturbs, made once."""
        kept = self.folder / "undisturbed.json"
        if not kept.is_file():
            folder = self.folder / "undisturbed"
            self.run(folder).expect(0)
            kept.write_text(json.dumps(commands.cells(folder / "out")), encoding="utf-8")
        found: dict[str, object] = json.loads(kept.read_text(encoding="utf-8"))
        return found

    def run(
        self,
        folder: Path,
        env: dict[str, str] | None = None,
        first: First | None = None,
        more: Sequence[str] = (),
        kill: tuple[float, signal.Signals] | None = None,
    ) -> commands.Ran:
        """Run the workload with its cache and results below a folder."""
        words = workload.command(self.file, folder, "ccps,ptrue", "--set", "ccps.contrastive_steps=60",
                                 "--set", "ccps.classifier_steps=60", *more)  # fmt: skip
        return commands.bench(
            *words, folder=folder, env={**workload.cache(folder), **(env or {})}, first=first,
            kill_after=None if kill is None else kill[0], sign=signal.SIGKILL if kill is None else kill[1],
        )  # fmt: skip

    def same(self, folder: Path) -> None:
        """Refuse results other than the undisturbed ones."""
        commands.same(commands.cells(folder / "out"), self.undisturbed())


def cases(folder: Path) -> Iterator[Case]:
    """Signals at several moments, then whatever must change nothing, then what must be one sentence."""
    place = Place(folder, workload.questions_file(folder, sizes={"test": 12, "train": 24, "validation": 12}))
    for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        for moment in (0.2, 0.4, 0.7, 1.2, 1.8):
            yield Case(f"{sign.name} after {moment} s", partial(_stopped, place, sign, moment))
    yield Case("SIGTERM twice", partial(_stopped_twice, place))
    yield Case("SIGHUP that nohup ignores", partial(_unheard, place))
    yield Case("SIGTERM and a clean-up that hangs", partial(_hanging, place))
    for name, first in _STREAMS.items():
        yield Case(name, partial(_streams, place, name, first))
    for name, env in _ENVIRONMENTS.items():
        yield Case(name, partial(_unchanged, place, place.folder / _word(name), env, None))
    for name, first in _STARTS.items():
        yield Case(name, partial(_unchanged, place, place.folder / _word(name), {}, first))
    for number, name in enumerate(_NAMES):
        yield Case(f"path {name[:30]!a}", partial(_unchanged, place, place.folder / f"p{number}" / name, {}, None))
    yield Case("home that can't be written, without a cache named", partial(_homeless, place))
    yield Case("cache that can't be written", partial(_readonly, place, "cache"))
    yield Case("results that can't be written", partial(_readonly, place, "out"))


def _word(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


# --- signals ----------------------------------------------------------------------------------------------------------


def _stopped(place: Place, sign: signal.Signals, moment: float) -> None:
    """It ends soon with its code and a sentence, and the same command gives what an undisturbed run gives."""
    folder = place.folder / f"{sign.name}-{moment}"
    ran = place.run(folder, kill=(moment, sign))
    if ran.code == 0:
        return place.same(folder)  # it was quicker
    ran.expect(128 + sign)
    if _SENTENCE not in ran.err:
        raise FaultError(Outcome.LOST, f"no sentence: {ran.err[-200:]!r}")
    if ran.seconds - moment > _SOON:
        raise FaultError(Outcome.HUNG, f"{ran.seconds - moment:.1f} s after the signal")
    place.run(folder).expect(0)
    return place.same(folder)


def _slow_end() -> None:
    """Clean-up that takes for ever: the place where a run gives memory back raises, and its handler sleeps."""
    from bench.run import pipeline

    def stuck(*_: object) -> None:
        try:
            time.sleep(60)
        finally:
            time.sleep(60)

    pipeline.__dict__["prepare"] = stuck


def _hanging(place: Place) -> None:
    ran = place.run(place.folder / "hanging", first=_slow_end, kill=(1.0, signal.SIGTERM)).expect(143)
    if ran.seconds - 1.0 > _SOON or _SENTENCE not in ran.err:
        raise FaultError(Outcome.HUNG, f"{ran.seconds - 1:.1f} s after the signal: {ran.err[-200:]!r}")


def _stopped_twice(place: Place) -> None:
    folder = place.folder / "twice"
    words = workload.command(place.file, folder, "ptrue")
    running = commands.started(*words, folder=folder, env=workload.cache(folder), first=_slow_end)
    time.sleep(1.0)
    os.kill(running.pid, signal.SIGTERM)
    time.sleep(0.5)
    os.kill(running.pid, signal.SIGTERM)
    sent = time.monotonic()
    commands.finished(running).expect(143)
    if time.monotonic() - sent > 1.0:
        raise FaultError(Outcome.HUNG, "not at once")


def _unheard(place: Place) -> None:
    folder = place.folder / "nohup"

    def nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    place.run(folder, first=nohup, kill=(0.8, signal.SIGHUP)).expect(0)
    place.same(folder)


# --- streams ----------------------------------------------------------------------------------------------------------


def _to(path: str, *descriptors: int, flags: int = os.O_WRONLY) -> First:
    def redirect() -> None:
        for descriptor in descriptors:
            commands.replaced(descriptor, os.open(path, flags))

    return redirect


def _closed(*descriptors: int) -> First:
    """As the shell's `>&-`: Python has no stream then."""

    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)
            setattr(sys, ("stdin", "stdout", "stderr")[descriptor], None)

    return close


def _broken(*descriptors: int) -> First:
    """As `| head`, after it has ended."""

    def pipe() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        for descriptor in descriptors:
            commands.replaced(descriptor, writing)

    return pipe


_STREAMS: dict[str, First] = {
    "stdout closed": _closed(1),
    "stderr closed": _closed(2),
    "all streams closed": _closed(0, 1, 2),
    "stdout full": _to("/dev/full", 1),
    "stderr full": _to("/dev/full", 2),
    "both full": _to("/dev/full", 1, 2),
    "stdout a broken pipe": _broken(1),
    "stderr a broken pipe": _broken(2),
    "both broken pipes": _broken(1, 2),
    "stdout read-only": _to(os.devnull, 1, flags=os.O_RDONLY),
}


def _streams(place: Place, name: str, first: First) -> None:
    folder = place.folder / _word(name)
    complains = name in {"stdout full", "both full", "stdout read-only"}
    ran = place.run(folder, first=first).expect(2 if complains else 0)
    if complains and name != "both full" and "can't be written" not in ran.err:
        raise FaultError(Outcome.LOST, f"no sentence: {ran.err[-200:]!r}")
    place.same(folder)


# --- what must change nothing -----------------------------------------------------------------------------------------


def _unchanged(place: Place, folder: Path, env: dict[str, str], first: First | None) -> None:
    place.run(folder, env, first).expect(0)
    place.same(folder)


_ENVIRONMENTS: dict[str, dict[str, str]] = {
    "LC_ALL=C": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "LC_ALL=POSIX": {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"},
    "LANG=tr_TR": {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8"},
    "PYTHONHASHSEED=1": {"PYTHONHASHSEED": "1"},
    "TZ far east": {"TZ": "Pacific/Kiritimati"},
    "TZ that is none": {"TZ": "No/Where"},
    "TERM=dumb, 20 columns": {"TERM": "dumb", "COLUMNS": "20"},
    "NO_COLOR and FORCE_COLOR": {"NO_COLOR": "1", "FORCE_COLOR": "1"},
    "PYTHONWARNINGS=error": {"PYTHONWARNINGS": "error"},
    "proxies that are none": {"HTTPS_PROXY": "http://[", "ALL_PROXY": "nonsense"},
}


def _ascii() -> None:
    """Streams of a locale without our letters."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]


def _clock(seconds: float) -> First:
    """The wall clock stands elsewhere, and goes backwards now and then."""

    def patch() -> None:
        real, count = time.time, [0]

        def back() -> float:
            count[0] += 1
            return real() + seconds - (3_600 if count[0] % 3 == 0 else 0)

        time.time = back

    return patch


def _umask() -> None:
    os.umask(0o077)


def _gone() -> None:
    """The current folder is removed under the command."""
    folder = Path("gone").absolute()
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    folder.rmdir()


def _no_network() -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENETUNREACH, "no network")

    socket.socket.connect = refuse  # type: ignore[method-assign]


def _foreign_packages() -> None:
    """Somebody else's `tasks` and `methods` stand first on the path."""
    folder = Path("foreign").absolute()
    for name in ("tasks", "methods"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('not ours')\n", encoding="utf-8")
        for module in [m for m in sys.modules if m.partition(".")[0] == name]:
            del sys.modules[module]
    from bench.api import registration

    registration.DECLARED.clear()
    sys.path.insert(0, str(folder))


_STARTS: dict[str, First] = {
    "streams in ASCII": _ascii,
    "clock set back by ten years": _clock(-10 * 365 * 86_400.0),
    "clock before 1970": _clock(-80 * 365 * 86_400.0),
    "clock in the year 2100": _clock(75 * 365 * 86_400.0),
    "umask 077": _umask,
    "current folder removed": _gone,
    "no network": _no_network,
    "foreign tasks and methods on the path": _foreign_packages,
}
_NAMES = (
    "two words", "Größe 大きさ", "quote'\"", "new\nline", "-dash", "per%cent {brace} $HOME `x`", "n" * 200, "e\u0301",
    "tab\tand\x1b[31m", "back\\slash", "a;b&c|d", "dots..", "#hash?query=1",
)  # fmt: skip


# --- rights -----------------------------------------------------------------------------------------------------------


class _Capabilities(ctypes.Structure):
    """Of Linux's `capset`, twice: which a process has, may have, and hands on."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _unwritable(folder: Path) -> First:
    """A folder that nobody may write to, root included, who loses the right to pass over permissions."""

    def change() -> None:
        folder.chmod(0o500)
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        if ctypes.CDLL(None).capset(header, (_Capabilities * 2)()) != 0:
            raise OSError("capset")

    return change


def _homeless(place: Place) -> None:
    home, folder = place.folder / "home", place.folder / "homeless"
    home.mkdir(exist_ok=True)
    env = {"HOME": str(home), "XDG_CACHE_HOME": "", "CONFBENCH_CACHE": ""}
    place.run(folder, env, _unwritable(home)).refused()


def _readonly(place: Place, name: str) -> None:
    folder = place.folder / f"readonly-{name}"
    (folder / name).mkdir(parents=True, exist_ok=True)
    place.run(folder, first=_unwritable(folder / name)).refused()
