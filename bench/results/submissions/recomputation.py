"""Check of the numbers in a result's JSON file: they are recomputed from its Parquet file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from bench import metrics
from bench.api.protocol import PRESETS, Protocol
from bench.metrics.summary import MetricSummary
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.results.submissions.cell import protocol_of

TOLERANCE = 1e-9
_MIN_CLASS = 10
"""If at least this many answers are right and as many wrong, confidences that separate them perfectly are
suspicious."""


def recompute_row(row: ResultRow, records: QuestionRecords) -> ResultRow:
    """Recompute every number of a result that follows from its values per question.

    Args:
        row: a result with status ok.
        records: values per question, for at least one question.

    Raises:
        UserError: the result's deviations from its preset are invalid.
    """
    protocol = protocol_of(row.preset if row.preset in PRESETS else Protocol.preset, row.deviations)
    scores = metrics.summarise(records.probabilities, records.correct, list(records.subject), protocol, records.score)
    return replace(
        row, n=len(records.id), n_unparsed=int((~records.parsed).sum()), llm_accuracy=float(np.mean(records.correct)),
        metrics=scores.metrics, per_subject=scores.per_subject, n_excluded=scores.n_excluded,
        n_clipped=scores.n_clipped,
    )  # fmt: skip


def mismatches(row: ResultRow, expected: ResultRow) -> Iterator[str]:
    """Compare the numbers of a result with the recomputed ones; yield a sentence for each difference.

    Metrics that only one of the two has are ignored: other versions of this package have other metrics.

    Args:
        row: the result as in its JSON file.
        expected: the same result, recomputed by `recompute_row`.
    """
    for name in ("n", "n_unparsed", "llm_accuracy", "n_excluded", "n_clipped"):
        yield from differs(name, getattr(row, name), getattr(expected, name))
    for name in row.metrics.keys() & expected.metrics.keys():
        for field in fields(MetricSummary):
            reported, value = (getattr(r.metrics[name], field.name) for r in (row, expected))
            yield from differs(f"metrics.{name}.{field.name}", reported, value)
    for name in sorted(row.per_subject.keys() ^ expected.per_subject.keys()):
        where = "is not in its JSON file" if name in expected.per_subject else "does not follow from its Parquet file"
        yield f"per_subject.{name} {where}"
    for subject in row.per_subject.keys() & expected.per_subject.keys():
        reported, values = row.per_subject[subject], expected.per_subject[subject]
        for name in reported.keys() & values.keys():
            yield from differs(f"per_subject.{subject}.{name}", reported[name], values[name])


def differs(name: str, reported: Any, recomputed: float | None) -> Iterator[str]:
    """Yield a sentence if the reported number differs from the recomputed one."""
    is_equal = reported is None and recomputed is None
    if isinstance(reported, int | float) and recomputed is not None:
        is_equal = math.isclose(reported, recomputed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if not is_equal:
        yield f"{name} is {reported} in the JSON file, and {recomputed} by its Parquet file"


def too_good_reason(records: QuestionRecords) -> str | None:
    """Return the reason why confidences are implausibly good; None if they are plausible.

    Whether they are wrong can only be found out by running the method again (`--rerun`).
    """
    right, wrong = records.ranking_values[records.correct], records.ranking_values[~records.correct]
    if not right.size or not wrong.size:
        return None
    if records.score is None and right.min() == 1 and wrong.max() == 0:
        return "its confidence is the label in every answer"
    if min(right.size, wrong.size) >= _MIN_CLASS and right.min() > wrong.max():
        return "every right answer has a higher confidence than every wrong one"
    return None
