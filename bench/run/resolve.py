"""Resolve a `RunConfig`: look up names, apply presets and overrides, and check everything before any work."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import registry
from bench.api import ConfidenceMethod, Format, Related, Task, UserError
from bench.api.errors import fold_name
from bench.api.protocol import Protocol
from bench.api.signals import By
from bench.data.answer_files import AnswerFile, is_answer_file, read_answers
from bench.data.question_files import SPLITS, is_question_file, task_of_file
from bench.data.released import Release, open_release, requested_revision
from bench.data.splits import TaskSplit, TrainLimit
from bench.grading.judges import JudgeOptions, public_options
from bench.metrics.recalibration import create_recalibrator
from bench.model import specs
from bench.model.specs import ModelSpec, model_label
from bench.registry import Registry
from bench.results.row import answers_after_traces
from bench.run.config import RunConfig
from bench.run.feasibility import reason_untrainable
from bench.run.isolation.sandbox import Isolation
from bench.run.method_factory import (
    Configurations,
    build_methods,
    method_factory,
    parse_overrides,
    protocol_with,
    refuse_untunable,
    sample_configurations,
)
from bench.run.plan import TrainOn, uses_trained_adapter
from bench.store.disk_cache import cache_folder
from bench.store.sources import plugin_digest


@dataclass(frozen=True)
class ResolvedRun:
    """The options of a run after names are looked up, presets applied, and everything checked."""

    model: ModelSpec
    preset: str
    protocol: Protocol
    methods: Mapping[str, ConfidenceMethod]
    tasks: Mapping[str, type[Task]]
    """Name -> class of the task, for all tests and training tasks."""
    tests: tuple[str, ...]
    learn_on: Mapping[str, TrainOn]
    """Test task -> task and split on which methods learn for this test."""
    cache: Path
    sources: Mapping[str, str | None]
    """Method -> digest of its source code when the run began; None for a class without a file. Later edits of the file
    don't change the code that runs."""
    passed: frozenset[str]
    """Methods whose classes were passed to `run()`. Their fits aren't stored: a file doesn't tell variants apart."""
    deviations: Mapping[str, Mapping[str, object]]
    """Name of a method, or "protocol" -> constant that the user overrode -> its value."""
    unusual: Mapping[str, object]
    """Option -> value, for options that differ from their defaults and can change any result."""
    recalibrate: tuple[str, ...]
    """Names of recalibrators (e.g. isotonic); each gives a further row for every method."""
    judging: Mapping[str, object]
    """Option of the judge -> value, for values that differ from the default. They can change results of open tasks
    only."""
    relating: Mapping[By, str] = field(default_factory=dict)
    """Relation between samples (entailment, similarity) -> model that computes it, by its name in results. These models
    can change results of open tasks only."""
    release: Release | AnswerFile | None = None
    """Published answers, or a file of answers; None if the model generates the answers."""
    answers: str = RunConfig.answers
    """Source of the answers, as results record it; but `generate` with `--answers URL`, where results name the server
    (see `RowBuilder.row`)."""
    think_budget: int | None = None
    """Value of `--think-budget`; None: the model answers at once."""
    training_budget: int | None = None
    """Value of `--training-budget`; None: the device's default."""
    tune: int | None = None
    """Number of configurations for each method with a search space; None if no method is tuned."""
    configurations: Mapping[str, Configurations] = field(default_factory=dict)
    """Name of a method that is tuned -> its configurations."""
    train_limit: TrainLimit | None = None
    """Value of `--train-limit`; None: methods learn from all labels."""
    max_time: float | None = None
    """Value of `--max-time` in seconds; None: a fit may take any time."""
    notes: Sequence[str] = field(default_factory=tuple)
    isolation: Isolation = field(default_factory=Isolation, repr=False, compare=False)
    """Protects the run from its plugins."""

    @property
    def test_splits(self) -> list[TaskSplit]:
        """The test split of each task that is tested."""
        return [TaskSplit(name, "test") for name in self.tests]

    def new_method(self, name: str, configuration: int = 0) -> ConfidenceMethod:
        """Return a new unfitted method with the constants of a configuration; index 0 has the preset's constants."""
        method = self.methods[name]
        searched = self.configurations[name].values[configuration] if name in self.configurations else {}
        return type(method)(**{**method.params(), **searched})

    def deviations_of(self, name: str) -> dict[str, object]:
        """Return `method.field` or `protocol.field` -> value, for the constants that the user set for a method."""
        return {
            f"{owner}.{key}": value
            for owner in (name, "protocol")
            for key, value in self.deviations.get(owner, {}).items()
        }

    def labels_of(self, task: str) -> dict[str, object]:
        """Return the options that say which labels are read for a task, `train_on` and `train_limit`; no defaults."""
        labels: dict[str, object] = {}
        if self.learn_on[task] != TrainOn(self.tasks[task].train_on or task):
            labels["train_on"] = str(self.learn_on[task])
        return labels | ({"train_limit": str(self.train_limit)} if self.train_limit else {})

    def uses_labels(self, name: str) -> bool:
        """Return whether a method uses labels: to train, or to scale its scores."""
        return self.methods[name].trains() or self.methods[name].output == "score"

    def training_of(self, name: str) -> dict[str, object]:
        """Return option -> value, for the options on which the training of a method's adapter depends.

        The only such option is `training_budget` if the user set it: the size of forward passes changes what dropout
        drops.
        The dict is empty if the user did not set it, or if the method trains no adapter.
        """
        named = self.training_budget is not None and uses_trained_adapter(self.methods[name])
        return {"training_budget": self.training_budget} if named else {}

    def config_of(self, name: str, task: str) -> dict[str, object]:
        """Return option -> value, for all options with unusual values that can change a method's cell on a task."""
        judging = self.judging if self.tasks[task].format is Format.OPEN else {}
        relating = {}
        if self.tasks[task].format is Format.OPEN:  # only the models whose relations the method reads
            relations = _relations([self.methods[name]])
            relating = {_OPTIONS[by]: model for by, model in self.relating.items() if by in relations}
        thinking = {} if self.think_budget is None else {"think_budget": self.think_budget}
        config = {**self.unusual, **thinking, **judging, **relating, **self.deviations_of(name)}
        config.update(self.training_of(name))
        if self.tune is not None:
            config["tune"] = self.tune
        if self.uses_labels(name):
            config |= self.labels_of(task)
        return config


_OPTIONS: Mapping[By, str] = {"entailment": "nli", "similarity": "similarity"}
"""Relation between samples -> option of `bench run` that names the model which computes it."""
_LARGEST = 2**63 - 1
"""Largest allowed value of a numeric option: the maximum of a signed 64-bit integer."""


def resolve(
    config: RunConfig, isolation: Isolation | None = None, classes: Sequence[type[ConfidenceMethod]] = ()
) -> ResolvedRun:
    """Look up everything that a run configuration names, and check the configuration.

    Args:
        config: options of the run.
        isolation: protects the run from plugins; the caller closes it.
        classes: method classes passed from Python, e.g. of a notebook; `config` names them like all other methods.

    Raises:
        UserError: a name is unknown, or an option invalid.
    """
    _check_numbers(config)
    train_limit = None if config.train_limit is None else TrainLimit.parse(config.train_limit)
    isolation = isolation or Isolation(config.method_timeout)
    for path in config.plugins:
        isolation.probe(path)
    method_registry = registry.methods(config.plugins, classes)
    task_registry, train_on = _tasks(config)
    model = specs.resolve(config.model)
    preset = config.preset or model.preset
    traces = config.think_budget is not None or is_answer_file(config.answers)
    expanded = registry.expand_groups(config.methods, method_registry, traces=traces)
    chosen = {name: method_registry.get(name) for name in expanded}
    if config.think_budget is not None and config.save_heads is not None:
        raise UserError(
            "--save-heads: a head scores answers without reasoning traces; leave it out, or --think-budget."
        )
    if not chosen:
        raise UserError("No method was named: --method NAME[,NAME] or --method all. See: bench list methods.")
    overrides = parse_overrides(config.overrides, list(chosen))
    if config.exemplar_sets is not None:
        if "exemplar_sets" in overrides.setdefault("protocol", {}):
            raise UserError("--exemplar-sets: also given as --set protocol.exemplar_sets; leave out one of them.")
        overrides["protocol"]["exemplar_sets"] = str(config.exemplar_sets)
    protocol, protocol_changes = protocol_with(preset, overrides.get("protocol", {}))
    refuse_untunable(config.tune, protocol)
    make = method_factory(isolation, method_registry, config.plugins)
    methods, changes = build_methods(make, chosen, preset, overrides)
    tuned = sample_configurations(make, methods, changes, config.tune, config.seed)
    file_tasks = [e.name for e in task_registry.entries() if e.origin in map(str, config.task_files)]
    tests = tuple(dict.fromkeys((*(task_registry.get(name).name for name in config.tasks), *file_tasks))) or model.tasks
    if not tests:
        raise UserError(f"Model {model.name!r} has no default tasks: name one with --task. See: bench list tasks.")
    for kind in config.recalibrate:
        create_recalibrator(kind)
    judging = {"judge": config.judge, **public_options(judge_options(config))}
    answers, release = _open_answers(config, model)
    learners = bool(config.recalibrate) or any(method.trains() for method in methods.values())
    scores = any(method.output == "score" for method in methods.values())  # scaled on the validation split
    learn_on = {name: _learn_on(name, train_on, task_registry, learners=learners, scores=scores) for name in tests}
    learned_on = {target.task for target in learn_on.values()} if learners or scores else set()
    names = {*tests, *(learned_on & set(task_registry.names()))}
    tasks = {name: task_registry.get(name) for name in sorted(names)}
    for test, target in learn_on.items():
        if target.split == "test" and target.task in tests:
            raise UserError(f"--train-on {target}: methods would learn the labels that {test} tests them on.")
        if target.split == "validation" and train_limit is not None and train_limit.validation is not None:
            raise UserError(f"--train-limit: expected N alone with --train-on {target}, got {train_limit}; give N.")
    reasons = [reason_untrainable(method, target, tasks) for method in methods.values() for target in learn_on.values()]
    if reasons and all(reasons):
        raise UserError(f"{', '.join(methods)}: nothing can be run, because {reasons[0]}.")
    return ResolvedRun(
        model=model,
        preset=preset,
        protocol=protocol,
        methods=methods,
        tasks=tasks,
        tests=tests,
        learn_on=learn_on,
        cache=config.cache or cache_folder(),
        sources={name: plugin_digest(cls) for name, cls in chosen.items()},
        passed=frozenset(name for name, cls in chosen.items() if cls in classes),
        deviations={**changes, **({"protocol": protocol_changes} if protocol_changes else {})},
        unusual={"answers": answers} if answers != RunConfig.answers else {},
        recalibrate=tuple(dict.fromkeys(config.recalibrate)),
        judging={name: value for name, value in judging.items() if value != getattr(RunConfig, name)},
        relating={by: model_label(name) for by, option in _OPTIONS.items() if (name := getattr(config, option))},
        release=release,
        answers=answers_after_traces(answers, config.think_budget),
        think_budget=config.think_budget,
        training_budget=config.training_budget,
        tune=config.tune,
        configurations=tuned,
        train_limit=train_limit,
        max_time=None if config.max_time is None else _seconds(config.max_time),
        notes=[*method_registry.notes, *_without_effect(config, methods.values(), tasks, learns=bool(learned_on))],
        isolation=isolation,
    )


def _relations(methods: Iterable[ConfidenceMethod]) -> set[By]:
    """Return the relations between samples that methods read."""
    signals = {signal for method in methods for signal in method.reads().fit | method.reads().predict}
    return {signal.by for signal in signals if isinstance(signal, Related)}


def _without_effect(
    config: RunConfig, methods: Collection[ConfidenceMethod], tasks: Mapping[str, type[Task]], *, learns: bool
) -> list[str]:
    """Return one note on the options that nothing in the run uses; none if each has a use."""
    is_open = any(task.format is Format.OPEN for task in tasks.values())
    used = {_OPTIONS[by] for by in _relations(methods)} | {"judge"} if is_open else set[str]()
    used |= {"train_on", "train_limit"} if learns else set()
    used |= {"training_budget"} if any(map(uses_trained_adapter, methods)) else set()
    idle = sorted({*_OPTIONS.values(), "judge", "train_on", "train_limit", "training_budget"} - used)
    options = [f"--{name.replace('_', '-')}" for name in idle if getattr(config, name) != getattr(RunConfig, name)]
    return [f"nothing in this run uses {', '.join(options)}"] if options else []


def _open_answers(config: RunConfig, model: ModelSpec) -> tuple[str, Release | AnswerFile | None]:
    """Return the source of the answers as results name it, and the answers that were made elsewhere, if they were.

    Raises:
        UserError: there are none of this model, or they have no traces.
    """
    answers = config.answers
    if specs.is_url(answers):
        return RunConfig.answers, None  # results have the name of the server's model (`Reader.nondefault_settings`)
    if is_answer_file(answers):
        release = read_answers(Path(answers))
        return release.source, release
    if (revision := requested_revision(answers)) is None:
        return answers, None
    if not model.released:
        others = ", ".join(name for name, spec in specs.aliases().items() if spec.released)
        raise UserError(f"--answers released: there are none of {model.name!r}, expected one of the models {others}.")
    if config.think_budget is not None:
        what = "the released answers have no reasoning traces; leave it out, or take --answers generate."
        raise UserError(f"--think-budget: {what}")
    return answers, open_release(revision, config.data_dir, model.released)


def _seconds(duration: str) -> float:
    """Parse the value of `--max-time`.

    >>> _seconds("90m"), _seconds("2h"), _seconds("1h30m")
    (5400.0, 7200.0, 5400.0)
    """
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", duration)
    seconds = sum(float(n or 0) * unit for n, unit in zip(found.groups(), (3600, 60, 1), strict=True)) if found else 0.0
    if not 0 < seconds < math.inf:
        raise UserError(f"--max-time: expected hours, minutes or seconds, such as 2h, 90m or 1h30m; got {duration!r}.")
    return seconds


def _check_numbers(config: RunConfig) -> None:
    if not 0 < config.method_timeout < math.inf:
        raise UserError(f"--method-timeout: expected seconds above 0, got {config.method_timeout:g}.")
    minimum = dict.fromkeys(("seed", "exemplar_sets"), 0)
    minimum |= dict.fromkeys(("limit", "token_budget", "training_budget", "think_budget", "workers", "parallel"), 1)
    for name, bound in minimum.items():
        value = getattr(config, name)
        if value is not None and not bound <= value <= _LARGEST:
            range_ = f"at least {bound}" if value < bound else f"at most {_LARGEST}"
            raise UserError(f"--{name.replace('_', '-')}: expected {range_}, got {value}.")


def _tasks(config: RunConfig) -> tuple[Registry[Task], str | None]:
    """Return all known tasks, those of question files included, and the value of `--train-on`.

    If the value names a question file, the file is replaced by its task.

    Raises:
        UserError: the file is that of a test, and has no row to learn from.
    """
    tasks, train_on = registry.tasks(config.plugins), config.train_on
    name, _, split = (train_on or "").rpartition(":")
    train_source = name if split in SPLITS else train_on or ""  # FILE[:SPLIT], or a task
    file_tasks = [(task_of_file(path), str(path)) for path in config.task_files]
    tested = {vars(task)["sha256"]: task for task, _ in file_tasks}
    if is_question_file(train_source):
        task = next((task for task, path in file_tasks if os.path.abspath(path) == os.path.abspath(train_source)), None)  # noqa: PTH100
        if task is None:
            task = task_of_file(Path(train_source), "train", [*tasks.names(), *(task.name for task, _ in file_tasks)])
            file_tasks.append((task, f"--train-on {train_source}"))
        twin = tested.get(vars(task)["sha256"])
        if twin is not None and (split if split in SPLITS else "train") not in twin.card.splits:
            raise UserError(
                f"--train-on {train_on}: that is the file of --task-file, and methods would learn the labels that it"
                " tests them on; name another file, or give rows to learn from the value train in a column split."
            )
        train_on = task.name + str(train_on).removeprefix(train_source)
    return registry.tasks(config.plugins, file_tasks) if file_tasks else tasks, train_on


def judge_options(config: RunConfig) -> JudgeOptions:
    """Return the options of the judge that grades the open answers of a run."""
    device = f"cuda:{config.devices[0]}" if config.devices else config.device
    return JudgeOptions(
        config.judge, config.judge_model, config.judge_url, device, config.dtype, config.trust_remote_code
    )


def _learn_on(test: str, train_on: str | None, tasks: Registry[Task], *, learners: bool, scores: bool) -> TrainOn:
    task = tasks.get(test)
    target = TrainOn(task.train_on or test)
    if train_on is None and (target.task not in tasks.names() or not (learners or scores)):
        if learners:
            raise UserError(
                f"Task {test!r} learns on {target.task!r}, which is not registered here. Name a task with a train"
                " split: --train-on TASK[:SPLIT], for example --train-on atlas-choice, or a file: --train-on FILE."
            )
        return target
    name, _, split = fold_name(target.task if train_on is None else train_on).partition(":")
    if split and split not in SPLITS:
        raise UserError(f"--train-on {train_on}: expected a split of {', '.join(SPLITS)}, got {split!r}.")
    full = f"{name}-{'choice' if task.format is Format.CHOICE else 'oe'}"
    # `ct-local` stands for `ct-local-choice` or `ct-local-oe`, whichever fits
    learned = tasks.get(full if name not in tasks.names() and full in tasks.names() else name)
    if learned.format is not task.format:
        raise UserError(
            f"{f'Task {test!r} learns on' if train_on is None else '--train-on'} {learned.name}: its format is"
            f" {learned.format.value}, that of {test} is {task.format.value}; methods must learn on the format that"
            " they are tested on. Name another task: --train-on TASK."
        )
    return TrainOn(learned.name, split or "train")
