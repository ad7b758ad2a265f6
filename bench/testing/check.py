"""Arguments of a check, and the error that tells which plugin breaks which rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.api import ConfidenceMethod, Format, Needs, Source, Task
from bench.api.errors import home_of, reason_of


@dataclass(frozen=True)
class MakeMethod:
    """Makes fresh, unfitted instances of a method with its own small settings."""

    plugin: type[ConfidenceMethod]
    format: Format = Format.CHOICE

    @property
    def __name__(self) -> str:
        return f"{self.plugin.name}-{self.format.value}"

    def arguments(self) -> dict[str, Any]:
        """Every argument of `__init__`: what `small` gives, else the first preset's value, else its default."""
        given = {**next(iter(self.plugin.presets.values()), {}), **self.plugin.small}
        parameters = inspect.signature(self.plugin).parameters
        return {name: given.get(name, parameter.default) for name, parameter in parameters.items()}

    def __call__(self) -> ConfidenceMethod:
        """A new instance."""
        return self.plugin(**self.arguments())

    @property
    def reads(self) -> Needs:
        """Signals that an instance says it reads, which a run goes by."""
        return self().reads()


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

    body: Callable[[Any], str | None]
    expected_failure: str = ""
    """Why the plugin may break the rule; then it must."""

    @property
    def __name__(self) -> str:
        return self.body.__name__.removeprefix("check_")

    def __call__(self, make: MakeMethod | MakeTask) -> str:
        """Run the check; returns a remark on what keeps the rule and yet may not be meant, or nothing.

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
    """The class says in a docstring of its own what it is."""
    assert (vars(make.plugin).get("__doc__") or "").strip(), "the class has no docstring"
