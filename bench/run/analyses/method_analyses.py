"""`bench analyze METHOD ANALYSIS`: run an analysis that a method declares, on stored signals, without the model.

If the store lacks answers or signals, the error message names the `bench run` command that computes them. Training
data, validation data and the seeds of fits are those of a run with the same options.
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
from bench.api.confidence import check_confidences
from bench.api.errors import did_you_mean
from bench.api.methods import refuse_one_class, validation_signals
from bench.api.protocol import EmptyRule
from bench.data.splits import TaskSplit
from bench.model.specs import model_label
from bench.progress import Progress
from bench.run.analyses.request import AnalysisRequest, format_command
from bench.run.fitting import Fitter, derived_seed
from bench.run.inputs import Inputs, StepResults
from bench.run.pipeline import OpenRun, open_run
from bench.run.plan import Read
from bench.run.predicting import confidence_in_all
from bench.run.preparation import find_infeasible, prepare
from bench.signals.batch_builder import BatchBuilder
from bench.stats.analysis_measures import AnalysisMeasures, validate_measures
from bench.stats.settings import Settings
from bench.stats.variants import Variants, compare_variants

Analysis = Callable[[AnalysisInput], Findings | Measures]


# --- finding an analysis ----------------------------------------------------------------------------------------------


def load_analyses(
    method: str, name: str | None = None, classes: Sequence[type[ConfidenceMethod]] = ()
) -> Mapping[str, Analysis]:
    """Import the analyses that a method declares, or only the one called `name`; return name -> function.

    Raises:
        UserError: the method is unknown, has no analyses, or has none called `name`.
        ContractError: an analysis can't be imported.
    """
    known = registry.methods(made=classes)
    plugin = known.get(method)
    names = tuple(plugin.analyses)
    if not names:
        others = [other for other in known.names() if known.get(other).analyses]
        raise UserError(f"{method} has no analyses; methods that have some: {', '.join(others) or 'none'}")
    if name is not None and name not in names:
        raise UserError(f"{method} has no analysis {name!r}.{did_you_mean(name, names)} It has: {', '.join(names)}")
    analyses: dict[str, Analysis] = {}
    for analysis in names if name is None else (name,):
        path = plugin.analyses[analysis]
        module, _, function = path.rpartition(":")
        try:
            target_module = importlib.import_module(module) if module else sys.modules[plugin.__module__]
            analyses[analysis] = getattr(target_module, function)
        except (ImportError, AttributeError, KeyError) as error:
            raise ContractError(
                f"method {plugin.name!r}: analysis {analysis!r} can't be imported from {path!r}: {error}"
            ) from error
    return analyses


# --- running an analysis ----------------------------------------------------------------------------------------------


def run_analysis(
    method: str,
    name: str,
    request: AnalysisRequest,
    progress: Progress,
    *,
    cache: Path | None = None,
    classes: Sequence[type[ConfidenceMethod]] = (),
) -> list[Variants | AnalysisMeasures]:
    """Run one analysis of a method on the test split of each task, and return a result for each task.

    Args:
        method: name of the method.
        name: name of the analysis.
        request: options of the command: model, tasks, seeds and so on.
        progress: shows stages and messages.
        cache: folder of the store; None: the user's default folder.
        classes: method classes passed from Python, e.g. of a notebook.

    Raises:
        UserError: the request is invalid, the method can't run on a task or learns nothing there, its training answers
            are all right or all wrong, or the store lacks a signal; the model was not run.
        ContractError: the analysis can't be imported, or returns an invalid result.
    """
    analysis = load_analyses(method, name, classes)[name]
    request.seed_values()  # a bad request is refused before a model is loaded
    if not request.model:
        raise UserError(f"--model: expected the model of the run, e.g. bench analyze {method} {name} --model tiny")
    config = request.config(method, cache)
    with open_run(config, progress, classes) as work:
        resolved, resources = work.resolved, work.resources
        reader, reasons = resources.reader, find_infeasible(resolved, resources)
        if reasons:
            raise UserError(f"{method} can't run there: {next(iter(reasons.values()))}")
        prepared = prepare(resolved, resources, reasons, None)
        reads = [step for step in prepared.steps if isinstance(step, Read)]
        missing_splits = [str(r.where) for r in reads if reader.find(prepared.data_by_split[r.where], r.signals)]
        if missing_splits:
            raise UserError(
                f"The cache {resolved.cache} lacks what {method} reads of {', '.join(missing_splits)}, and an analysis"
                f" runs no model. Run this first: {format_command(request.config(method, None))}"
            )
        results = StepResults(resolved, prepared.selecting, prepared.data_by_split)
        for step in reads:
            results.data_by_split[step.where] = resources.grader.grade(
                reader.read(results.data_by_split[step.where], step.signals)
            )
        if reader.forward_tokens:
            raise ContractError(f"an analysis fed {reader.forward_tokens} tokens to the model; it must feed none")
        return [
            _analyse_test(work, results, method, name, analysis, request, progress, test)
            for test in resolved.test_splits
        ]


def _analyse_test(
    work: OpenRun,
    results: StepResults,
    method: str,
    name: str,
    analysis: Analysis,
    request: AnalysisRequest,
    progress: Progress,
    test: TaskSplit,
) -> Variants | AnalysisMeasures:
    """Run an analysis on one test split, from stored answers and signals."""
    resolved, reader = work.resolved, work.resources.reader
    inputs, model = results.inputs(method, test), model_label(request.model)
    untrained, batches, learned = resolved.new_method(method), BatchBuilder(reader), inputs.learned
    reads = untrained.reads()
    if learned is None:
        raise UserError(f"{method} learns nothing here, so there is nothing to train again")
    train = batches.batch(learned, reads.fit, labels=True)
    refuse_one_class(untrained, labels_of(train), learned.where.split)
    validation = None
    if inputs.selection is not None:
        validation = batches.batch(inputs.selection, validation_signals(reads), labels=True)
    contexts = {}
    for seed in request.seed_values():
        fitter = Fitter(resolved, reader.lm, reader.store, batches, progress, seed)
        fit_seed = derived_seed(seed, method, reader.lm.files.weights, str(learned.where))
        contexts[seed] = fitter.context(method, learned, validation, fit_seed)
    predicted = batches.batch(inputs.predicted, reads.predict, labels=False)
    decode_tokens = reader.lm.chat.pieces

    def pieces(batch: Batch) -> list[Sequence[str]]:  # texts of each answer's tokens
        ids = batch[TokenIds(Of.ANSWER)]
        return [decode_tokens(ids[row].tolist()) for row in range(len(ids))]

    output: Any = analysis(AnalysisInput(untrained, train, predicted, contexts, progress.say, pieces))
    seeds = tuple(contexts)
    if isinstance(output, Measures):
        measures = validate_measures(f"{method}, analysis {name!r}", output)
        return AnalysisMeasures(method, name, model, test.task, resolved.preset, seeds, len(predicted), measures)
    if not isinstance(output, Findings):
        type_name = type(output).__name__
        raise ContractError(f"{method}, analysis {name!r}: expected Findings or Measures, got {type_name}")
    rule = resolved.protocol.empty_rule
    confidence = dict(_variant_confidences(method, output, inputs, rule, (len(seeds), len(predicted))))
    selected = np.flatnonzero(inputs.predicted.included)
    correct = inputs.predicted.correct[selected]
    subjects = [inputs.predicted.questions[row].subject for row in selected]
    # published metrics, which are shown beside the computed ones, are means over subjects
    settings = Settings(average="subjects") if output.published else Settings()
    rows, steps, refused = compare_variants(
        confidence, output.reference, correct, subjects, output.metrics, settings, path=output.path
    )
    return Variants(
        method, name, model, test.task, resolved.preset, output.question, output.reference, seeds, len(selected),
        tuple(output.metrics), rows, dict(output.sizes), output.published, (*output.notes, *refused),
        accuracy=float(correct.mean()), steps=steps, average=settings.average,
    )  # fmt: skip


def _variant_confidences(
    method: str, findings: Findings, inputs: Inputs, rule: EmptyRule, shape: tuple[int, int]
) -> Iterator[tuple[str, FloatArray]]:
    """Check the findings of an analysis; yield each variant's name and confidences, `(seeds, questions)`.

    A variant is a changed version of the method, such as one without a certain feature. One variant is the reference. A
    path is a sequence of variants that ends with the reference.

    Args:
        method: name of the method, for error messages.
        findings: what the analysis returned.
        inputs: what the analysis is tested on.
        rule: rule for the confidence in an answer without text.
        shape: expected shape of each variant in `findings`: number of seeds, number of answers with text.

    Raises:
        ContractError: a variant has another shape or invalid confidences, the reference or any other variant is
            missing, or the path is invalid.
    """
    if findings.reference not in findings.confidence or len(findings.confidence) < 2:
        raise ContractError(f"{method}: an analysis gave no variant beside a reference {findings.reference!r}")
    path = [step.variant for step in findings.path]
    is_complete = findings.confidence.keys() >= set(path) and len(path) != 1
    if path and not (is_complete and path[-1] == findings.reference):
        raise ContractError(
            f"{method}: expected a path from a variant to the reference {findings.reference!r}, got {' -> '.join(path)}"
        )
    if len(set(path)) < len(path):
        raise ContractError(f"{method}: expected each variant once on a path, got {' -> '.join(path)}")
    for name, variant_values in findings.confidence.items():
        values: Any = np.asarray(variant_values)
        if values.shape != shape:
            raise ContractError(f"{method}, variant {name!r}: expected shape {shape}, got {values.shape}")
        checked = np.stack([check_confidences(f"{method}, variant {name!r}", row, shape[1]) for row in values])
        yield name, confidence_in_all(checked, inputs, rule)[:, inputs.predicted.included]
