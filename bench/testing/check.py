"""`Check`, one rule that methods or tasks have to keep, and factories that make the methods and tasks for checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.api import ConfidenceMethod, Format, Needs, Source, Task
from bench.api.errors import home_of, reason_of


@dataclass(frozen=True)
class MakeMethod:
    """Factory of unfitted instances of a method, with the constants in the method's attribute `small`."""

    plugin: type[ConfidenceMethod]
    format: Format = Format.CHOICE

    @property
    def __name__(self) -> str:
        return f"{self.plugin.name}-{self.format.value}"

    def arguments(self) -> dict[str, Any]:
        """Return the value of every argument of `__init__`.

        A value is taken from `small`, else from the first preset, else it is the default.
        """
        values = {**next(iter(self.plugin.presets.values()), {}), **self.plugin.small}
        parameters = inspect.signature(self.plugin).parameters
        return {name: values.get(name, parameter.default) for name, parameter in parameters.items()}

    def __call__(self) -> ConfidenceMethod:
        """Return a new unfitted instance of the method."""
        return self.plugin(**self.arguments())

    @property
    def reads(self) -> Needs:
        """Signals that an instance with these arguments declares to read, in `fit` and in `predict`."""
        return self().reads()


@dataclass(frozen=True)
class MakeTask:
    """Factory of instances of a task, which all read from one data source."""

    plugin: type[Task]
    source: Source

    @property
    def __name__(self) -> str:
        return self.plugin.name

    def __call__(self) -> Task:
        """Return a new instance of the task."""
        return self.plugin(self.source)


@dataclass(frozen=True)
class Check:
    """One rule for methods or tasks. Calling it raises an AssertionError if the rule is broken.

    The error names the method or task, and the rule.
    """

    body: Callable[[Any], str | None]
    expected_failure: str = ""
    """Why the method may break the rule; empty if it may not. With a reason, the check fails if the rule is kept."""

    @property
    def __name__(self) -> str:
        return self.body.__name__.removeprefix("check_")

    def __call__(self, make: MakeMethod | MakeTask) -> str:
        """Run the check on the method or task that `make` creates.

        Returns:
            A remark on something that is allowed but may be unintended, or an empty string.

        Raises:
            AssertionError: the rule is broken, or the rule is kept although `expected_failure` is set.
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
