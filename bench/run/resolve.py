"""What a `RunConfig` means: names looked up, presets and overrides applied, everything checked before any work."""

from __future__ import annotations

import enum
import hashlib
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs

from bench import registry
from bench.api import ConfidenceMethod, Format, Split, Task, UserError
from bench.api.errors import did_you_mean, fenced
from bench.api.methods import refuse_gold
from bench.api.protocol import PRESETS, Protocol
from bench.backbone import models
from bench.backbone.models import ModelSpec
from bench.data.loading import MIN_OPTIONS
from bench.grading.judges import public_options
from bench.metrics.recalibration import recalibrator
from bench.run.config import RunConfig
from bench.run.plan import LearnOn

MOST_BINS = 10_000
"""Of the expected calibration error; more are more than there are answers, and fill the memory."""
SPLITS: tuple[Split, ...] = ("train", "validation", "test", "dev")


@dataclass(frozen=True)
class Chosen:
    """A checked run."""

    model: ModelSpec
    preset: str
    protocol: Protocol
    methods: Mapping[str, ConfidenceMethod]
    tasks: Mapping[str, type[Task]]
    """Every task that is read, also those that are only learned on."""
    tests: tuple[str, ...]
    learn_on: Mapping[str, LearnOn]
    """Test task -> where methods learn."""
    cache: Path
    deviations: Mapping[str, Mapping[str, object]]
    """Method or "protocol" -> overridden fields."""
    unusual: Mapping[str, object]
    """Options that differ from the defaults and can change a number."""
    recalibrate: tuple[str, ...]
    """Recalibrators of which every method gets a row."""
    judging: Mapping[str, object]
    """Those that can change a number of an open task only."""
    notes: Sequence[str] = field(default_factory=tuple)

    def fresh(self, name: str) -> ConfidenceMethod:
        """An unfitted method with the same arguments."""
        method = self.methods[name]
        return type(method)(**method.params())

    def deviations_of(self, name: str) -> dict[str, object]:
        """Overridden constants that concern a method, with dotted names."""
        return {
            f"{owner}.{key}": value
            for owner in (name, "protocol")
            for key, value in self.deviations.get(owner, {}).items()
        }

    def config_of(self, name: str, task: str) -> dict[str, object]:
        """What distinguishes this cell from one with default options; empty for a default run."""
        judging = self.judging if self.tasks[task].format is Format.OPEN else {}
        config = {**self.unusual, **judging, **self.deviations_of(name)}
        usual = LearnOn(self.tasks[task].train_on or task)
        if self.methods[name].trains() and self.learn_on[task] != usual:
            config["train_on"] = str(self.learn_on[task])
        return config


def choose(config: RunConfig) -> Chosen:
    """Look up and check everything that a run names.

    Raises:
        UserError: something is unknown or does not fit; says what would.
    """
    method_registry = registry.methods(config.plugins)
    task_registry = registry.tasks(config.plugins, config.task_files)
    model = models.resolve(config.model)
    preset = config.preset or model.preset
    classes = _method_classes(config.methods, method_registry)
    overrides = _parse_overrides(config.overrides, list(classes))
    if config.exemplar_sets is not None:
        overrides.setdefault("protocol", {})["exemplar_sets"] = str(config.exemplar_sets)
    protocol, protocol_changes = _protocol(preset, overrides.get("protocol", {}))
    methods, changes = _instances(classes, preset, overrides)
    tests = _tests(config, model, task_registry)
    for kind in config.recalibrate:
        recalibrator(kind)
    learners = bool(config.recalibrate) or any(method.trains() for method in methods.values())
    learn_on = {name: _learn_on(name, config.train_on, task_registry, learners=learners) for name in tests}
    names = {*tests, *(target.task for target in learn_on.values() if learners)}
    _refuse_leaks(tests, learn_on)
    if config.limit is not None and config.limit < 1:
        raise UserError(f"--limit: expected at least 1, got {config.limit}.")
    if config.token_budget < 1:
        raise UserError(f"--token-budget: expected at least 1, got {config.token_budget}.")
    return Chosen(
        model=model,
        preset=preset,
        protocol=protocol,
        methods=methods,
        tasks={name: task_registry.get(name) for name in sorted(names)},
        tests=tuple(tests),
        learn_on=learn_on,
        cache=config.cache or cache_folder(),
        deviations={**changes, **({"protocol": protocol_changes} if protocol_changes else {})},
        unusual=_unusual(config),
        recalibrate=tuple(dict.fromkeys(config.recalibrate)),
        judging=judging(config),
        notes=[*method_registry.notes],
    )


def cache_folder() -> Path:
    """`$CONFBENCH_CACHE`, else the user's cache folder."""
    named = os.environ.get("CONFBENCH_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("confbench"))


def _method_classes(
    names: Sequence[str], known: registry.Registry[ConfidenceMethod]
) -> dict[str, type[ConfidenceMethod]]:
    wanted = list(known.names()) if "all" in names else list(dict.fromkeys(names))
    if not wanted:
        raise UserError("No method was named: --method NAME[,NAME] or --method all. See: bench list methods.")
    return {name: known.get(name) for name in wanted}


def _unusual(config: RunConfig) -> dict[str, object]:
    answers = {"answers": config.answers} if config.answers != RunConfig.answers else {}
    return {**({"dtype": config.dtype} if config.dtype else {}), **answers}


def judging(config: RunConfig) -> dict[str, object]:
    """The judge's options as far as they differ from the defaults."""
    fields = {"judge": config.judge, **public_options(config)}
    return {name: value for name, value in fields.items() if value != getattr(RunConfig, name)}


def _tests(config: RunConfig, model: ModelSpec, known: registry.Registry[Task]) -> tuple[str, ...]:
    """What is tested: tasks and files as given, else the model's own."""
    files = tuple(entry.name for entry in known.entries() if entry.origin in map(str, config.task_files))
    return tuple(dict.fromkeys((*config.tasks, *files))) or model.tasks or _no_tasks(model)


def _no_tasks(model: ModelSpec) -> tuple[str, ...]:
    raise UserError(f"Model {model.name!r} has no default tasks: name one with --task. See: bench list tasks.")


def _learn_on(test: str, asked: str | None, known: registry.Registry[Task], *, learners: bool) -> LearnOn:
    task = known.get(test)
    if asked is None:
        target = LearnOn(task.train_on or test)
        if learners and target.task not in known.names():
            raise UserError(
                f"Task {test!r} learns on {target.task!r}, which is not registered here. Name a task with a train"
                " split: --train-on TASK[:SPLIT], for example --train-on atlas-choice."
            )
        return target
    name, _, split = asked.partition(":")
    if split and split not in SPLITS:
        raise UserError(f"--train-on {asked}: expected a split of {', '.join(SPLITS)}, got {split!r}.")
    learned = known.get(_in_format(name, task.format, known))
    if learned.format is not task.format:
        raise UserError(
            f"--train-on {name}: its format is {learned.format.value}, that of {test} is {task.format.value};"
            " methods must learn on the format that they are tested on."
        )
    return LearnOn(learned.name, split or "train")


def _in_format(name: str, fmt: Format, known: registry.Registry[Task]) -> str:
    """`ct-local` stands for `ct-local-choice` or `ct-local-oe`, whichever fits."""
    full = f"{name}-{'choice' if fmt is Format.CHOICE else 'oe'}"
    return full if name not in known.names() and full in known.names() else name


def _refuse_leaks(tests: Sequence[str], learn_on: Mapping[str, LearnOn]) -> None:
    for test, target in learn_on.items():
        if target.split == "test" and target.task in tests:
            raise UserError(f"--train-on {target}: methods would learn the labels that {test} tests them on.")


# --- presets and overrides --------------------------------------------------------------------------------------------


def _parse_overrides(overrides: Sequence[str], methods: Sequence[str]) -> dict[str, dict[str, str]]:
    parsed: dict[str, dict[str, str]] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        owner, dot, key = name.rpartition(".")
        if not equals or not key:
            raise UserError(f"--set {text}: expected METHOD.FIELD=VALUE.")
        if not dot:
            if len(methods) != 1:
                raise UserError(f"--set {text}: with several methods, say which one: --set METHOD.{key}={value}.")
            owner = methods[0]
        if owner not in (*methods, "protocol"):
            raise UserError(f"--set {text}: {owner!r} is no chosen method ({', '.join(methods)}, or protocol).")
        parsed.setdefault(owner, {})[key] = value
    return parsed


def protocol_of(preset: str, deviations: Mapping[str, object]) -> Protocol:
    """The protocol of a result: a preset with the `protocol.FIELD` among its deviations; others are passed over.

    Raises:
        UserError: there is no such preset or field, or a value is not of its field's type.
    """
    owned = {key.removeprefix("protocol."): str(v) for key, v in deviations.items() if key.startswith("protocol.")}
    return _protocol(preset, owned)[0]


def _protocol(preset: str, overrides: Mapping[str, str]) -> tuple[Protocol, dict[str, object]]:
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS)
        raise UserError(f"Unknown preset {preset!r}: expected one of {', '.join(PRESETS)}.{hint}")
    protocol = PRESETS[preset]
    defaults = {key: value for key, value in vars(protocol).items() if key != "preset"}
    changes = {key: _typed("protocol", key, text, defaults) for key, text in overrides.items()}
    plain = {key: value.value if isinstance(value, enum.Enum) else value for key, value in changes.items()}
    changed = replace(protocol, **changes)
    _check_protocol(changed)
    return changed, plain


def _check_protocol(protocol: Protocol) -> None:
    least = {
        "shots": 0,
        "exemplar_seed": 0,
        "exemplar_sets": 0,
        "max_new_tokens_choice": 1,
        "max_new_tokens_open": 1,
        "ece_bins": 1,
        "std_ddof": 0,
    }
    for key, bound in least.items():
        if getattr(protocol, key) < bound:
            raise UserError(f"--set protocol.{key}: expected at least {bound}, got {getattr(protocol, key)}.")
    if protocol.ece_bins > MOST_BINS:
        raise UserError(f"--set protocol.ece_bins: expected at most {MOST_BINS:,}, got {protocol.ece_bins}.")
    for key, letters in (("letters", protocol.letters), ("query_letters", protocol.query_letters)):
        if len(set(letters.casefold())) != len(letters) or len(letters) < MIN_OPTIONS or not letters.isalnum():
            raise UserError(f"--set protocol.{key}: expected different letters, two at least, got {letters!r}.")
    if len(protocol.query_letters) != MIN_OPTIONS:
        raise UserError(f"--set protocol.query_letters: expected two letters, got {protocol.query_letters!r}.")


def _instances(
    classes: Mapping[str, type[ConfidenceMethod]], preset: str, overrides: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, ConfidenceMethod], dict[str, Mapping[str, object]]]:
    methods: dict[str, ConfidenceMethod] = {}
    changes: dict[str, Mapping[str, object]] = {}
    for name, cls in classes.items():
        if cls.presets and preset not in cls.presets:
            raise UserError(f"Method {name!r} has no preset {preset!r}: expected one of {', '.join(cls.presets)}.")
        with fenced(f"method {name!r}"):
            method = cls(**cls.presets.get(preset, {}))
            if name in overrides:
                defaults = method.params()
                changes[name] = {key: _typed(name, key, text, defaults) for key, text in overrides[name].items()}
                method = cls(**{**defaults, **changes[name]})
            _check_declared(method)
        methods[name] = method
    return methods, changes


def _check_declared(method: ConfidenceMethod) -> None:
    """What a method says of itself can be asked for, and with these arguments it reads no right answer to predict."""
    refuse_gold("reads()", method.reads(), method.fit_on)
    method.trains()
    type(method)(**method.params())


def _typed(owner: str, key: str, text: str, defaults: Mapping[str, Any]) -> Any:
    """The override's text as the type of the field's default."""
    if key not in defaults:
        hint = did_you_mean(key, defaults)
        raise UserError(f"{owner} has no field {key!r}: expected one of {', '.join(defaults) or 'none'}.{hint}")
    default = defaults[key]
    try:
        return _parse(text, default)
    except (ValueError, KeyError) as error:
        raise UserError(f"--set {owner}.{key}={text}: expected {_expected(default)}, got {text!r}.") from error


def _parse(text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return {"true": True, "false": False}[text.lower()]
    if default is None:
        return _number_or_text(text)
    if isinstance(default, enum.Enum | int | float | str):
        return type(default)(text)
    raise ValueError(text)


def _number_or_text(text: str) -> float | str | None:
    """For a field without a value: its default doesn't tell the type."""
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _expected(default: Any) -> str:
    if isinstance(default, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in type(default))
    return "true or false" if isinstance(default, bool) else f"a value of type {type(default).__name__}"


def source_digest(plugin: type) -> str:
    """Digest of a plugin's source, so that what an older version learned is never taken for what this one would.

    That is its file, and for a member of a package every Python file of the package.
    """
    path = Path(inspect.getfile(plugin))
    depth = plugin.__module__.count(".")
    if path.name == "__init__.py":
        depth += 1
    files = sorted(path.parents[depth - 1].rglob("*.py")) if depth else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
