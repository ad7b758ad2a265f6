"""Checks across results: equal answers for all methods, no copies of another result, valid recalibrations."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.api import FloatArray
from bench.results.files import RECALIBRATED
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.results.submissions.cell import BuiltIns, Finding, SkippedCheck, SubmittedCell, is_stochastic
from bench.results.transfer import LEAVE_OUT

DIGITS = 4
"""Number of decimals to which confidences are rounded when two results are compared."""
MIN_DISTINCT = 3
"""Two results with equal confidences count as copies only if these, once rounded, have at least this many distinct
values."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class Trace:
    """What the checks across results need of one result; without its values per question."""

    path: Path
    row: ResultRow
    base: str
    answers: str
    """Digest of question ids, subjects, labels and answers."""
    confidences: str | None
    """Digest of question ids and confidences or scores; None if fewer than MIN_DISTINCT rounded ones are distinct."""


def trace(cell: SubmittedCell) -> Trace:
    """Summarise a result for the checks across results."""
    answers = hashlib.sha256(json.dumps(list(cell.answered.items())).encode()).hexdigest()
    rounded = np.round(cell.records.ranking_values, DIGITS) + 0.0  # a copy with a little noise has the same digest
    confidences = hashlib.sha256(json.dumps(cell.records.id).encode() + rounded.tobytes()).hexdigest()
    return Trace(
        cell.path, replace(cell.row, per_subject={}, metrics={}), cell.base, answers,
        confidences if np.unique(rounded).size >= MIN_DISTINCT else None,
    )  # fmt: skip


def findings(traces: Sequence[Trace], built_in: BuiltIns) -> Iterator[tuple[Path, Finding]]:
    """Check results against each other; for each problem yield the path of the result that has it, and the problem."""
    for group in _grouped(traces, _answer_key).values():
        # the answers of the majority are the reference; in a tie every cell is reported
        counts = Counter(cell.answers for cell in group)
        (majority, n), *rest = counts.most_common()
        tied = bool(rest) and rest[0][1] == n
        for cell in (cell for cell in group if rest and (tied or cell.answers != majority)):
            problem = (
                f"its questions, labels or answers are not those of {len(group) - counts[cell.answers]} other cells of"
                f" {cell.row.model} on {cell.row.task}; run all methods on one machine with one version"
            )
            yield cell.path, problem
    varied = [cell for cell in traces if cell.confidences is not None]
    for group in _grouped(varied, lambda c: (c.row.model, c.row.task, c.row.limit, c.confidences)).values():
        for cell in group:
            # the confidences of another method, or of another seed of a method that draws
            # Methods that order answers alike are equal once recalibrated, as eigenvalues and eccentricity may be.
            others = [other for other in group if RECALIBRATED not in cell.row.method or other.base == other.row.method]
            copied = next((other for other in others if other.row.method != cell.row.method), None)
            if copied is not None:
                yield cell.path, f"it has the confidences of {copied.row.method}; two methods never have the same"
            twin = next((c for c in group if c.path != cell.path and _method_key(c) == _method_key(cell)), None)
            method = built_in.method(cell.base)
            if twin is not None and method is None:
                yield (
                    cell.path,
                    SkippedCheck(f"{cell.base} is not built in: whether two of its seeds may give the same"),
                )
            elif twin is not None and method is not None and is_stochastic(method):
                yield (
                    cell.path,
                    f"it has the confidences of seed {twin.row.seed}; its method draws, so no two seeds give the same",
                )
            others = [other for other in group if other.row.method == cell.row.method == cell.base]
            taught = next((other for other in others if _learned_from(other) != _learned_from(cell)), None)
            # one or two parameters may well be equal, as LTS's temperature is at its bound
            if taught and method and method.trains() and (is_stochastic(method) or (cell.row.n_parameters or 0) > 2):
                yield cell.path, f"it has the confidences of {taught.path.stem}, which learned from other labels"
    for seeds in _grouped(traces, _method_key).values():
        sizes = Counter(cell.row.n_parameters for cell in seeds)
        tuned = any(cell.row.tuning is not None and cell.row.tuning.searched for cell in seeds)  # sizes may be chosen
        if len(sizes) > 1 and not tuned:
            numbers = ", ".join(map(str, sizes))
            yield from ((cell.path, f"n_parameters differs between seeds of its method: {numbers}") for cell in seeds)
    trained = [cell for cell in traces if cell.row.train_on is not None]
    learned_from = lambda cell: (_answer_key(cell), cell.row.train_on, str(cell.row.config.get("train_limit")))  # noqa: E731
    for group in _grouped(trained, learned_from).values():
        rates = {round(cell.row.base_rate, 9) for cell in group if cell.row.base_rate is not None}
        seen = {n for cell in group for n in (cell.row.labels_seen.train, cell.row.labels_seen.gold)} - {0}
        for name, values in (("base_rate", rates), ("labels_seen", seen)):
            if len(values) > 1:
                problem = f"{name} differs between cells that learned on {group[0].row.train_on}: {sorted(values)}"
                yield from ((cell.path, problem) for cell in group)
                break


def _grouped(traces: Iterable[Trace], key: Callable[[Trace], object]) -> Mapping[object, list[Trace]]:
    groups: dict[object, list[Trace]] = defaultdict(list)
    for item in traces:
        groups[key(item)].append(item)
    return groups


def _answer_key(cell: Trace) -> object:
    """Return a key of the result. Results with equal keys must have the same answers."""
    row = cell.row
    judged = [str(row.config.get(key)) for key in ("judge", "judge_model", "judge_url")]
    return (
        row.model, row.task, row.task_version, row.protocol, row.answers_source, row.judge, row.limit,
        *(str(row.config.get(key)) for key in ("dtype", "token_budget", "tokenizer", "parallel")), *judged,
    )  # fmt: skip


def _learned_from(cell: Trace) -> object:
    """Return which labels a trained method was fitted on, without those that choose a step, which may be any."""
    seen, is_elsewhere = cell.row.labels_seen, str(cell.row.train_on).endswith("/validation")
    return cell.row.train_on, seen.train, seen.gold, seen.validation if is_elsewhere else 0


def _method_key(cell: Trace) -> object:
    """Return a key of the result. Results with equal keys differ only in the seed."""
    row = cell.row
    return row.model, row.task, row.task_version, row.preset, row.method, row.limit, str(sorted(row.config.items()))


# --- scores -----------------------------------------------------------------------------------------------------------


def score_findings(cell: SubmittedCell, built_in: BuiltIns) -> Iterator[str]:
    """Check a result's scores: it has them exactly if its method gives scores, and confidences rise with them.

    A recalibrated result must have no scores.
    """
    method = built_in.method(cell.base)
    has_scores = not cell.recalibration and method is not None and method.output == "score"
    if cell.records.score is None:
        if has_scores:
            yield "its method gives scores, but its Parquet file has no column score; run it again"
    elif method is not None and not has_scores:
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
    if p is not None and not by_subject and not is_monotone(score[answered], p[answered]):
        yield "its confidences do not rise with its scores"


# --- recalibrated versions --------------------------------------------------------------------------------------------


def recalibration_findings(recalibrated: SubmittedCell, row: ResultRow, records: QuestionRecords) -> Iterator[str]:
    """Check a recalibrated result against the result whose confidences were recalibrated.

    Args:
        recalibrated: the recalibrated result, e.g. of `ccps+isotonic`.
        row: the result before recalibration, e.g. of `ccps`.
        records: values per question of `row`, sorted by id.
    """
    seen, base = recalibrated.row.labels_seen, row.labels_seen
    if (seen.train, seen.gold) != (base.train, base.gold) or seen.validation < base.validation:
        yield f"its labels_seen can't come from those of {row.method}"
    if (recalibrated.row.training, recalibrated.row.base_rate) != (row.training, row.base_rate):
        yield f"its training is not that of {row.method}"
    if recalibrated.row.n_parameters != row.n_parameters:
        yield f"its n_parameters is {recalibrated.row.n_parameters}, that of {row.method} {row.n_parameters}"
    if records.id != recalibrated.records.id:
        yield f"its questions are not those of {row.method}"
    else:  # unanswered questions have 0 in both
        answered = np.asarray([bool(answer.strip()) for answer in records.answer], dtype=np.bool_)
        if not is_monotone(records.confidence[answered], recalibrated.records.confidence[answered]):
            yield f"its confidences are no recalibration of those of {row.method}: they order answers otherwise"


def is_monotone(before: FloatArray, after: FloatArray) -> bool:
    """Return whether `after` (n,) is a non-decreasing function of `before` (n,)."""
    order = np.argsort(before, kind="stable")
    x, y = before[order], after[order]
    steps, is_tie = np.diff(y), x[1:] == x[:-1]
    return bool((steps >= -ROUNDING).all() and (np.abs(steps[is_tie]) <= ROUNDING).all())
