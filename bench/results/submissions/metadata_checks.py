"""Check of a result's metadata: protocol, settings, task, training, tuning, label counts, commit of the code."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from bench.api import ConfidenceMethod, Format, Task, UserError
from bench.api.configurations import configuration_values, search_fields
from bench.api.early_stopping import best_point
from bench.api.protocol import PRESETS, KeptStep
from bench.api.signals import leaks_label
from bench.data.answer_files import SERVER, SOURCE
from bench.data.released import task_folders
from bench.data.splits import TrainLimit
from bench.metrics.recalibration import create_recalibrator
from bench.model.specs import aliases
from bench.results import provenance
from bench.results.files import RECALIBRATED, base_of
from bench.results.row import ResultRow, answers_after_traces
from bench.results.submissions.cell import BuiltIns, Finding, SkippedCheck, protocol_of
from bench.results.transfer import LEAVE_OUT

OPTIONS = frozenset({
    "dtype", "token_budget", "training_budget", "answers", "judge", "judge_model", "judge_url", "nli", "similarity",
    "parallel", "tokenizer", "think_budget", "thinking", "enable_thinking", "train_on", "train_limit", "tune",
    LEAVE_OUT,
})  # fmt: skip
"""Keys of `ResultRow.config` that are settings of the run or its model; the other keys are constants that deviate from
the preset."""
_ROUNDING = 1e-4
"""Relative tolerance between two fields of a result that both have the loss at the training step that was kept."""


def findings(row: ResultRow, built_in: BuiltIns) -> Iterator[Finding]:
    """Check the metadata of one result; yield the problems.

    Args:
        row: a result of any status.
        built_in: the built-in methods and tasks.
    """
    method, task = built_in.method(row.method), built_in.task(row.task)
    if row.preset not in PRESETS:
        yield f"preset {row.preset!r} is unknown: expected one of {', '.join(PRESETS)}"
    else:
        try:
            expected = protocol_of(row.preset, row.deviations).digest()
            if row.protocol != expected:
                expectation = f"that of preset {row.preset} as it deviates {expected}"
                yield f"its protocol is {row.protocol}, {expectation}; run it again"
        except UserError as error:
            yield f"its deviations can't be: {error}"
    yield from _setting_findings(row, method)
    yield from tuning_findings(row, method)
    _, recalibrated, kind = row.method.partition(RECALIBRATED)
    if recalibrated:
        try:
            create_recalibrator(kind)
        except UserError as error:
            yield str(error)
    if str(row.train_on).endswith("/test"):
        yield f"it learned on {row.train_on}; no method may learn on a test split"
    if task is None:
        yield SkippedCheck(f"task {row.task} is not built in: its version, format and size")
    else:
        yield from _task_findings(row, task)
    if method is None:
        yield SkippedCheck(f"method {base_of(row.method)} is not built in: what it declares")
        return
    if method.presets and row.preset not in method.presets:
        yield f"its method has no preset {row.preset!r}: expected one of {', '.join(method.presets)}"
    if row.status == "ok":
        yield from _label_findings(row, method)
        yield from _training_findings(row, method)
        yield from _count_findings(row, method)
    if task is not None:
        yield from _split_findings(row, method, task, built_in)


# --- settings ---------------------------------------------------------------------------------------------------------


def _setting_findings(row: ResultRow, method: type[ConfidenceMethod] | None) -> Iterator[str]:
    """Check that `deviations` and `config` of a result agree; a digest of `config` is part of the file name."""
    settings = {key: value for key, value in row.config.items() if key not in OPTIONS}
    for key in sorted(settings.keys() | row.deviations.keys()):
        if key not in settings:
            yield f"it deviates in {key}, which its file name does not carry (config); run it again"
        elif key not in row.deviations or settings[key] != row.deviations[key]:
            yield f"its config has {key} {settings[key]}, its deviations {row.deviations.get(key)}; run it again"
    answers = str(row.config.get("answers", "generate"))
    if "answers" in row.config and not answers.startswith((SOURCE, SERVER)):
        models = [name for name, spec in aliases().items() if spec.released]
        if row.model not in models or row.task not in task_folders() or not re.fullmatch("released(@.+)?", answers):
            yield f"its config has answers {answers}, which no run of {row.model} on {row.task} has; run it again"
    source = answers_after_traces(answers, row.config.get("think_budget"))
    if row.answers_source != source:
        yield f"its answers_source is {row.answers_source}, its config says {source}"
    if "train_limit" in row.config:
        try:
            limit = TrainLimit.parse(str(row.config["train_limit"]))
        except UserError as error:
            yield str(error)
        else:
            most, seen = limit.train + (limit.validation or 0), row.labels_seen
            if max(seen.train, seen.gold) + seen.validation > most:
                yield f"it has seen more labels than its --train-limit {limit} allows: {_format_labels(row)}"
    dtype = row.dtype if row.dtype in {"bfloat16", "float16"} else None  # a server's own kind of weights is no setting
    if row.status == "ok" and row.config.get("dtype") != dtype:
        yield f"its dtype is {row.dtype}, but its config has {row.config.get('dtype')}; run it again"
    fields = None if method is None else inspect.signature(method).parameters
    for key in row.deviations:
        owner, _, field = key.rpartition(".")
        if owner not in {"", "protocol", base_of(row.method)}:
            yield f"it deviates in {key}, which is of another method"
        elif owner not in {"", "protocol"} and fields is not None and field not in fields:
            yield f"it deviates in {key}, which {owner} does not have"


# --- task -------------------------------------------------------------------------------------------------------------


def _task_findings(row: ResultRow, task: type[Task]) -> Iterator[str]:
    if row.answers_source.startswith((SOURCE, SERVER)):
        yield f"its answers are {row.answers_source}, which nobody else can make again"
    if row.task_version != task.card.version:
        yield f"its task_version is {row.task_version}, {row.task} is at version {task.card.version}; run it again"
    if row.status != "ok":
        return
    size = task.card.sizes.get("test")
    n = (row.n or 0) + (row.n_undecided or 0)
    generated = "answers" not in row.config
    if row.limit is None and generated and n != size:
        yield f"it has {n} questions, {row.task} has {size}; run the whole task"
    if task.format is Format.CHOICE:
        if row.judge is not None:
            yield f"its judge is {row.judge}, but answers to {row.task} are letters, which no judge grades"
        undecided = row.n_undecided
    else:
        default = "match" if generated else "release"
        if "judge" not in row.config and row.judge != default:
            yield f"its judge is {row.judge}, which its file name does not carry (config): expected {default}"
        undecided = row.n_undecided if row.judge == "match" else None
    if undecided:
        yield f"it leaves out {undecided} answers without a verdict, but all of its answers get one"
    elif row.n_undecided:
        gap = f"{row.n_undecided} answers ({100 * row.n_undecided / n:.1f} %)"
        yield SkippedCheck(f"it leaves out {gap} without a verdict: whether the judge gave none")


# --- method -----------------------------------------------------------------------------------------------------------


def _split_findings(
    row: ResultRow, method: type[ConfidenceMethod], task: type[Task], built_in: BuiltIns
) -> Iterator[str]:
    """Check the split that a result was trained on; and that no more labels were read than its task has questions."""
    if not method.trains():
        if row.train_on is not None:
            yield f"it learned on {row.train_on}, but its method learns nothing"
        return
    default = f"{task.train_on or row.task}:train"
    name, _, split = str(row.config.get("train_on", default)).partition(":")
    expected = f"{name}/{split if method.fit_on == 'train' else method.fit_on}"
    if row.train_on != expected:
        yield f"it learned on {row.train_on}, its settings say {expected} (config, file name); run it again"
    source = built_in.task(name)
    size = sum(source.card.sizes.values()) if source else None
    seen = row.labels_seen
    if size is not None and max(seen.train, seen.validation, seen.gold) > size:
        yield f"it has seen more labels than {name} has questions ({size:,}): {_format_labels(row)}"


def _label_findings(row: ResultRow, method: type[ConfidenceMethod]) -> Iterator[str]:
    seen = row.labels_seen
    recalibrated = RECALIBRATED in row.method
    scaled = recalibrated or method.output == "score"
    if not method.trains() and (seen.train or seen.gold or (seen.validation and not scaled)):
        yield f"its method learns nothing, but labels_seen is {_format_labels(row)}"
    if recalibrated and not seen.validation:
        yield f"it was recalibrated on validation labels, but labels_seen is {_format_labels(row)}"
    elsewhere = seen.validation if str(row.train_on).endswith("/validation") else 0
    if method.trains() and not (seen.train or seen.gold or elsewhere):
        yield f"its method learns from labels, but labels_seen is {_format_labels(row)}"
    if method.trains() and method.fit_on == "validation" and (seen.train or seen.gold):
        yield f"its method learns on validation only, but labels_seen is {_format_labels(row)}"


def _format_labels(row: ResultRow) -> str:
    seen = row.labels_seen
    return f"train {seen.train}, validation {seen.validation}, gold {seen.gold}"


def _count_findings(row: ResultRow, method: type[ConfidenceMethod]) -> Iterator[str]:
    """Check the counts of a result: only trained methods have parameters; tokens are neither too few nor too many."""
    if row.n_parameters and not method.trains():
        yield f"its method learns nothing, but has {row.n_parameters:,} trained parameters"
    for stage, cost in row.cost.items():
        if not 0 <= cost.forward_tokens_floor <= cost.forward_tokens <= cost.padded_tokens:
            yield f"cost.{stage}: expected 0 <= floor <= forward <= padded tokens"
    n_read = sum(cost.forward_tokens for cost in row.cost.values())
    alone = row.forward_tokens_alone
    if alone is not None and (alone < 1 or (alone > n_read and RECALIBRATED not in row.method)):
        yield f"forward_tokens_alone is {alone:,}; expected at least 1 and at most the {n_read:,} tokens that were read"
    # each greedy token needs one input token; many samples may share one
    written, fewest = row.generated_tokens_alone, int("answers" not in row.config)
    open_ended = RECALIBRATED in row.method or any(signal.drawn for signal in method.needs.fit | method.needs.predict)
    if written is not None and (written < fewest or (written > n_read and not open_ended)):
        most = "" if open_ended else f" and at most the {n_read:,} tokens that were read"
        yield f"generated_tokens_alone is {written:,}; expected at least {fewest}{most}"
    for name, tested, least, total in (
        ("test_forward_tokens", row.test_forward_tokens, 1, alone),
        ("test_generated_tokens", row.test_generated_tokens, fewest, written),
    ):
        if tested is not None and total is not None and not least <= tested <= total:
            yield f"{name} is {tested:,}; expected at least {least} and at most the {total:,} of all splits"


# --- training and tuning ----------------------------------------------------------------------------------------------


def _training_findings(row: ResultRow, method: type[ConfidenceMethod]) -> Iterator[str]:
    """Check the training losses of a result; yield the problems.

    Args:
        row: a result with status ok.
        method: method of the result.
    """
    if not method.trains():
        if row.training is not None or row.base_rate is not None:
            yield "its method learns nothing, but it tells of a training"
        return
    if row.training is None or row.base_rate is None:
        yield "its method learns, but it doesn't say what training was like (training, base_rate)"
        return
    # steps of the published training, for methods with a step limit
    constants = method(**method.presets.get(row.preset, {})).params()
    deviating: Any = row.deviations.get(f"{base_of(row.method)}.published_steps", constants.get("published_steps", 0))
    published = deviating if isinstance(deviating, int) else 0
    for stage in row.training.stages:
        name = f"its training {stage.name}".rstrip()
        if len(stage.steps) != len(stage.losses) or not 0 < stage.kept <= stage.taken <= stage.limit:
            yield f"{name} has steps and losses that don't belong together"
        elif stage.losses and stage.kept != stage.steps[best_point(stage.losses)]:
            yield f"{name} kept step {stage.kept}, which does not have its smallest loss"
        elif stage.cut_short != (bool(stage.losses) and stage.kept == stage.limit < published):
            yield f"{name} says cut_short {stage.cut_short}, which its steps and losses don't"
    reported = row.training.validation_nll
    losses = [loss for stage in row.training.stages[-1:] for loss in stage.losses if loss is not None]
    if losses and (reported is None or not math.isclose(reported, min(losses), rel_tol=_ROUNDING)):
        yield f"its validation_nll is {reported}, the smallest loss of its training {min(losses)}"
    seen, gold = row.labels_seen, any(map(leaks_label, method.needs.fit))
    if bool(seen.gold) != gold:
        yield f"its labels_seen has gold {seen.gold}, but its method {'reads' if gold else 'never reads'} right answers"
    if any(stage.losses for stage in row.training.stages) and not seen.validation:
        yield "a step of its training was chosen on validation, but labels_seen has validation 0"
    chooses = True
    with suppress(UserError):  # an unknown preset and invalid deviations are other findings
        chooses = protocol_of(row.preset, row.deviations).kept_step is KeptStep.VALIDATION
    if not chooses and RECALIBRATED not in row.method and any(stage.losses for stage in row.training.stages):
        yield f"preset {row.preset} keeps the last step, but losses on validation chose one"


def tuning_findings(row: ResultRow, method: type[ConfidenceMethod] | None) -> Iterator[str]:
    """Check the hyperparameter search of a result; yield the problems.

    Args:
        row: a result of any status.
        method: method of the result; None if it is not built in.
    """
    tuning, requested = row.tuning, row.config.get("tune")
    if (n := tuning and tuning.n) != requested:
        yield f"its config has tune {requested}, its tuning {n} configurations; run it again"
    if tuning is None:
        return
    if tuning.configurations:
        losses = [candidate.validation_nll for candidate in tuning.configurations]
        chosen = losses[tuning.chosen] if tuning.chosen < len(losses) else None
        reported = None if row.training is None else row.training.validation_nll
        if len(losses) != tuning.n or tuning.reason is not None:
            yield f"its tuning has {len(losses)} configurations of {tuning.n}; run it again"
        elif tuning.chosen != best_point(losses) or chosen is None:
            yield f"its tuning chose configuration {tuning.chosen}, which does not have the smallest loss on validation"
        elif row.training is not None and (reported is None or not math.isclose(chosen, reported, rel_tol=_ROUNDING)):
            yield f"its validation_nll is {reported}, that of the chosen configuration {chosen}"
        if row.labels_seen.validation == 0:
            yield "its configuration was chosen on validation, but labels_seen has validation 0"
    elif tuning.reason is None and row.status == "ok":
        yield "it doesn't say why nothing was tuned (tuning.reason); run it again"
    if method is None or row.status != "ok" or row.preset not in (method.presets or {row.preset: {}}):
        return
    # configurations are sampled by the seed, so they can be sampled again
    base = base_of(row.method)
    set_ = {key.removeprefix(f"{base}."): value for key, value in row.deviations.items() if key.startswith(f"{base}.")}
    instance = method(**{**method.presets.get(row.preset, {}), **set_})
    fields = search_fields(instance, set_)
    if not tuning.configurations:
        if fields and tuning.reason is not None and "search" in tuning.reason:
            yield f"it says that {tuning.reason}, but {base} searches {', '.join(fields)}"
        return
    sampled = [
        {k: str(v) for k, v in configuration_values(instance, fields, row.seed, i).items()} for i in range(tuning.n)
    ]
    if [dict(candidate.values) for candidate in tuning.configurations] != sampled:
        yield "its configurations are not those that its seed draws from the search space of its method; run it again"


# --- code -------------------------------------------------------------------------------------------------------------


def code_findings(row: ResultRow, folder: Path) -> Iterator[Finding]:
    """Check that the code that made a result was committed, and that the commit exists; yield the problems.

    Args:
        row: a result of any status.
        folder: the results folder; the commit is searched in its git repository and in that of this code.
    """
    code = row.provenance.get("code", {})
    sha, digest = code.get("git_sha"), code.get("record_digest")
    if code.get("dirty"):
        yield "it was made with uncommitted changes; commit them and run it again"
    elif not sha and not digest:
        yield "it doesn't say which code made it; run it from a checkout or an installed wheel"
    if not sha:
        if digest:
            yield SkippedCheck("it was made by an installed wheel: whether that was a released one")
    elif not isinstance(sha, str) or not re.fullmatch(r"[0-9a-f]{40}", sha):
        yield f"its git_sha is {sha!r}; expected 40 hex digits"
    elif (has_commit := _has_commit(folder, sha)) is None:
        yield SkippedCheck("no git repository with its whole history is here: whether the code's commit is in it")
    elif not has_commit:
        yield f"the repository has no commit {sha}; fetch it (git fetch --all), or run it again from a commit"


@cache
def _has_commit(folder: Path, sha: str) -> bool | None:
    """Return whether a commit is in the git repository of this code or of the results; None if that is unknown."""
    answers = [provenance.has_commit(place, sha) for place in (Path(__file__).parent, folder)]
    return any(answers) if any(answers) or False in answers else None
