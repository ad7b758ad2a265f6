"""`bench analyze METHOD ANALYSIS`: what a method says of itself on what its runs have read; the model is not run.

An analysis belongs to its method, which declares it. Answers and signals are those of the store; where some are missing
the `bench run` that makes them is named. Training, validation and seeds are those of a run.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.api import (
    AnalysisInput,
    Batch,
    ConfidenceMethod,
    ContractError,
    Findings,
    FloatArray,
    Measures,
    Of,
    TokenIds,
    UserError,
)
from bench.api.batch import labels_of
from bench.api.confidence import checked
from bench.api.errors import did_you_mean
from bench.api.methods import refuse_one_class, validation_signals
from bench.data.splits import TaskSplit
from bench.model.specs import model_label
from bench.progress import Progress
from bench.run.analyses.request import AnalysisRequest, command_of
from bench.run.fitting import Fitter, derived_seed
from bench.run.inputs import StepResults
from bench.run.pipeline import Work, at_work
from bench.run.plan import Read
from bench.run.predicting import confidence_in_no_answer
from bench.run.preparation import infeasible_in, prepare
from bench.signals.batches import Batches
from bench.signals.split_data import SplitData
from bench.stats.measured import Measured, checked_measures
from bench.stats.settings import Settings
from bench.stats.variants import Variants, rows_of

Analysis = Callable[[AnalysisInput], Findings | Measures]


# --- which there are --------------------------------------------------------------------------------------------------


def analyses_of(
    method: str, name: str | None = None, classes: Sequence[type[ConfidenceMethod]] = ()
) -> Mapping[str, Analysis]:
    """Analyses of a method by name: all of them, or the one of this name, and no other is imported.

    Raises:
        UserError: there is no such method, or it has none, or none of this name.
        ContractError: one of them can't be imported.
    """
    known = registry.methods(made=classes)
    plugin = known.get(method)
    names = tuple(plugin.analyses)
    if not names:
        others = [other for other in known.names() if known.get(other).analyses]
        raise UserError(f"{method} has no analyses; methods that have some: {', '.join(others) or 'none'}")
    if name is not None and name not in names:
        raise UserError(f"{method} has no analysis {name!r}.{did_you_mean(name, names)} It has: {', '.join(names)}")
    found: dict[str, Analysis] = {}
    for each in names if name is None else (name,):
        place = plugin.analyses[each]
        module, _, function = place.rpartition(":")
        try:
            home = importlib.import_module(module) if module else sys.modules[plugin.__module__]
            found[each] = getattr(home, function)
        except (ImportError, AttributeError, KeyError) as error:
            raise ContractError(
                f"method {plugin.name!r}: analysis {each!r} can't be imported from {place!r}: {error}"
            ) from error
    return found


# --- carrying one out -------------------------------------------------------------------------------------------------


def analysed(
    method: str,
    name: str,
    request: AnalysisRequest,
    progress: Progress,
    *,
    cache: Path | None = None,
    classes: Sequence[type[ConfidenceMethod]] = (),
) -> list[Variants | Measured]:
    """Carry out an analysis on each task.

    Args:
        method: its name.
        name: of the analysis.
        request: what it is done on.
        progress: told how far it is.
        cache: folder of the store; by default the user's.
        classes: methods of no file.

    Raises:
        UserError: something is not as it must be, e.g. the store lacks a signal; no model was run.
        ContractError: the method's analysis gives neither confidences nor measures as they must be.
    """
    analysis = analyses_of(method, name, classes)[name]
    request.numbers()  # a bad request is refused before a model is loaded
    if not request.model:
        raise UserError(f"--model: expected the model of the run, e.g. bench analyze {method} {name} --model tiny")
    config = request.config(method, cache)
    with at_work(config, progress, classes) as work:
        resolved, resources = work.resolved, work.resources
        reader, reasons = resources.reader, infeasible_in(resolved, resources)
        if reasons:
            raise UserError(f"{method} can't run there: {next(iter(reasons.values()))}")
        prepared = prepare(resolved, resources, reasons, None)
        reads = [step for step in prepared.steps if isinstance(step, Read)]
        lacking = [str(r.where) for r in reads if reader.find(prepared.data_by_split[r.where], r.signals)]
        if lacking:
            raise UserError(
                f"The cache {resolved.cache} lacks what {method} reads of {', '.join(lacking)}, and an analysis"
                f" runs no model. Run this first: {command_of(request.config(method, None))}"
            )
        made = StepResults(resolved, prepared.selecting, prepared.data_by_split)
        for step in reads:
            made.data_by_split[step.where] = resources.grader.grade(
                reader.read(made.data_by_split[step.where], step.signals)
            )
        if reader.forward_tokens:
            raise ContractError(f"an analysis fed {reader.forward_tokens} tokens to the model; it must feed none")
        return [_on_test(work, made, method, name, analysis, request, progress, test) for test in resolved.test_splits]


def _on_test(
    work: Work,
    made: StepResults,
    method: str,
    name: str,
    analysis: Analysis,
    request: AnalysisRequest,
    progress: Progress,
    test: TaskSplit,
) -> Variants | Measured:
    """Numbers of one task, from answers and signals that the store has."""
    resolved, reader = work.resolved, work.resources.reader
    inputs, model = made.inputs(method, test), model_label(request.model)
    fresh, batches, learned = resolved.fresh(method), Batches(reader), inputs.learned
    reads = fresh.reads()
    if learned is None:
        raise UserError(f"{method} learns nothing here, so there is nothing to train again")
    train = batches.batch(learned, reads.fit, labels=True)
    refuse_one_class(fresh, labels_of(train), learned.where.split)
    held = None
    if inputs.selection is not None:
        held = batches.batch(inputs.selection, validation_signals(reads), labels=True)
    contexts = {}
    for seed in request.numbers():
        fitter = Fitter(resolved, reader.lm, reader.store, batches, progress, seed)
        own = derived_seed(seed, method, reader.lm.files.weights, str(learned.where))
        contexts[seed] = fitter.context(method, learned, held, own)
    answered = batches.batch(inputs.predicted, reads.predict, labels=False)
    of_ids = reader.lm.chat.pieces

    def pieces(batch: Batch) -> list[Sequence[str]]:  # text of each answer token
        ids = batch[TokenIds(Of.ANSWER)]
        return [of_ids(ids[row].tolist()) for row in range(len(ids))]

    found: Any = analysis(AnalysisInput(fresh, train, answered, contexts, progress.say, pieces))
    seeds = tuple(contexts)
    if isinstance(found, Measures):
        measures = checked_measures(f"{method}, analysis {name!r}", found)
        return Measured(method, name, model, test.task, resolved.preset, seeds, len(answered), measures)
    if not isinstance(found, Findings):
        told = type(found).__name__
        raise ContractError(f"{method}, analysis {name!r}: expected Findings or Measures, got {told}")
    nothing = confidence_in_no_answer(inputs, resolved.protocol.empty_rule)
    confidence = dict(_whole(method, found, inputs.predicted, nothing, (len(seeds), len(answered))))
    kept = np.flatnonzero(inputs.predicted.kept)
    correct = inputs.predicted.correct[kept]
    subjects = [inputs.predicted.questions[row].subject for row in kept]
    # the published numbers that stand beside these are means over subjects
    settings = Settings(average="subjects") if found.published else Settings()
    rows, steps, refused = rows_of(
        confidence, found.reference, correct, subjects, found.metrics, settings, path=found.path
    )
    return Variants(
        method, name, model, test.task, resolved.preset, found.question, found.reference, seeds, len(kept),
        tuple(found.metrics), rows, dict(found.sizes), found.published, (*found.notes, *refused),
        accuracy=float(correct.mean()), steps=steps, average=settings.average,
    )  # fmt: skip


def _whole(
    method: str, findings: Findings, split_data: SplitData, nothing: float, shape: tuple[int, int]
) -> Iterator[tuple[str, FloatArray]]:
    """Variants with their confidences `(seeds, questions)`, also in questions without an answer, which get `nothing`.

    `shape`: seeds, and answers with text.
    """
    if findings.reference not in findings.confidence or len(findings.confidence) < 2:  # noqa: PLR2004
        raise ContractError(f"{method}: an analysis gave no variant beside a reference {findings.reference!r}")
    on_path = [step.variant for step in findings.path]
    is_whole = findings.confidence.keys() >= set(on_path) and len(on_path) != 1
    if on_path and not (is_whole and on_path[-1] == findings.reference):
        raise ContractError(
            f"{method}: expected a path from a variant to the reference {findings.reference!r}, got"
            f" {' -> '.join(on_path)}"
        )
    if len(set(on_path)) < len(on_path):
        raise ContractError(f"{method}: expected each variant once on a path, got {' -> '.join(on_path)}")
    for name, given in findings.confidence.items():
        values: Any = np.asarray(given)
        if values.shape != shape:
            raise ContractError(f"{method}, variant {name!r}: expected shape {shape}, got {values.shape}")
        whole = np.full((shape[0], len(split_data.questions)), nothing)
        whole[:, split_data.usable] = [checked(f"{method}, variant {name!r}", row, shape[1]) for row in values]
        yield name, whole[:, split_data.kept]
