"""Answers to `bench guard` from a folder of results: no model is run, and no label is used twice.

Labels of the calibration's questions choose the threshold; labels of the others are read for reporting alone. Neither
were seen by a fit, a choice of a step, a scale or a recalibration, since all of these read train and validation.
Example: `guarded(GuardRequest(Path("results"), risk=0.05), cache)[0].lines[0].seeds[0].threshold`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench import registry
from bench.api import UserError
from bench.api.errors import did_you_mean
from bench.report import recomputed, style
from bench.report.guard.model import Guarded, GuardedLine, GuardedTable, answers_of
from bench.report.selection import GuardRequest
from bench.report.tables import build
from bench.report.tables.caption import apart
from bench.report.tables.choice import chosen, chosen_rows
from bench.report.tables.model import Table
from bench.report.text import listed, plain
from bench.results import files, questions
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.stats.guard import feasible, grid, guard, set_aside

_SEEN = ("train", "validation", "dev")
"""Splits that a method, or the prompts, have seen."""
_REPEATED = "repeated questions"
"""Name of copies of a question in results (`bench.data.contamination.oddities`)."""
_SAME = ("preset", "config", "deviations", "protocol", "train_on", "labels_seen", "base_rate", "n_parameters", "limit")
"""Fields that two cells of one method have alike, where one fit is behind both."""


def guarded(
    request: GuardRequest, cache: Path | None, say: Callable[[str], None] = lambda _: None
) -> list[GuardedTable]:
    """The guards of the results that a request chooses, a table for each model and task.

    Args:
        request: which results, which risk.
        cache: folder where it is remembered which numbers were checked; None remembers nothing.
        say: told before long work, and of tables that are left out.

    Raises:
        UserError: numbers outside their range, nothing to guard, no questions on one of both sides, a task to calibrate
            on without results or with the same questions, or a result that is not as it must be.
    """
    for option, value, meaning in (
        ("--risk", request.risk, "a share of mistakes, e.g. 0.05"),
        ("--level", request.level, "a chance, e.g. 0.9"),
        ("--share", request.share, "a share of the questions, e.g. 0.5"),
    ):
        if not 0 < value < 1:  # also where it is NaN
            raise UserError(f"{option}: expected {meaning}, between 0 and 1 and neither of both, got {value:g}")
    rows = recomputed.rows_of(request.results, cache, partial=request.partial, say=say)
    task = request.calibrate_on
    tasks = {row.task for row in rows}
    if task is not None and task not in tasks:
        ending = next((split for split in _SEEN if task == split or task.endswith((f"/{split}", f":{split}"))), None)
        if ending is not None:
            raise UserError(
                f"--calibrate-on {plain(task)}: expected a task. Split {ending} can't choose a threshold: fits, early"
                " stopping, scaling and recalibration have seen it, so confidences are better there than elsewhere."
                " Leave the option out, and --share of the test is set aside; or name another task."
            )
        hint = did_you_mean(task, tasks)
        raise UserError(f"--calibrate-on: no result of task {plain(task)!r}; there are {listed(tasks)}.{hint}")
    others = [row for row in rows if row.task == task and row.status == "ok"]
    wanted = [row for row in chosen_rows(rows, request) if row.task != task]
    if task is not None and not wanted:
        raise UserError(f"--calibrate-on {task}: expected results of another task to guard, found none")
    found = build.build(
        wanted, preset=request.preset, deviations=request.deviations, partial=True, styles=style.read(request.results)
    )
    tables = chosen(build.marked(found, registry.built_in()[0].names()), replace(request, metrics=(), headline=None))
    ready = [table for table in tables if any(line.done for line in table.lines)]
    for table in tables:
        if ready and table not in ready:
            say(f"{table.model} on {table.task}: left out, as none of the chosen methods has a result there")
    made = [_Guarding(request, others).table(table) for table in ready or tables]
    asides = apart([each.table.rows[0] for each in made])
    return [replace(each, aside=aside) for each, aside in zip(made, asides, strict=True)]


class _Guarding:
    """Makes the guards of one table after the other."""

    def __init__(self, request: GuardRequest, others: Sequence[ResultRow]) -> None:
        self.request, self.task = request, request.calibrate_on
        self.others = others
        """Results of the task to calibrate on."""
        self.texts: dict[tuple[str, int], Mapping[str, questions.QuestionText]] = {}

    def table(self, table: Table) -> GuardedTable:
        """The guards of one table."""
        lines = []
        for line in table.lines:
            pairs = [(row, self._other(row)) for row in line.done]
            lacking = [reason for _, reason in pairs if isinstance(reason, str)]
            lacking = lacking if pairs else ["; ".join(line.reasons) or "was not run"]
            seeds = () if lacking else (self._cell(row, other) for row, other in pairs if not isinstance(other, str))
            lines.append(GuardedLine(line, tuple(seeds), lacking[0] if lacking else ""))
        lines.sort(key=lambda line: (not line.done, not line.seeds, -line.coverage))  # stable: then the table's order
        first = next((line.seeds[0] for line in lines if line.seeds), None)
        if first is None:
            reasons = "; ".join(f"{line.line.key.label}: {line.reason}" for line in lines[:3])
            raise UserError(
                f"{table.model} on {table.task}: no method has a result to guard ({reasons or 'none was run'})"
            )
        n, right = len(first.calibration.correct), int(first.calibration.correct.sum())
        possible = feasible(n, right, risk=self.request.risk, level=self.request.level)
        request, rest, remarks = self.request, len(first.rest.values), []
        source = (
            f"{n:,} of {n + rest:,} questions choose the thresholds (--share {request.share:g}, --split-seed"
            f" {request.split_seed}), the other {rest:,} show what they keep"
        )
        if self.task is not None:
            source = (
                f"All {n:,} questions of {self.task} choose the thresholds, the {rest:,} of {first.row.task} show what"
                " they keep"
            )
            remarks.append(
                f"The bounds hold for questions like those of {self.task}; what they come to on {table.task} was only"
                " observed."
            )
        task = self.task or first.row.task
        used = [row for row in (*table.rows, *self.others) if (row.model, row.task) == (first.row.model, task)]
        # no binomial count knows of copies, and of answers without a verdict
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
                f"Questions of {self.task} and {table.task} were compared by their ids alone, since"
                " texts are not beside the results: one that stands in both under two ids would not have been noticed."
            )
        if first.row.limit is not None:
            remarks.append(
                f"The results are partial (--limit {first.row.limit}): their questions were chosen over all subjects"
                " alike, so the bounds hold for such a mixture."
            )
        return GuardedTable(request, table, tuple(lines), possible, source, self.task or table.task, tuple(remarks))

    def _cell(self, row: ResultRow, other: ResultRow | None) -> Guarded:
        own = self._records(row)
        if other is None:
            share = self.request.share
            aside = set_aside(own.id, share=share, seed=self.request.split_seed)
            if aside.all() or not aside.any():
                way = "another --split-seed" if share == 0.5 else f"--share nearer to 0.5 than {share:g}"  # noqa: PLR2004
                raise UserError(
                    f"{plain(row.model)} on {plain(row.task)}: expected questions on both sides, got"
                    f" {int(aside.sum()):,} to choose thresholds by and {int((~aside).sum()):,} others; test more"
                    f" questions, or name {way}"
                )
            calibration, rest = answers_of(own, aside), answers_of(own, ~aside)
        else:
            there = self._records(other)
            shared = set(own.id) & set(there.id)
            if not shared:
                mine, theirs = self._texts(row), self._texts(other)
                texts = {mine[key].text for key in own.id if key in mine}
                shared = {key for key in there.id if key in theirs and theirs[key].text in texts}
            if shared:
                raise UserError(
                    f"--calibrate-on {plain(other.task)}: {len(shared):,} of its {len(there.id):,} questions are also"
                    f" of {plain(row.task)}, e.g. {plain(min(shared))}, so what they keep could not be shown on others;"
                    " leave the option out, and --share of the questions is set aside"
                )
            calibration, rest = answers_of(there), answers_of(own)
        # confidences of the other answers make the grid, and their labels decide nothing
        is_score, risk, level = own.probabilities is None, self.request.risk, self.request.level
        floor = None if is_score else 0.0
        thresholds = grid(rest.values, len(calibration.values), risk=risk, level=level, floor=floor)
        made = guard(thresholds, *calibration, risk=risk, level=level)
        return Guarded(row, self.request, made, calibration, rest, is_score)

    def _records(self, row: ResultRow) -> Records:
        return files.read_records(files.place_of(row, self.request.results))

    # --- another task -------------------------------------------------------------------------------------------------

    def _other(self, row: ResultRow) -> ResultRow | str | None:
        """The cell to calibrate on, or why there is none; None where the test itself is divided."""
        task = self.task
        if task is None:
            return None
        cell = (row.model, row.method, row.seed)
        seeds = [each for each in self.others if (each.model, each.method, each.seed) == cell]
        if not seeds:
            return f"has no result with seed {row.seed} on {task}, by which a threshold could be chosen"
        differing = [[name for name in _SAME if getattr(each, name) != getattr(row, name)] for each in seeds]
        same, there = [each for each, names in zip(seeds, differing, strict=True) if not names], seeds[0]
        if len(same) > 1:
            return f"has several results with seed {row.seed} on {task}"
        if not same and there.train_on != row.train_on:
            return (
                f"it learned from {row.train_on or 'nothing'} here and from {there.train_on or 'nothing'} for {task}:"
                " two fits, and a threshold of one says nothing of the other; run both with one --train-on"
            )
        if not same:
            return f"its result on {task} is of another fit: it differs in {differing[0][0].replace('_', ' ')}"
        (other,) = same
        if row.is_order_alone != other.is_order_alone:
            raise UserError(
                f"{plain(row.method)}: it has scores alone on one of {plain(row.task)} and {plain(other.task)} and"
                " confidences on the other, so no threshold is the same on both; run it again with --train-on, by whose"
                " validation split scores are scaled"
            )
        return other

    def _texts(self, row: ResultRow) -> Mapping[str, questions.QuestionText]:
        key = row.task, row.task_version
        if key not in self.texts:
            self.texts[key] = questions.read(self.request.results, *key)
        return self.texts[key]
