"""Cells against each other: the same answers, no copies under other names or seeds, recalibrations of what is there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.api import FloatArray
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.results.submissions.cell import Finding, Known, SubmittedCell, Unchecked, draws
from bench.results.transfer import LEAVE_OUT

FEW = 3
"""Different confidences in a cell, at least, before equality with another cell says anything."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class Trace:
    """Facts of a cell that are remembered once its records are out of memory."""

    path: Path
    row: ResultRow
    base: str
    answers: str
    """Digest of ids, subjects, labels and answers."""
    confidences: str | None
    """Digest of ids and confidences; None where these are too few different ones."""


def trace(cell: SubmittedCell) -> Trace:
    """Facts of a cell that are remembered."""
    telling = np.unique(cell.records.order).size >= FEW
    return Trace(
        cell.path, replace(cell.row, per_subject={}, metrics={}), cell.base, cell.answers_digest,
        cell.confidences_digest if telling else None,
    )  # fmt: skip


def findings(traces: Sequence[Trace], known: Known) -> Iterator[tuple[Path, Finding]]:
    """Problems between cells, each with the path of the cell that it concerns."""
    for alike in _grouped(traces, _answered).values():
        # the answers of most cells are taken for those of all; where there are no most, none are
        counts = Counter(one.answers for one in alike)
        (most, n), *rest = counts.most_common()
        tied = bool(rest) and rest[0][1] == n
        for one in (one for one in alike if rest and (tied or one.answers != most)):
            problem = (
                f"its questions, labels or answers are not those of {len(alike) - counts[one.answers]} other cells of"
                f" {one.row.model} on {one.row.task}; run all methods on one machine with one version"
            )
            yield one.path, problem
    telling = [one for one in traces if one.confidences is not None]
    for alike in _grouped(telling, lambda one: (one.row.model, one.row.task, one.row.limit, one.confidences)).values():
        for one in alike:
            # the confidences of another method, or of another seed of a method that draws
            renamed = next((other for other in alike if other.row.method != one.row.method), None)
            if renamed is not None:
                yield one.path, f"it has the confidences of {renamed.row.method}; two methods never have the same"
            twin = next((other for other in alike if other.path != one.path and _line(other) == _line(one)), None)
            method = known.method(one.base)
            if twin is not None and method is None:
                yield one.path, Unchecked(f"{one.base} is not built in: whether two of its seeds may give the same")
            elif twin is not None and method is not None and draws(method):
                yield (
                    one.path,
                    f"it has the confidences of seed {twin.row.seed}; its method draws, so no two seeds give the same",
                )
    for seeds in _grouped(traces, _line).values():
        sizes = Counter(one.row.n_parameters for one in seeds)
        tuned = any(one.row.tuning is not None and one.row.tuning.searched for one in seeds)  # sizes may be chosen
        if len(sizes) > 1 and not tuned:
            numbers = ", ".join(map(str, sizes))
            yield from ((one.path, f"n_parameters differs between seeds of its method: {numbers}") for one in seeds)
    learned = [one for one in traces if one.row.train_on is not None]
    for alike in _grouped(learned, lambda one: (_answered(one), one.row.train_on)).values():
        rates = {round(one.row.base_rate, 9) for one in alike if one.row.base_rate is not None}
        seen = {n for one in alike for n in (one.row.labels_seen.train, one.row.labels_seen.gold)} - {0}
        for name, values in (("base_rate", rates), ("labels_seen", seen)):
            if len(values) > 1:
                problem = f"{name} differs between cells that learned on {alike[0].row.train_on}: {sorted(values)}"
                yield from ((one.path, problem) for one in alike)
                break


def _grouped(traces: Iterable[Trace], key: Callable[[Trace], object]) -> Mapping[object, list[Trace]]:
    groups: dict[object, list[Trace]] = defaultdict(list)
    for each in traces:
        groups[key(each)].append(each)
    return groups


def _answered(one: Trace) -> object:
    """Cells of which this is the same were answered by the same model in the same way."""
    row = one.row
    judged = [str(row.config.get(key)) for key in ("judge", "judge_model", "judge_url")]
    return (
        row.model, row.task, row.task_version, row.protocol, row.answers_source, row.judge, row.limit,
        str(row.config.get("dtype")), row.config.get("token_budget"), *judged,
    )  # fmt: skip


def _line(one: Trace) -> object:
    """Cells of which this is the same are seeds of one method."""
    row = one.row
    return row.model, row.task, row.task_version, row.preset, row.method, row.limit, str(sorted(row.config.items()))


# --- scores -----------------------------------------------------------------------------------------------------------


def of_scores(cell: SubmittedCell, known: Known) -> Iterator[str]:
    """Problems of the scores of a cell, of what became of them, and of a cell that should have some and has none."""
    method = known.method(cell.base)
    gives = not cell.recalibration and method is not None and method.output == "score"
    if cell.records.score is None:
        if gives:
            yield "its method gives scores, but its Parquet file has no column score; run it again"
    elif method is not None and not gives:
        yield "it has scores, but its method gives probabilities; run it again"
    score = cell.records.score
    if score is None:
        return
    answered = np.asarray([bool(answer.strip()) for answer in cell.records.answer], dtype=np.bool_)
    if (np.isneginf(score) == answered).any():
        yield "a score must be finite where there is an answer, and -infinity where there is none"
        return
    p, labels = cell.records.probabilities, cell.row.labels_seen.validation
    if (p is None) != (labels == 0):
        yield f"its scores are {'no ' * (p is None)}probabilities, but labels_seen has validation {labels}"
    by_subject = LEAVE_OUT in cell.row.config  # each subject has a scale of its own
    if p is not None and not by_subject and not rises(score[answered], p[answered]):
        yield "its confidences do not rise with its scores"


# --- recalibrated versions --------------------------------------------------------------------------------------------


def of_another(recalibrated: SubmittedCell, row: ResultRow, records: Records) -> Iterator[str]:
    """Problems of a recalibrated cell: what can't come from its method's cell.

    Args:
        recalibrated: e.g. `ccps+isotonic`.
        row: e.g. of `ccps`.
        records: of that row, in the order of ids.
    """
    seen, before = recalibrated.row.labels_seen, row.labels_seen
    if (seen.train, seen.gold) != (before.train, before.gold) or seen.validation < before.validation:
        yield f"its labels_seen can't come from those of {row.method}"
    if (recalibrated.row.training, recalibrated.row.base_rate) != (row.training, row.base_rate):
        yield f"its training is not that of {row.method}"
    if recalibrated.row.n_parameters != row.n_parameters:
        yield f"its n_parameters is {recalibrated.row.n_parameters}, that of {row.method} {row.n_parameters}"
    if records.id != recalibrated.records.id:
        yield f"its questions are not those of {row.method}"
    else:  # questions without an answer have 0 in both
        answered = np.asarray([bool(answer.strip()) for answer in records.answer], dtype=np.bool_)
        if not rises(records.confidence[answered], recalibrated.records.confidence[answered]):
            yield f"its confidences are no recalibration of those of {row.method}: they order answers otherwise"


def rises(before: FloatArray, after: FloatArray) -> bool:
    """Whether numbers (n,) are a function of those before, (n,), that never falls."""
    order = np.argsort(before, kind="stable")
    x, y = before[order], after[order]
    steps, level = np.diff(y), x[1:] == x[:-1]
    return bool((steps >= -ROUNDING).all() and (np.abs(steps[level]) <= ROUNDING).all())
