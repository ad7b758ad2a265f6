"""Decorators that register plugins: `@method` and `@task`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar


class PendingRegistration(NamedTuple):
    """A class decorated with `@method` or `@task`, before the registry has validated it."""

    kind: str
    name: str
    plugin: type
    module: str


DECLARED: list[PendingRegistration] = []
"""All decorated classes in import order, read by `bench.registry` and by the worker process of plugin files."""


P = TypeVar("P", bound=type)


def method(name: str) -> Callable[[P], P]:
    """Decorator that registers a subclass of `ConfidenceMethod` under this name."""
    return _declare("method", name)


def task(name: str) -> Callable[[P], P]:
    """Decorator that registers a subclass of `Task` under this name."""
    return _declare("task", name)


def _declare(kind: str, name: str) -> Callable[[P], P]:
    def decorate(plugin: P) -> P:
        plugin.name = name  # type: ignore[attr-defined]
        DECLARED.append(PendingRegistration(kind, name, plugin, plugin.__module__))
        return plugin

    return decorate
