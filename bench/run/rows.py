"""Build the result rows of a run: each has metadata, metrics, costs and notes of a cell, or the reason of a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bench import metrics
from bench.api import FloatArray, Format, Signal, UntrainableError
from bench.api.errors import capture, reason_of
from bench.api.protocol import KeptStep, Protocol
from bench.data import contamination
from bench.data.answer_files import AnswerFile
from bench.data.splits import TaskSplit
from bench.grading.grade import Judge, substring_rule
from bench.metrics.recalibration import Recalibrator
from bench.metrics.scaling import Scale
from bench.model.cost import StageTokens, total
from bench.model.memory import peak_memory_mb
from bench.results import files, provenance
from bench.results.question_records import QuestionRecords
from bench.results.row import LabelsSeen, ResultRow, Status, answers_after_traces
from bench.run.config import RunConfig
from bench.run.costs import TokensAlone, compute_costs, signals_alone, tokens_alone
from bench.run.fitting import FEW
from bench.run.inputs import Inputs
from bench.run.predicting import Prediction, Skipped
from bench.run.resolve import ResolvedRun
from bench.run.tuning import tuning_account, tuning_notes
from bench.signals.definition import PassDefinition, continuation_specs_of, definition
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData, exemplar_notes, raise_if_failed
from bench.training.trainer import training_cost


@dataclass(frozen=True, eq=False)
class ScoredRow:
    """A result row with the per-question records and the confidences from which its metrics are computed."""

    row: ResultRow
    records: QuestionRecords | None = None
    """One record for each question that is counted; None if the cell has no metrics."""
    confidence: FloatArray | None = None
    """`(n,)`: confidence for each question of the test split, also for questions that are left out; None if the cell
    has no metrics."""
    scale: Scale | None = None
    """Map from scores to confidences; None if the method outputs confidences, or its scores could not be scaled."""
    recalibrator: Recalibrator | None = None
    """Map that recalibrated the confidences; None if they are not recalibrated."""


@dataclass
class RowBuilder:
    """Builds the result rows of a run."""

    config: RunConfig
    resolved: ResolvedRun
    reader: Reader
    origins: Mapping[TaskSplit, Mapping[str, str]]
    """Split -> source of its questions -> description of this source, e.g. its revision."""
    judge: Judge
    """Judge of open answers; its name may become complete only with its first verdict."""
    _costs: dict[object, dict[str, StageTokens]] = field(default_factory=dict)
    _token_counts: dict[object, TokensAlone] = field(default_factory=dict)
    """Splits with the signals read there -> token counts. Methods that read the same, or differ only in the layer of
    hidden states, share an entry."""

    def build_cell(self, name: str, inputs: Inputs, outcome: Prediction | Skipped | BaseException) -> ScoredRow:
        """Build the cell of a method with its metrics; if there are none, with the reason.

        Args:
            name: name of the method.
            inputs: splits and fitted method of the cell.
            outcome: the method's prediction, the reason why it was skipped, or the exception of a plugin.
        """
        row, seconds = self.row(name, inputs), dict(inputs.seconds)
        scored: ScoredRow | Skipped | BaseException
        if isinstance(outcome, Prediction):
            seconds["predict"] = outcome.seconds
            scored = capture(self._with_method_numbers, row, inputs, outcome)
        else:
            scored = outcome
        if isinstance(scored, Skipped):
            scored = ScoredRow(replace(row, status="skipped", reason=scored.reason))
        elif isinstance(scored, BaseException):
            scored = ScoredRow(replace(row, status=ended_as(scored), reason=reason_of(scored)))
        timings = {stage: round(value, 4) for stage, value in seconds.items()}
        peak = max(peak_memory_mb(*self.reader.lm.devices), self.reader.peak_memory_mb)
        return replace(scored, row=replace(scored.row, timings=timings, peak_memory_mb=peak))

    def _with_method_numbers(self, row: ResultRow, inputs: Inputs, result: Prediction) -> ScoredRow:
        """Complete a result row with the metrics of a prediction, the method's parameter count and its token counts."""
        facts = inputs.facts(self.reader.lm.facts)
        method = self.resolved.methods[row.method] if inputs.tuned is None else inputs.tuned.method
        n_parameters = int(method.n_parameters(facts))
        row = self.tokens_alone(row.method, inputs).fill_in(replace(row, n_parameters=n_parameters))
        if result.score is not None:
            row = replace(row, labels_seen=LabelsSeen(validation=result.scaled_by), notes=(*row.notes, result.note))
        oddities = {f"{inputs.predicted.where}, {row.method}: {what}": n for what, n in result.oddities.items()}
        row = replace(row, counts={**row.counts, **oddities})
        scored = self.with_numbers(row, inputs.predicted, result.confidence, result.score)
        return replace(scored, scale=result.scale)

    def cell(self, name: str, test: SplitData) -> ResultRow:
        """Build a row with only what identifies the cell and so names its file; known before anything is computed.

        Args:
            name: name of the method, with its recalibration if it has one.
            test: test split with its prompts.
        """
        base, protocol = files.base_of(name), self.resolved.protocol
        unusual: dict[str, object] = {}  # retokenised answers, no exemplars (docs/methods.md §0.15, §0.3)
        if any(isinstance(answer.text, str) for answer in test.released.values()):
            unusual["answer_ids"] = "retokenised"
        any_shown = any(exemplars for shard in test.shards for exemplars in shard.shown)
        if protocol.shots > 0 and "dev" in test.task.card.splits and not test.has_external_prompts and not any_shown:
            unusual["shots"] = 0
        config = {**self.resolved.config_of(base, test.where.task), **self.reader.nondefault_settings, **unusual}
        return ResultRow(
            method=name,
            model=self.reader.lm.label,
            task=test.where.task,
            preset=self.resolved.preset,
            seed=self.config.seed,
            config=config if name == base else config | self.resolved.labels_of(test.where.task),
            protocol=protocol.digest(),
            task_version=test.task.card.version,
            deviations={**self.resolved.deviations_of(base), **unusual},
            status="ok",
            limit=self.config.limit,
        )

    def row(self, name: str, inputs: Inputs) -> ResultRow:
        """Build the result row of a method without what its prediction gives.

        Metrics, parameter count, token counts of the method alone, timings and peak memory are filled in later.
        """
        test, protocol, release = inputs.predicted, self.resolved.protocol, self.resolved.release
        counted = np.flatnonzero(test.included)
        correct, is_choice = test.correct[counted], test.task.format is Format.CHOICE
        judge = None if is_choice else "release" if test.has_external_labels else self.judge.name
        if isinstance(release, AnswerFile) and release.judge is not None:
            judge = f"imported:{release.judge}"
        counts: dict[str, int] = {}  # "split: description" -> number of excluded or odd questions and answers
        revisions: dict[str, str | None] = {self.reader.lm.label: self.reader.lm.fingerprint}
        plugin = type(self.resolved.methods[files.base_of(name)])
        if plugin.__module__.partition(".")[0] != provenance.METHODS:
            digest = self.resolved.sources[files.base_of(name)]
            revisions[f"{provenance.PLUGIN}{plugin.name}"] = digest and f"sha256 {digest}"
        for split_data in inputs.splits:
            for origin, revision in self.origins[split_data.where].items():  # files of two tasks may share a name
                other = revisions.get(origin, revision) != revision
                revisions[f"{origin} ({split_data.where.task})" if other else origin] = revision
            prompted = [
                (split_data.questions[row], exemplars)
                for shard in split_data.shards
                for row, exemplars in zip(shard.rows, shard.shown, strict=True)
            ]
            # answers from a file; where they are text, this tokenizer may split them into other tokens
            texts = [answer.text for answer in split_data.released.values() if answer.prompt is None]
            short = f"questions with fewer than {protocol.shots} exemplars in their subject"
            odd_counts = {
                "questions among their own exemplars": contamination.count_in_own_prompt(prompted),
                "answers given as text, split into tokens anew": sum(isinstance(t, str) and bool(t) for t in texts),
                short: sum(shard.short for shard in split_data.shards),
            }
            if split_data is not inputs.predicted:  # those of a test are `n_empty`
                odd_counts["answers without text, left out"] = int((split_data.included & ~split_data.answered).sum())
            all_counts = {**split_data.task.counts, **contamination.count_duplicates(split_data.questions)}
            all_counts |= {**{what: n for what, n in odd_counts.items() if n}, **split_data.counts}
            counts |= {f"{split_data.where}: {what}": n for what, n in all_counts.items()}
        counts |= {f"{where}: {spec.bounds_are}": len(widths) for spec, where, widths in self._bounds(name, inputs)}
        for signal, split_data in self._read(name, inputs):
            odd = self.reader.sampled_counts(split_data, frozenset([signal]))
            counts |= {f"{split_data.where}: {what}": n for what, n in odd.items()}
        pairs = zip(test.questions, test.answers, strict=True) if is_choice else ()
        by_substring = [substring_rule(answer.text, protocol.letters[question.gold]) for question, answer in pairs]
        read = tuple(split_data.key for split_data in inputs.data_by_split)
        if read not in self._costs:  # counted once for all methods with the same splits
            self._costs[read] = compute_costs(inputs.data_by_split, self.reader)
        trained = [training_cost(adapter) for adapter in inputs.adapters]
        server = self.reader.nondefault_settings.get("answers")
        return replace(
            self.cell(name, test),
            dtype=self.reader.lm.dtype_name,
            train_on=None if inputs.learned is None else str(inputs.learned.where),
            judge=judge,
            answers_source=answers_after_traces(str(server), self.resolved.think_budget)
            if server
            else self.resolved.answers,
            labels_seen=inputs.fitted.labels if inputs.fitted else LabelsSeen(),
            base_rate=inputs.base_rate,
            training=inputs.fitted.training if inputs.fitted else None,
            tuning=tuning_account(self.resolved, name, inputs),
            n=len(correct),
            n_unparsed=sum(not test.answers[row].parsed for row in counted),
            n_empty=int((~test.answered[counted]).sum()),
            n_undecided=None if is_choice else test.n_undecided,
            counts=counts,
            n_shots_dropped=sum(shard.dropped for split_data in inputs.splits for shard in split_data.shards),
            llm_accuracy=float(correct.mean()) if len(counted) else None,
            chance_accuracy=(
                float(np.mean([1 / len(test.questions[row].choices) for row in counted]))
                if is_choice and len(counted)
                else None
            ),
            letter_rule_disagreement=float(np.mean(by_substring != test.correct)) if is_choice else None,
            cost={**self._costs[read], **({"adapter_training": total(trained)} if trained else {})},
            notes=tuple(self._notes(name, inputs)),
            provenance=provenance.collect(",".join(self.reader.lm.devices), revisions),
        )

    def with_numbers(
        self, row: ResultRow, test: SplitData, confidence: FloatArray, score: FloatArray | None = None
    ) -> ScoredRow:
        """Complete a result row with the metrics of a test.

        Args:
            row: the row.
            test: test split.
            confidence: `(n,)`, one for each question of the split.
            score: `(n,)`, one for each question; None if the method outputs confidences.
        """
        counted = np.flatnonzero(test.included)  # without excluded questions
        records = QuestionRecords(
            id=[test.questions[row].id for row in counted],
            subject=[test.questions[row].subject for row in counted],
            correct=test.correct[counted],
            confidence=confidence[counted],
            answer=[test.answers[row].text for row in counted],
            parsed=np.asarray([test.answers[row].parsed for row in counted], dtype=np.bool_),
            score=None if score is None else score[counted],
        )
        summary = metrics.summarise(
            records.probabilities, records.correct, records.subject, self.resolved.protocol, records.score
        )
        reads = self.resolved.methods[files.base_of(row.method)].reads().predict
        modal_share = next(
            (raise_if_failed(a).modal_share for signal, a in test.agreements.items() if signal in reads), None
        )
        row = replace(
            row, metrics=summary.metrics, n_excluded=summary.n_excluded, n_clipped=summary.n_clipped,
            per_subject=summary.per_subject, modal_share=modal_share,
        )  # fmt: skip
        return ScoredRow(row, records, confidence)

    def _notes(self, name: str, inputs: Inputs) -> list[str]:
        """Return notes for readers of a cell: on chat template, signals, forward passes and training."""
        notes = [definition(signal).note(split_data) for signal, split_data in self._read(name, inputs)]
        notes += [
            f"{spec.bounds_are} on {where} ({len(widths):,}): {spec.bounds_leave} {np.mean(widths):.2g} on average, and"
            f" {max(widths):.2g} at most"
            for spec, where, widths in self._bounds(name, inputs)
        ]
        signal_notes = dict.fromkeys(filter(None, notes))
        tested, learned = inputs.predicted.where.task, inputs.learned and inputs.learned.where.task
        overlap = (
            [f"it learned on {learned}, whose source overlaps with that of {tested}"]
            if inputs.learned and inputs.learned.task.card.overlaps_with(inputs.predicted.task.card)
            else []
        )
        served = self.reader.served_answers
        engines = [] if served is None else filter(None, [served.notes.get(inputs.predicted.where)])
        return [*engines, *self.reader.lm.notes, *signal_notes, *overlap, *_notes(inputs, self.resolved.protocol)]

    def _read(self, name: str, inputs: Inputs) -> list[tuple[Signal, SplitData]]:
        """Return the signals that a method reads, each with a split where it reads it."""
        reads = self.resolved.methods[files.base_of(name)].reads()
        read = [(signal, inputs.predicted) for signal in reads.predict]
        read += [(signal, inputs.learned) for signal in reads.fit if inputs.learned is not None]
        return sorted(read, key=lambda pair: repr(pair[0]))

    def _bounds(self, name: str, inputs: Inputs) -> Iterator[tuple[PassDefinition[Any], TaskSplit, list[float]]]:
        """Yield the stored signals that have bounds instead of values, with the widths that these leave open."""
        for signal, split_data in self._read(name, inputs):
            limit = self.reader.prompts.max_new_tokens(split_data.task)
            for source in definition(signal).sources(split_data.task.format, limit):
                if widths := [width for _, _, width in split_data.bounds(source.signal)]:
                    yield source, split_data.where, widths

    def tokens_alone(self, name: str, inputs: Inputs, *others: SplitData | None) -> TokensAlone:
        """Count the tokens that a method needs when it is the only method of a run.

        Args:
            name: name of the method.
            inputs: splits and fitted method of the cell.
            *others: splits besides the test split that the method predicts; None is ignored.
        """
        reads = self.resolved.methods[name].reads()
        splits = [split_data for split_data in (inputs.predicted, inputs.adapted, *others) if split_data is not None]
        read = [(split_data, reads.predict) for split_data in splits if split_data.adapter is None]
        if inputs.learned is not None:
            read.append((inputs.learned, reads.fit))
        if inputs.selection is not None:
            read.append((inputs.selection, reads.predict))
        adapted = [split_data for split_data in splits if split_data.adapter is not None]
        alone = self._count(read, adapted)
        tested = [split_data for split_data in (inputs.adapted,) if split_data is not None]
        test = self._count([(inputs.predicted, reads.predict)], tested)
        training = sum(training_cost(adapter).forward_tokens for adapter in inputs.adapters)
        return TokensAlone(alone.forward + training, alone.generated, test.forward, test.generated)

    def _count(self, read: list[tuple[SplitData, frozenset[Signal]]], adapted: list[SplitData]) -> TokensAlone:
        frozen = frozenset(
            (
                split_data.key,
                continuation_specs_of(signals_alone(split_data, signals, self.reader)),
                tuple(self.reader.sampled_traces(signals) if split_data.generated else ()),
            )
            for split_data, signals in read
        )
        key = frozen, tuple(split_data.key for split_data in adapted)
        if key not in self._token_counts:
            self._token_counts[key] = tokens_alone(read, adapted, self.reader)
        return self._token_counts[key]


def ended_as(error: BaseException) -> Status:
    """Return the status of a cell without numbers: skipped if there was nothing to learn from, failed otherwise."""
    return "skipped" if isinstance(error, UntrainableError) else "failed"


def _notes(inputs: Inputs, protocol: Protocol) -> list[str]:
    """Return notes for readers of a cell: on its forward passes, and on the training of its method."""
    manifests = [
        entry.manifest for split_data in inputs.data_by_split for shard in split_data.bundles for entry in shard
    ]
    halvings = sum(int(manifest["halvings"]) for manifest in manifests)
    notes = [f"{halvings} forward passes did not fit into memory and were halved"] if halvings else []
    if not all(manifest["packed"] for manifest in manifests):
        reasons = sorted({str(manifest["hindrance"]) for manifest in manifests if manifest.get("hindrance")})
        why = f" ({'; '.join(reasons)})" if reasons else ""
        notes.append(f"this model can't share a cache between questions{why}: each was read alone")
    early_stopping = protocol.kept_step is KeptStep.VALIDATION
    if early_stopping and inputs.fitted and inputs.fitted.training.stages and inputs.selection is None:
        notes.append("no validation answers chose the step of its training: the last one was kept")
    tuned = inputs.fitted.tuned if inputs.fitted else None
    if inputs.selection is not None and inputs.fitted and (tuned or inputs.fitted.training.stages):
        correct = inputs.selection.correct[inputs.selection.usable]
        if len(correct) < FEW or correct.all() or not correct.any():
            what = "its constants were" if tuned else "its step was"
            notes.append(f"{what} chosen by {len(correct)} validation answers, {int(correct.sum())} of them right")
    notes += tuning_notes(tuned) if tuned else ()
    return [*notes, *exemplar_notes(inputs.splits, protocol.shots), *inputs.complaints]
