"""`bench check --results DIR --rerun CELL`: run a committed cell again with its settings, and compare the results.

The files of a result don't show whether its confidences were forged; a rerun does. Two kinds of tolerance are used:

- If the method is built in and neither learns nor samples, its confidences are not recalibrated, and the rerun is on
  the same kind of machine, each confidence may differ by EXACT.
- Otherwise, each of the paper's metrics may differ by its range over results of other seeds in the folder. This
  tolerance is at least LEAST and at most MOST. With fewer than two other seeds it is _MACHINES, the difference that
  trained probes show between machines.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.api import FloatArray, UserError
from bench.data.answer_files import SERVER, SOURCE
from bench.model.specs import DIGITS, SERVED, label_of, resolve
from bench.progress import Progress
from bench.results import cells, files
from bench.results.files import RECALIBRATED
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow
from bench.results.submissions import ONLY_A_RUN, SubmissionVerdict
from bench.results.submissions.cell import BuiltIns, SubmittedCell, is_stochastic
from bench.results.submissions.recomputation import recompute_row
from bench.results.transfer import LEAVE_OUT
from bench.run.config import RunConfig
from bench.run.pipeline import run

EXACT = 1e-4
"""Largest tolerated difference of a confidence on a machine of the same kind."""
_MACHINES = 0.02
"""Largest tolerated difference of a metric, if the results of too few other seeds are there to derive a tolerance."""
LEAST = 0.01
"""Smallest tolerance of a metric, even if the range over other seeds is narrower."""
_COMPARED = ("ece", "brier", "acc", "aucpr", "auroc")
"""The paper's metrics that are compared. RMSCE is omitted, since it changes twice as much as the confidences."""
MOST = 0.05
"""Largest tolerance of a metric, even if the range over other seeds is wider: their results may be forged, too."""
_HUB_COMMIT = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")
"""Pattern of a tokenizer of the Hub in a result: its id and commit."""
OTHERS = 2
"""Smallest number of other seeds from whose results a tolerance is derived."""


@dataclass(frozen=True)
class Rerun:
    """Outcome of running a cell again."""

    file: str
    """Path of the cell's JSON file, relative to the folder of results."""
    reproduced: bool
    reason: str
    """Reason why the cell counts as reproduced, or as not reproduced."""
    notes: tuple[str, ...] = ()
    """Notes for a maintainer on the differences between the result and its rerun."""


def rerun(
    cell: Path,
    folder: Path,
    data_dir: Path | None = None,
    progress: Progress | None = None,
    *,
    model: str | None = None,
    tokenizer: str | None = None,
) -> Rerun:
    """Run a cell again with its settings, in a temporary folder, and compare the results.

    Args:
        cell: JSON file of the cell; its path is absolute, or relative to the working folder or to `folder`.
        folder: folder of results.
        data_dir: folder of the questions, as `--data-dir` of `bench run`.
        progress: reports how far the run is.
        model: GGUF file or folder of the cell's model, whose result does not say where it is.
        tokenizer: folder or Hub id of the cell's `--tokenizer`; a Hub id with its commit is in the result.

    Raises:
        UserError: there is no such cell, it has no metrics, its settings can't be run here, or model or tokenizer are
            not those of the cell.
    """
    for file in (cell, folder / cell):
        if file.is_file() and file.suffix == ".json" and file.absolute().is_relative_to(folder.absolute()):
            name = str(file.absolute().relative_to(folder.absolute()))
            break
    else:
        raise UserError(
            f"--rerun {cell}: expected a JSON file below {folder}, for example tiny/atlas-choice/ccps--demo--s0.json"
        )
    before = _read_cell(folder / name)
    if "judge_url" in before.row.config:
        raise UserError(f"--rerun {cell}: its answers were judged by a server that it names itself; run it by hand")
    if before.row.answers_source.startswith((SOURCE, SERVER)):
        raise UserError(f"--rerun {cell}: its answers are {before.row.answers_source}; run it by hand with --answers")
    if SERVED in before.row.model:
        raise UserError(f"--rerun {cell}: its model was behind a server; run it by hand with --model URL")
    if LEAVE_OUT in before.row.config:
        raise UserError(f"--rerun {cell}: its method learned without each subject; run bench analyze transfer again")
    located = _locate_model(before.row, model, tokenizer)
    with tempfile.TemporaryDirectory() as out:
        report = run(replace(_config(before.row, Path(out), data_dir), **located), progress)
        by_method = {row.method: path for path, row in zip(report.paths, report.rows, strict=True)}
        path = by_method.get(before.row.method, report.paths[0])  # a method that failed has no recalibrated version
        row = files.read(path)
        if row.status != "ok":
            return Rerun(name, reproduced=False, reason=f"the run {row.status}: {row.reason}")
        after = _read_cell(path)
    allowed, why = _tolerances(before, after, folder)
    reproduced, reason = _verdict(before, after, allowed, why)
    return Rerun(name, reproduced, reason, tuple(_notes(before, after)))


def final_verdicts(verdicts: Sequence[SubmissionVerdict], outcome: Rerun) -> list[SubmissionVerdict]:
    """Return the verdicts on result files, with the verdict on the rerun file updated.

    If the file was reproduced, the problems that only a rerun can settle are removed; else the failed rerun is added as
    a problem.
    """
    updated = []
    for verdict in verdicts:
        problems = verdict.problems
        if verdict.file == outcome.file and outcome.reproduced:
            problems = tuple(text for text in problems if not text.endswith(ONLY_A_RUN))
        elif verdict.file == outcome.file:
            problems = (*problems, f"it does not come out again: {outcome.reason}")
        updated.append(replace(verdict, problems=problems))
    return updated


def _read_cell(path: Path) -> SubmittedCell:
    """Read a cell and its per-question records; compute its metrics anew from the records."""
    row = files.read(path)
    if row.status != "ok":
        raise UserError(f"result {path} is {row.status}; expected one with numbers")
    records = files.read_records(path)
    return SubmittedCell(path, recompute_row(row, records), records.by_id())


def _locate_model(row: ResultRow, model: str | None, tokenizer: str | None) -> dict[str, Any]:
    """Return model and tokenizer with which a cell is run again, as the command line takes them.

    Raises:
        UserError: the result does not say where they are, and they are not named; or they are not those of the cell.
    """
    from bench.model.gguf import GGUFFile
    from bench.model.language_model import LanguageModel, LoadOptions

    recorded = str(row.config.get("tokenizer", ""))
    if tokenizer is None and _HUB_COMMIT.fullmatch(recorded):
        tokenizer = recorded
    if recorded and tokenizer is None:
        raise UserError(
            f"--rerun: the result was made with a tokenizer of its own ({recorded[:12]}…), and does not say where it"
            " is; name its folder: --tokenizer FOLDER."
        )
    try:
        spec = resolve(model or row.model)
    except UserError:
        if model is not None:
            raise
        raise UserError(
            f"--rerun: the result's model was a file or folder, {row.model!r}; say where it is: --model FILE or FOLDER."
        ) from None
    if model is None and tokenizer is None:
        return {}
    files = LanguageModel(spec, LoadOptions(device="cpu", tokenizer=tokenizer)).files
    revisions: Any = row.provenance.get("revisions")
    fingerprint = revisions.get(row.model) if isinstance(revisions, Mapping) else None
    is_file = isinstance(files, GGUFFile)  # its name says its digest
    same = label_of(spec)[-DIGITS:] == row.model[-DIGITS:] if is_file else files.fingerprint == fingerprint
    if not same:
        found = f"SHA-256 {files.weights[:DIGITS]}…" if is_file else f"fingerprint {files.fingerprint[:12]}…"
        raise UserError(
            f"--model {spec.source}: expected the model of the result, {row.model!r}, got another ({found})."
        )
    if files.given_tokenizer != recorded:
        raise UserError(
            f"--tokenizer {tokenizer}: expected that of the result ({recorded[:60] or 'the one in its file'}), got"
            f" another ({files.given_tokenizer[:60]})."
        )
    return {"model": spec.source if spec.local and model else row.model, "tokenizer": tokenizer}


def _config(row: ResultRow, out: Path, data_dir: Path | None) -> RunConfig:
    """Return the configuration of a run that computes a cell again: with the method and settings in the cell's row."""
    method, _, kind = row.method.partition(RECALIBRATED)
    text_options = ("judge", "train_on", "judge_model", "judge_url", "nli", "similarity", "train_limit")
    options: dict[str, Any] = {name: str(row.config[name]) for name in text_options if row.config.get(name) is not None}
    options |= {} if row.dtype is None else {"dtype": row.dtype}
    number_options = ("tune", "token_budget", "training_budget", "think_budget")
    options |= {name: row.config[name] for name in number_options if isinstance(row.config.get(name), int)}
    return RunConfig(
        methods=(method,), model=row.model, tasks=(row.task,), preset=row.preset, seed=row.seed, limit=row.limit,
        recalibrate=(kind,) if kind else (),
        overrides=tuple(f"{key}={value}" for key, value in row.deviations.items() if "." in key),
        answers=str(row.config.get("answers", RunConfig.answers)), data_dir=data_dir, out=out, **options,
    )  # fmt: skip


# --- comparing --------------------------------------------------------------------------------------------------------


def _tolerances(before: SubmittedCell, after: SubmittedCell, folder: Path) -> tuple[Mapping[str, float] | None, str]:
    """Return metric -> tolerance, and the reason in words. None replaces the mapping if every confidence must agree."""
    method = BuiltIns(*registry.built_in()).method(before.row.method)
    plain = method is not None and not method.trains() and not is_stochastic(method) and not before.recalibration
    if plain and _machine(before.row) == _machine(after.row):
        return None, "its method neither learns nor draws"
    others = []  # rows of cells that differ from this one in their seed alone
    for path in filter(cells.is_result_file, sorted(before.path.parent.glob("*.json"))):
        row = files.read(path)
        same = files.path_of(replace(row, seed=before.row.seed), folder) == before.path
        if path != before.path and row.status == "ok" and same:
            others.append(_read_cell(path).row)
    if len(others) < OTHERS:
        return dict.fromkeys(_COMPARED, _MACHINES), "as much as another machine may change"
    spread = {name: float(np.ptp([_metric_mean(row, name) or 0.0 for row in others])) for name in _COMPARED}
    return (
        {name: min(MOST, max(LEAST, value)) for name, value in spread.items()},
        f"the spread of {len(others)} other seeds, at most {_percent(MOST)}",
    )


def _verdict(
    before: SubmittedCell, after: SubmittedCell, allowed: Mapping[str, float] | None, why: str
) -> tuple[bool, str]:
    if before.records.id != after.records.id:
        return False, f"its {before.row.n} questions are not the {after.row.n} of the run"
    largest = float(_differences(before.records, after.records).max())
    relabelled = int((before.records.correct != after.records.correct).sum())
    if largest <= EXACT and not relabelled:
        return True, f"the largest difference of a confidence is {largest:.1e} ({EXACT:.0e} allowed)"
    if allowed is None and relabelled:
        return False, f"{relabelled} of its answers have another label in the run"
    if allowed is None:
        return False, f"a confidence differs by {largest:.1e} ({EXACT:.0e} allowed: {why})"
    for name in _COMPARED:
        reported, new = _metric_mean(before.row, name), _metric_mean(after.row, name)
        agree = reported == new if reported is None or new is None else abs(reported - new) <= allowed[name]
        if not agree:
            change = f"{name} was {_percent(reported)} and is {_percent(new)}"
            return False, f"{change} ({_percent(allowed[name])} allowed: {why})"
    return True, f"the metrics differ by no more than is allowed ({why})"


def _percent(value: float | None) -> str:
    return "undefined" if value is None else f"{100 * value:.2f} %"


def _notes(before: SubmittedCell, after: SubmittedCell) -> Iterator[str]:
    """Yield notes for a maintainer on the differences between a result and its rerun."""
    if before.records.id == after.records.id:
        one, other = before.records.confidence, after.records.confidence
        difference = _differences(before.records, after.records)
        vary = bool(np.ptp(one) > 0 and np.ptp(other) > 0)  # false for NaN
        related = f", correlation {np.corrcoef(one, other)[0, 1]:.4f}" if vary else ""
        yield f"confidences: largest difference {difference.max():.1e}, mean {difference.mean():.1e}{related}"
        pairs = zip(before.answered.values(), after.answered.values(), strict=True)
        same = sum(answer == again for answer, again in pairs)
        yield f"answers: {same} of {before.row.n} are the same"
    for name in _COMPARED:
        reported, new = _metric_mean(before.row, name), _metric_mean(after.row, name)
        yield f"{name}: {_percent(reported)}, run again {_percent(new)}"
    if _machine(before.row) != _machine(after.row):
        yield f"it was made on {_machine(before.row)}; this is {_machine(after.row)}"


def _metric_mean(row: ResultRow, name: str) -> float | None:
    """Return a metric's value over all questions; None if it is undefined, or needs a scale that the scores lack."""
    return row.metrics[name].of("questions") if name in row.metrics else None


def _differences(one: QuestionRecords, other: QuestionRecords) -> FloatArray:
    """Return the absolute differences `(n,)` between the confidences of two runs of a cell.

    If neither run mapped its scores to probabilities, scores are compared, divided by the largest absolute score of the
    first run. If only one of the runs mapped its scores, the differences are infinite.
    """
    p, q = one.probabilities, other.probabilities
    if p is not None and q is not None:
        return np.abs(p - q)
    if p is not None or q is not None:
        return np.full(len(one.id), np.inf)
    largest = np.max(np.abs(one.ranking_values), where=np.isfinite(one.ranking_values), initial=0.0) or 1.0
    return np.where(
        one.ranking_values == other.ranking_values,
        0.0,
        np.abs(one.ranking_values / largest - other.ranking_values / largest),
    )


def _machine(row: ResultRow) -> str:
    """Describe the machine of a result: accelerator (or processor if there is none) and torch version, as recorded."""
    parts = {}
    for name in ("hardware", "packages"):
        section = row.provenance.get(name)
        parts[name] = section if isinstance(section, Mapping) else {}
    hardware = parts["hardware"]
    return f"{hardware.get('accelerator') or hardware.get('cpu')} with torch {parts['packages'].get('torch')}"
