"""Classes that all checks of results share: a result with its values per question, the built-in plugins, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.api import ConfidenceMethod, Task
from bench.api.protocol import Protocol, with_fields
from bench.registry import Registry
from bench.results.files import base_of, recalibration_of
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow


class SkippedCheck(str):
    """A finding that a check could not be made, with the reason. Every other finding is a problem."""

    __slots__ = ()


Finding = str
"""A sentence on a problem, or a `SkippedCheck` on a check that could not be made."""


@dataclass(frozen=True, eq=False)
class SubmittedCell:
    """A result (cell) with status ok, and its values per question sorted by id."""

    path: Path
    """Path of the result's JSON file."""
    row: ResultRow
    records: QuestionRecords

    @property
    def base(self) -> str:
        """Name of the result's method, without the recalibration appended to it."""
        return base_of(self.row.method)

    @property
    def recalibration(self) -> str:
        """Name of the recalibration that was applied to the method's confidences; empty without one."""
        return recalibration_of(self.row.method)

    @cached_property
    def answered(self) -> dict[str, tuple[str, bool, str, bool]]:
        """Question id -> subject, label, answer, and whether the answer was parsed.

        All methods on one model and task must have equal values.
        """
        columns = self.records
        values = zip(columns.subject, columns.correct.tolist(), columns.answer, columns.parsed.tolist(), strict=True)
        return dict(zip(columns.id, values, strict=True))


@dataclass(frozen=True)
class BuiltIns:
    """Registry of the built-in methods and tasks; plugins are never imported."""

    methods: Registry[ConfidenceMethod]
    tasks: Registry[Task]

    def method(self, name: str) -> type[ConfidenceMethod] | None:
        """Return the class of a built-in method, whose name may include a recalibration; None if there is none."""
        return self.methods.find(base_of(name))

    def task(self, name: str) -> type[Task] | None:
        """Return the class of the built-in task with this name; None if there is none."""
        return self.tasks.find(name)


def is_stochastic(method: type[ConfidenceMethod]) -> bool:
    """Return whether a method gives different confidences with different seeds."""
    samples = any(signal.drawn for signal in method.needs.fit | method.needs.predict)
    return samples or (method.trains() and method.draws)


def protocol_of(preset: str, deviations: Mapping[str, object]) -> Protocol:
    """Build the protocol of a result: that of its preset, changed by the deviations named `protocol.FIELD`.

    Raises:
        UserError: there is no such preset or field, or a value is invalid.
    """
    prefix = "protocol."
    return with_fields(preset, {key.removeprefix(prefix): v for key, v in deviations.items() if key.startswith(prefix)})
