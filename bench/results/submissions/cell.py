"""What all checks of results use: a cell with its records, the built-in methods and tasks, and findings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bench.api import ConfidenceMethod, Task, UserError
from bench.api.protocol import Protocol, with_fields
from bench.registry import Registry
from bench.results.files import base_of, recalibration_of
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow

DIGITS = 4
"""Decimal digits to which confidences of two cells are compared."""


class Unchecked(str):
    """A finding about a check that could not be made, with the reason; any other finding is a problem."""

    __slots__ = ()


Finding = str
"""A problem in words, or an `Unchecked`."""


@dataclass(frozen=True, eq=False)
class SubmittedCell:
    """A cell with status ok, with its records sorted by id."""

    path: Path
    """Path of the cell's JSON file."""
    row: ResultRow
    records: QuestionRecords

    @property
    def base(self) -> str:
        """Name of the cell's method, without the recalibration."""
        return base_of(self.row.method)

    @property
    def recalibration(self) -> str:
        """Name of the cell's recalibration; empty without one."""
        return recalibration_of(self.row.method)

    @cached_property
    def answered(self) -> dict[str, tuple[str, bool, str, bool]]:
        """Question id -> subject, label, answer, and whether the answer was parsed; the same for all methods."""
        columns = self.records
        values = zip(columns.subject, columns.correct.tolist(), columns.answer, columns.parsed.tolist(), strict=True)
        return dict(zip(columns.id, values, strict=True))

    @property
    def answers_digest(self) -> str:
        """Digest of `answered`."""
        return hashlib.sha256(json.dumps(list(self.answered.items())).encode()).hexdigest()

    @property
    def confidences_digest(self) -> str:
        """Digest of ids and rounded confidences (or scores), by which a copy with added noise is detected."""
        rounded = np.round(self.records.ranking_values, DIGITS) + 0.0
        return hashlib.sha256(json.dumps(self.records.id).encode() + rounded.tobytes()).hexdigest()


@dataclass(frozen=True)
class BuiltIns:
    """Registry of the built-in methods and tasks; plugins are never imported."""

    methods: Registry[ConfidenceMethod]
    tasks: Registry[Task]

    def method(self, name: str) -> type[ConfidenceMethod] | None:
        """Return the class of the built-in method of a name, whatever its recalibration; None if there is none."""
        with suppress(UserError):
            return self.methods.get(base_of(name))
        return None

    def task(self, name: str) -> type[Task] | None:
        """Return the class of the built-in task of a name; None if there is none."""
        with suppress(UserError):
            return self.tasks.get(name)
        return None


def is_stochastic(method: type[ConfidenceMethod]) -> bool:
    """Whether a method is stochastic: different seeds give different confidences."""
    samples = any(signal.drawn for signal in method.needs.fit | method.needs.predict)
    return samples or (method.trains() and method.draws)


def protocol_of(preset: str, deviations: Mapping[str, object]) -> Protocol:
    """Build the protocol of a result: its preset, changed by the deviations named `protocol.FIELD`.

    Raises:
        UserError: there is no such preset or field, or a value is invalid.
    """
    prefix = "protocol."
    return with_fields(preset, {key.removeprefix(prefix): v for key, v in deviations.items() if key.startswith(prefix)})
