"""Numbers of a JSON file against its Parquet file: both may be edited, but only together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from bench import metrics
from bench.api.protocol import PRESETS, Protocol
from bench.metrics.summary import MetricSummary
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.results.submissions.cell import protocol_of

TOLERANCE = 1e-9
_ENOUGH = 10
"""Right and wrong answers, each, from which on no method is expected to separate them without a mistake."""


def with_numbers_of(row: ResultRow, records: Records) -> ResultRow:
    """The row with every number that follows from its records taken from there.

    Args:
        row: ok.
        records: its own, at least one.

    Raises:
        UserError: the row deviates from its preset in a way that can't be.
    """
    protocol = protocol_of(row.preset if row.preset in PRESETS else Protocol.preset, row.deviations)
    scores = metrics.summarise(records.probabilities, records.correct, list(records.subject), protocol, records.score)
    return replace(
        row, n=len(records.id), n_unparsed=int((~records.parsed).sum()), llm_accuracy=float(np.mean(records.correct)),
        metrics=scores.metrics, per_subject=scores.per_subject, n_excluded=scores.n_excluded,
        n_clipped=scores.n_clipped,
    )  # fmt: skip


def mismatches(row: ResultRow, found: ResultRow) -> Iterator[str]:
    """Numbers of a row that its records do not give.

    A metric that only one of the two names is none: programs before or after this one know others.

    Args:
        row: as its JSON file says.
        found: the same, by `with_numbers_of`.
    """
    for name in ("n", "n_unparsed", "llm_accuracy", "n_excluded", "n_clipped"):
        yield from differs(name, getattr(row, name), getattr(found, name))
    for name in row.metrics.keys() & found.metrics.keys():
        for field in fields(MetricSummary):
            reported, expected = (getattr(of.metrics[name], field.name) for of in (row, found))
            yield from differs(f"metrics.{name}.{field.name}", reported, expected)
    for subject in sorted(row.per_subject.keys() ^ found.per_subject.keys()):
        where = "is not in its JSON file" if subject in found.per_subject else "does not follow from its Parquet file"
        yield f"per_subject.{subject} {where}"
    for subject in row.per_subject.keys() & found.per_subject.keys():
        reported, expected = row.per_subject[subject], found.per_subject[subject]
        for name in reported.keys() & expected.keys():
            yield from differs(f"per_subject.{subject}.{name}", reported[name], expected[name])


def differs(name: str, reported: Any, found: float | None) -> Iterator[str]:
    """One sentence where two numbers are not the same."""
    same = reported is None and found is None
    if isinstance(reported, int | float) and found is not None:
        same = math.isclose(reported, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if not same:
        yield f"{name} is {reported} in the JSON file, and {found} by its Parquet file"


def too_good(records: Records) -> str | None:
    """Why no method is believed to have given these confidences; None where one may have.

    Only a run can tell: `--rerun`.
    """
    right, wrong = records.order[records.correct], records.order[~records.correct]
    if not right.size or not wrong.size:
        return None
    if records.score is None and right.min() == 1 and wrong.max() == 0:
        return "its confidence is the label in every answer"
    if min(right.size, wrong.size) >= _ENOUGH and right.min() > wrong.max():
        return "every right answer has a higher confidence than every wrong one"
    return None
