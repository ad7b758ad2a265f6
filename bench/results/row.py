"""One cell of the comparison as it is stored: `ResultRow`, a method on a model over a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.api.early_stopping import TrainingStage
from bench.metrics.summary import METRICS, MetricSummary
from bench.model.cost import StageCost

SCHEMA_VERSION = 5
"""Version of `ResultRow` as JSON; raised by every change of its fields (a golden test compares)."""


Status = Literal["ok", "skipped", "failed"]
"""End of a cell of the comparison; there is no fourth way."""


@dataclass(frozen=True, slots=True)
class LabelsSeen:
    """Labels that a method was told: rows whose labels, or right answers, `fit` read."""

    train: int = 0
    """Answers of the train split whose correctness was read."""
    validation: int = 0
    """Answers of the validation split whose correctness was read, to learn from or to choose a step by."""
    gold: int = 0
    """Questions of the train split whose right answer or wrong options were read."""


@dataclass(frozen=True, slots=True)
class Training:
    """Account of a training; negative log-likelihoods in nats, clipped as the metric clips."""

    stages: tuple[TrainingStage, ...] = ()
    """Stages in their order; empty where a method learns without steps."""
    train_nll: float | None = None
    """Loss of its confidences in answers that it learned from (with an adapter: in the first of them, as many as there
    are for validation); None where it reads other signals to predict than to learn."""
    validation_nll: float | None = None
    """Loss of its confidences in the validation answers."""
    base_rate_nll: float | None = None
    """Loss of a constant confidence, the share of right answers in training, in the validation answers."""

    @property
    def is_cut_short(self) -> bool:
        """Whether a stage ended at its limit of steps while the loss on validation was still falling."""
        return any(stage.cut_short for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A choice of the constants that a method declares as its search space, and what validation says of it."""

    values: Mapping[str, str]
    """Constant -> value as `--set` takes it; only those that were searched."""
    validation_nll: float | None
    """Loss of its confidences in the validation answers, in nats, at the step that it kept; None where it has none."""
    seconds: float
    """Time of its fit; 0 where it failed, or had been drawn before."""
    failure: str | None = None
    """Why its fit failed; None where it did not."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Account of a run in which each method's constants were chosen on validation among as many configurations."""

    n: int
    """Configurations that each method with a search space got: the budget of the run."""
    searched: Mapping[str, str] = field(default_factory=dict)
    """Constant -> what was drawn from, in words; empty where nothing was tuned."""
    configurations: tuple[Configuration, ...] = ()
    """All of them in the order in which they were drawn; the first is the preset's own. Empty where nothing was
    tuned."""
    chosen: int = 0
    """Position of the one that the row is of."""
    reason: str | None = None
    """Why nothing was tuned; None where something was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One cell of the comparison: a method with a preset and a seed, on a model, over a task.

    What isn't known when a cell was skipped or failed is None or empty, never 0.
    """

    schema_version: int = SCHEMA_VERSION
    """Schema version of this record."""
    method: str
    """Name, as registered."""
    model: str
    """Alias, Hub id, or label of a local folder (`bench.model.specs.model_label`); never a path."""
    task: str
    """Name, as registered, or that of a task file, e.g. `bees-3fa9c1`."""
    preset: str
    """Row of constants that methods and protocol started from."""
    seed: int
    """Seed of fits, hold-out splits and sampling."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Only the fields that differ from the task's defaults and can change a number; empty for a default run."""
    protocol: str
    """Digest of the shared numbers (`Protocol.digest`)."""
    task_version: int
    """`TaskCard.version` at the time."""
    deviations: Mapping[str, Any] = field(default_factory=dict)
    """Constants that were overridden, e.g. `{"ccps.steps": 10}`; empty for the preset as it is."""
    train_on: str | None = None
    """Task and split that the method learned from; None where it does not learn."""
    judge: str | None = None
    """Name of the judge that graded open answers; None for option letters."""
    answers_source: str = "generate"
    """Source of the answers: the model here and now, or a release."""
    labels_seen: LabelsSeen = field(default_factory=LabelsSeen)
    """Labels used in fitting."""
    base_rate: float | None = None
    """Share of right answers among those that the method learned from; None where it does not learn."""
    training: Training | None = None
    """Account of the training; None where the method does not learn."""
    tuning: Tuning | None = None
    """Account of the choice of its constants on validation (`bench run --tune N`); None in a run that tuned nothing."""
    status: Status
    """End of the cell: ok, skipped or failed."""
    reason: str | None = None
    """Why it was skipped or failed; None where it is ok."""
    n: int | None = None
    """Questions, those without an answer included."""
    n_unparsed: int | None = None
    """Answers that could not be read."""
    n_empty: int | None = None
    """Answers without text, those of white space alone included: label 0, and a confidence that follows from the
    protocol's `empty_rule`."""
    n_undecided: int | None = None
    """Open answers on which the judge came to no verdict; left out of `n` and of every number."""
    n_shots_dropped: int | None = None
    """Exemplars left out, over all prompts, because the context was too short."""
    llm_accuracy: float | None = None
    """Share of right answers: the model's, not the method's."""
    letter_rule_disagreement: float | None = None
    """Share of answers that the substring rule grades differently; None for open answers."""
    modal_share: float | None = None
    """Share of a question's samples that say what most of them say, mean over the questions; None without samples."""
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)
    """Metrics by the names in `bench.metrics.METRICS`."""
    n_excluded: int | None = None
    """Answers that `ece_ref` puts into no bin (top-label confidence exactly 1)."""
    n_clipped: int | None = None
    """Answers whose probability `nll` raises to its least one, so that a sure mistake doesn't cost infinity."""
    per_subject: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """Subject -> `n` and each metric; None where undefined."""
    n_parameters: int | None = None
    """Trained parameters."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds."""
    peak_memory_mb: float | None = None
    """Peak memory of the process, in MiB."""
    cost: Mapping[str, StageCost] = field(default_factory=dict)
    """Stage -> token positions that the run fed for all its methods together, and of which this cell is one."""
    forward_tokens_alone: int | None = None
    """Token positions that this method needs by itself at least, those of adapter training included."""
    generated_tokens_alone: int | None = None
    """Tokens that the model has to write for this method by itself: its answers, replies and samples, one decoding step
    each. Positions that are read back in one pass are not among them. None in results made before they were counted."""
    limit: int | None = None
    """Questions asked for with `--limit`; None for the whole task. Partial rows enter no default table."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts of what is left out or odd in the data, in words, e.g. training questions that are also test questions."""
    notes: tuple[str, ...] = ()
    """Notes for a reader of the numbers, e.g. a batch that was halved after running out of memory."""
    records_digest: str | None = None
    """SHA-256 of the cell's Parquet file; None where there is none."""
    questions_digest: str | None = None
    """Digest of the questions that were tested (`bench.results.questions.digest`); None where they are not kept."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Code, packages, hardware and revisions (`bench.results.provenance.collect`)."""

    @property
    def is_order_alone(self) -> bool:
        """Whether its numbers are of scores that nothing could scale, so that only metrics of order are there."""
        return bool(self.metrics) and all(name in METRICS and METRICS[name].of_order for name in self.metrics)
