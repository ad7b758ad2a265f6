"""One committed cell run again with its own settings, and whether the numbers come out again.

A forged confidence can't be told from an honest one by looking at files. What is allowed:

- a method that neither learns nor draws, on a machine like the one of the result: every confidence to EXACT;
- any other: each of the paper's metrics by as much as it differs between the method's other seeds in the folder, at
  least LEAST; where there are not two others, by _MACHINES, since other machines move trained probes by that much.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.api import FloatArray, UserError
from bench.data.answer_files import SOURCE
from bench.progress import Progress
from bench.results import cells, files
from bench.results.files import RECALIBRATED
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.results.submissions import ONLY_A_RUN, SubmissionVerdict
from bench.results.submissions.cell import Known, SubmittedCell, draws
from bench.results.submissions.numbers import with_numbers_of
from bench.results.transfer import LEAVE_OUT
from bench.run.config import RunConfig
from bench.run.pipeline import run

EXACT = 1e-4
"""Largest difference of a confidence that one machine may make."""
_MACHINES = 0.02
"""Largest difference of a metric that another machine may make with a trained method."""
LEAST = 0.01
"""Difference of a metric that is allowed also where other seeds happen to be closer together."""
_COMPARED = ("ece", "brier", "acc", "aucpr", "auroc")
"""The paper's metrics, over all questions; RMSCE moves by a point where confidences do by half of one."""
MOST = 0.05
"""Largest allowed difference of a metric, however far apart other seeds are: they may be forged as well."""
OTHERS = 2
"""Other seeds, at least, from which on their spread is the measure."""


@dataclass(frozen=True)
class Rerun:
    """Outcome of running a cell again."""

    file: str
    """The cell's path below the folder of results."""
    reproduced: bool
    reason: str
    """The verdict in a sentence."""
    notes: tuple[str, ...] = ()
    """Notes on what was compared."""


def rerun(cell: Path, folder: Path, data_dir: Path | None = None, progress: Progress | None = None) -> Rerun:
    """Run a cell again with its own settings, in a temporary folder, and compare.

    Args:
        cell: its JSON file, as it is or below `folder`.
        folder: of results.
        data_dir: as for `bench run`.
        progress: told how far the run is.

    Raises:
        UserError: there is no such cell, it has no numbers, or its settings can't be run here.
    """
    for place in (cell, folder / cell):
        if place.is_file() and place.suffix == ".json" and place.absolute().is_relative_to(folder.absolute()):
            name = str(place.absolute().relative_to(folder.absolute()))
            break
    else:
        raise UserError(
            f"--rerun {cell}: expected a JSON file below {folder}, for example tiny/atlas-choice/ccps--demo--s0.json"
        )
    before = _cell(folder / name)
    if "judge_url" in before.row.config:
        raise UserError(f"--rerun {cell}: its answers were judged by a server that it names itself; run it by hand")
    if before.row.answers_source.startswith(SOURCE):
        raise UserError(f"--rerun {cell}: its answers are {before.row.answers_source}; run it by hand with the file")
    if LEAVE_OUT in before.row.config:
        raise UserError(f"--rerun {cell}: its method learned without each subject; run bench analyze transfer again")
    with tempfile.TemporaryDirectory() as out:
        report = run(_config(before.row, Path(out), data_dir), progress)
        made = {row.method: path for path, row in zip(report.paths, report.rows, strict=True)}
        written = made.get(before.row.method, report.paths[0])  # a method that failed has no recalibrated version
        row = files.read(written)
        if row.status != "ok":
            return Rerun(name, reproduced=False, reason=f"the run {row.status}: {row.reason}")
        after = _cell(written)
    allowed, why = _allowed(before, after, folder)
    reproduced, reason = _verdict(before, after, allowed, why)
    return Rerun(name, reproduced, reason, tuple(_notes(before, after)))


def settled(verdicts: Sequence[SubmissionVerdict], again: Rerun) -> list[SubmissionVerdict]:
    """The verdicts with what a run of one cell has shown."""
    found = []
    for verdict in verdicts:
        problems = verdict.problems
        if verdict.file == again.file and again.reproduced:
            problems = tuple(text for text in problems if not text.endswith(ONLY_A_RUN))
        elif verdict.file == again.file:
            problems = (*problems, f"it does not come out again: {again.reason}")
        found.append(replace(verdict, problems=problems))
    return found


def _cell(path: Path) -> SubmittedCell:
    """Cell with the numbers of its records."""
    row = files.read(path)
    if row.status != "ok":
        raise UserError(f"result {path} is {row.status}; expected one with numbers")
    records = files.read_records(path)
    return SubmittedCell(path, with_numbers_of(row, records), records.by_id())


def _config(row: ResultRow, out: Path, data_dir: Path | None) -> RunConfig:
    """The run that a row says it comes from, with this method alone."""
    method, _, kind = row.method.partition(RECALIBRATED)
    texts = ("judge", "train_on", "judge_model", "judge_url", "nli", "similarity", "dtype")
    given: dict[str, Any] = {name: str(row.config[name]) for name in texts if row.config.get(name) is not None}
    numbers = ("tune", "token_budget", "training_budget")
    given |= {name: row.config[name] for name in numbers if isinstance(row.config.get(name), int)}
    return RunConfig(
        methods=(method,), model=row.model, tasks=(row.task,), preset=row.preset, seed=row.seed, limit=row.limit,
        scale_training=bool(row.config.get("scale_training")), recalibrate=(kind,) if kind else (),
        overrides=tuple(f"{key}={value}" for key, value in row.deviations.items() if "." in key),
        answers=row.answers_source, data_dir=data_dir, out=out, **given,
    )  # fmt: skip


# --- comparing --------------------------------------------------------------------------------------------------------


def _allowed(before: SubmittedCell, after: SubmittedCell, folder: Path) -> tuple[Mapping[str, float] | None, str]:
    """Most by which each metric may differ, None where each confidence must agree; and why."""
    method = Known(*registry.built_in()).method(before.row.method)
    plain = method is not None and not method.trains() and not draws(method) and not before.recalibration
    if plain and _machine(before.row) == _machine(after.row):
        return None, "its method neither learns nor draws"
    others = []  # that differ in their seed alone
    for path in filter(cells.is_own, sorted(before.path.parent.glob("*.json"))):
        row = files.read(path)
        same = files.path_of(replace(row, seed=before.row.seed), folder) == before.path
        if path != before.path and row.status == "ok" and same:
            others.append(_cell(path).row)
    if len(others) < OTHERS:
        return dict.fromkeys(_COMPARED, _MACHINES), "as much as another machine may change"
    spread = {name: float(np.ptp([_mean(row, name) or 0.0 for row in others])) for name in _COMPARED}
    return (
        {name: min(MOST, max(LEAST, value)) for name, value in spread.items()},
        f"the spread of {len(others)} other seeds, at most {_percent(MOST)}",
    )


def _verdict(
    before: SubmittedCell, after: SubmittedCell, allowed: Mapping[str, float] | None, why: str
) -> tuple[bool, str]:
    if before.records.id != after.records.id:
        return False, f"its {before.row.n} questions are not the {after.row.n} of the run"
    largest = float(_apart(before.records, after.records).max())
    relabelled = int((before.records.correct != after.records.correct).sum())
    if largest <= EXACT and not relabelled:
        return True, f"the largest difference of a confidence is {largest:.1e} ({EXACT:.0e} allowed)"
    if allowed is None and relabelled:
        return False, f"{relabelled} of its answers have another label in the run"
    if allowed is None:
        return False, f"a confidence differs by {largest:.1e} ({EXACT:.0e} allowed: {why})"
    for name in _COMPARED:
        reported, found = _mean(before.row, name), _mean(after.row, name)
        agree = reported == found if reported is None or found is None else abs(reported - found) <= allowed[name]
        if not agree:
            told = f"{name} was {_percent(reported)} and is {_percent(found)}"
            return False, f"{told} ({_percent(allowed[name])} allowed: {why})"
    return True, f"the metrics differ by no more than is allowed ({why})"


def _percent(value: float | None) -> str:
    return "undefined" if value is None else f"{100 * value:.2f} %"


def _notes(before: SubmittedCell, after: SubmittedCell) -> Iterator[str]:
    """Notes that a maintainer wants to see beside the verdict."""
    if before.records.id == after.records.id:
        apart, one, other = _apart(before.records, after.records), before.records.confidence, after.records.confidence
        vary = bool(np.ptp(one) > 0 and np.ptp(other) > 0)  # neither of NaN
        related = f", correlation {np.corrcoef(one, other)[0, 1]:.4f}" if vary else ""
        yield f"confidences: largest difference {apart.max():.1e}, mean {apart.mean():.1e}{related}"
        pairs = zip(before.answered.values(), after.answered.values(), strict=True)
        same = sum(answer == again for answer, again in pairs)
        yield f"answers: {same} of {before.row.n} are the same"
    for name in _COMPARED:
        reported, found = _mean(before.row, name), _mean(after.row, name)
        yield f"{name}: {_percent(reported)}, run again {_percent(found)}"
    if _machine(before.row) != _machine(after.row):
        yield f"it was made on {_machine(before.row)}; this is {_machine(after.row)}"


def _mean(row: ResultRow, name: str) -> float | None:
    """A metric's mean; None where it is undefined, or where there are scores that nothing could scale."""
    return row.metrics[name].of("questions") if name in row.metrics else None


def _apart(one: Records, other: Records) -> FloatArray:
    """Differences (n,) of confidences; where nothing could scale them those of scores, in shares of the largest one.

    Infinite where scores were scaled in one of the two only.
    """
    p, q = one.probabilities, other.probabilities
    if p is not None and q is not None:
        return np.abs(p - q)
    if p is not None or q is not None:
        return np.full(len(one.id), np.inf)
    largest = np.max(np.abs(one.order), where=np.isfinite(one.order), initial=0.0) or 1.0
    return np.where(one.order == other.order, 0.0, np.abs(one.order / largest - other.order / largest))


def _machine(row: ResultRow) -> str:
    """Processor, accelerator and torch, as far as the result tells."""
    parts = {}
    for name in ("hardware", "packages"):
        told = row.provenance.get(name)
        parts[name] = told if isinstance(told, Mapping) else {}
    hardware = parts["hardware"]
    return f"{hardware.get('accelerator') or hardware.get('cpu')} with torch {parts['packages'].get('torch')}"
