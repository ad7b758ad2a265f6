"""Run plugin files in child processes: start, exchange messages, limit time and memory, end.

Messages are pickles. A run unpickles only those of its own children, whose plugin files it executes anyway.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from bench.api import AdapterRef, ConfidenceMethod
from bench.api.errors import PLUGINS, PluginError, reason_of, without_traceback
from bench.run.isolation.log import RunLog
from bench.store.processes import describe_exit, exit_with_parent, kill_process_group

_HOME = Path(__file__).resolve().parents[3]
Serve = Callable[..., AdapterRef]


def send(connection: Connection, message: Any) -> None:
    """Send a message that `Connection.recv` receives; `Connection.send` would share the memory of torch tensors.

    Raises:
        OSError: the other end is gone.
        Exception: the message can't be pickled.
    """
    connection.send_bytes(pickle.dumps(message))


class Child:
    """A child process with a connection to it; it leads a process group, which is killed as a whole."""

    def __init__(self, module: str, arguments: Sequence[str], log: RunLog | None) -> None:
        """Start the process.

        Args:
            module: name of the module whose `main` the process executes; `main` must call `begin` first.
            arguments: texts for the process, which get there as the return value of `begin`.
            log: receives what the process prints; None: that is dropped.
        """
        self.connection, child_end = multiprocessing.Pipe()
        search_path = [str(_HOME), *filter(None, sys.path)]
        code = f"import sys; sys.path[:] = {search_path!r}; from {module} import main; main()"
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if "torch" in sys.modules:  # sums of floats depend on the number of threads
            environment["OMP_NUM_THREADS"] = str(sys.modules["torch"].get_num_threads())
        with child_end, Path(os.devnull).open("ab") if log is None else log.appended() as out:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, str(child_end.fileno()), str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[child_end.fileno()], start_new_session=True,
                env=environment,
            )  # fmt: skip
        threading.Thread(target=_clean_up, args=(self.process, self.connection), daemon=True).start()

    @contextlib.contextmanager
    def kill_after(self, seconds: float) -> Iterator[None]:
        """Kill the process if the context is open for longer, even if it is stopped or in the middle of a message.

        Raises:
            TimeoutError: the process was killed.
        """
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.end()

        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception:
            if not late.is_set():
                raise
        finally:
            timer.cancel()
            timer.join()
        if late.is_set():
            raise TimeoutError

    def end(self) -> None:
        """Kill the process and its group."""
        if self.process.poll() is None:
            kill_process_group(self.process)

    def describe_end(self) -> str:
        """Describe how the process ended by itself."""
        try:
            return describe_exit(self.process.wait(1.0))
        except subprocess.TimeoutExpired:
            return "it closed its connection"


def _clean_up(process: subprocess.Popen[bytes], connection: Connection) -> None:
    """Wait until a child has ended; then kill its own children, and shut down this end of the connection to them.

    Messages that were sent before can still be received.
    """
    process.wait()
    kill_process_group(process)
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def begin() -> tuple[Connection, list[str]]:
    """Initialise this child process and return its connection to the parent, and its arguments.

    From here on it ends with its parent, and may use the machine's memory, or less if the user set a limit.
    """
    descriptor, parent = map(int, sys.argv[1:3])
    exit_with_parent(parent)
    with contextlib.suppress(OSError):  # Linux: out of memory kills this process before the run
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), hard))
    return Connection(descriptor), sys.argv[3:]


@dataclass
class Process:
    """Child process of a plugin file; the first call starts it, and the next call after it has ended starts another."""

    path: Path
    """Plugin file."""
    seconds: float
    """Time limit of one call, in seconds."""
    log: RunLog | None
    """Receives what the process prints; None: that is dropped."""
    ended: str = ""
    """Why the previous process ended, and its fitted methods with it; empty if none did."""
    learned: WeakValueDictionary[int, ConfidenceMethod] = field(default_factory=WeakValueDictionary)
    """Number -> method that is fitted in the running process, as long as this process refers to the method."""
    _child: Child | None = field(default=None, init=False)

    def ask(self, who: str, verb: str, *arguments: Any, serve: Serve | None = None) -> Any:
        """Call a verb in the process and return its result.

        Args:
            who: name of the plugin, for error messages.
            verb: what to call, see `worker.Host.answer`.
            *arguments: arguments of `worker.Host.answer` after the verb.
            serve: trains an adapter when the method requests one; that time doesn't count against the limit.

        Raises:
            PluginError: the plugin raised, took too long, or ended its process.
            UserError: the plugin raised it; likewise the other errors of `bench.api`.
        """
        message: Any = (verb, *arguments)
        left = self.seconds
        try:
            path = str(self.path.absolute())
            child = self._child = self._child or Child("bench.run.isolation.worker", [path], self.log)
            while True:
                start = time.monotonic()
                with child.kill_after(left):
                    send(child.connection, message)
                    kind, value = child.connection.recv()
                if kind != "train_adapter":
                    break
                left -= time.monotonic() - start
                try:
                    if serve is None:
                        raise PluginError("there is no model to train an adapter of")
                    message = serve(**value)
                except Exception as error:  # noqa: BLE001 - passed on to the method, which may handle it
                    message = without_traceback(error)
        except TimeoutError:
            self.ended = f"{who} took longer than {self.seconds:g} s in {verb} (--method-timeout)"
        except Exception as error:  # noqa: BLE001 - the connection is closed, or a message has no pickle
            is_gone = isinstance(error, EOFError | OSError)
            why = self._child.describe_end() if self._child is not None and is_gone else reason_of(error)
            self.ended = f"{who}: its process ended in {verb}: {why}"
        except BaseException:
            self.close()
            raise
        else:
            if kind == "answer":
                return value
            raised, trace = value
            PLUGINS.info("%s", trace)
            raise raised
        self.close()
        raise PluginError(self.ended)

    def close(self) -> None:
        """Kill the process and its children."""
        child, self._child = self._child, None
        self.learned.clear()
        if child is not None:
            child.end()
