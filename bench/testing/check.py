"""`Check`, one rule that plugins have to keep, and the factories of plugins that a check is called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.api import ConfidenceMethod, Format, Needs, Source, Task
from bench.api.errors import home_of, reason_of


@dataclass(frozen=True)
class MakeMethod:
    """Factory of unfitted instances of a method, with its `small` settings."""

    plugin: type[ConfidenceMethod]
    format: Format = Format.CHOICE

    @property
    def __name__(self) -> str:
        return f"{self.plugin.name}-{self.format.value}"

    def arguments(self) -> dict[str, Any]:
        """Return every argument of `__init__`: its value in `small`, else in the first preset, else its default."""
        values = {**next(iter(self.plugin.presets.values()), {}), **self.plugin.small}
        parameters = inspect.signature(self.plugin).parameters
        return {name: values.get(name, parameter.default) for name, parameter in parameters.items()}

    def __call__(self) -> ConfidenceMethod:
        """Return a new instance."""
        return self.plugin(**self.arguments())

    @property
    def reads(self) -> Needs:
        """Signals that an instance with these arguments declares to read; a run computes the same."""
        return self().reads()


@dataclass(frozen=True)
class MakeTask:
    """Factory of instances of a task that read from one source."""

    plugin: type[Task]
    source: Source

    @property
    def __name__(self) -> str:
        return self.plugin.name

    def __call__(self) -> Task:
        """Return a new instance."""
        return self.plugin(self.source)


@dataclass(frozen=True)
class Check:
    """One rule for plugins; calling it raises an AssertionError that names plugin and rule if the rule is broken."""

    body: Callable[[Any], str | None]
    expected_failure: str = ""
    """Why the plugin may break the rule; if set, the plugin must break it."""

    @property
    def __name__(self) -> str:
        return self.body.__name__.removeprefix("check_")

    def __call__(self, make: MakeMethod | MakeTask) -> str:
        """Run the check; return a remark on something allowed that may be unintended, or an empty string.

        Raises:
            AssertionError: the rule is broken, or an expected failure is no longer needed.
        """
        who = f"{make.plugin.name}: "
        try:
            remark = self.body(make)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self.expected_failure:
                return ""
            rule = (self.body.__doc__ or "").splitlines()[0]
            reason = str(error) if isinstance(error, AssertionError) else reason_of(error, home_of(make.plugin))
            raise AssertionError(f"{who}rule {self.__name__!r} ({rule}) is broken: {reason}") from error
        if self.expected_failure:
            raise AssertionError(
                f"{who}expected_failures lists {self.__name__!r} ({self.expected_failure}), but the rule holds:"
                " the entry is no longer needed, remove it"
            )
        return remark or ""


def check_docstring(make: MakeMethod | MakeTask) -> None:
    """The class has a docstring of its own."""
    assert (vars(make.plugin).get("__doc__") or "").strip(), "the class has no docstring"
