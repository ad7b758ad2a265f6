"""`ResultRow`: one stored result, of a method with a preset and a seed, on a model, over a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from bench.api.early_stopping import TrainingStage
from bench.metrics.summary import METRICS, MetricSummary
from bench.model.cost import StageTokens

SCHEMA_VERSION = 8
"""Version of the JSON form of `ResultRow`. Every change of the fields or their meaning must raise it; a test
checks the fields."""


Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
Count = Annotated[int, Meta(ge=0, description="a whole number of at least 0")]
Amount = Annotated[float, Meta(ge=0, description="a number of at least 0")]
AUDIT = "audit:"
"""Beginning of `answers_source` in results of `bench audit`, whose confidences and answers come from a user's file."""
Status = Literal["ok", "skipped", "failed"]
"""How the run of a result ended: ok, failed or skipped."""


@dataclass(frozen=True, slots=True)
class LabelsSeen:
    """Numbers of labels that were read: by a method's `fit`, to scale its scores, to recalibrate, and to tune."""

    train: Count = 0
    """Number of answers of the train split whose label was read."""
    validation: Count = 0
    """Number of answers of the validation split whose label was read: to train, to choose the training step or the
    configuration, to scale scores, or to recalibrate."""
    gold: Count = 0
    """Number of questions of the train split whose right answer or wrong options were read."""


@dataclass(frozen=True, slots=True)
class Training:
    """Losses of a trained method: negative log-likelihoods in nats, clipped as in the metric `nll`."""

    stages: tuple[TrainingStage, ...] = ()
    """Records of the training stages, in order; empty for a method that does not train in steps."""
    train_nll: float | None = None
    """Loss on the answers of the train split; with an adapter, on only as many of them as the validation split has, at
    even distances in the split. None if `predict` reads other signals than `fit`."""
    validation_nll: float | None = None
    """Loss on the validation answers."""
    base_rate_nll: float | None = None
    """Loss on the validation answers if all confidences equal the share of right answers in the train split."""

    @property
    def is_cut_short(self) -> bool:
        """Whether a stage had its smallest validation loss at the last allowed step, short of the published steps."""
        return any(stage.cut_short for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration that `--tune` tried: values of a method's searched constants, with their validation loss."""

    values: Mapping[str, str]
    """Name of a searched constant -> its value, written as for `--set`."""
    validation_nll: float | None
    """Loss on the validation answers, in nats, at the kept training step; None if there is none."""
    seconds: float
    """Duration of the fit; 0 if the fit failed, or if the configuration repeats an earlier one."""
    failure: str | None = None
    """Reason why the fit failed; None if it succeeded."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Record of `bench run --tune N` for one method: the configurations that were tried, and which was chosen."""

    n: int
    """Number N of configurations to try for each method with a search space."""
    searched: Mapping[str, str] = field(default_factory=dict)
    """Name of a searched constant -> its search space in words. Empty if nothing was tuned."""
    configurations: tuple[Configuration, ...] = ()
    """All tried configurations in sampling order; the first has the preset's values. Empty if nothing was tuned."""
    chosen: int = 0
    """Index of the configuration with the smallest validation loss, whose numbers the result has."""
    reason: str | None = None
    """Reason why nothing was tuned; None if something was."""


ACCEPTED, REFUSED = "right options that the judge accepts", "wrong options that it refuses"
"""What `ResultRow.counts` has of a judge that was measured on options: each followed by `, of N`."""
AFTER_TRACES = " after traces of at most "
"""Text in `answers_source` between where the answers come from and the length limit of the traces before them."""


def answers_after_traces(answers: str, budget: int | None) -> str:
    """Return `answers_source` of a result, from the source of its answers and the length limit of the traces before.

    >>> answers_after_traces("generate", None), answers_after_traces("generate", 320)
    ('generate', 'generate after traces of at most 320 tokens')
    """
    return answers if budget is None else f"{answers}{AFTER_TRACES}{budget:,} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One result (cell): a method with a preset and a seed, on a model, over a task.

    Fields that are unknown because the run was skipped or failed are None or empty, never 0.
    """

    schema_version: int = SCHEMA_VERSION
    """Version of the JSON form, see `SCHEMA_VERSION`."""
    method: str
    """Registered name of the method, with its recalibration if it has one."""
    model: str
    """Alias or Hub id of the model, or label of a local folder (`bench.model.specs.model_label`); never a path."""
    task: str
    """Registered name of the task, or name of a user's task file with digest, e.g. `bees-3fa9c1`."""
    preset: str
    """Name of the preset from which the constants of methods and protocol start."""
    seed: int
    """Seed of training, recalibration folds, configurations of `--tune`, and sampling."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the task's defaults and can change a result, name -> value; empty for a default run."""
    dtype: str | None = None
    """Dtype of the model's weights, e.g. `bfloat16`. `config` has it too unless it is float32, so that results in
    two dtypes are two cells."""
    protocol: str
    """Digest of the protocol, the settings that all methods share (`Protocol.digest`)."""
    task_version: int
    """`TaskCard.version` of the task at the time of the run."""
    deviations: Mapping[str, Any] = field(default_factory=dict)
    """Constants that differ from the preset, name -> value, e.g. `{"ccps.steps": 10}`."""
    train_on: str | None = None
    """Task and split that the method was trained on; None for an untrained method."""
    judge: str | None = None
    """Name of the judge that graded open answers; None for choice tasks."""
    answers_source: str = "generate"
    """Where the answers come from: `generate` (this run), a release of other authors, a user's file (`file:`), another
    engine's server (`server:`) or an audited file (`audit:`); followed by the length limit of the reasoning traces
    before them, if there are any (`answers_after_traces`)."""
    labels_seen: LabelsSeen = field(default_factory=LabelsSeen)
    """Numbers of labels that were read to fit, scale, recalibrate or tune the method."""
    base_rate: Share | None = None
    """Share of right answers in the training data; None for an untrained method."""
    training: Training | None = None
    """Training and validation losses; None for an untrained method."""
    tuning: Tuning | None = None
    """Record of the hyperparameter search (`bench run --tune N`); None without one."""
    status: Status
    """How the run ended: ok, skipped or failed."""
    reason: str | None = None
    """Reason why the run was skipped or failed; None if its status is ok."""
    n: Count | None = None
    """Number of test questions, including questions without an answer."""
    n_unparsed: Count | None = None
    """Number of answers that could not be parsed; they count as wrong."""
    n_empty: Count | None = None
    """Number of answers that are empty or only white space. Their label is 0; the protocol's `empty_rule` sets their
    confidence."""
    n_undecided: Count | None = None
    """Number of open answers on which the judge gave no verdict; they are excluded from `n` and from all metrics."""
    n_shots_dropped: Count | None = None
    """Number of exemplars left out, summed over all prompts, because the context window was too short."""
    llm_accuracy: float | None = None
    """Accuracy of the model: the share of right answers."""
    chance_accuracy: float | None = None
    """Accuracy of guessing among each question's options; None for open answers."""
    letter_rule_disagreement: float | None = None
    """Share of choice answers that would be graded otherwise by the letter rule `substring`; None for open answers."""
    modal_share: float | None = None
    """Share of a question's samples that agree with its most frequent sample, as a mean over questions; None if
    `predict` of the method doesn't read the signal `SampleAgreement`."""
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)
    """Name of a metric in `bench.metrics.METRICS` -> its summary."""
    n_excluded: int | None = None
    """Number of answers that the metric `ece_ref` leaves out, because their top-label confidence is exactly 1."""
    n_clipped: int | None = None
    """Number of answers whose probability the metric `nll` clips to keep the loss finite."""
    per_subject: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """Subject -> values: the number of questions under `n`, and each metric under its name; None if it is undefined."""
    n_parameters: Count | None = None
    """Number of parameters that the method trains."""
    timings: Mapping[str, Amount] = field(default_factory=dict)
    """Stage of the run -> duration in seconds."""
    peak_memory_mb: Amount | None = None
    """Largest peak memory of the run's process or of any process that computed signals for it, in MiB. On CUDA it is
    the GPU memory, summed over the devices of a process."""
    cost: Mapping[str, StageTokens] = field(default_factory=dict)
    """Stage -> token positions that the model is fed for this cell's splits from an empty store, once for all methods
    together; `adapter_training` and `adapter_predictions` are of this method alone."""
    forward_tokens_alone: int | None = None
    """Fewest token positions that must be fed to the model in a run of this method alone, adapter training included."""
    generated_tokens_alone: int | None = None
    """Number of tokens that a run of this method alone decodes, one per decoding step, for traces, answers, replies
    and samples. Reading of prompts is not counted."""
    test_forward_tokens: Count | None = None
    """Of `forward_tokens_alone`, those of the test split: what the tested answers cost once the method is fitted."""
    test_generated_tokens: Count | None = None
    """Of `generated_tokens_alone`, those of the test split."""
    limit: int | None = None
    """Value of `--limit`; None for a run of the whole task. Tables leave out results with a limit by default."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Warning about the data -> number of questions concerned, e.g. of training questions that are also in test."""
    notes: tuple[str, ...] = ()
    """Sentences for readers of the numbers, e.g. that a batch was halved after running out of memory."""
    records_digest: str | None = None
    """SHA-256 of the result's Parquet file; None without one."""
    questions_digest: str | None = None
    """Digest of the test questions (`bench.results.question_texts.digest`); None if they are not stored."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Record of code, packages, hardware and data revisions (`bench.results.provenance.collect`)."""

    @property
    def is_audit(self) -> bool:
        """Whether the confidences come from a file of `bench audit`: no run, and so no cost or labels, is known."""
        return self.answers_source.startswith(AUDIT)

    def std_over_subjects(self, metric: str) -> float | None:
        """Return the standard deviation of a metric over subjects; None if fewer than two have a value.

        With `std_ddof` = 0 the stored deviation of one subject is 0, which is no spread.
        """
        summary = self.metrics.get(metric)
        return summary.std if summary and len(self.per_subject) - summary.n_undefined > 1 else None

    @property
    def is_order_alone(self) -> bool:
        """Whether the result has only rank-based metrics, because its scores could not be scaled to probabilities."""
        return bool(self.metrics) and all(name in METRICS and METRICS[name].is_rank_based for name in self.metrics)
