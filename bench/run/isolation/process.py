"""The run's side of a plugin's process: starts it, asks it, and ends it when it takes too long."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.api import AdapterRef
from bench.api.errors import PLUGINS, PluginError, ends_the_program
from bench.run.isolation.log import RunLog
from bench.run.isolation.messages import Failure
from bench.run.isolation.pipe import Pipe
from bench.store.processes import end_group

_START = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv.pop())
importlib.import_module(sys.argv.pop()).main()
"""
"""Program of a child: its module comes last among its arguments but one, and where to look for modules last."""
_WORKER = "bench.run.isolation.worker"
_HOME = Path(__file__).resolve().parents[3]
Serve = Callable[..., AdapterRef]


@dataclass
class Process:
    """The process of a plugin file, started when it is first asked for something."""

    path: Path
    """The plugin."""
    seconds: float
    """The longest that one call may take."""
    log: RunLog | None
    """To which everything goes that it prints; None: nowhere."""
    note: Callable[[str], None] = field(default=lambda _: None)
    """Told what a plugin changed there and had put back."""
    _running: Child | None = field(default=None, init=False)

    @property
    def alive(self) -> bool:
        """Whether there is one, with the methods that it has learned."""
        return self._running is not None

    def ask(self, who: str, verb: str, *arguments: Any, serve: Serve | None = None) -> Any:
        """Have it do something.

        Args:
            who: the plugin, for errors.
            verb: of `worker.Host`.
            *arguments: of the verb.
            serve: trains adapters meanwhile; that time isn't counted.

        Raises:
            PluginError: it raised, it took too long, or its process ended.
            UserError: it raised that; so do the other errors of `bench.api`.
        """
        try:
            answer = self._answer(who, verb, arguments, serve)
        except TimeoutError:
            self.close()
            limit = f"{self.seconds:g} s"
            raise PluginError(f"{who} took longer than {limit} in {verb} (--method-timeout)") from None
        except BaseException as error:
            gone = isinstance(error, Exception) and not ends_the_program(error)
            ending = self.close(found_dead=gone)
            if not gone:
                raise
            told = "" if isinstance(error, EOFError | OSError) else f" ({type(error).__name__} in a message)"
            raise PluginError(f"{who}: its process ended in {verb}{told}: {ending}") from None
        if isinstance(answer, Failure):
            PLUGINS.info("%s", answer.trace)
            raise answer.error()
        return answer

    def close(self, *, found_dead: bool = False) -> str:
        """End the process and what it started; returns how it ended."""
        if self._running is None:
            return "it could not be started"
        running, self._running = self._running, None
        ending = running.own_ending() if found_dead else "killed"
        running.end()
        return ending

    def _answer(self, who: str, verb: str, arguments: tuple[Any, ...], serve: Serve | None) -> Any:
        if self._running is None:
            self._running = Child(_WORKER, [str(self.path.absolute())], self.log)
        pipe, deadline = self._running.pipe, time.monotonic() + self.seconds
        pipe.send((verb, *arguments), deadline)
        while True:
            kind, value = pipe.receive(deadline)
            if kind == "answer":
                return value
            if kind == "changed":
                what, end = value
                self.note(f"{who} changed {what} in {verb}; {end}")
                continue
            left = deadline - time.monotonic()
            pipe.send(self._served(value, serve), math.inf)
            deadline = time.monotonic() + left

    def _served(self, arguments: dict[str, Any], serve: Serve | None) -> AdapterRef | Failure:
        """An adapter, or why there is none."""
        try:
            if serve is None:
                raise PluginError("there is no model to train an adapter of")
            return serve(**arguments)
        except Exception as error:  # noqa: BLE001 - the method is told, and may know what to do
            return Failure.of(error, self.path)


class Child:
    """A running process with a pipe to it, in a group of its own, of which nothing is left when it is ended."""

    def __init__(self, module: str, arguments: Sequence[str], log: RunLog | None) -> None:
        """Start it.

        Args:
            module: its `main` is run, which begins with `life.begin`.
            arguments: which that gives it.
            log: to which everything goes that it prints; None: nowhere.
        """
        with contextlib.ExitStack() as its, contextlib.ExitStack() as ours:
            there, writing = _pipe(its, ours)
            back, reading = _pipe(its, ours, reads=False)
            numbers = [there, back, os.getpid(), _memory()]
            where = json.dumps([str(_HOME), *filter(None, sys.path)])
            program = [sys.executable, "-P", "-c", _START, *map(str, numbers), *arguments, module, where]
            path = None if log is None else log.for_child()
            with Path(path or os.devnull).open("ab") as out:
                self.child = subprocess.Popen(
                    program, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=(there, back),
                    start_new_session=True, env=_environment(),
                )  # fmt: skip
            child = self.child
            self.pipe = Pipe(reading, writing, lambda: child.poll() is None)
            self.end = weakref.finalize(self, _end, child, (reading, writing), os.getpid())
            ours.pop_all()

    def own_ending(self) -> str:
        """Exit code or signal with which it ended by itself."""
        try:
            code = self.child.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _pipe(its: contextlib.ExitStack, ours: contextlib.ExitStack, *, reads: bool = True) -> tuple[int, int]:
    """The child's end of a new pipe, from which it reads or into which it writes, and ours; closed with the stacks."""
    ends = os.pipe()
    own, other = ends if reads else ends[::-1]
    its.callback(os.close, own)
    ours.callback(os.close, other)
    return own, other


def _end(child: subprocess.Popen[bytes], descriptors: tuple[int, ...], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the run
        return
    end_group(child)
    for descriptor in descriptors:
        os.close(descriptor)


def _environment() -> dict[str, str]:
    """The run's, with as many threads, on which sums of floats depend."""
    threads = {}
    if "torch" in sys.modules:
        threads["OMP_NUM_THREADS"] = str(sys.modules["torch"].get_num_threads())
    return {**os.environ, **threads, "PYTHONUNBUFFERED": "1"}


def _memory() -> int:
    """Bytes of memory of this machine, or of the part of it that the run may use."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError):
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(sizes)
