"""Writes a head for each cell of a run that has numbers, or says why there is none."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import registry
from bench.api import ConfidenceMethod, FloatArray, Format, Task, UserError
from bench.api.errors import attempted, reason_of
from bench.data.splits import TaskSplit
from bench.results import files, provenance
from bench.results.row import ResultRow
from bench.run.config import RunConfig
from bench.run.heads import kept
from bench.run.heads.asked import AskedWords, words_of, write_words
from bench.run.heads.card import (
    BackboneCard,
    Card,
    LearnedCard,
    Measured,
    MethodCard,
    OutputCard,
    ProtocolCard,
    TestCard,
    is_head,
    write_card,
)
from bench.run.heads.identity import card_of, code_digest
from bench.run.heads.learned import Output, plain_constants, write_method, write_output
from bench.run.inputs import Inputs
from bench.run.predicting import confidence_in_no_answer
from bench.run.resolve import ResolvedRun
from bench.run.rows import ScoredRow
from bench.signals.reader import Reader
from bench.signals.reading import Reading
from bench.store.files import write_whole_folder

if TYPE_CHECKING:
    from bench.stats import MethodSummary

_JUDGING = ("judge", "judge_model", "judge_url", "nli", "similarity")
"""Options that decide whether samples agree, or how they are related."""


@dataclass(frozen=True, eq=False)
class _OfTest:
    """What all heads of a test share."""

    words: AskedWords
    again: Reading
    """The questions that are kept."""
    rows: Any
    """`(m,)` their rows in the test."""
    states: Mapping[str, FloatArray]


@dataclass
class HeadWriter:
    """Writes the heads of a run."""

    folder: Path | None
    """None: none are kept."""
    config: RunConfig
    resolved: ResolvedRun
    reader: Reader
    tasks: Mapping[str, Task]
    paths: list[Path] = field(default_factory=list)
    """Heads that were written."""
    notes: list[str] = field(default_factory=list)
    """Cells with numbers of which there is no head, and why."""
    _tests: dict[TaskSplit, _OfTest | BaseException] = field(default_factory=dict)
    _backbone: BackboneCard | None = None

    def plan(self) -> list[str]:
        """The plan in words: where heads go, and which methods have none."""
        if self.folder is None:
            return []
        lacking = {name: reason for name, method in self.resolved.methods.items() if (reason := _unkept(method))}
        line = f"heads: one for each cell that ends ok, below {self.folder}"
        return [line, *(f"no head of {name}: {reason}" for name, reason in lacking.items())]

    def save(self, row: ResultRow, scored: ScoredRow, inputs: Inputs) -> None:
        """Write the head of a cell; where that can't be, a note says why.

        Args:
            row: the cell as it was written.
            scored: the same with its confidences.
            inputs: what they rest on.
        """
        if self.folder is None or row.status != "ok":
            return
        path = files.path_of(row, self.folder).with_suffix("")
        made = attempted(self._save, path, row, scored, inputs)
        if isinstance(made, BaseException):
            why = f"can't be written ({made.strerror or made})" if isinstance(made, OSError) else reason_of(made)
            self.notes.append(f"no head of {row.method} on {row.task}: {why}")
        else:
            self.paths.append(path)

    def _save(self, path: Path, row: ResultRow, scored: ScoredRow, inputs: Inputs) -> None:
        method = self.resolved.methods[files.base_of(row.method)]
        reason = _unkept(method)
        if reason is None and row.is_order_alone:
            reason = "nothing could make its scores probabilities, as its notes say"
        if reason is not None:
            raise UserError(reason)
        if path.exists() and not is_head(path):
            raise UserError(f"{path} is there already and is no head; it is not overwritten. Name another --save-heads")
        output = Output(
            confidence_in_no_answer(inputs, self.resolved.protocol.empty_rule), scored.scale, scored.recalibrator
        )
        shared = self._of_test(inputs.predicted)
        write_whole_folder(path, lambda folder: self._fill(folder, path, row, scored, inputs, output, shared))

    def _fill(
        self, folder: Path, path: Path, row: ResultRow, scored: ScoredRow, inputs: Inputs, output: Output,
        shared: _OfTest,
    ) -> None:  # fmt: skip
        """Write all files of a head into an empty folder."""
        has_adapter = inputs.fitted is not None and write_method(inputs.fitted.method, folder)
        write_output(output, folder)
        write_words(shared.words, folder)
        if scored.confidence is None:
            raise ValueError("a cell that is ok has confidences")
        held = kept.of(shared.again, scored.confidence[shared.rows], shared.states)
        kept.write(held, folder)
        assert self.folder is not None  # noqa: S101  # for the type checker
        name = path.relative_to(self.folder).as_posix()
        write_card(self._card(name, row, scored, inputs, output, has_adapter, len(held.questions)), folder)

    def _of_test(self, test: Reading) -> _OfTest:
        if test.where not in self._tests:
            self._tests[test.where] = attempted(self._shared, test)
        found = self._tests[test.where]
        if isinstance(found, BaseException):
            raise found
        return found

    def _shared(self, test: Reading) -> _OfTest:
        if test.asked_elsewhere:
            raise UserError("its answers came with prompts of their own, which no other question can be asked with")
        if not test.usable.any():
            raise UserError("the test has no answer with text, by which it could be checked later")
        words = words_of(test.task, test.questions, self.resolved.protocol)
        again, rows = kept.chosen(test, self.reader)
        return _OfTest(words, again, rows, kept.all_states(again, self.reader))

    # --- the card -----------------------------------------------------------------------------------------------------

    def _card(
        self, name: str, row: ResultRow, scored: ScoredRow, inputs: Inputs, output: Output, has_adapter: bool, n: int
    ) -> Card:
        base = files.base_of(row.method)
        method, resolved, learned = self.resolved.methods[base], self.resolved, inputs.learned
        plugin = type(method)
        entries = {entry.name: entry.origin for entry in registry.methods(self.config.plugins).entries()}
        origin = entries.get(base, registry.BUILT_IN)
        if self._backbone is None:
            self._backbone = card_of(self.reader.backbone, self.config.model)
        task = inputs.predicted.task
        lettered = task.format is Format.CHOICE
        widest = max((len(q.choices) for q in inputs.predicted.questions), default=0) if lettered else 0
        protocol = {k: v.value if isinstance(v, enum.Enum) else v for k, v in asdict(resolved.protocol).items()}
        return Card(
            name=name,
            backbone=self._backbone,
            method=MethodCard(
                name=base,
                recalibration=files.recalibration_of(row.method) or None,
                plugin=Path(origin).name if origin in map(str, self.config.plugins) else origin,
                version=metadata.version(provenance.DISTRIBUTION),
                code=code_digest(plugin),
                preset=row.preset,
                constants=plain_constants(method),
                signals=tuple(sorted(map(repr, method.reads().predict))),
                trains=inputs.fitted is not None,
                adapter=has_adapter,
                parameters=row.n_parameters,
            ),
            asked=ProtocolCard(
                task=row.task,
                task_version=row.task_version,
                format="choice" if lettered else "open",
                letters=resolved.protocol.letters[:widest],
                protocol=protocol,
                digest=row.protocol,
                prompt_tokens=task.prompt_tokens,
                answers=row.answers_source,
                seed=row.seed,
                judge={option: getattr(self.config, option) for option in _JUDGING},
            ),
            learned=LearnedCard(
                train_on=row.train_on,
                task_version=None if learned is None else self.tasks[learned.where.task].card.version,
                rows=inputs.n_learned,
                labels=row.labels_seen,
                base_rate=row.base_rate,
            ),
            test=TestCard(
                n=row.n or 0, limit=row.limit, accuracy=row.llm_accuracy, metrics=_measured(row, scored),
                records=row.records_digest,
            ),
            output=OutputCard(
                empty=float(output.empty),
                scale=() if output.scale is None else (float(output.scale.slope), float(output.scale.level)),
                labelled=0 if output.scale is None else len(output.scale.labelled),
                parameters={} if output.recalibrator is None else dict(output.recalibrator.parameters),
            ),
            kept=n,
            provenance={name: row.provenance[name] for name in ("code", "packages", "hardware") if name in row.provenance},
        )  # fmt: skip


def _unkept(method: ConfidenceMethod) -> str | None:
    """Why a method can have no head; None where it can."""
    try:
        plain_constants(method)
    except UserError as error:
        return str(error)
    return None


def _measured(row: ResultRow, scored: ScoredRow) -> dict[str, Measured]:
    """The metrics of a cell with their intervals."""
    from bench.stats import Interval, summary

    records = scored.records
    if records is None:
        raise ValueError("a cell that is ok has records")
    score = {} if records.score is None else {row.method: records.score}
    found: MethodSummary = summary(
        {row.method: records.confidence}, records.correct, records.subject, score=score
    ).methods[row.method]
    measured = {}
    for name, metric in row.metrics.items():
        estimate = found.estimates.get(name)
        interval = None if estimate is None else estimate.fixed
        known = isinstance(interval, Interval) and np.isfinite([interval.low, interval.high]).all()
        low, high = (interval.low, interval.high) if known and isinstance(interval, Interval) else (None, None)
        measured[name] = Measured(value=metric.mean, low=low, high=high)
    return measured
