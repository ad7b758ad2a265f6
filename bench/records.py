"""The frozen records that travel through the house: Question -> Prompt -> Answer -> ResultRow."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]
Split = Literal["train", "validation", "test", "dev"]


class Format(enum.Enum):
    """How a question is asked: with lettered options, or open-ended."""

    CHOICE = "choice"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Question:
    """One benchmark question as its task read it.

    Example: `Question("mmlu-choice/test/0", "anatomy", "Which bone ...?", ("femur", "tibia"), gold=0)`.
    """

    id: str
    """Stable over runs and machines: the source's own where unique, else `<task>/<split>/<row>`."""
    subject: str
    """The unit over which macro means are taken; exemplars come from the same subject."""
    text: str
    """The question, without options and without instructions."""
    choices: tuple[str, ...]
    """Option texts in data-set order; for an open question the gold answer and the wrong ones, never shown."""
    gold: int
    """Index of the right one in `choices`."""
    parts: tuple[tuple[str, str], ...] = ()
    """Named pieces besides the text that the style writes out, e.g. `(("passage", "..."),)`."""
    place: int | None = None
    """Its number within its subject, by which exemplars are drawn; None: as the questions of its split come."""

    @property
    def answer(self) -> str:
        """Text of the right option."""
        return self.choices[self.gold]


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """The words around a task's questions (methods.md §1.4); `{label}`, `{text}`, `{options}`, parts are filled in."""

    header: str
    """Line above the exemplars; `{label}` is the subject in words."""
    footer: str
    """Line between the exemplars and the question."""
    context: str
    """How a question is written out: `{text}`, its parts by their names and, for choice tasks, `{options}`."""
    target_prompt: str = "\nAnswer:"
    """What the user message ends with."""
    gap: str = "\n\n"
    """What stands between the footer and the question."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that ends where the model is to answer."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """A question's prompt, answer and label as somebody released them."""

    prompt: Prompt
    text: str
    correct: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What the frozen model said, graded; the same for every method."""

    text: str
    letter: str | None
    """The option letter it was read as; None for open answers and for text that is no letter."""
    correct: bool
    parsed: bool
    """False where the text could not be read as an answer; such answers count as wrong and are counted."""


SCHEMA_VERSION = 4
"""Of `ResultRow` as JSON; raised by every change of its fields (a golden test compares)."""

Status = Literal["ok", "skipped", "failed"]
"""How a cell of the comparison ended; there is no fourth way."""


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric over the subjects of a task, as fractions."""

    mean: float | None
    """Unweighted mean over the subjects where it is defined; None where it is defined in none."""
    std: float | None
    """Standard deviation over these subjects (`Protocol.std_ddof`); None with too few of them."""
    pooled: float | None
    """Value over all questions at once; None where undefined."""
    n_undefined: int
    """Subjects left out of mean and std because the metric is undefined there, e.g. AUROC with one class."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """Token positions that one stage of a run fed to the backbone (architecture.md §12)."""

    forward_tokens: int
    """Without padding."""
    padded_tokens: int
    """With padding."""
    forward_tokens_floor: int
    """Distinct nodes of the prefix tree: what no order of work can go below."""


@dataclass(frozen=True, slots=True)
class LabelsSeen:
    """What a method was told of right and wrong: rows whose labels, or right answers, `fit` read."""

    train: int = 0
    """Answers of the train split whose correctness was read."""
    validation: int = 0
    """Answers of the validation split whose correctness was read, to learn from or to choose a step by."""
    gold: int = 0
    """Questions of the train split whose right answer or wrong options were read."""


@dataclass(frozen=True, slots=True)
class TrainingStage:
    """One training in steps, and the step whose weights were kept."""

    name: str
    """E.g. `contrastive`; empty where the method has one stage."""
    limit: int
    """Steps that it might take."""
    taken: int
    """Steps that it took."""
    kept: int
    """Step whose weights were kept."""
    epochs: float
    """Passes over the training rows up to the kept step."""
    steps: tuple[int, ...] = ()
    """Steps after which the loss on validation was taken; empty where the last step is kept."""
    losses: tuple[float | None, ...] = ()
    """That loss at each of them; None where it was no number."""
    cut_short: bool = False
    """Whether the loss was still falling at the limit, and the method's published training is longer."""


@dataclass(frozen=True, slots=True)
class Training:
    """What training was like; negative log-likelihoods in nats, clipped as the metric clips."""

    stages: tuple[TrainingStage, ...] = ()
    """In their order; empty where a method learns without steps."""
    train_nll: float | None = None
    """Of its confidences in the answers that it learned from (with an adapter: in the first of them, as many as there
    are for validation); None where it reads other signals to predict than to learn."""
    validation_nll: float | None = None
    """Of its confidences in the validation answers."""
    base_rate_nll: float | None = None
    """Of a constant confidence, the share of right answers in training, in the validation answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One cell of the comparison: a method with a preset and a seed, on a model, over a task.

    What isn't known when a cell was skipped or failed is None or empty, never 0.
    """

    schema_version: int = SCHEMA_VERSION
    """Of this record."""
    method: str
    """As registered."""
    model: str
    """Alias, Hub id, or label of a local folder (`bench.results.model_label`); never a path."""
    task: str
    """As registered, or the stem of a task file."""
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
    """Who graded open answers; None for option letters."""
    answers_source: str = "generate"
    """Where the answers come from: the model here and now, or a release."""
    labels_seen: LabelsSeen = field(default_factory=LabelsSeen)
    """Labels used in fitting."""
    base_rate: float | None = None
    """Share of right answers among those that the method learned from; None where it does not learn."""
    training: Training | None = None
    """What training was like; None where the method does not learn."""
    status: Status
    """How it ended."""
    reason: str | None = None
    """Why it was skipped or failed; None where it is ok."""
    n: int | None = None
    """Questions, those without an answer included."""
    n_unparsed: int | None = None
    """Answers that could not be read."""
    n_empty: int | None = None
    """Answers without text, those of white space alone included: label 0 and confidence 0.0 for every method."""
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
    """By the names in `bench.metrics.METRICS`."""
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
    """Of the process, in MiB."""
    cost: Mapping[str, StageCost] = field(default_factory=dict)
    """Stage -> token positions that the run fed for all its methods together, and of which this cell is one."""
    forward_tokens_alone: int | None = None
    """Token positions that this method needs by itself at least, those of adapter training included."""
    limit: int | None = None
    """Questions asked for with `--limit`; None for the whole task. Partial rows enter no default table."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was left out of the data or is odd in it, in words, e.g. training questions that are also test questions."""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know, e.g. a batch that was halved after running out of memory."""
    records_digest: str | None = None
    """SHA-256 of the cell's Parquet file; None where there is none."""
    questions_digest: str | None = None
    """Digest of the questions that were tested (`bench.asked.digest`); None where they are not kept."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Code, packages, hardware and revisions (`bench.provenance.collect`)."""
