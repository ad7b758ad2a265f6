"""Arguments of a check, and the error that tells which plugin breaks which rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bench.api import ConfidenceMethod, Format, Source, Task

SMALL: Mapping[str, int | float] = MappingProxyType(
    {
        "steps": 200,
        "contrastive_steps": 60,
        "classifier_steps": 120,
        "epochs": 5,
        "batch": 32,
        "batch_size": 32,
        "learning_rate": 1e-2,
        "contrastive_learning_rate": 1e-2,
        "contrastive_learning_rate_open": 1e-2,
    }
)
"""Arguments of `__init__` that are changed for the checks, never towards more work or a smaller rate."""


@dataclass(frozen=True)
class MakeMethod:
    """Makes fresh, unfitted instances of a method with small settings."""

    plugin: type[ConfidenceMethod]
    format: Format = Format.CHOICE

    @property
    def __name__(self) -> str:
        return f"{self.plugin.name}-{self.format.value}"

    def arguments(self) -> dict[str, Any]:
        """Every argument of `__init__`: its default, or the first preset's value, made small."""
        presets = iter(self.plugin.presets.values())
        given: dict[str, Any] = dict(next(presets, {}))
        parameters = inspect.signature(self.plugin).parameters
        values = {name: given.get(name, parameter.default) for name, parameter in parameters.items()}
        return {name: _small(name, value) for name, value in values.items()}

    def __call__(self) -> ConfidenceMethod:
        """A new instance."""
        return self.plugin(**self.arguments())


@dataclass(frozen=True)
class MakeTask:
    """Makes instances of a task that read from one source."""

    plugin: type[Task]
    source: Source

    @property
    def __name__(self) -> str:
        return self.plugin.name

    def __call__(self) -> Task:
        """A new instance."""
        return self.plugin(self.source)


@dataclass(frozen=True)
class Check:
    """One rule; calling it raises an AssertionError that names the plugin and the rule."""

    body: Callable[[Any], None]
    expected_failure: str = ""
    """Why the plugin may break the rule; then it must."""

    @property
    def __name__(self) -> str:
        return self.body.__name__.removeprefix("check_")

    def __call__(self, make: MakeMethod | MakeTask) -> None:
        """Run the check.

        Raises:
            AssertionError: the rule is broken, or an expected failure is no longer needed.
        """
        who = f"{make.plugin.name}: "
        try:
            self.body(make)
        except (Exception, SystemExit) as error:
            if self.expected_failure:
                return
            rule = (self.body.__doc__ or "").splitlines()[0]
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{who}rule {self.__name__!r} ({rule}) is broken: {reason}") from error
        if self.expected_failure:
            raise AssertionError(
                f"{who}expected_failures lists {self.__name__!r} ({self.expected_failure}), but the rule holds:"
                " the entry is no longer needed, remove it"
            )


def _small(name: str, value: Any) -> Any:
    if name not in SMALL or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return min(value, int(SMALL[name])) if isinstance(value, int) else max(value, SMALL[name])


def check_docstring(make: MakeMethod | MakeTask) -> None:
    """The class says in a docstring of its own what it is."""
    assert (vars(make.plugin).get("__doc__") or "").strip(), "the class has no docstring"
