"""Meaning of a `RunConfig`: names looked up, presets and overrides applied, everything checked before any work."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import registry
from bench.api import ConfidenceMethod, Format, Related, Split, Task, UserError
from bench.api.protocol import Protocol
from bench.api.signals import By
from bench.data.answer_files import AnswerFile, is_answer_file, read_answers
from bench.data.question_files import is_question_file, task_of_file
from bench.data.released import Release, open_release, revision_asked_for
from bench.data.splits import TaskSplit
from bench.grading.judges import JudgeOptions, public_options
from bench.metrics.recalibration import recalibrator
from bench.model import specs
from bench.model.specs import ModelSpec, model_label
from bench.registry import Registry
from bench.run.config import RunConfig
from bench.run.feasibility import unlearnable
from bench.run.isolation.sandbox import Isolation
from bench.run.method_factory import (
    Configurations,
    configurations,
    instances,
    maker,
    parse_overrides,
    protocol_with,
    refuse_untunable,
)
from bench.run.plan import TrainOn, adapted
from bench.store.folders import cache_folder

SPLITS: tuple[Split, ...] = ("train", "validation", "test", "dev")


@dataclass(frozen=True)
class ResolvedRun:
    """A checked run."""

    model: ModelSpec
    preset: str
    protocol: Protocol
    methods: Mapping[str, ConfidenceMethod]
    tasks: Mapping[str, type[Task]]
    """Every task that is read, also those that are only learned on."""
    tests: tuple[str, ...]
    learn_on: Mapping[str, TrainOn]
    """Test task -> where methods learn."""
    cache: Path
    deviations: Mapping[str, Mapping[str, object]]
    """Method or "protocol" -> overridden fields."""
    unusual: Mapping[str, object]
    """Options that differ from the defaults and can change a number."""
    recalibrate: tuple[str, ...]
    """Recalibrators of which every method gets a row."""
    judging: Mapping[str, object]
    """Options of the judge, which can change a number of an open task only."""
    relating: Mapping[By, str] = field(default_factory=dict)
    """Models that relate samples, as results name them; they can change a number of an open task only."""
    release: Release | AnswerFile | None = None
    """Source of answers instead of the model."""
    answers: str = RunConfig.answers
    """The same as results name it."""
    training_budget: int | None = None
    """Tokens of one forward pass of training an adapter, where they were named."""
    tune: int | None = None
    """Configurations that each method with a search space is fitted with; None: the preset's own alone."""
    configurations: Mapping[str, Configurations] = field(default_factory=dict)
    """Method with something to tune -> its configurations."""
    scale_training: bool = False
    """Whether methods learn on the share of questions that is tested."""
    notes: Sequence[str] = field(default_factory=tuple)
    isolation: Isolation = field(default_factory=Isolation, repr=False, compare=False)
    """Protection of the run from its plugins."""

    @property
    def test_splits(self) -> list[TaskSplit]:
        """The splits that are predicted."""
        return [TaskSplit(name, "test") for name in self.tests]

    def fresh(self, name: str, configuration: int = 0) -> ConfidenceMethod:
        """An unfitted method with the same arguments, or those of one of its configurations."""
        method = self.methods[name]
        searched = self.configurations[name].values[configuration] if name in self.configurations else {}
        return type(method)(**{**method.params(), **searched})

    def deviations_of(self, name: str) -> dict[str, object]:
        """Overridden constants that concern a method, with dotted names, and whether its training was scaled down."""
        constants = {
            f"{owner}.{key}": value
            for owner in (name, "protocol")
            for key, value in self.deviations.get(owner, {}).items()
        }
        return {**constants, **({"scale_training": True} if self.scale_training and self.is_told(name) else {})}

    def is_told(self, name: str) -> bool:
        """Whether a method is told any label: it learns, or its scores are scaled."""
        return self.methods[name].trains() or self.methods[name].output == "score"

    def training_of(self, name: str) -> dict[str, object]:
        """Options of training adapters that were named, for a method that has one: dropout depends on them."""
        named = self.training_budget is not None and adapted(self.methods[name])
        return {"training_budget": self.training_budget} if named else {}

    def config_of(self, name: str, task: str) -> dict[str, object]:
        """Options that distinguish this cell from a default one; empty for a default run."""
        judging = self.judging if self.tasks[task].format is Format.OPEN else {}
        relating = {}
        if self.tasks[task].format is Format.OPEN:  # models that relate the samples which the method reads
            reads = self.methods[name].reads()
            ways = {signal.by for signal in reads.fit | reads.predict if isinstance(signal, Related)}
            relating = {_OPTIONS[by]: model for by, model in self.relating.items() if by in ways}
        config = {**self.unusual, **judging, **relating, **self.deviations_of(name)}
        usual = TrainOn(self.tasks[task].train_on or task)
        config.update(self.training_of(name))
        if self.tune is not None:
            config["tune"] = self.tune
        if self.is_told(name) and self.learn_on[task] != usual:
            config["train_on"] = str(self.learn_on[task])
        return config


_OPTIONS: Mapping[By, str] = {"entailment": "nli", "similarity": "similarity"}
"""Way of relating samples -> the option that names a model for it."""
_LARGEST = 2**63 - 1
"""Largest number of an option: files, numpy and torch can hold it."""


def resolve(
    config: RunConfig, isolation: Isolation | None = None, classes: Sequence[type[ConfidenceMethod]] = ()
) -> ResolvedRun:
    """Look up and check everything that a run names.

    Args:
        config: the request.
        isolation: keeps plugins from harming the run; whoever gives it closes it.
        classes: methods of no file, which the request names too.

    Raises:
        UserError: something is unknown or does not fit; says what would.
    """
    _check_numbers(config)
    isolation = isolation or Isolation(config.method_timeout)
    for path in config.plugins:
        isolation.probe(path)
    method_registry = registry.methods(config.plugins, classes)
    task_registry, train_on = _tasks(config)
    model = specs.resolve(config.model)
    preset = config.preset or model.preset
    chosen = {name: method_registry.get(name) for name in registry.chosen(config.methods, method_registry)}
    if not chosen:
        raise UserError("No method was named: --method NAME[,NAME] or --method all. See: bench list methods.")
    overrides = parse_overrides(config.overrides, list(chosen))
    if config.exemplar_sets is not None:
        overrides.setdefault("protocol", {})["exemplar_sets"] = str(config.exemplar_sets)
    protocol, protocol_changes = protocol_with(preset, overrides.get("protocol", {}))
    refuse_untunable(config.tune, protocol)
    make = maker(isolation, method_registry, config.plugins)
    methods, changes = instances(make, chosen, preset, overrides)
    tuned = configurations(make, methods, changes, config.tune, config.seed)
    of_files = [e.name for e in task_registry.entries() if e.origin in map(str, config.task_files)]
    tests = tuple(dict.fromkeys((*config.tasks, *of_files))) or model.tasks
    if not tests:
        raise UserError(f"Model {model.name!r} has no default tasks: name one with --task. See: bench list tasks.")
    for kind in config.recalibrate:
        recalibrator(kind)
    judging = {"judge": config.judge, **public_options(judge_options(config))}
    release: Release | AnswerFile | None = None
    answers = config.answers
    if is_answer_file(answers):
        release = read_answers(Path(answers))
        answers = release.source
    elif (revision := revision_asked_for(answers)) is not None:
        if not model.released:
            others = ", ".join(name for name, spec in specs.aliases().items() if spec.released)
            raise UserError(
                f"--answers released: there are none of {model.name!r}, expected one of the models {others}."
            )
        release = open_release(revision, config.data_dir, model.released)
    learners = bool(config.recalibrate) or any(method.trains() for method in methods.values())
    learn_on = {name: _learn_on(name, train_on, task_registry, learners=learners) for name in tests}
    learned_on = {target.task for target in learn_on.values()}
    if not learners:  # scores are scaled on its validation split where it has one
        scores = any(method.output == "score" for method in methods.values())
        learned_on &= set(task_registry.names()) if scores else set()
    names = {*tests, *learned_on}
    for test, target in learn_on.items():
        if target.split == "test" and target.task in tests:
            raise UserError(f"--train-on {target}: methods would learn the labels that {test} tests them on.")
    there = {target.task for target in learn_on.values()} & set(task_registry.names())
    known = {name: task_registry.get(name) for name in there}
    reasons = [unlearnable(method, target, known) for method in methods.values() for target in learn_on.values()]
    if reasons and all(reasons):
        raise UserError(f"{', '.join(methods)}: nothing can be run, because {reasons[0]}.")
    return ResolvedRun(
        model=model,
        preset=preset,
        protocol=protocol,
        methods=methods,
        tasks={name: task_registry.get(name) for name in sorted(names)},
        tests=tests,
        learn_on=learn_on,
        cache=config.cache or cache_folder(),
        deviations={**changes, **({"protocol": protocol_changes} if protocol_changes else {})},
        unusual={
            **({"dtype": config.dtype} if config.dtype else {}),
            **({"answers": answers} if answers != RunConfig.answers else {}),
        },
        recalibrate=tuple(dict.fromkeys(config.recalibrate)),
        judging={name: value for name, value in judging.items() if value != getattr(RunConfig, name)},
        relating={by: model_label(name) for by, option in _OPTIONS.items() if (name := getattr(config, option))},
        release=release,
        answers=answers,
        training_budget=config.training_budget,
        tune=config.tune,
        configurations=tuned,
        scale_training=config.scale_training,
        notes=[*method_registry.notes],
        isolation=isolation,
    )


def _check_numbers(config: RunConfig) -> None:
    if config.scale_training and config.limit is None:
        raise UserError("--scale-training: expected --limit N as well, by which training is scaled down.")
    if not 0 < config.method_timeout < math.inf:
        raise UserError(f"--method-timeout: expected seconds above 0, got {config.method_timeout:g}.")
    least = {"seed": 0, "limit": 1, "token_budget": 1, "training_budget": 1, "exemplar_sets": 0, "workers": 1}
    for name, bound in least.items():
        value = getattr(config, name)
        if value is not None and not bound <= value <= _LARGEST:
            range_ = f"at least {bound}" if value < bound else f"at most {_LARGEST}"
            raise UserError(f"--{name.replace('_', '-')}: expected {range_}, got {value}.")


def _tasks(config: RunConfig) -> tuple[Registry[Task], str | None]:
    """All tasks, those of files of questions included; and `--train-on` with the name of a task instead of a file's."""
    known, train_on = registry.tasks(config.plugins), config.train_on
    name, _, split = (train_on or "").rpartition(":")
    learning = name if split in SPLITS else train_on or ""  # FILE[:SPLIT], or a task
    made = [(task_of_file(path), str(path)) for path in config.task_files]
    if is_question_file(learning):
        task = next((task for task, path in made if os.path.abspath(path) == os.path.abspath(learning)), None)  # noqa: PTH100
        if task is None:
            task = task_of_file(Path(learning), "train", [*known.names(), *(each.name for each, _ in made)])
            made.append((task, f"--train-on {learning}"))
        train_on = task.name + str(train_on).removeprefix(learning)
    return registry.tasks(config.plugins, made) if made else known, train_on


def judge_options(config: RunConfig) -> JudgeOptions:
    """Options of a run's judge."""
    device = f"cuda:{config.devices[0]}" if config.devices else config.device
    return JudgeOptions(
        config.judge, config.judge_model, config.judge_url, device, config.dtype, config.trust_remote_code
    )


def _learn_on(test: str, train_on: str | None, known: Registry[Task], *, learners: bool) -> TrainOn:
    task = known.get(test)
    if train_on is None:
        target = TrainOn(task.train_on or test)
        if learners and target.task not in known.names():
            raise UserError(
                f"Task {test!r} learns on {target.task!r}, which is not registered here. Name a task with a train"
                " split: --train-on TASK[:SPLIT], for example --train-on atlas-choice, or a file: --train-on FILE."
            )
        return target
    name, _, split = train_on.partition(":")
    if split and split not in SPLITS:
        raise UserError(f"--train-on {train_on}: expected a split of {', '.join(SPLITS)}, got {split!r}.")
    full = f"{name}-{'choice' if task.format is Format.CHOICE else 'oe'}"
    # `ct-local` stands for `ct-local-choice` or `ct-local-oe`, whichever fits
    learned = known.get(full if name not in known.names() and full in known.names() else name)
    if learned.format is not task.format:
        raise UserError(
            f"--train-on {name}: its format is {learned.format.value}, that of {test} is {task.format.value};"
            " methods must learn on the format that they are tested on."
        )
    return TrainOn(learned.name, split or "train")
