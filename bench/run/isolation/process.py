"""Run plugin files in child processes: start and end a process, exchange messages, limit time and memory.

Messages are pickles. A run unpickles messages only of its own children, whose plugin files it executes in any case.
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
    """Send a message as pickled bytes, for `Connection.recv` at the other end.

    `Connection.send` is not used, as it would share the memory of torch tensors between the processes.

    Raises:
        OSError: the other end is closed.
        Exception: the message can't be pickled.
    """
    connection.send_bytes(pickle.dumps(message))


class Child:
    """A child process with a connection to this process; it leads a process group, which is killed as a whole."""

    def __init__(self, module: str, arguments: Sequence[str], log: RunLog | None) -> None:
        """Start the process.

        Args:
            module: name of the module whose `main` the process executes; `main` must call `begin` first.
            arguments: texts that `begin` returns in the child process.
            log: log that receives what the process prints; None: the printed text is dropped.
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
        """Context that kills the process if the context is still open after `seconds`.

        This works also while the process is stopped, or in the middle of a message.

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
        """Kill the process and all others of its process group."""
        if self.process.poll() is None:
            kill_process_group(self.process)

    def describe_end(self) -> str:
        """Describe in words how the process ended by itself."""
        try:
            return describe_exit(self.process.wait(1.0))
        except subprocess.TimeoutExpired:
            return "it closed its connection"


def _clean_up(process: subprocess.Popen[bytes], connection: Connection) -> None:
    """Wait until a child process has ended; then kill the rest of its group, and shut down this end of the connection.

    Messages that the child sent before can still be received.
    """
    process.wait()
    kill_process_group(process)
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def begin() -> tuple[Connection, list[str]]:
    """Initialise this child process; return its connection to the parent process, and its arguments.

    From then on, the process ends when its parent does. Its data may fill the machine's memory, or less if the user has
    set a limit.
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
    """Child process of a plugin file. The first call starts it; if it has ended, the next call starts another one."""

    path: Path
    """Plugin file."""
    seconds: float
    """Time limit of one call, in seconds."""
    log: RunLog | None
    """Log that receives what the process prints; None: the printed text is dropped."""
    ended: str = ""
    """Why the previous process ended; empty if none has ended. The methods that were fitted in it are lost."""
    learned: WeakValueDictionary[int, ConfidenceMethod] = field(default_factory=WeakValueDictionary)
    """Number -> method that is fitted in the child process; entries disappear when the run has no reference to the
    method."""
    _child: Child | None = field(default=None, init=False)

    def ask(self, who: str, verb: str, *arguments: Any, serve: Serve | None = None) -> Any:
        """Call a verb in the child process and return its result.

        Args:
            who: name of the plugin, for error messages.
            verb: what to call: a Python method such as `fit`, or another action of `worker.Host.answer`.
            *arguments: arguments of `worker.Host.answer` after the verb.
            serve: function that trains an adapter when the method asks for one. The time limit of the call excludes
                trainings.

        Raises:
            PluginError: the plugin raised an exception that is not one of `bench.api`, took too long, or ended its
                process.
            UserError: the plugin raised it; other errors of `bench.api` are raised again in the same way.
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
        """Kill the child process and its process group."""
        child, self._child = self._child, None
        self.learned.clear()
        if child is not None:
            child.end()
