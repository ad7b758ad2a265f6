"""Names that a shell completes: methods, tasks, models, presets and the like; nothing heavy is imported for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bench import registry
from bench.api.protocol import PRESETS

Completer = Callable[[str], list[str]]


def _tasks() -> Iterable[str]:
    return registry.tasks().names()


def _models() -> Iterable[str]:
    from bench.backbone import models

    return models.aliases()


def _one(names: Callable[[], Iterable[str]]) -> Completer:
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _several(names: Callable[[], Iterable[str]]) -> Completer:
    """The same for names that are separated by commas: the last one is completed, none is offered twice."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in taken]

    return complete


MODEL = _one(_models)
SHOWN = _one(lambda: (*registry.methods().names(), *_tasks(), *_models(), "protocol"))
KINDS = _one(lambda: ("methods", "models", "tasks"))
BY_FIELD: Mapping[str, Completer] = {
    "methods": _several(lambda: (*registry.GROUPS, *registry.methods().names())),
    "compare": _several(lambda: registry.methods().names()),
    "tasks": _several(_tasks),
    "models": _several(_models),
    "model": MODEL,
    "preset": _one(lambda: PRESETS),
    "train_on": _one(_tasks),
    "recalibrate": _several(lambda: ("isotonic", "platt", "beta", "temperature")),
    "judge": _one(lambda: ("match", "openai", "hf")),
    "engine": _one(lambda: ("local", "ray")),
    "device": _one(lambda: ("cuda", "mps", "cpu")),
    "dtype": _one(lambda: ("float32", "bfloat16", "float16")),
}
"""Field of a dataclass of options -> its completer."""
