"""Compute the guards of a folder of results: for each method, a confidence threshold with a certified error rate.

No model is run. Labels of the calibration questions choose the threshold; labels of the other questions only show its
error rate. By default, the test questions are divided into these two parts. No fit, early stopping, scaling or
recalibration has seen any of these labels, as those steps read the train and validation splits. Example:
`compute_guards(GuardRequest(Path("results"), risk=0.05), cache, print)[0].lines[0].seeds[0].threshold`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bench.api import UserError
from bench.api.errors import match_name
from bench.report import recomputed, style
from bench.report.figures.figure_data import RecordsOf
from bench.report.guard.model import GuardedCell, GuardedLine, GuardedTable, answers_of
from bench.report.selection import GuardRequest
from bench.report.tables import build
from bench.report.tables.caption import distinguishing_labels
from bench.report.tables.choice import apply_selection, refuse_unknown, select_rows
from bench.report.tables.model import Table
from bench.report.text import plain
from bench.results import files, question_texts
from bench.results.row import ResultRow
from bench.stats.guard import feasible, grid, guard, held_out_mask

_SEEN = ("train", "validation", "dev")
"""Splits whose questions can't choose a threshold, as methods learned from them or prompts show them."""
_REPEATED = "repeated questions"
"""Description of the number of duplicate questions with an equal right answer, from
`bench.data.contamination.count_duplicates`; keys of `ResultRow.counts` have the split before it."""
_SAME = ("preset", "config", "deviations", "protocol", "train_on", "labels_seen", "base_rate", "n_parameters", "limit")
"""Fields of `ResultRow` that must be equal if the results on two tasks come from one fit of a method."""


def compute_guards(request: GuardRequest, cache: Path | None, say: Callable[[str], None]) -> list[GuardedTable]:
    """Compute the guards (confidence thresholds with a certified error rate) of the requested results.

    Returns:
        The guards of each table, i.e. of each model and task, and of e.g. partial or tuned runs apart. Tables without
        an ok result are left out.

    Args:
        request: which results, allowed share of mistakes, confidence level, and questions that choose thresholds.
        cache: folder that remembers which results were verified; None for no cache.
        say: receives a message before long work, and for each table that is left out.

    Raises:
        UserError: an option is out of range; no result is selected; no question is left to choose a threshold, or
            none to evaluate it; the separate task for choosing has no results, or shares questions with the other task;
            a method has scores alone on one of these two tasks; no method of a table has a result to guard; a result
            is damaged.
    """
    rows = recomputed.read_recomputed(request.results, cache, partial=request.partial, say=say)
    tasks = {row.task for row in rows}
    task = None if request.calibrate_on is None else match_name(request.calibrate_on, tasks)
    request = replace(request, calibrate_on=task)
    if task is not None and task not in tasks:
        seen = next((split for split in _SEEN if task == split or task.endswith((f"/{split}", f":{split}"))), None)
        if seen is not None:
            raise UserError(
                f"--calibrate-on {plain(task)}: expected a task. Split {seen} can't choose a threshold: fits, early"
                " stopping, scaling and recalibration have seen it, so confidences are better there than elsewhere."
                " Leave the option out, and --share of the test is set aside; or name another task."
            )
        refuse_unknown("--calibrate-on", "task", task, tasks, of="result of ")
    calibration_rows = [row for row in rows if row.task == task and row.status == "ok"]
    selected = [row for row in select_rows(rows, request) if row.task != task]
    if task is not None and not selected:
        raise UserError(f"--calibrate-on {task}: expected results of another task to guard, found none")
    built = build.build(
        selected, preset=request.preset, deviations=request.deviations, partial=True,
        styles=style.read(request.results), marks_plugins=True,
    )  # fmt: skip
    tables = apply_selection(built, replace(request, metrics=(), headline=None))
    non_empty = [table for table in tables if any(line.ok_rows for line in table.lines)]
    for table in tables:
        if non_empty and table not in non_empty:
            say(f"{table.model} on {table.task}: left out, as none of the chosen methods has a result there")
    return guards_of(non_empty or tables, request, calibration_rows)


def guards_of(
    tables: Sequence[Table],
    request: GuardRequest,
    calibration_rows: Sequence[ResultRow] = (),
    records: RecordsOf | None = None,
) -> list[GuardedTable]:
    """Compute the guards of tables that are already built.

    Args:
        tables: tables of results.
        request: allowed share of mistakes, confidence level, and questions that choose thresholds.
        calibration_rows: results on the separate task whose labels choose thresholds, if the request names one.
        records: returns the values per question of a result; by default those of its Parquet file.

    Raises:
        UserError: as `compute_guards`.
    """
    records = records or partial(files.records_of, results=request.results)
    guards = [_GuardBuilder(request, calibration_rows, records).table(table) for table in tables]
    suffixes = distinguishing_labels([g.table.all_rows for g in guards])
    return [replace(g, aside=aside) for g, aside in zip(guards, suffixes, strict=True)]


@dataclass(eq=False)
class _GuardBuilder:
    """Builds the guards (confidence thresholds with a certified error rate) of one table after another."""

    request: GuardRequest
    calibration_rows: Sequence[ResultRow]
    """Results on the separate task whose labels choose the thresholds; empty if the request names no such task."""
    records: RecordsOf
    texts: dict[tuple[str, int], Mapping[str, question_texts.QuestionText]] = field(default_factory=dict)

    def table(self, table: Table) -> GuardedTable:
        """Build the guards of all methods of one table."""
        lines = []
        for line in table.lines:
            pairs = [(row, self._calibration_row(row)) for row in line.ok_rows]
            missing = [reason for _, reason in pairs if isinstance(reason, str)]
            missing = missing if pairs else ["; ".join(line.reasons) or "was not run"]
            seeds = () if missing else (self._cell(row, other) for row, other in pairs if not isinstance(other, str))
            lines.append(GuardedLine(line, tuple(seeds), missing[0] if missing else ""))
        # a stable sort: then in the table's order
        lines.sort(key=lambda line: (not line.passed_seeds, not line.seeds, -line.coverage))
        cell = next((line.seeds[0] for line in lines if line.seeds), None)
        if cell is None:
            reasons = "; ".join(f"{line.line.key.label}: {line.reason}" for line in lines[:3])
            raise UserError(
                f"{table.model} on {table.task}: no method has a result to guard ({reasons or 'none was run'})"
            )
        n, n_right = len(cell.calibration.correct), int(cell.calibration.correct.sum())
        limits = feasible(n, n_right, risk=self.request.risk, level=self.request.level)
        request, separate, n_rest = self.request, self.request.calibrate_on, len(cell.rest.values)
        remarks = [fact for fact in table.facts if "partial or deviating result" in fact]
        source = (
            f"{n:,} of {n + n_rest:,} questions choose the thresholds (--share {request.share:g}, --split-seed"
            f" {request.split_seed}), the other {n_rest:,} show what they keep"
        )
        if table.is_audit:
            source = f"{n:,} of {n + n_rest:,} answers choose the thresholds, the other {n_rest:,} show what they keep"
        if separate is not None:
            source = (
                f"All {n:,} questions of {separate} choose the thresholds, the {n_rest:,} of {cell.row.task} show what"
                " they keep"
            )
            remarks.append(
                f"The bounds hold for questions like those of {separate}; what they come to on {table.task} was only"
                " observed."
            )
        task = separate or cell.row.task
        used = [row for row in (*table.rows, *self.calibration_rows) if (row.model, row.task) == (cell.row.model, task)]
        # the binomial test allows neither for duplicates nor for answers without a verdict
        repeated = max((row.counts.get(f"{task}/test: {_REPEATED}", 0) for row in used), default=0)
        if repeated:
            remarks.append(
                f"Of the questions of {plain(task)}, {repeated:,} repeat an earlier one. Copies are right or wrong"
                " together but count as so many answers, so the level that is really kept is lower than it says."
            )
        undecided = max((row.n_undecided or 0 for row in used), default=0)
        if undecided:
            remarks.append(
                f"On {undecided:,} further answers the judge came to no verdict; nothing here holds for such answers."
            )
        if not all(self.texts.values()):
            remarks.append(
                f"Questions of {separate} and {table.task} were compared by their ids alone, since"
                " texts are not beside the results: one that stands in both under two ids would not have been noticed."
            )
        if cell.row.limit is not None:
            remarks.append(
                f"The results are partial (--limit {cell.row.limit}): their questions were chosen over all subjects"
                " alike, so the bounds hold for such a mixture."
            )
        return GuardedTable(request, table, tuple(lines), limits, source, separate or table.task, tuple(remarks))

    def _cell(self, row: ResultRow, other: ResultRow | None) -> GuardedCell:
        records = self.records(row)
        if other is None:
            share = self.request.share
            mask = held_out_mask(records.id, share=share, seed=self.request.split_seed)
            if mask.all() or not mask.any():
                option = "another --split-seed" if share == 0.5 else f"--share nearer to 0.5 than {share:g}"
                option = "leave out --risk" if row.is_audit else f"name {option}"
                raise UserError(
                    f"{plain(row.model)} on {plain(row.task)}: expected questions on both sides, got"
                    f" {int(mask.sum()):,} to choose thresholds by and {int((~mask).sum()):,} others; test more"
                    f" questions, or {option}"
                )
            calibration, rest = answers_of(records, mask), answers_of(records, ~mask)
        else:
            source = self.records(other)
            shared = set(records.id) & set(source.id)
            if not shared:
                texts, other_texts = self._texts(row), self._texts(other)
                row_texts = {texts[key].text for key in records.id if key in texts}
                shared = {key for key in source.id if key in other_texts and other_texts[key].text in row_texts}
            if shared:
                raise UserError(
                    f"--calibrate-on {plain(other.task)}: {len(shared):,} of its {len(source.id):,} questions are also"
                    f" of {plain(row.task)}, e.g. {plain(min(shared))}, so what they keep could not be shown on others;"
                    " leave the option out, and --share of the questions is set aside"
                )
            calibration, rest = answers_of(source), answers_of(records)
        # the grid consists of quantiles of the other answers' confidences; their labels are not used
        is_score, risk, level = records.probabilities is None, self.request.risk, self.request.level
        floor = None if is_score else 0.0
        thresholds = grid(rest.values, len(calibration.values), risk=risk, level=level, floor=floor)
        fitted = guard(thresholds, *calibration, risk=risk, level=level)
        return GuardedCell(row, self.request, fitted, calibration, rest, is_score)

    # --- another task -------------------------------------------------------------------------------------------------

    def _calibration_row(self, row: ResultRow) -> ResultRow | str | None:
        """Return the result whose labels choose the threshold for `row`: the same fit of a method, on a separate task.

        The request names the separate task. If it names none, None is returned: the questions of `row` are then
        divided. If the task has no result of this fit, or several, the reason is returned as text.

        Raises:
            UserError: the method has scores alone on one of the two tasks, and confidences on the other.
        """
        task = self.request.calibrate_on
        if task is None:
            return None
        cell = (row.model, row.method, row.seed)
        candidates = [c for c in self.calibration_rows if (c.model, c.method, c.seed) == cell]
        if not candidates:
            return f"has no result with seed {row.seed} on {task}, by which a threshold could be chosen"
        differing = [[name for name in _SAME if getattr(c, name) != getattr(row, name)] for c in candidates]
        matches, first = [c for c, names in zip(candidates, differing, strict=True) if not names], candidates[0]
        if len(matches) > 1:
            return f"has several results with seed {row.seed} on {task}"
        if not matches and first.train_on != row.train_on:
            return (
                f"it learned from {row.train_on or 'nothing'} here and from {first.train_on or 'nothing'} for {task}:"
                " two fits, and a threshold of one says nothing of the other; run both with one --train-on"
            )
        if not matches:
            return f"its result on {task} is of another fit: it differs in {differing[0][0].replace('_', ' ')}"
        (other,) = matches
        if row.is_order_alone != other.is_order_alone:
            raise UserError(
                f"{plain(row.method)}: it has scores alone on one of {plain(row.task)} and {plain(other.task)} and"
                " confidences on the other, so no threshold is the same on both; run it again with --train-on, by whose"
                " validation split scores are scaled"
            )
        return other

    def _texts(self, row: ResultRow) -> Mapping[str, question_texts.QuestionText]:
        key = row.task, row.task_version
        if key not in self.texts:
            self.texts[key] = question_texts.read(self.request.results, *key)
        return self.texts[key]
