"""Signals, streams, locales, clocks, paths and rights around a command: the same results, or one sentence."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.faults import commands, workload
from tests.faults.commands import Outcome, Runs, replaced, require
from tests.faults.parts.disk import bound_by_permissions

TITLE = "signals, streams, locales, clocks and odd paths"
_SOON = 5.0
"""Seconds within which a command ends after a signal."""
_SENTENCE = "run the same command to go on"
_QUICK = ("--set", "ccps.contrastive_steps=60", "--set", "ccps.classifier_steps=60")
First = Callable[[], object]


def cases(folder: Path) -> Iterator[tuple[str, First]]:
    runs = Runs(folder / "undisturbed", more=_QUICK, sizes=(12, 24, 12))
    for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        for moment in (0.2, 0.4, 0.7, 1.2, 1.8):
            yield (
                f"{sign.name} after {moment} s",
                partial(_stopped, runs, folder / f"{sign.name}-{moment}", sign, moment),
            )
    yield "SIGTERM twice", partial(_stopped_twice, runs, folder / "twice")
    yield "SIGHUP that nohup ignores", partial(_unheard, runs, folder / "nohup")
    yield "SIGTERM and a clean-up that hangs", partial(_hanging, runs, folder / "hanging")
    for name, first in _STREAMS.items():
        yield name, partial(_streams, runs, folder / _word(name), name, first)
    for name, env in _ENVIRONMENTS.items():
        yield name, partial(_unchanged, runs, folder / _word(name), env, None)
    for name, first in _STARTS.items():
        yield name, partial(_unchanged, runs, folder / _word(name), {}, first)
    for number, name in enumerate(_NAMES):
        yield f"path {name[:30]!a}", partial(_unchanged, runs, folder / f"p{number}" / name, {}, None)
    yield "home that can't be written, without a cache named", partial(_homeless, runs, folder)
    yield "cache that can't be written", partial(_readonly, runs, folder / "readonly-cache", "cache")
    yield "results that can't be written", partial(_readonly, runs, folder / "readonly-out", "out")


def _word(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def _stopped(runs: Runs, folder: Path, sign: signal.Signals, moment: float) -> None:
    """It ends soon with its code and a sentence, and the same command gives what an undisturbed run gives."""
    ran = runs.run(folder, kill_after=moment, sign=sign)
    if ran.code != 0:  # else it was quicker
        _ended(ran.expect(128 + sign), moment)
        runs.run(folder).expect(0)
    runs.same(folder)


def _ended(ran: commands.Ran, moment: float) -> None:
    require(_SENTENCE in ran.err, Outcome.LOST, f"no sentence: {ran.err[-200:]!r}")
    require(ran.seconds - moment <= _SOON, Outcome.HUNG, f"{ran.seconds - moment:.1f} s after the signal")


def _slow_end() -> None:
    """Clean-up that takes for ever: the place where a run gives memory back raises, and its handler sleeps."""
    from bench.run import pipeline

    def stuck(*_: object) -> None:
        try:
            time.sleep(60)
        finally:
            time.sleep(60)

    pipeline.__dict__["prepare"] = stuck


def _hanging(runs: Runs, folder: Path) -> None:
    _ended(runs.run(folder, first=_slow_end, kill_after=1.0, sign=signal.SIGTERM).expect(143), 1.0)


def _stopped_twice(runs: Runs, folder: Path) -> None:
    words = workload.command(runs.questions, folder, "ptrue")
    running = commands.started(*words, folder=folder, env=workload.cache(folder), first=_slow_end)
    for seconds in (1.0, 0.5):
        time.sleep(seconds)
        os.kill(running.pid, signal.SIGTERM)
    sent = time.monotonic()
    commands.finished(running).expect(143)
    require(time.monotonic() - sent <= 1.0, Outcome.HUNG, "not at once")


def _unheard(runs: Runs, folder: Path) -> None:
    nohup = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    runs.run(folder, first=nohup, kill_after=0.8, sign=signal.SIGHUP).expect(0)
    runs.same(folder)


def _to(path: str, *descriptors: int, flags: int = os.O_WRONLY) -> None:
    for descriptor in descriptors:
        replaced(descriptor, os.open(path, flags))


def _closed(*descriptors: int) -> None:
    """As the shell's `>&-`: Python has no stream then."""
    for descriptor in descriptors:
        os.close(descriptor)
        setattr(sys, ("stdin", "stdout", "stderr")[descriptor], None)


def _broken(*descriptors: int) -> None:
    """As `| head`, after it has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    for descriptor in descriptors:
        replaced(descriptor, writing)


_STREAMS: dict[str, First] = {
    "stdout closed": partial(_closed, 1),
    "stderr closed": partial(_closed, 2),
    "all streams closed": partial(_closed, 0, 1, 2),
    "stdout full": partial(_to, "/dev/full", 1),
    "stderr full": partial(_to, "/dev/full", 2),
    "both full": partial(_to, "/dev/full", 1, 2),
    "stdout a broken pipe": partial(_broken, 1),
    "stderr a broken pipe": partial(_broken, 2),
    "both broken pipes": partial(_broken, 1, 2),
    "stdout read-only": partial(_to, os.devnull, 1, flags=os.O_RDONLY),
}


def _streams(runs: Runs, folder: Path, name: str, first: First) -> None:
    complains = name in {"stdout full", "both full", "stdout read-only"}
    ran = runs.run(folder, first=first).expect(2 if complains else 0)
    silent = not complains or name == "both full"
    require(silent or "can't be written" in ran.err, Outcome.LOST, f"no sentence: {ran.err[-200:]!r}")
    runs.same(folder)


def _unchanged(runs: Runs, folder: Path, env: dict[str, str], first: First | None) -> None:
    runs.run(folder, env=env, first=first).expect(0)
    runs.same(folder)


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
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]


def _clock(seconds: float) -> None:
    """The wall clock stands elsewhere, and goes backwards now and then."""
    real, count = time.time, itertools.count(1)
    time.time = lambda: real() + seconds - (3_600 if next(count) % 3 == 0 else 0)


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
    "clock set back by ten years": partial(_clock, -10 * 365 * 86_400.0),
    "clock before 1970": partial(_clock, -80 * 365 * 86_400.0),
    "clock in the year 2100": partial(_clock, 75 * 365 * 86_400.0),
    "umask 077": partial(os.umask, 0o077),
    "current folder removed": _gone,
    "no network": _no_network,
    "foreign tasks and methods on the path": _foreign_packages,
}
_NAMES = (
    "two words", "Größe 大きさ", "quote'\"", "new\nline", "-dash", "per%cent {brace} $HOME `x`", "n" * 200, "e\u0301",
    "tab\tand\x1b[31m", "back\\slash", "a;b&c|d", "dots..", "#hash?query=1",
)  # fmt: skip


def _unwritable(folder: Path) -> None:
    """A folder that nobody may write to, root included, who loses the right to pass over permissions."""
    folder.chmod(0o500)
    bound_by_permissions()


def _homeless(runs: Runs, folder: Path) -> None:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    env = {"HOME": str(home), "XDG_CACHE_HOME": "", "CONFBENCH_CACHE": ""}
    runs.run(folder / "homeless", env=env, first=partial(_unwritable, home)).refused()


def _readonly(runs: Runs, folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    runs.run(folder, first=partial(_unwritable, folder / name)).refused()
