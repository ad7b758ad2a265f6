"""Methods as a run has them: each verb goes through a caller, which keeps it from harming the others."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.api import ConfidenceMethod
from bench.run.isolation.apart import Apart
from bench.run.isolation.guard import Isolation
from bench.run.isolation.here import Here

VERBS = ("fit", "predict", "save", "load", "fitted", "skip", "n_parameters")
"""Verbs that a run asks of an instance once it is checked."""
RARE = "oddities"
"""Verb that most methods don't have; they are not handed a batch for nothing."""


def guarded(plugin: type[ConfidenceMethod], isolation: Isolation, path: Path | None) -> type[ConfidenceMethod]:
    """A subclass of a method, with its arguments, its declarations and its names, whose verbs are called safely.

    Args:
        plugin: the method.
        isolation: of the run.
        path: file in which it was given; None for an installed one, which stays in this process.
    """
    caller = Here(isolation, plugin) if path is None else Apart(isolation, plugin, path)
    names = {name: getattr(plugin, name) for name in ("__module__", "__qualname__", "__doc__")}
    names["__wrapped__"] = plugin  # whose source is asked for
    has_rare = getattr(plugin, RARE) is not getattr(ConfidenceMethod, RARE)
    verbs = {verb: _called(caller, verb) for verb in (*VERBS, *([RARE] if has_rare else []))}
    members = {**names, **verbs, "trains": classmethod(lambda _cls: plugin.trains())}
    made: type[ConfidenceMethod] = types.new_class(plugin.__name__, (plugin,), exec_body=lambda of: of.update(members))
    return made


def _called(caller: Here | Apart, verb: str) -> Callable[..., Any]:
    def call(self: ConfidenceMethod, *arguments: Any) -> Any:
        return caller.call(self, verb, arguments)

    return call
