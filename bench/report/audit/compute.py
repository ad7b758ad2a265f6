"""Compute an audit: results of the same kind as those of a run, from confidences that somebody already has.

Each column of confidences is a method, each group a model; rows and records stay in memory. Tables, verdicts, figures,
guards and page are then made of them by the code that makes those of runs. Example:
`audit(sheet, AuditRequest()).tables[0].lines[0].estimate("rmsce").mean`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench import metrics
from bench.api import BoolArray, FloatArray, UserError
from bench.api.errors import did_you_mean
from bench.api.protocol import Protocol
from bench.data.confidence_files import Sheet
from bench.metrics.recalibration import RECALIBRATORS, Recalibrator, create_recalibrator, stratified_folds
from bench.metrics.scaling import Scale
from bench.metrics.summary import rows_of_subjects
from bench.report.audit.values import Values, pair_of, read_values
from bench.report.grouping import Key
from bench.report.selection import AuditRequest, Selection
from bench.report.standings.compute import LineStanding, Pair, Standings, standings_of
from bench.report.tables import build
from bench.report.tables.choice import apply_selection, refuse_unknown, refuse_unknown_metrics
from bench.report.tables.model import COLUMNS, Line, Table
from bench.report.text import join, percent
from bench.results.files import RECALIBRATED
from bench.results.question_records import QuestionRecords
from bench.results.row import AUDIT, ResultRow
from bench.stats import (
    Overconfidence,
    Sampling,
    Settings,
    compare,
    influence,
    overconfidence_of,
    strata_of,
)

PRESET = "audit"
_LEVEL = 0.95
_TEST_LABELS = 10_000_000
"""Labels that the test of calibration draws at most, all draws together; at least 99 draws are made."""
_COMPARED = ("brier", "rmsce", "auroc")
_PILE = 0.5
"""Share of one value among confidences from which on a footnote says so."""
_STEPS = (0.1, 0.05, 0.01)
_TWO = 2


@dataclass(frozen=True)
class Gap:
    """Overconfidence of one confidence within one value of a column, with a corrected interval."""

    table: str
    by: str
    value: str
    confidence: str
    off: Overconfidence


@dataclass(frozen=True)
class Gate:
    """Outcome of one limit of `--fail-above` on one confidence and group."""

    table: str
    confidence: str
    limit: float
    error: float | None
    low: float | None
    high: float | None
    reason: str

    @property
    def failed(self) -> bool:
        """Whether the calibration error is above the limit beyond chance."""
        return self.low is not None and self.low > self.limit


@dataclass(frozen=True, eq=False)
class AuditTables:
    """Everything that an audit computes."""

    request: AuditRequest
    tables: tuple[Table, ...]
    """One for each group."""
    compared: tuple[Table, ...]
    """One for each confidence: its groups are the methods, and pairs are compared on the questions they share."""
    gaps: tuple[Gap, ...]
    """Where confidences are too high or too low; the surest and largest gaps first."""
    gates: tuple[Gate, ...]
    records: Mapping[tuple[str, str], QuestionRecords]
    """(group, confidence) -> values per question."""

    def records_of(self, row: ResultRow) -> QuestionRecords:
        """Return the values per question of a result."""
        return self.records[row.model, row.method]


def audit(sheet: Sheet, request: AuditRequest) -> AuditTables:
    """Compute the audit that a request asks for.

    Raises:
        UserError: see `read_values`; also an unknown metric, recalibration or name in `fail_above`.
    """
    selection = Selection(metrics=request.metrics, headline=request.headline)
    refuse_unknown_metrics(selection)
    for kind in request.recalibrate:
        refuse_unknown("--recalibrate", "recalibration", kind, tuple(RECALIBRATORS))
    values = read_values(sheet, request)
    names = [name.replace(RECALIBRATED, "_") for name in values.confidences]
    names += [f"{name}{RECALIBRATED}{kind}" for name in names for kind in request.recalibrate]
    limits = [pair_of(text, "--fail-above", f"{names[0]}=0.1") for text in request.fail_above]
    for name, _ in limits:
        if name not in names:
            raise UserError(
                f"--fail-above: no confidence {name!r}; there are {join(names)}.{did_you_mean(name, names)}"
            )
    whole = request.out is not None or request.stats or "all" in request.metrics
    computed = None if whole else {*COLUMNS, "ece_floor", *request.metrics, *filter(None, [request.headline])}
    results = [result for group in sorted(set(values.group)) for result in _results(values, group, request, computed)]
    records = {(row.model, row.method): run for row, run in results}
    rows = [row for row, _ in results]
    draws = max(99, min(Settings.null_draws, _TEST_LABELS // max(len(run.id) for run in records.values())))
    settings = Settings(null_draws=draws)

    def standings(lines: Mapping[Key, Sequence[ResultRow]]) -> Standings:
        return standings_of(
            {key: [(row, records[row.model, row.method]) for row in rows] for key, rows in lines.items()}, settings
        )

    tables = [_audited(table, records) for table in build.build(rows, standings_of=standings)]
    return AuditTables(
        request,
        tables=tuple(apply_selection(tables, selection)),
        compared=tuple(_compared(tables, values.name, records, settings)),
        gaps=tuple(_gaps(tables, values, records)),
        gates=tuple(_gate(table, name, limit) for name, limit in limits for table in tables),
        records=records,
    )


# --- results ----------------------------------------------------------------------------------------------------------


def _results(
    values: Values, group: str, request: AuditRequest, computed: set[str] | None
) -> Iterator[tuple[ResultRow, QuestionRecords]]:
    """Yield the result rows of a group with their records, sorted by id."""
    rows = np.flatnonzero(np.asarray(values.group, dtype=object) == group)
    learned = rows[values.learned[rows]]
    judged = rows[~values.learned[rows]]
    ids = np.array([values.id[k] for k in judged], dtype=object)
    first = np.sort(np.unique(ids, return_index=True)[1]) if ids.size else np.arange(0)
    repeated = ids.size - first.size
    if repeated > ids.size / 2:
        raise UserError(
            f"{values.name}, {group}: {repeated:,} of {ids.size:,} rows repeat the id of an earlier one, so it names no"
            " question; name another column with --id, or split models with --group"
        )
    judged = judged[first]
    judged = judged[np.argsort(np.array([values.id[k] for k in judged], dtype=object), kind="stable")]
    if not judged.size or (request.learn_on and not learned.size):
        what = "to judge" if not judged.size else f"of the splits {join(request.learn_on)}"
        raise UserError(f"{values.name}, {group}: expected rows {what}, found none; leave the group or --learn-on out")
    correct, subject = values.correct[judged], [values.subject[k] for k in judged]
    if judged.size < _TWO and (request.recalibrate or values.scores) and not learned.size:
        raise UserError(f"{values.name}, {group}: expected two rows or more to recalibrate, got one; leave it out")
    lone = sum(n == 1 for n in Counter(subject).values())
    counts = {
        "rows with the id of an earlier row, left out": repeated,
        f"rows to learn on, not judged ({join(request.learn_on)})": learned.size,
        "subjects of one row, of which nothing can be said": lone if lone < judged.size else 0,
    }
    how = f"on {learned.size:,} rows of {join(request.learn_on)}" if learned.size else "by cross-fitting, in five parts"
    row = ResultRow(
        method="", model=group, task=values.name, preset=PRESET, seed=0, protocol="", task_version=1, status="ok",
        answers_source=f"{AUDIT}{values.name}", base_rate=float(correct.mean()), n=judged.size,
        llm_accuracy=float(correct.mean()), counts={what: int(n) for what, n in counts.items() if n},
    )  # fmt: skip
    for column, numbers in values.confidences.items():
        name, is_score = column.replace(RECALIBRATED, "_"), column in values.scores
        learn = (numbers[learned], values.correct[learned]) if learned.size else None
        confidence, score, notes = numbers[judged], None, []
        if is_score:
            score, confidence = confidence, _learned(Scale.fit, confidence, correct, learn)
            notes.append(f"its order alone is the file's: made probabilities {how}")
            learn = None if learn is None else (Scale.fit(*learn).apply(learn[0]), learn[1])
        notes += [] if is_score else _findings(confidence)
        variants = {name: (confidence, notes)}
        for kind in request.recalibrate:
            variants[f"{name}{RECALIBRATED}{kind}"] = (
                _learned(create_recalibrator(kind).fit, confidence, correct, learn),
                [f"recalibrated {how}"],
            )
        for method, (sure, said) in variants.items():
            raw = score if method == name else None
            records = QuestionRecords(
                [values.id[k] for k in judged], subject, correct, sure, [""] * judged.size,
                np.ones(judged.size, dtype=bool), raw,
            )  # fmt: skip
            scores = metrics.summarise(sure, correct, subject, Protocol(), raw, computed)
            yield replace(
                row, method=method, notes=tuple(said), metrics=scores.metrics, per_subject=scores.per_subject,
                n_excluded=scores.n_excluded, n_clipped=scores.n_clipped,
            ), records  # fmt: skip


def _learned(
    fit: Callable[[FloatArray, BoolArray], Recalibrator | Scale],
    values: FloatArray,
    correct: BoolArray,
    learn: tuple[FloatArray, BoolArray] | None,
) -> FloatArray:
    """Map confidences or scores by what was learned on other rows, or else each fifth by the other four."""
    if learn is not None:
        return fit(*learn).apply(values)
    fold, mapped = stratified_folds(correct), np.empty(values.size)
    for k in range(int(fold.max()) + 1):
        mapped[fold == k] = fit(values[fold != k], correct[fold != k]).apply(values[fold == k])
    return mapped


def _findings(confidence: FloatArray) -> Iterator[str]:
    """Yield what the values of a confidence can't show: constants, two values, piles, rounding."""
    distinct, counts = np.unique(confidence, return_counts=True)
    most = int(counts.argmax())
    if distinct.size == 1:
        yield f"every confidence is {distinct[0]:g}: it tells no answer from another"
        return
    if distinct.size == _TWO:
        yield f"it has two values only, {distinct[0]:g} and {distinct[1]:g}: two bins are all that can be judged"
    elif counts[most] >= _PILE * confidence.size:
        yield f"{percent(counts[most] / confidence.size)} % of its confidences are {distinct[most]:g}"
    for step in _STEPS:
        if distinct.size > _TWO and np.allclose(distinct / step, np.round(distinct / step), atol=1e-6):
            yield f"its confidences are rounded to {step:g}: {distinct.size} values; within one nothing is ordered"
            return


# --- tables -----------------------------------------------------------------------------------------------------------


def _audited(table: Table, records: Mapping[tuple[str, str], QuestionRecords]) -> Table:
    """Return a table with what only an audit says: overconfidence, and its own words."""
    first = table.rows[0]
    off = {}
    for line in table.lines:
        run = records[line.rows[0].model, line.rows[0].method]
        if run.score is None:  # scores have no mean confidence but what was learned
            off[line.key] = overconfidence_of(run.confidence, run.correct, run.subject)
    unjudgeable = ""
    if first.llm_accuracy in {0.0, 1.0}:
        kind = "right" if first.llm_accuracy else "wrong"
        unjudgeable = (
            f"All {first.n or 0:,} answers are {kind}, so no confidence can be judged: look at the column of right and"
            " wrong, or take other questions."
        )
    lines = tuple(replace(line, group=PRESET) for line in table.lines)
    too_few = table.too_few.replace("to choose by", "to judge by")
    return replace(table, lines=lines, overconfidence=off, unjudgeable=unjudgeable, too_few=too_few)


def _gate(table: Table, name: str, limit: float) -> Gate:
    line = next((line for line in table.lines if line.key.method == name), None)
    standing = line.standing.metrics["rmsce"] if line and line.standing else None
    if standing is None:
        return Gate(table.facts[0], name, limit, None, None, None, "it has no calibration error")
    fixed = standing.fixed
    return Gate(table.facts[0], name, limit, standing.value, fixed.low, fixed.high, fixed.reason)


def _gaps(tables: Sequence[Table], values: Values, records: Mapping[tuple[str, str], QuestionRecords]) -> Iterator[Gap]:
    """Yield the gaps of `--by`; intervals hold together for all gaps of a column."""
    for by, texts in values.by.items():
        place = dict(zip(zip(values.group[::-1], values.id[::-1], strict=True), texts[::-1], strict=True))
        parts = [
            (table, line, records[line.rows[0].model, line.rows[0].method], value, rows)
            for table in tables
            for line in table.lines
            for value, rows in rows_of_subjects(
                [place[line.rows[0].model, key] for key in records[line.rows[0].model, line.rows[0].method].id]
            )
        ]

        def gaps(level: float, parts: Sequence[Any] = parts, by: str = by) -> list[Gap]:
            return [
                Gap(table.facts[0], by, value, line.key.label, overconfidence_of(
                    run.confidence[rows], run.correct[rows], [""] * rows.size, level))
                for table, line, run, value, rows in parts
            ]  # fmt: skip

        tested = sum(gap.off.interval.ends is not None for gap in gaps(_LEVEL))
        corrected = gaps(1 - (1 - _LEVEL) / max(1, tested))
        yield from sorted(corrected, key=lambda gap: (-gap.off.least, -abs(gap.off.value)))


def _compared(
    tables: Sequence[Table], name: str, records: Mapping[tuple[str, str], QuestionRecords], settings: Settings
) -> Iterator[Table]:
    """Yield a table for each confidence that several groups have: groups are methods, on the questions they share."""
    lines: dict[str, dict[str, Line]] = {}
    for table in tables:
        for line in table.lines:
            lines.setdefault(line.key.method, {})[table.rows[0].model] = line
    for method, by_group in lines.items():
        runs = {group: records[group, method] for group in by_group}
        shared = sorted(set.intersection(*(set(run.id) for run in runs.values())))
        if len(runs) < _TWO or not shared:
            continue
        at = {group: dict(zip(run.id, range(len(run.id)), strict=True)) for group, run in runs.items()}
        runs = {group: run.take(np.array([at[group][key] for key in shared])) for group, run in runs.items()}
        strata = strata_of(next(iter(runs.values())).subject)
        # the reasons why there is no test are those of the model with the fewest right or wrong answers
        rarest = min(runs.values(), key=lambda run: min(run.correct.sum(), (~run.correct).sum()))
        sampling = Sampling.of(strata, rarest.correct, settings.average)
        keys = {group: Key(group.replace(RECALIBRATED, "_"), "") for group in runs}
        pairs: list[Pair] = []
        for metric in _COMPARED:
            influences = {
                keys[group]: influence(metric, run.confidence, run.ranking_values, run.correct, strata, "questions")
                for group, run in runs.items()
            }
            pairs += compare(metric, influences, sampling, [list(keys.values())], settings)
        standing = {keys[g]: line.standing for g, line in by_group.items() if isinstance(line.standing, LineStanding)}
        title = f"{method} in {name}: groups compared"
        fact = f"n = {len(shared):,} questions that all groups share, by id; a Brier score also rewards right answers."
        yield replace(
            next(iter(tables)), model=method, facts=(title, fact), metrics=_COMPARED,
            lines=tuple(replace(line, key=keys[group]) for group, line in by_group.items()),
            standings=Standings(_LEVEL, standing, tuple(pairs), {}),
        )  # fmt: skip


def not_compared(tables: Sequence[Table], compared: Sequence[Table]) -> str:
    """Return why groups weren't compared; empty if they were, or if there is one group."""
    if len(tables) < _TWO or compared:
        return ""
    return "Groups share no questions (by id), so they are not compared; name the column of questions with --id."
