"""State of the process on which numbers and places of files depend: it is put back after each call of a plugin."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class State:
    """One kind of state."""

    name: str
    """Words of a note; empty where a change is nobody's business, as drawing from a generator."""
    get: Callable[[], Any]
    put: Callable[[Any], object]


@contextlib.contextmanager
def kept(changed: Callable[[str, str], None]) -> Iterator[None]:
    """Within it anything may be changed; afterwards all is as it was.

    Args:
        changed: told the name of each kind of state that had been changed, and whether it was put back.
    """
    states = (*_PYTHON, *(_of_torch() if "torch" in sys.modules else ()))
    before = [(state, state.get()) for state in states]
    try:
        yield
    finally:
        for state, value in before:
            if _same(state.get(), value):
                continue
            try:
                state.put(value)
            except Exception as error:  # noqa: BLE001 - e.g. the folder is gone; all others are still put back
                changed(state.name or "a generator of random numbers", f"it can't be put back ({error})")
            else:
                if state.name:
                    changed(state.name, "that was put back")


def _same(now: Any, before: Any) -> bool:
    """Whether two values are equal, arrays in them included."""
    if isinstance(before, tuple):
        return len(now) == len(before) and all(map(_same, now, before))
    return bool(np.array_equal(now, before)) if isinstance(before, np.ndarray) else bool(now == before)


# --- Python and numpy -------------------------------------------------------------------------------------------------


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - fails where the folder is gone, and then there is nothing to go back to
    except OSError:
        return None


def _environment() -> dict[str, str]:
    """Variables but those of Intel's OpenMP, which scikit-learn sets when it is imported."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KMP_")}


def _put_environment(before: dict[str, str]) -> None:
    for name in set(_environment()) - set(before):
        del os.environ[name]
    os.environ.update(before)


_PYTHON = (
    State("the working directory", _folder, lambda path: None if path is None else os.chdir(path)),
    State("the environment", _environment, _put_environment),
    State("numpy's error state", np.geterr, lambda value: np.seterr(**value)),
    State("", random.getstate, random.setstate),
    State("", np.random.get_state, np.random.set_state),
)


# --- torch ------------------------------------------------------------------------------------------------------------

_held: list[Any] = []
"""Contexts that put the inference mode back: it lasts as long as they do."""


@cache
def _of_torch() -> tuple[State, ...]:
    import torch

    def put_inference(mode: bool) -> None:  # noqa: FBT001 - called with what `get` gave
        _held.append(torch.inference_mode(mode=mode))
        _held[-1].__enter__()

    def put_cudnn(value: tuple[bool, bool, bool]) -> None:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = value

    cudnn = torch.backends.cudnn
    return (
        State("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        State("torch's default device", torch.get_default_device, torch.set_default_device),
        State("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
        State("torch's inference mode", torch.is_inference_mode_enabled, put_inference),
        State("torch's gradient mode", torch.is_grad_enabled, torch.set_grad_enabled),
        State(
            "torch's determinism",
            lambda: (torch.are_deterministic_algorithms_enabled(),
                     torch.is_deterministic_algorithms_warn_only_enabled()),
            lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        ),
        State("cuDNN's settings", lambda: (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32), put_cudnn),
        State(
            "torch's precision of products", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
        ),
        State("", lambda: torch.get_rng_state().numpy(), lambda value: torch.set_rng_state(torch.from_numpy(value))),
    )  # fmt: skip
