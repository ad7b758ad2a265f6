"""State of the whole process that a plugin may change: kept before each call, compared and put back after it."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import locale
import os
import random
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_BACK = "that was put back"
_KNOWN = ("pandas", "scipy", "sklearn", "torch")
"""Packages that set variables of the environment, or filters of warnings, when they are imported."""


@dataclass(frozen=True)
class State:
    """One kind of state."""

    name: str
    """Words of a note; empty where a change is nobody's business, as drawing from a generator."""
    get: Callable[[], Any]
    put: Callable[[Any], object]


def states() -> tuple[State, ...]:
    """Kinds of state that are watched; those of torch only where it is loaded."""
    return (*_PYTHON, *_NUMPY, *(_of_torch() if "torch" in sys.modules else ()))


@contextlib.contextmanager
def kept(changed: Callable[[str, str], None]) -> Iterator[None]:
    """Within it anything may be changed; afterwards all is as it was.

    Args:
        changed: told the name of each kind of state that had been changed, and whether it was put back.
    """
    before = [(state, state.get()) for state in states()]
    first, last = _functions_of(_PATCHABLE), _functions_of(_PATCHABLE_OF_TORCH)
    try:
        yield
    finally:
        _unpatch(first, changed)  # what follows calls them
        for state, value in before:
            if not _same(state.get(), value):
                _put_back(state, value, changed)
        _unpatch(last, changed)  # some follow torch's default dtype


def import_known(path: Path) -> None:
    """Import what a plugin file takes from our own dependencies: what these change then is not said of the plugin."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # whoever runs the file says so
        return
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    for name in sorted(named):
        if name.partition(".")[0] in _KNOWN:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def _put_back(state: State, value: Any, changed: Callable[[str, str], None]) -> None:
    """Put one kind of state back; where that can't be done, e.g. the folder is gone, all others still are."""
    try:
        state.put(value)
    except Exception as error:  # noqa: BLE001 - whatever a library says of it
        changed(state.name or "a generator of random numbers", f"it can't be put back ({error})")
    else:
        if state.name:
            changed(state.name, _BACK)


def _same(now: Any, before: Any) -> bool:
    """Whether two values are equal; those that can't be compared are not."""
    if isinstance(before, tuple | list):
        return len(now) == len(before) and all(map(_same, now, before))
    if isinstance(before, np.ndarray):
        return bool(np.array_equal(now, before))
    return now is before or bool(now == before)


# --- functions of libraries that a plugin may replace -----------------------------------------------------------------

_PATCHABLE = ("builtins", "math", "random", "os", "json", "time", "numpy", "numpy.linalg", "numpy.random")
_PATCHABLE_OF_TORCH = ("torch", "torch.nn.functional", "torch.linalg")
_Functions = list[tuple[ModuleType, Mapping[str, Any]]]


def _functions_of(names: Sequence[str]) -> _Functions:
    """The functions of those modules that are loaded."""
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return [(module, {key: value for key, value in vars(module).items() if callable(value)}) for module in modules]


def _unpatch(functions: _Functions, changed: Callable[[str, str], None]) -> None:
    """Put the functions of modules back."""
    for module, before in functions:
        now = vars(module)
        for name in [name for name, value in before.items() if now.get(name) is not value]:
            setattr(module, name, before[name])
            changed(f"{module.__name__}.{name}", _BACK)


# --- Python -----------------------------------------------------------------------------------------------------------


def _put_environment(before: dict[str, str]) -> None:
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - fails where the folder is gone, and then there is nothing to go back to
    except OSError:
        return None


def _handlers() -> dict[int, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in sorted(signal.valid_signals())}


def _put_handlers(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, handler)


def _alarm_set() -> bool:
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def _put_filters(before: list[Any]) -> None:
    with warnings.catch_warnings():  # leaving it makes Python look at the filters anew
        pass
    warnings.filters[:] = before  # type: ignore[index]


def _put_streams(before: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = before


_PYTHON = (
    State("the working directory", _folder, lambda path: None if path is None else os.chdir(path)),
    State("the environment", lambda: dict(os.environ), _put_environment),
    State("signal handlers", _handlers, _put_handlers),
    State("the alarm clock", _alarm_set, lambda was_set: None if was_set else signal.setitimer(signal.ITIMER_REAL, 0)),
    State("Python's recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    State("the locale", lambda: locale.setlocale(locale.LC_ALL), lambda value: locale.setlocale(locale.LC_ALL, value)),
    State("sys.path", lambda: list(sys.path), lambda value: sys.path.__setitem__(slice(None), value)),
    State("standard streams", lambda: (sys.stdin, sys.stdout, sys.stderr), _put_streams),
    State("sys.excepthook", lambda: sys.excepthook, lambda value: setattr(sys, "excepthook", value)),
    State("warning filters", lambda: list(warnings.filters), _put_filters),
    State("the socket timeout", socket.getdefaulttimeout, socket.setdefaulttimeout),
    State("garbage collection", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    State("", random.getstate, random.setstate),
)


# --- numpy and torch --------------------------------------------------------------------------------------------------

_NUMPY = (
    State("numpy's error state", np.geterr, lambda value: np.seterr(**value)),
    State("", np.random.get_state, np.random.set_state),
)
_held: list[Any] = []
"""Contexts that put the inference mode back: it lasts as long as they do."""


def _put_inference(mode: bool) -> None:  # noqa: FBT001 - called with what `get` gave
    import torch

    _held.append(torch.inference_mode(mode=mode))
    _held[-1].__enter__()


@cache
def _of_torch() -> tuple[State, ...]:
    import torch

    backends = torch.backends
    return (
        State("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        State("torch's default device", torch.get_default_device, torch.set_default_device),
        State("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
        State("torch's inference mode", torch.is_inference_mode_enabled, _put_inference),
        State("torch's gradient mode", torch.is_grad_enabled, torch.set_grad_enabled),
        State(
            "torch's determinism",
            lambda: (torch.are_deterministic_algorithms_enabled(),
                     torch.is_deterministic_algorithms_warn_only_enabled()),
            lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        ),
        State(
            "cuDNN's settings",
            lambda: (backends.cudnn.deterministic, backends.cudnn.benchmark, backends.cudnn.allow_tf32),
            _put_cudnn,
        ),
        State(
            "torch's precision of products", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
        ),
        State("", lambda: torch.get_rng_state().numpy(), lambda value: torch.set_rng_state(torch.from_numpy(value))),
    )  # fmt: skip


def _put_cudnn(value: tuple[bool, bool, bool]) -> None:
    from torch.backends import cudnn

    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = value
