"""Write a head (a fitted method on disk) for each cell of a run that ended ok, or note why the cell has none."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import registry
from bench.api import Format, Related, SampleAgreement, Signal, Task, UserError
from bench.api.errors import capture, reason_of
from bench.data.splits import TaskSplit
from bench.grading.judges import public_options
from bench.model.specs import model_label
from bench.results import files, provenance
from bench.results.row import ResultRow
from bench.run.config import RunConfig
from bench.run.inputs import Inputs
from bench.run.predicting import empty_answer_confidence
from bench.run.resolve import ResolvedRun, judge_options
from bench.run.rows import ScoredRow
from bench.run.scorers import reference_questions
from bench.run.scorers.card import (
    WORDS,
    Card,
    LearnedCard,
    MethodCard,
    ModelCard,
    OutputMapsCard,
    ProtocolCard,
    TestCard,
    TestMetric,
    is_head,
    read_card,
    write_card,
)
from bench.run.scorers.output_maps import OutputMaps, plain_constants, write_method, write_output
from bench.run.scorers.scoring_input import PromptWording, collect_wording
from bench.signals.reader import Reader
from bench.signals.split_data import SplitData
from bench.store.files import write_folder_atomic, write_json

_COMPARING = {"judge": ("judge", "judge_model", "judge_url"), "entailment": ("nli",), "similarity": ("similarity",)}
"""How open samples are compared -> options of `bench run` that choose the judge or the model for it."""
_PROVENANCE = ("code", "packages", "hardware")
"""Parts of a result row's provenance that are copied into a head's card."""


@dataclass(frozen=True, eq=False)
class _TestParts:
    """Contents that all heads of a test split share: the wording of prompts, and the reference questions."""

    words: PromptWording
    questions: reference_questions.ReferenceQuestions
    rows: Any
    """`(m,)`: row indices of the reference questions in the test split."""


@dataclass
class ScorerWriter:
    """Writes the heads (fitted methods on disk) of a run."""

    config: RunConfig
    resolved: ResolvedRun
    reader: Reader
    tasks: Mapping[str, Task]
    notes: list[str] = field(default_factory=list)
    """Notes for the user: for each cell that ended ok without a head, why it has none."""
    _tests: dict[TaskSplit, _TestParts | BaseException] = field(default_factory=dict)
    """Test split -> contents that all its heads share, or the exception that prevents heads for this split."""

    def plan(self) -> list[str]:
        """Return lines about heads for the plan of a run: their folder, and the methods that can't have a head."""
        if self.config.save_heads is None:
            return []
        lines = [f"heads: one for each cell that ends ok, below {self.config.save_heads}"]
        for name, method in self.resolved.methods.items():
            try:
                plain_constants(method)
            except UserError as error:
                lines.append(f"no head of {name}: {error}")
        return lines

    def save(self, row: ResultRow, scored: ScoredRow, inputs: Inputs) -> list[Path]:
        """Write the head of a cell; return a list with its folder. If that fails, add a note and return an empty list.

        Args:
            row: result row of the cell.
            scored: the row with its confidences.
            inputs: splits and fitted method of the cell.
        """
        if self.config.save_heads is None or row.status != "ok":
            return []
        path = files.path_of(row, self.config.save_heads).with_suffix("")
        error = capture(self._save, path, row, scored, inputs)
        if isinstance(error, BaseException):
            why = f"can't be written ({error.strerror or error})" if isinstance(error, OSError) else reason_of(error)
            self.notes.append(f"no head of {row.method} on {row.task}: {why}")
            return []
        return [path]

    def _save(self, path: Path, row: ResultRow, scored: ScoredRow, inputs: Inputs) -> None:
        plain_constants(self.resolved.methods[files.base_of(row.method)])  # raises if they can't be stored
        if row.is_order_alone:
            raise UserError("nothing could make its scores probabilities, as its notes say")
        if path.exists() and not is_head(path):
            raise UserError(f"{path} is there already and is no head; it is not overwritten. Name another --save-heads")
        output = OutputMaps(
            empty_answer_confidence(inputs, self.resolved.protocol.empty_rule), scored.scale, scored.recalibrator
        )
        test = inputs.predicted
        if test.where not in self._tests:
            self._tests[test.where] = capture(self._shared, test)
        shared = self._tests[test.where]
        if isinstance(shared, BaseException):
            raise shared
        if scored.confidence is None or self.config.save_heads is None:
            raise ValueError("a cell that is ok has confidences")
        references = replace(shared.questions, confidence=scored.confidence[shared.rows])
        name, words = path.relative_to(self.config.save_heads).as_posix(), asdict(shared.words)
        old = capture(read_card, path) if path.exists() else None

        def fill(folder: Path) -> None:
            adapter = inputs.fitted is not None and write_method(inputs.fitted.method, folder)
            write_output(output, folder)
            write_json(folder / WORDS, words)
            reference_questions.write(references, folder)
            n = len(references.questions)
            card = self._card(row, scored, inputs, output, name=name, adapter=adapter, n=n)
            if isinstance(old, Card) and (old.guard or old.servers):
                if (old.test.records, old.backbone) == (card.test.records, card.backbone):
                    card = replace(card, guard=old.guard, servers=old.servers)
                else:
                    what = "the head of other confidences there had a guard or checks on servers, which are gone"
                    self.notes.append(f"{path}: {what}; run bench guard --head and bench head check again")
            write_card(card, folder)

        write_folder_atomic(path, fill)

    def _shared(self, test: SplitData) -> _TestParts:
        if test.has_external_prompts:
            raise UserError("its answers came with prompts of their own, which no other question can be asked with")
        if not test.usable.any():
            raise UserError("the test has no answer with text, by which it could be checked later")
        words = collect_wording(test.task, test.questions, self.resolved.protocol)
        return _TestParts(words, *reference_questions.select(test, self.reader))

    # --- the card -----------------------------------------------------------------------------------------------------

    @cached_property
    def _origins(self) -> dict[str, str]:
        """Name of a method -> its origin (built-in, distribution or plugin file).

        The dict is cached, since building it looks up all installed packages and executes plugin files.
        """
        return {entry.name: entry.origin for entry in registry.methods(self.config.plugins).entries()}

    def _card(
        self, row: ResultRow, scored: ScoredRow, inputs: Inputs, output: OutputMaps, *, name: str, adapter: bool, n: int
    ) -> Card:
        from bench.report.competition import displayed_value
        from bench.stats import summary

        records = scored.records
        if records is None:
            raise ValueError("a cell that is ok has records")
        score = {} if records.score is None else {row.method: records.score}
        whole = summary({row.method: records.confidence}, records.correct, records.subject, score=score)
        estimates = whole.methods[row.method].estimates
        metrics = {}
        for metric, values in row.metrics.items():
            low, high = (estimates[metric].fixed.ends if metric in estimates else None) or (None, None)
            value = None if values.pooled is None else displayed_value(metric, values.pooled)
            metrics[metric] = TestMetric(value=value, low=low, high=high)
        base = files.base_of(row.method)
        method = self.resolved.methods[base] if inputs.tuned is None else inputs.tuned.method
        code = self.resolved.sources[base]
        if code is None:
            raise UserError("its class has no file; put it into one, and give that with --plugin")
        origin = self._origins.get(base) or inspect.getfile(type(method))
        task, protocol, learned = inputs.predicted.task, self.resolved.protocol, inputs.learned
        lettered = task.format is Format.CHOICE
        widest = max((len(q.choices) for q in inputs.predicted.questions), default=0) if lettered else 0
        scale, recalibrated = output.scale, output.recalibrator
        return Card(
            name=name,
            backbone=ModelCard.of(self.reader.lm, self.reader.lm.label),
            method=MethodCard(
                name=base,
                recalibration=files.recalibration_of(row.method) or None,
                plugin=Path(origin).name if origin.endswith(".py") else origin,
                version=metadata.version(provenance.DISTRIBUTION),
                code=code,
                preset=row.preset,
                constants=plain_constants(method),
                signals=tuple(sorted(map(repr, method.reads().predict))),
                trains=inputs.fitted is not None,
                adapter=adapter,
                parameters=row.n_parameters,
            ),
            asked=ProtocolCard(
                task=row.task,
                task_version=row.task_version,
                format="choice" if lettered else "open",
                letters=protocol.letters[:widest],
                protocol={k: v.value if isinstance(v, enum.Enum) else v for k, v in asdict(protocol).items()},
                digest=row.protocol,
                prompt_tokens=task.prompt_tokens,
                answers=row.answers_source,
                traces=any(len(ids) > 0 for shard in inputs.predicted.shards for ids in shard.traces or ()),
                seed=row.seed,
                judge=_comparing(self.config, task.format, method.reads().predict),
            ),
            learned=LearnedCard(
                train_on=row.train_on,
                task_version=None if learned is None else self.tasks[learned.where.task].card.version,
                rows=inputs.n_learned,
                labels=row.labels_seen,
                base_rate=row.base_rate,
            ),
            test=TestCard(
                n=row.n or 0, limit=row.limit, accuracy=row.llm_accuracy, metrics=metrics, records=row.records_digest
            ),
            output=OutputMapsCard(
                empty=float(output.empty),
                scale=() if scale is None else (float(scale.slope), float(scale.level)),
                labelled=0 if scale is None else len(scale.labelled),
                parameters={} if recalibrated is None else dict(recalibrated.parameters),
            ),
            kept=n,
            provenance={part: row.provenance[part] for part in _PROVENANCE if part in row.provenance},
        )


def _comparing(config: RunConfig, fmt: Format, signals: Iterable[Signal]) -> dict[str, str | None]:
    """Return option of `bench run` -> value, for what compares the samples of these signals; letters need none.

    Raises:
        UserError: a value has a password, or is a path; heads are passed on.
    """
    comparing = [signal for signal in signals if fmt is Format.OPEN and isinstance(signal, SampleAgreement | Related)]
    ways = {"judge" if isinstance(signal, SampleAgreement) else signal.by for signal in comparing}
    kept = {option: getattr(config, option) for way in ways & _COMPARING.keys() for option in _COMPARING[way]}
    labels = {option: model_label(model) for option in ("nli", "similarity") if (model := kept.get(option))}
    for option, told in {**public_options(judge_options(config)), **labels}.items():
        if told and option in kept and told != str(kept[option]).strip().rstrip("/"):
            raise UserError(
                f"its samples are compared by --{option.replace('_', '-')}, of which a head can tell no more than"
                f" {told!r}; name a model by its Hub id, and a server without password and query"
            )
    return kept
