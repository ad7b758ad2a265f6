"""`ResultRow`: one stored result (cell), of a method with a preset and seed, on a model, over a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.api.early_stopping import TrainingStage
from bench.metrics.summary import METRICS, MetricSummary
from bench.model.cost import StageTokens

SCHEMA_VERSION = 5
"""Version of `ResultRow` as JSON; raised by every change of its fields (a golden test compares)."""


Status = Literal["ok", "skipped", "failed"]
"""How a result ended: ok, failed or skipped."""


@dataclass(frozen=True, slots=True)
class LabelsSeen:
    """Numbers of labels that `fit` read."""

    train: int = 0
    """Answers of the train split whose correctness was read."""
    validation: int = 0
    """Answers of the validation split whose correctness was read, for training or for choosing a checkpoint."""
    gold: int = 0
    """Questions of the train split whose right answer or wrong options were read."""


@dataclass(frozen=True, slots=True)
class Training:
    """Training losses: negative log-likelihoods in nats, clipped as in the metric `nll`."""

    stages: tuple[TrainingStage, ...] = ()
    """Training stages in order; empty for a method that does not train in steps."""
    train_nll: float | None = None
    """Loss on training answers (with an adapter: on the first of them, as many as in validation); None where `predict`
    reads other signals than `fit`."""
    validation_nll: float | None = None
    """Loss on validation answers."""
    base_rate_nll: float | None = None
    """Loss on validation answers of a constant confidence: the share of right answers in training."""

    @property
    def is_cut_short(self) -> bool:
        """Whether a stage reached its step limit while the validation loss was still decreasing."""
        return any(stage.cut_short for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration of a method's search space, with its validation loss."""

    values: Mapping[str, str]
    """Searched constant -> value, as `--set` takes it."""
    validation_nll: float | None
    """Loss on validation answers, in nats, at the chosen training step; None where there is no loss."""
    seconds: float
    """Duration of the fit; 0 where the fit failed, or the configuration repeats an earlier one."""
    failure: str | None = None
    """Reason why the fit failed; None where it did not."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Hyperparameter search of a method: random configurations, of which validation chose one."""

    n: int
    """Budget: configurations of each method with a search space."""
    searched: Mapping[str, str] = field(default_factory=dict)
    """Constant -> its search space in words; empty where nothing was tuned."""
    configurations: tuple[Configuration, ...] = ()
    """All configurations in the order in which they were sampled; the first is that of the preset. Empty where nothing
    was tuned."""
    chosen: int = 0
    """Index of the configuration that the row reports."""
    reason: str | None = None
    """Reason why nothing was tuned; None where something was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One result (cell): a method with a preset and a seed, on a model, over a task.

    Fields that are unknown for a skipped or failed cell are None or empty, never 0.
    """

    schema_version: int = SCHEMA_VERSION
    """Schema version of this record."""
    method: str
    """Name of the method, as registered."""
    model: str
    """Alias, Hub id, or label of a local folder (`bench.model.specs.model_label`); never a path."""
    task: str
    """Name, as registered, or that of a task file, e.g. `bees-3fa9c1`."""
    preset: str
    """Name of the preset, which sets the default constants of methods and protocol."""
    seed: int
    """Seed of fits, hold-out splits and sampling."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the task's defaults and can change a result; empty for a default run."""
    protocol: str
    """Digest of the protocol (`Protocol.digest`)."""
    task_version: int
    """`TaskCard.version` of the run."""
    deviations: Mapping[str, Any] = field(default_factory=dict)
    """Overridden constants of the preset, e.g. `{"ccps.steps": 10}`."""
    train_on: str | None = None
    """Task and split of the training data; None for an untrained method."""
    judge: str | None = None
    """Name of the judge that graded open answers; None for option letters."""
    answers_source: str = "generate"
    """Source of the answers: `generate`, a release, or a file."""
    labels_seen: LabelsSeen = field(default_factory=LabelsSeen)
    """Labels used in fitting."""
    base_rate: float | None = None
    """Share of right answers in the training data; None for an untrained method."""
    training: Training | None = None
    """Training losses; None for an untrained method."""
    tuning: Tuning | None = None
    """Hyperparameter search (`bench run --tune N`); None in a run without one."""
    status: Status
    """How the run ended: ok, skipped or failed."""
    reason: str | None = None
    """Reason why the run was skipped or failed; None where it is ok."""
    n: int | None = None
    """Number of questions, those without an answer included."""
    n_unparsed: int | None = None
    """Number of answers that could not be parsed."""
    n_empty: int | None = None
    """Number of answers without text, or of white space only: their label is 0, their confidence is set by the
    protocol's `empty_rule`."""
    n_undecided: int | None = None
    """Number of open answers without a verdict of the judge; excluded from `n` and from all metrics."""
    n_shots_dropped: int | None = None
    """Number of exemplars dropped, over all prompts, because the context window was too short."""
    llm_accuracy: float | None = None
    """Accuracy of the model: the share of right answers."""
    letter_rule_disagreement: float | None = None
    """Share of answers that the substring rule would grade differently; None for open answers."""
    modal_share: float | None = None
    """Share of a question's samples that agree with their mode, mean over questions; None without samples."""
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)
    """Metrics by the names in `bench.metrics.METRICS`."""
    n_excluded: int | None = None
    """Number of answers in no bin of the metric `ece_ref` (top-label confidence exactly 1)."""
    n_clipped: int | None = None
    """Number of answers whose probability the metric `nll` clips, so that a sure mistake has a finite loss."""
    per_subject: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """Subject -> `n` and each metric; None where undefined."""
    n_parameters: int | None = None
    """Number of trained parameters."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Stage of the run -> its duration in seconds."""
    peak_memory_mb: float | None = None
    """Peak memory of the process, in MiB."""
    cost: Mapping[str, StageTokens] = field(default_factory=dict)
    """Stage -> token positions that the whole run fed to the model, for all its methods together."""
    forward_tokens_alone: int | None = None
    """Fewest token positions that this method needs in a run of its own, adapter training included."""
    generated_tokens_alone: int | None = None
    """Tokens decoded for this method in a run of its own: answers, replies and samples, one decoding step each;
    positions of prefill are not counted. None in older results."""
    limit: int | None = None
    """Value of `--limit`; None for the whole task. Partial rows are in no default table."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Warning -> count, on data that is left out or unusual, e.g. training questions that are also test questions."""
    notes: tuple[str, ...] = ()
    """Notes for a reader of the numbers, e.g. a batch that was halved after running out of memory."""
    records_digest: str | None = None
    """SHA-256 of the cell's Parquet file; None where there is none."""
    questions_digest: str | None = None
    """Digest of the test questions (`bench.results.question_texts.digest`); None where they are not stored."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Code, packages, hardware and revisions (`bench.results.provenance.collect`)."""

    @property
    def is_order_alone(self) -> bool:
        """Whether only rank-based metrics are present, because scores could not be scaled to probabilities."""
        return bool(self.metrics) and all(name in METRICS and METRICS[name].is_rank_based for name in self.metrics)
