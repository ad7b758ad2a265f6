"""`bench analyze METHOD ANALYSIS`: what a method says of itself on what its runs have read; the model is not run.

An analysis belongs to its method, which declares it. Answers and signals are those of the store; where some are missing
the `bench run` that makes them is named. Training, validation and seeds are those of a run.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from bench.backbone.models import model_label
from bench.data.splits import TaskSplit
from bench.progress import Progress
from bench.run.analyses.request import AnalysisRequest, command_of
from bench.run.fitting import Fitter, derived_seed
from bench.run.inputs import Inputs, StepResults
from bench.run.pipeline import at_work
from bench.run.plan import Read
from bench.run.predicting import confidence_in_no_answer
from bench.run.preparation import Resources, infeasible_in, prepare
from bench.run.resolve import ResolvedRun
from bench.signals.batches import Batches
from bench.stats.measured import Measured, checked_measures
from bench.stats.settings import Settings
from bench.stats.variants import Variants, rows_of

Analysis = Callable[[AnalysisInput], Findings | Measures]


# --- which there are --------------------------------------------------------------------------------------------------


def analyses_of(method: str, classes: Sequence[type[ConfidenceMethod]] = ()) -> Mapping[str, Analysis]:
    """Analyses of a method by name.

    Raises:
        UserError: there is no such method, or it has none.
        ContractError: one of them can't be imported.
    """
    plugin = _with_analyses(method, classes)
    return {name: _imported(plugin, name) for name in plugin.analyses}


def sentence_of(analysis: Analysis) -> str:
    """First line of its docstring."""
    return (analysis.__doc__ or "").strip().partition("\n")[0]


def chosen(method: str, name: str, classes: Sequence[type[ConfidenceMethod]] = ()) -> Analysis:
    """One analysis; no other is imported.

    Raises:
        UserError, ContractError: as `analyses_of`, or the method has no such analysis.
    """
    plugin = _with_analyses(method, classes)
    if name not in plugin.analyses:
        known = tuple(plugin.analyses)
        raise UserError(f"{method} has no analysis {name!r}.{did_you_mean(name, known)} It has: {', '.join(known)}")
    return _imported(plugin, name)


def _with_analyses(method: str, classes: Sequence[type[ConfidenceMethod]]) -> type[ConfidenceMethod]:
    known = registry.methods(made=classes)
    plugin = known.get(method)
    if not plugin.analyses:
        others = [name for name in known.names() if known.get(name).analyses]
        raise UserError(f"{method} has no analyses; methods that have some: {', '.join(others) or 'none'}")
    return plugin


def _imported(plugin: type[ConfidenceMethod], name: str) -> Analysis:
    place = plugin.analyses[name]
    module, _, function = place.rpartition(":")
    try:
        home = importlib.import_module(module) if module else sys.modules[plugin.__module__]
        found: Analysis = getattr(home, function)
    except (ImportError, AttributeError, KeyError) as error:
        raise ContractError(
            f"method {plugin.name!r}: analysis {name!r} can't be imported from {place!r}: {error}"
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
    analysis, seeds = chosen(method, name, classes), request.numbers()
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
        lacking = [str(r.where) for r in reads if reader.find(prepared.readings[r.where], r.signals)]
        if lacking:
            raise UserError(
                f"The cache {resolved.cache} lacks what {method} reads of {', '.join(lacking)}, and an analysis"
                f" runs no model. Run this first: {command_of(request.config(method, None))}"
            )
        made = StepResults(resolved, prepared.selecting, prepared.readings)
        for step in reads:
            made.readings[step.where] = resources.grader.grade(reader.read(made.readings[step.where], step.signals))
        if reader.forward_tokens:
            raise ContractError(f"an analysis fed {reader.forward_tokens} tokens to the model; it must feed none")
        reached = _Reached(resolved, resources, made, request, method)
        return [reached.analysed(test, name, analysis, seeds, progress) for test in resolved.test_splits]


@dataclass(frozen=True)
class _Reached:
    """Answers and signals that the store has of a run."""

    resolved: ResolvedRun
    resources: Resources
    made: StepResults
    request: AnalysisRequest
    method: str

    def analysed(
        self, test: TaskSplit, name: str, analysis: Analysis, seeds: Sequence[int], progress: Progress
    ) -> Variants | Measured:
        """Numbers of one task."""
        inputs = self.made.inputs(self.method, test)
        given = self._given(inputs, seeds, progress)
        found: Any = analysis(given)
        if isinstance(found, Findings):
            return self._variants(test, name, found, inputs, given)
        who = f"{self.method}, analysis {name!r}"
        if not isinstance(found, Measures):
            raise ContractError(f"{who}: expected Findings or Measures, got {type(found).__name__}")
        return Measured(
            self.method, name, model_label(self.request.model), test.task, self.resolved.preset, tuple(seeds),
            len(given.test), checked_measures(who, found),
        )  # fmt: skip

    def _variants(
        self, test: TaskSplit, name: str, findings: Findings, inputs: Inputs, given: AnalysisInput
    ) -> Variants:
        seeds = tuple(given.contexts)
        confidence = dict(self._whole(findings, inputs, len(seeds), len(given.test)))
        kept = np.flatnonzero(inputs.predicted.kept)
        correct = inputs.predicted.correct[kept]
        subjects = [inputs.predicted.questions[row].subject for row in kept]
        # the published numbers that stand beside these are means over subjects
        settings = Settings(average="subjects") if findings.published else Settings()
        rows, steps, refused = rows_of(
            confidence, findings.reference, correct, subjects, findings.metrics, settings, path=findings.path
        )
        return Variants(
            self.method, name, model_label(self.request.model), test.task, self.resolved.preset, findings.question,
            findings.reference, seeds, len(kept), tuple(findings.metrics), rows, dict(findings.sizes),
            findings.published, (*findings.notes, *refused), accuracy=float(correct.mean()), steps=steps,
            average=settings.average,
        )  # fmt: skip

    def _given(self, inputs: Inputs, seeds: Sequence[int], progress: Progress) -> AnalysisInput:
        method = self.resolved.fresh(self.method)
        reads, reader, batches = method.reads(), self.resources.reader, Batches(self.resources.reader)
        learned = inputs.learned
        if learned is None:
            raise UserError(f"{self.method} learns nothing here, so there is nothing to train again")
        train = batches.batch(learned, reads.fit, labels=True)
        refuse_one_class(method, labels_of(train), learned.where.split)
        held = None
        if inputs.selection is not None:
            held = batches.batch(inputs.selection, validation_signals(reads), labels=True)
        contexts = {}
        for seed in seeds:
            fitter = Fitter(self.resolved, reader.backbone, reader.store, batches, progress, seed)
            own = derived_seed(seed, self.method, reader.backbone.files.weights, str(learned.where))
            contexts[seed] = fitter.context(self.method, learned, held, own)
        test = batches.batch(inputs.predicted, reads.predict, labels=False)
        return AnalysisInput(method, train, test, contexts, progress.say, partial(_pieces, reader.backbone.chat.pieces))

    def _whole(self, findings: Findings, inputs: Inputs, seeds: int, n: int) -> Iterator[tuple[str, FloatArray]]:
        """Variants with their confidences `(seeds, questions)`, also in questions without an answer."""
        if findings.reference not in findings.confidence or len(findings.confidence) < 2:  # noqa: PLR2004
            raise ContractError(f"{self.method}: an analysis gave no variant beside a reference {findings.reference!r}")
        on_path = [step.variant for step in findings.path]
        is_whole = findings.confidence.keys() >= set(on_path) and len(on_path) != 1
        if on_path and not (is_whole and on_path[-1] == findings.reference):
            raise ContractError(
                f"{self.method}: expected a path from a variant to the reference {findings.reference!r}, got"
                f" {' -> '.join(on_path)}"
            )
        if len(set(on_path)) < len(on_path):
            raise ContractError(f"{self.method}: expected each variant once on a path, got {' -> '.join(on_path)}")
        reading = inputs.predicted
        nothing = confidence_in_no_answer(inputs, self.resolved.protocol.empty_rule)
        for name, given in findings.confidence.items():
            values: Any = np.asarray(given)
            if values.shape != (seeds, n):
                raise ContractError(f"{self.method}, variant {name!r}: expected shape {(seeds, n)}, got {values.shape}")
            whole = np.full((seeds, len(reading.questions)), nothing)
            whole[:, reading.usable] = [checked(f"{self.method}, variant {name!r}", row, n) for row in values]
            yield name, whole[:, reading.kept]


def _pieces(of_ids: Callable[[Sequence[int]], Sequence[str]], batch: Batch) -> list[Sequence[str]]:
    """Text of each answer token."""
    ids = batch[TokenIds(Of.ANSWER)]
    return [of_ids(ids[row].tolist()) for row in range(len(ids))]
