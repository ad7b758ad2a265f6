"""A time limit for Python code of others that runs in this thread, such as the chat template of a model."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class LateError(Exception):
    """The code took longer than it may."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Stop what runs in this block after some seconds, between two of its bytecodes.

    A signal would do it in the main thread only, and a process of its own would load the libraries again.

    Raises:
        LateError: it took longer.
    """
    thread, lock = ctypes.c_ulong(threading.get_ident()), threading.Lock()
    over = False

    def stop() -> None:
        with lock:
            if not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(LateError))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            over = True  # from here on nothing is raised any more
        timer.cancel()
