"""Compute an audit: results of the same kind as those of a run, from confidences that somebody already has.

Each column of confidences is a method, each group a model; rows and records stay in memory. Tables, verdicts, figures,
guards and page are then made of them by the code that makes those of runs. Example:
`audit(sheet, AuditRequest()).tables[0].lines[0].estimate("rmsce").mean`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from bench import metrics, stats
from bench.api import BoolArray, FloatArray, UserError
from bench.api.protocol import Protocol
from bench.data.confidence_files import Sheet
from bench.metrics.recalibration import RECALIBRATORS, Recalibrator, by_folds, create_recalibrator
from bench.metrics.scaling import Scale
from bench.metrics.summary import rows_of_subjects
from bench.report.audit.values import Values, pair_of, read_values
from bench.report.grouping import Key
from bench.report.selection import AuditRequest
from bench.report.standings.compute import Standings, compare_on_shared, standings_of, withhold
from bench.report.tables import build
from bench.report.tables.choice import refuse_unknown
from bench.report.tables.model import Line, Table
from bench.report.text import join, percent
from bench.report.verdict.audit import error_ends
from bench.results.files import RECALIBRATED
from bench.results.question_records import QuestionRecords
from bench.results.row import AUDIT, ResultRow
from bench.stats import Overconfidence, Settings
from bench.stats.intervals import MIN_CALIBRATED

LEVEL = 0.95
_NULL_LABELS = 10_000_000
"""Labels that the test of calibration draws at most, all draws together; at least 99 draws are made."""
_COMPARED = ("brier", "rmsce", "auroc")
_LEAST = 20
"""Rows that something can be learned on."""
_PILE, _STEPS = 0.5, (0.1, 0.05, 0.01)
"""Share of one value among confidences from which on a footnote says so; steps to which confidences may be rounded."""
Records = Mapping[tuple[str, str], QuestionRecords]
"""(group, confidence) -> values per question, sorted by id."""


class Gap(NamedTuple):
    """Overconfidence of one confidence within one value of a column, with a corrected interval."""

    group: str
    by: str
    value: str
    confidence: str
    off: Overconfidence


class Gate(NamedTuple):
    """A limit of `--fail-above` on the calibration error of one confidence and group."""

    group: str
    confidence: str
    limit: float
    rmsce: float | None
    ends: tuple[float, float] | None
    """Interval of the calibration error, see `error_ends`; None if it was not tested."""
    reason: str = ""
    """Why the calibration error has no interval; otherwise empty."""

    @property
    def failed(self) -> bool:
        """Whether the calibration error is above the limit beyond chance, or could not be tested."""
        return self.ends is None or self.ends[0] > self.limit


class AuditTables(NamedTuple):
    """Everything that an audit computes."""

    request: AuditRequest
    tables: tuple[Table, ...]
    """One for each group."""
    compared: tuple[Table, ...]
    """One for each confidence: its groups are the methods, and pairs are compared on the questions they share."""
    gaps: tuple[Gap, ...]
    """Where confidences are too high or too low; the surest and largest gaps first."""
    gates: tuple[Gate, ...]
    records: Records


def audit(sheet: Sheet, request: AuditRequest) -> AuditTables:
    """Compute the audit that a request asks for.

    Raises:
        UserError: see `read_values`; also an unknown metric, recalibration or name in `fail_above`.
    """
    for kind in request.recalibrate:
        refuse_unknown("--recalibrate", "recalibration", kind, tuple(RECALIBRATORS))
    values = read_values(sheet, request)
    names = list(values.confidences)
    names += [f"{name}{RECALIBRATED}{kind}" for name in names for kind in request.recalibrate]
    limits = [pair_of(text, "--fail-above", f"{names[0]}=0.1") for text in request.fail_above]
    for name, _ in limits:
        refuse_unknown("--fail-above", "confidence", name, names)
    results = [result for group in sorted(set(values.group)) for result in _results(sheet, values, group, request)]
    records = {(row.model, row.method): run for row, run in results}
    draws = max(99, min(Settings.null_draws, _NULL_LABELS // max(len(run.id) for run in records.values())))
    settings = Settings(level=LEVEL, null_draws=draws)

    def standings(lines: Mapping[Key, Sequence[ResultRow]]) -> Standings:
        runs = {key: [(row, records[row.model, row.method]) for row in rows] for key, rows in lines.items()}
        return standings_of(runs, settings)

    built = build.build([row for row, _ in results], standings_of=standings)
    tables = tuple(_audited(table, records) for table in built)
    gates = tuple(
        _gate(table, line, limit)
        for (name, limit), table in product(limits, tables)
        for line in table.lines
        if line.key.method == name
    )
    compared = tuple(_compared(tables, records, settings))
    return AuditTables(request, tables, compared, tuple(_gaps(tables, values, records)), gates, records)


def _gate(table: Table, line: Line, limit: float) -> Gate:
    """Hold a confidence of a group against a limit.

    Where the calibration error has no interval, overconfidence alone is known: that it is above the limit says enough.
    That it isn't says enough where nearly all of many answers are right, or wrong, but not where few are of both.
    """
    error, off, ends = line.estimate("rmsce"), table.overconfidence.get(line.key), error_ends(line, table) or (0.0, 1.0)
    is_known = error.ends or ends[0] > limit or (off and off.interval.kind == "exact" and off.n >= MIN_CALIBRATED)
    reason = error.standing.fixed.reason if error.standing else "it has no value"
    return Gate(table.model, line.key.method, limit, error.mean, ends if is_known else None, reason)


# --- results ----------------------------------------------------------------------------------------------------------


def _results(
    sheet: Sheet, values: Values, group: str, request: AuditRequest
) -> Iterator[tuple[ResultRow, QuestionRecords]]:
    """Yield the result rows of a group with their records."""
    rows = np.flatnonzero(np.asarray(values.group, dtype=object) == group)
    learned, judged = rows[values.learned[rows]], rows[~values.learned[rows]]
    first, cells = dict[str, int](), [values.correct, *values.confidences.values()]
    epoch = sheet.columns.get("epoch") if sheet.is_inspect else None
    for k in judged.tolist():
        j = first.setdefault(values.id[k], k)
        is_copy = all(cell[j] == cell[k] for cell in cells)
        if not (is_copy or (epoch and epoch[j] != epoch[k])):
            raise UserError(
                f"{sheet.where[k]}: it has the id {values.id[k]!r} of {sheet.where[j]}, but another grade or"
                " confidence; name the column of models with --group (or --group file), or of questions with --id"
            )
    if both := {values.id[k] for k in learned.tolist()} & set(first):
        raise UserError(
            f"{sheet.name}: {len(both):,} ids, e.g. {min(both)!r}, are among the rows to learn on and among those to"
            " judge, which must be other questions; take them out of one, or name another column with --id"
        )
    least = 1 + (bool(request.recalibrate or request.uncertainties) and not request.learn_on)
    if judged.size < least or learned.size < _LEAST * bool(request.learn_on):
        expected = f"{_LEAST} rows to learn on and {least}" if request.learn_on else f"{least} rows"
        raise UserError(
            f"{sheet.name}, {group}: expected at least {expected} to judge, got {learned.size:,} and {judged.size:,};"
            " add rows, or leave out this group, or an option"
        )
    ids = sorted(first)
    repeated, judged = judged.size - len(ids), np.array([first[key] for key in ids])
    right, subject = values.correct[judged], [values.subject[k] for k in judged]
    lone = sum(n == 1 for n in Counter(subject).values())
    counts = {
        "rows with the id of an earlier row, left out": repeated,
        f"rows to learn on, not judged ({join(request.learn_on)})": learned.size,
        "subjects of one row, of which nothing can be said": lone * (lone < judged.size),
    }
    used, n_learned = np.concatenate([learned, judged]), learned.size
    how = f"on {n_learned:,} rows of {join(request.learn_on)}" if n_learned else "by cross-fitting, in five parts"
    labels = values.correct[used]
    for name, numbers in values.confidences.items():
        sure, score, notes = numbers[used], None, list(_findings(numbers[judged], values.most[name]))
        if not values.most[name]:
            score, sure = numbers[judged], _learned(Scale.fit, sure, labels, n_learned)
            notes = [f"its order alone is the file's: made probabilities {how}"]
        found = [(name, sure, score, notes)]
        n_ends = np.count_nonzero((sure[n_learned:] == 0) | (sure[n_learned:] == 1))
        ends = f"; {n_ends:,} confidences of 0 or 1 count as 2^-24 from these, as their log-odds are infinite"
        for kind in request.recalibrate:
            note = f"recalibrated {how}" + ends * bool(n_ends and kind != "isotonic")
            fitted = _learned(create_recalibrator(kind).fit, sure, labels, n_learned)
            found.append((f"{name}{RECALIBRATED}{kind}", fitted, None, [note]))
        for method, mapped, raw, said in found:
            confidence = mapped[n_learned:]
            scores = metrics.summarise(confidence, right, subject, Protocol(), raw)
            yield (
                ResultRow(
                    method=method, model=group, task=sheet.name, preset="audit", seed=0, protocol="", task_version=1,
                    status="ok", answers_source=f"{AUDIT}{sheet.name}", base_rate=float(right.mean()), n=judged.size,
                    llm_accuracy=float(right.mean()), counts={what: int(n) for what, n in counts.items() if n},
                    notes=tuple(said), **vars(scores),
                ),
                QuestionRecords(ids, subject, right, confidence, [""] * len(ids), np.ones(len(ids), dtype=bool), raw),
            )  # fmt: skip


def _learned(fit: Callable[..., Recalibrator | Scale], values: FloatArray, correct: BoolArray, n: int) -> FloatArray:
    """Map confidences or scores by what the first n of them teach; without such, each fifth by the other four."""
    if n:
        return fit(values[:n], correct[:n]).apply(values)
    return by_folds(correct, 0, lambda others, held: fit(values[others], correct[others]).apply(values[held]))


def _findings(confidence: FloatArray, most: float) -> Iterator[str]:
    """Yield what the values of a confidence can't show: constants, two values, piles, rounding, mixed scales."""
    distinct, counts = np.unique(confidence, return_counts=True)
    pile = int(counts.argmax())
    if distinct.size == 1:
        yield f"every confidence is {distinct[0]:g}: it tells no answer from another"
    elif distinct.size == 2:
        yield f"it has two values only, {distinct[0]:g} and {distinct[1]:g}: two bins are all that can be judged"
    elif counts[pile] >= _PILE * confidence.size:
        yield f"{percent(counts[pile] / confidence.size)} % of its confidences are {distinct[pile]:g}"
    steps = [step for step in _STEPS if np.allclose(distinct / step, np.round(distinct / step), atol=1e-6)]
    if distinct.size > 2 and steps:
        yield f"its confidences are rounded to {steps[0]:g}: {distinct.size} values; within one nothing is ordered"
    if (n := np.count_nonzero((confidence > 0) & (confidence < 0.01))) and most == 100:
        yield f"with --scale 100 {n:,} of its numbers are below 1: were these written from 0 to 1?"


# --- tables -----------------------------------------------------------------------------------------------------------


def _audited(table: Table, records: Records) -> Table:
    """Return a table with what only an audit says: overconfidence, and words of its own."""
    runs = {line.key: records[line.rows[0].model, line.key.method] for line in table.lines}
    off = {  # scores have no mean confidence but what was learned
        key: stats.overconfidence_of(run.confidence, run.correct, run.subject)
        for key, run in runs.items() if run.score is None
    }  # fmt: skip
    unjudgeable = table.warnings["unjudgeable"].partition(":")[0]
    unjudgeable = unjudgeable.replace("no method can be judged", "no confidence can order them")
    unjudgeable += ": look at the column of right and wrong, or take other questions." * bool(unjudgeable)
    too_few = table.warnings["too_few"].replace("choose", "judge")
    warnings = {**table.warnings, "unjudgeable": unjudgeable, "too_few": too_few}
    lines = tuple(replace(line, group="audit") for line in table.lines)
    return replace(table, lines=lines, overconfidence=off, warnings=warnings)


def _gaps(tables: Sequence[Table], values: Values, records: Records) -> Iterator[Gap]:
    """Yield the gaps of `--by`, worst first; intervals hold together for all gaps of a column (Bonferroni)."""
    for by, texts in values.by.items():
        value_of = dict(zip(zip(values.group[::-1], values.id[::-1], strict=True), texts[::-1], strict=True))
        gaps: list[Gap] = []
        for is_corrected in (False, True):
            tested = sum(gap.off.interval.ends is not None for gap in gaps) if is_corrected else 1
            level, gaps = 1 - (1 - LEVEL) / max(1, tested), []
            for group, line in ((table.model, line) for table in tables for line in table.lines):
                model, run = line.rows[0].model, records[line.rows[0].model, line.key.method]
                for value, rows in rows_of_subjects([value_of[model, key] for key in run.id]):
                    off = stats.overconfidence_of(run.confidence[rows], run.correct[rows], [""] * rows.size, level)
                    gaps.append(Gap(group, by, value or "(none)", line.key.label, off))
        yield from sorted(gaps, key=lambda gap: (-gap.off.least, -abs(gap.off.value)))


def _compared(tables: Sequence[Table], records: Records, settings: Settings) -> Iterator[Table]:
    """Yield a table for each confidence that several groups have: groups are methods, on the questions they share."""
    lines: dict[str, dict[str, Line]] = {}
    for line in (line for table in tables for line in table.lines):
        lines.setdefault(line.key.method, {})[line.rows[0].model] = line
    for method, by_group in lines.items():
        if len(by_group) < 2:
            continue
        keys = {group: Key(group.replace(RECALIBRATED, "_"), "") for group in by_group}
        runs = {keys[group]: [records[group, method]] for group in by_group}
        n, pairs = compare_on_shared(runs, [(metric, list(runs)) for metric in _COMPARED], settings)
        if not n:
            continue
        standing = {keys[group]: line.standing for group, line in by_group.items() if line.standing}
        shown = tuple(replace(line, key=keys[group]) for group, line in by_group.items())
        ordered = [line.key for line in shown if line.orders_answers]
        facts = f"{method} in {tables[0].task}", f"n = {n:,} questions that all groups share, by id."
        yield replace(
            tables[0], model=method, facts=facts, metrics=_COMPARED, lines=shown,
            standings=Standings(LEVEL, standing, tuple(withhold(pairs, ordered, 1 - LEVEL)), {}),
        )  # fmt: skip
