"""One cell of the comparison: everything around its numbers, the numbers, and the reason where there are none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bench import metrics
from bench.api import AdapterRef, BoolArray, FloatArray, Format, RunFacts, Split
from bench.api.errors import fenced
from bench.api.protocol import KeptStep, Protocol
from bench.backbone.cost import StageCost
from bench.backbone.models import model_label
from bench.data import contamination
from bench.data.released import Release
from bench.data.sources import FolderSource, HubSource
from bench.data.splits import TaskSplit
from bench.grading.grade import substring_rule
from bench.results import files, provenance
from bench.results.row import LabelsSeen, ResultRow
from bench.run.config import RunConfig
from bench.run.costs import costs_of, signals_alone, tokens_alone
from bench.run.fitting import FEW, Fitted
from bench.run.resolve import Chosen
from bench.signals.definition import growth_of
from bench.signals.reader import Reader
from bench.signals.reading import Reading
from bench.training.trainer import training_cost


@dataclass(frozen=True)
class Used:
    """What the numbers of a cell rest on."""

    test: Reading
    learned: Reading | None = None
    """None where the method does not learn."""
    adapted: Reading | None = None
    """The test split as it was read through the method's adapter, if it has one."""
    chosen_by: Reading | None = None
    """The validation split by which the step of the training was chosen, if any."""
    fitted: Fitted | None = None
    """None where the method does not learn, or failed to."""

    @property
    def splits(self) -> list[Reading]:
        """Test and, where there are any, what was learned from and what the step was chosen by."""
        return [reading for reading in (self.test, self.learned, self.chosen_by) if reading is not None]

    @property
    def readings(self) -> list[Reading]:
        """All of them."""
        return [*self.splits, *([self.adapted] if self.adapted is not None else [])]

    @property
    def complaints(self) -> tuple[str, ...]:
        """What validation already shows against the method."""
        return tuple(filter(None, [self.fitted.complaint() if self.fitted else None]))

    @property
    def n_learned(self) -> int:
        """Answers that `fit` gets."""
        return 0 if self.learned is None else int(self.learned.usable.sum())

    @property
    def base_rate(self) -> float | None:
        """Share of right answers among these."""
        return float(self.learned.correct[self.learned.usable].mean()) if self.learned and self.n_learned else None


@dataclass
class Cells:
    """Makes the cells of a run."""

    config: RunConfig
    chosen: Chosen
    reader: Reader
    source: FolderSource | HubSource
    judge: str
    """Name of the judge of open answers."""
    release: Release | None = None
    _origins: dict[TaskSplit, dict[str, str]] = field(default_factory=dict)
    _costs: dict[object, dict[str, StageCost]] = field(default_factory=dict)
    _alone: dict[object, int] = field(default_factory=dict)
    """By what is read after the prompts of each split; methods that differ in the block only need the same tokens."""

    def facts(self, used: Used) -> RunFacts:
        """What a method may ask before it decides to be skipped."""
        task = used.test.task
        return RunFacts(self.reader.backbone.facts, task.name, task.format, used.n_learned)

    def row(self, name: str, used: Used) -> ResultRow:
        """The cell of a method with everything but its numbers."""
        test = used.test
        kept = np.flatnonzero(test.kept)
        correct = test.correct[kept]
        unlike = _unlike(test, self.chosen.protocol)
        return ResultRow(
            method=name,
            model=model_label(self.config.model),
            task=test.where.task,
            preset=self.chosen.preset,
            seed=self.config.seed,
            config={**self.chosen.config_of(name, test.where.task), **unlike},
            protocol=self.chosen.protocol.digest(),
            task_version=test.task.card.version,
            deviations={**self.chosen.deviations_of(name), **unlike},
            train_on=None if used.learned is None else str(used.learned.where),
            judge=self._judge(used),
            answers_source=self.config.answers,
            labels_seen=used.fitted.labels if used.fitted else LabelsSeen(),
            base_rate=used.base_rate,
            training=used.fitted.training if used.fitted else None,
            status="ok",
            n=len(correct),
            n_unparsed=sum(not test.answers[row].parsed for row in kept),
            n_empty=int((~test.answered[kept]).sum()),
            n_undecided=test.n_undecided if test.task.format is Format.OPEN else None,
            counts=self._counts(used),
            n_shots_dropped=sum(shard.dropped for reading in used.splits for shard in reading.shards),
            llm_accuracy=float(correct.mean()) if len(kept) else None,
            letter_rule_disagreement=_letter_rule_disagreement(test, self.chosen.protocol.letters),
            cost=self._cost(used),
            limit=self.config.limit,
            notes=(*self.reader.backbone.chat.notes, *_notes(used, self.chosen.protocol)),
            provenance=provenance.collect(self.reader.backbone.device, self._revisions(used)),
        )

    def scored(self, row: ResultRow, test: Reading, confidence: FloatArray) -> ResultRow:
        """The cell with its numbers."""
        kept = np.flatnonzero(test.kept)
        subjects = [test.questions[row].subject for row in kept]
        scores = metrics.summarise(confidence[kept], test.correct[kept], subjects, self.chosen.protocol)
        return replace(
            row, metrics=scores.metrics, n_excluded=scores.n_excluded, n_clipped=scores.n_clipped,
            per_subject=scores.per_subject, modal_share=self._modal_share(row.method, test),
        )  # fmt: skip

    def _modal_share(self, name: str, test: Reading) -> float | None:
        reads = self.chosen.methods[name.partition(files.RECALIBRATED)[0]].reads().predict
        return next((agreement.modal_share for s, agreement in test.agreements.items() if s in reads), None)

    def tokens_alone(self, name: str, used: Used, *predicted: Reading | None) -> int:
        """What the method would have to read if it were the only one; `predicted`: splits beside the test split."""
        reads = self.chosen.methods[name].reads()
        also = [reading for reading in (used.test, used.adapted, *predicted) if reading is not None]
        asked = [(reading, reads.predict) for reading in also if reading.adapter is None]
        if used.learned is not None:
            asked.append((used.learned, reads.fit))
        if used.chosen_by is not None:
            asked.append((used.chosen_by, reads.predict))
        adapted = [reading for reading in also if reading.adapter is not None]
        read = frozenset(
            (reading.key, growth_of(signals_alone(reading, signals, self.reader))) for reading, signals in asked
        )
        key = read, tuple(reading.key for reading in adapted)
        if key not in self._alone:
            self._alone[key] = tokens_alone(asked, adapted, self.reader)
        adapter = used.adapted and used.adapted.adapter
        training = training_cost(adapter).forward_tokens if isinstance(adapter, AdapterRef) else 0
        return self._alone[key] + training

    def _cost(self, used: Used) -> dict[str, StageCost]:
        """Counted once for all methods that rest on the same readings."""
        key = tuple(reading.key for reading in used.readings)
        if key not in self._costs:
            self._costs[key] = costs_of(used.readings, self.reader)
        if used.adapted is None or used.adapted.adapter is None:
            return self._costs[key]
        return {**self._costs[key], "adapter_training": training_cost(used.adapted.adapter)}

    def _revisions(self, used: Used) -> dict[str, str | None]:
        revisions: dict[str, str | None] = {model_label(self.config.model): self.reader.backbone.fingerprint}
        for reading in used.splits:
            task, where = reading.task, reading.where
            if self.release is not None:
                about = self.release.describe(task, where.split)
                revisions[f"released {task.released} {where.split}"] = ", ".join(f"{k} {v}" for k, v in about.items())
                continue
            revisions |= self.origins(reading)
        return revisions

    def origins(self, reading: Reading) -> dict[str, str]:
        """Where a split's rows come from; asked before any work, so that a task can't fail there after it.

        Raises:
            UserError: the task can't say.
        """
        where, task = reading.where, reading.task
        if where not in self._origins:
            with fenced(f"task {where.task!r}, provenance and origins of {where.split}"):
                source: Split = where.split if where.split in task.card.splits else "train"  # which it was taken out of
                found = {str(key): str(value) for key, value in task.provenance(source).items()}
                for card, split in task.origins(source):
                    about = self.source.describe(card, split)
                    name = " ".join(filter(None, [card.hub, card.config, card.splits[split]]))
                    found[name] = ", ".join(f"{k} {v}" for k, v in about.items())
            self._origins[where] = found
        return self._origins[where]

    def _judge(self, used: Used) -> str | None:
        """Who graded; the release itself where answers were taken from one."""
        if used.test.task.format is Format.CHOICE:
            return None
        return "release" if used.test.released else self.judge

    def _counts(self, used: Used) -> dict[str, int]:
        """What was left out or is odd in what this cell rests on."""
        counts: dict[str, int] = {}
        for reading in used.splits:
            found = {**reading.task.counts, **contamination.oddities(reading.questions)}
            counts |= {f"{reading.where}: {what}": n for what, n in found.items()}
        for reading in used.splits[1:]:
            counts |= {f"{reading.where}: {what}": n for what, n in reading.counts.items()}
        return counts


def _notes(used: Used, protocol: Protocol) -> list[str]:
    """What a reader of the numbers should know of how they came about."""
    manifests = [entry.manifest for reading in used.readings for shard in reading.bundles for entry in shard]
    halvings = sum(int(manifest["halvings"]) for manifest in manifests)
    notes = [f"{halvings} forward passes did not fit into memory and were halved"] if halvings else []
    if not all(manifest["packed"] for manifest in manifests):
        notes.append("this architecture can't share a cache between questions: each was read alone")
    selects = protocol.kept_step is KeptStep.VALIDATION
    if selects and used.fitted and used.fitted.training.stages and used.chosen_by is None:
        notes.append("no validation answers chose the step of its training: the last one was kept")
    if used.chosen_by is not None and used.fitted and used.fitted.training.stages:
        correct = used.chosen_by.correct[used.chosen_by.usable]
        if len(correct) < FEW or correct.all() or not correct.any():
            notes.append(
                f"its step was chosen by {len(correct)} validation answers, {int(correct.sum())} of them right"
            )
    return [*notes, *used.complaints]


def records_of(reading: Reading, confidence: FloatArray) -> files.Records:
    """The cell question by question; those that do not count are left out."""
    kept = np.flatnonzero(reading.kept)
    return files.Records(
        id=[reading.questions[row].id for row in kept],
        subject=[reading.questions[row].subject for row in kept],
        correct=reading.correct[kept],
        confidence=confidence[kept],
        answer=[reading.answers[row].text for row in kept],
        parsed=np.asarray([reading.answers[row].parsed for row in kept], dtype=np.bool_),
    )


def _unlike(test: Reading, protocol: Protocol) -> dict[str, object]:
    """Deviations from the data: released answers are text, exemplars not at hand (docs/methods.md §0.15, §0.3)."""
    if test.released:
        return {"answer_ids": "retokenised"}
    expected = protocol.shots > 0 and "dev" in test.task.card.splits
    found = any(shown for shard in test.shards for shown in shard.shown)
    return {"shots": 0} if expected and not found else {}


def _letter_rule_disagreement(reading: Reading, letters: str) -> float | None:
    if reading.task.format is not Format.CHOICE:
        return None
    pairs = zip(reading.questions, reading.answers, strict=True)
    by_substring: BoolArray = np.asarray([substring_rule(a.text, letters[q.gold]) for q, a in pairs], dtype=np.bool_)
    return float((by_substring != reading.correct).mean())
