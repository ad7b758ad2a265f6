"""The run's side of a plugin's process: starts it, asks it, and ends it when it takes too long."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.api import AdapterRef
from bench.api.errors import PLUGINS, PluginError
from bench.run.isolation.log import RunLog
from bench.run.isolation.messages import Failure
from bench.run.isolation.pipe import Pipe
from bench.store.processes import end_group

_HOME = Path(__file__).resolve().parents[3]
_LOOK_S = 1.0
"""Seconds between two looks whether a process is there."""
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
    ended: str = ""
    """Why the last one is gone, with what it had learned."""
    _running: Child | None = field(default=None, init=False)

    @property
    def alive(self) -> bool:
        """Whether there is one, with the methods that it has learned."""
        return self._running is not None

    def ask(self, who: str, verb: str, *arguments: Any, serve: Serve | None = None) -> Any:
        """Have it do something.

        Args:
            who: the plugin, for errors.
            verb: see `worker.Host.answer`.
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
            self.ended = f"{who} took longer than {self.seconds:g} s in {verb} (--method-timeout)"
            raise PluginError(self.ended) from None
        except Exception as error:  # noqa: BLE001 - e.g. what came is no message
            ending = "it could not be started" if self._running is None else self._running.own_ending()
            self.close()
            told = "" if isinstance(error, EOFError | OSError) else f" ({type(error).__name__} in a message)"
            self.ended = f"{who}: its process ended in {verb}{told}: {ending}"
            raise PluginError(self.ended) from None
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Failure):
            PLUGINS.info("%s", answer.trace)
            raise answer.error()
        return answer

    def close(self) -> None:
        """End the process and what it started."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def _answer(self, who: str, verb: str, arguments: tuple[Any, ...], serve: Serve | None) -> Any:
        if self._running is None:
            self._running = Child("bench.run.isolation.worker", [str(self.path.absolute())], self.log)
        child, left = self._running, self.seconds
        message: tuple[Any, ...] | AdapterRef | Failure = (verb, *arguments)
        while True:
            start = time.monotonic()
            with child.limited(left):
                child.pipe.send(message)
                kind, value = child.pipe.receive()
                while kind == "changed":
                    self.note(f"{who} changed {value[0]} in {verb}; {value[1]}")
                    kind, value = child.pipe.receive()
            if kind == "answer":
                return value
            left -= time.monotonic() - start
            try:
                if serve is None:
                    raise PluginError("there is no model to train an adapter of")
                message = serve(**value)
            except Exception as error:  # noqa: BLE001 - the method is told, and may know what to do
                message = Failure.of(error, self.path)


class Child:
    """A running process with a pipe to it, in a group of its own, of which nothing is left when it is ended."""

    def __init__(self, module: str, arguments: Sequence[str], log: RunLog | None) -> None:
        """Start it.

        Args:
            module: its `main` is run, which begins with `pipe.begin`.
            arguments: which that gives it.
            log: to which everything goes that it prints; None: nowhere.
        """
        ours, its = multiprocessing.Pipe()
        where = [str(_HOME), *filter(None, sys.path)]
        code = f"import sys; sys.path[:] = {where!r}; from {module} import main; main()"
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if "torch" in sys.modules:  # sums of floats depend on the number of threads
            environment["OMP_NUM_THREADS"] = str(sys.modules["torch"].get_num_threads())
        path = None if log is None else log.for_child()
        with its, contextlib.ExitStack() as unless_started, Path(path or os.devnull).open("ab") as out:
            unless_started.callback(ours.close)
            self.child = subprocess.Popen(
                [sys.executable, "-P", "-c", code, str(its.fileno()), str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[its.fileno()], start_new_session=True,
                env=environment,
            )  # fmt: skip
            unless_started.pop_all()
        child, owner = self.child, os.getpid()

        def end() -> None:
            if os.getpid() == owner:  # else a fork of the run
                end_group(child)
                ours.close()

        self.pipe = Pipe(ours)
        self.end = weakref.finalize(self, end)

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Within it the process and its group are killed after so many seconds, be it stopped or amid a message.

        A process that has ended is not waited for either, though one that it forked may hold its end of the pipe.

        Raises:
            TimeoutError: it was killed.
        """
        late, done, deadline = threading.Event(), threading.Event(), time.monotonic() + max(seconds, 0.0)

        def watch() -> None:
            while not done.wait(min(_LOOK_S, max(0.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    late.set()
                    end_group(self.child)
                if late.is_set() or self.child.poll() is not None:
                    self.pipe.shut()
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        except Exception:
            if not late.is_set():
                raise
        finally:
            done.set()
            watcher.join()
        if late.is_set():
            raise TimeoutError

    def own_ending(self) -> str:
        """Exit code or signal with which it ended by itself."""
        try:
            code = self.child.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
