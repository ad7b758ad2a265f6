"""Parts that the checks of a folder of results share: one cell, what is registered here, and what a check may find."""

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
from bench.api.protocol import Protocol, changed
from bench.registry import Registry
from bench.results.files import base_of, recalibration_of
from bench.results.records import Records
from bench.results.row import ResultRow

DIGITS = 4
"""Digits to which confidences of two cells are compared."""


class Unchecked(str):
    """Sentence about what could not be checked, and why; any other finding is a problem."""

    __slots__ = ()


Finding = str
"""A problem in words, or what could not be checked."""


@dataclass(frozen=True, eq=False)
class SubmittedCell:
    """A cell that is ok, with its records in the order of ids."""

    path: Path
    """Path of its JSON file."""
    row: ResultRow
    records: Records

    @property
    def base(self) -> str:
        """Its method, without the recalibration."""
        return base_of(self.row.method)

    @property
    def recalibration(self) -> str:
        """The kind of recalibration; empty where there is none."""
        return recalibration_of(self.row.method)

    @cached_property
    def answered(self) -> dict[str, tuple[str, bool, str, bool]]:
        """Question id -> what must be the same for all methods: subject, label, answer, and whether it was read."""
        columns = self.records
        values = zip(columns.subject, columns.correct.tolist(), columns.answer, columns.parsed.tolist(), strict=True)
        return dict(zip(columns.id, values, strict=True))

    @property
    def answers_digest(self) -> str:
        """Digest of `answered`."""
        return hashlib.sha256(json.dumps(list(self.answered.items())).encode()).hexdigest()

    @property
    def confidences_digest(self) -> str:
        """Digest of the confidences, or scores, and what they are of, rounded: a copy is one in spite of noise."""
        rounded = np.round(self.records.order, DIGITS) + 0.0
        return hashlib.sha256(json.dumps(self.records.id).encode() + rounded.tobytes()).hexdigest()


@dataclass(frozen=True)
class Known:
    """The methods and tasks of this package; those of others are never imported."""

    methods: Registry[ConfidenceMethod]
    tasks: Registry[Task]

    def method(self, name: str) -> type[ConfidenceMethod] | None:
        """The method of this name, without its recalibration; None where it is not built in."""
        with suppress(UserError):
            return self.methods.get(base_of(name))
        return None

    def task(self, name: str) -> type[Task] | None:
        """The task of this name; None where it is not built in."""
        with suppress(UserError):
            return self.tasks.get(name)
        return None


def draws(method: type[ConfidenceMethod]) -> bool:
    """Whether two seeds of a method give different confidences."""
    samples = any(signal.drawn for signal in method.needs.fit | method.needs.predict)
    return samples or (method.trains() and method.draws)


def protocol_of(preset: str, deviations: Mapping[str, object]) -> Protocol:
    """The protocol of a result: a preset with the `protocol.FIELD` among its deviations; others are passed over.

    Raises:
        UserError: there is no such preset or field, or a value is not one that it can have.
    """
    own = "protocol."
    return changed(preset, {key.removeprefix(own): v for key, v in deviations.items() if key.startswith(own)})
