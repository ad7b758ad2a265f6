"""Data for `bench list` and `bench show`, as dicts: methods, tasks, models, protocol."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from bench import registry
from bench.api import ConfidenceMethod, DataCard, Task, UserError
from bench.api.configurations import search_fields
from bench.api.errors import did_you_mean, fold_name, plugin_errors
from bench.api.hyperparameters import constants
from bench.api.protocol import NOT_REPRODUCED, PRESETS, TEMPLATES
from bench.api.tasks import NO_SOURCE
from bench.model import specs

T = TypeVar("T")

KINDS = ("methods", "models", "tasks")


def list_records(kind: str, plugins: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Return one dict of fields for each method, model or task.

    Raises:
        UserError: `kind` is none of KINDS.
    """
    if kind == "methods":
        return [_plugin_record(entry, _method_fields) for entry in registry.methods(plugins).entries()]
    if kind == "tasks":
        return [_plugin_record(entry, _task_fields) for entry in registry.tasks(plugins).entries()]
    if kind == "models":
        return [
            {
                "name": spec.name,
                "from": "in the package" if spec.local else f"{spec.source}@{(spec.revision or 'main')[:8]}",
                "dtype": spec.dtype,
                "preset": spec.preset,
                "tasks": ", ".join(spec.tasks),
                "note": spec.note,
            }
            for spec in specs.aliases().values()
        ]
    raise UserError(f"bench list: expected one of {', '.join(KINDS)}, got {kind!r}.")


def _plugin_record(entry: registry.PluginEntry[T], get_fields: Callable[[type[T]], dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of a plugin as a dict; a plugin that can't be loaded has its error in the field `broken`."""
    if entry.plugin is None:
        return {"name": entry.name, "origin": entry.origin, "broken": entry.error}
    try:
        with plugin_errors(entry.module):
            return {"name": entry.name, "origin": entry.origin, **get_fields(entry.plugin)}
    except UserError as error:
        return {"name": entry.name, "origin": entry.origin, "broken": str(error)}


def _method_fields(cls: type[ConfidenceMethod]) -> dict[str, Any]:
    return {
        "groups": ", ".join(registry.groups_of(cls)),
        "trains on": cls.fit_on if cls.trains() else "nothing",
        "reference": cls.reference,
        "what": _first_sentence(cls),
    }


def _task_fields(cls: type[Task]) -> dict[str, Any]:
    cards = _origins(cls)
    hubs = [f"{card.hub}@{(card.revision or 'unpinned')[:8]}" for card in cards] or ["generated"]
    return {
        "format": cls.format.value,
        "questions": ", ".join(f"{split} {size:,}" for split, size in cls.card.sizes.items()),
        "licence": cls.card.license,
        "rows from": f"{len(cards)} data sets of the Hub" if len(cards) > 1 else hubs[0],
        "what": _first_sentence(cls),
    }


def _origins(cls: type[Task]) -> list[DataCard]:
    """Return the distinct data sets from which a task's rows come."""
    task = cls(NO_SOURCE)
    cards = [card for split in cls.card.splits for card, _ in task.origins(split)]
    return list({(card.hub, card.config, *card.splits.values()): card for card in cards}.values())


def _first_sentence(plugin: type) -> str:
    """Return the first line of a plugin's docstring."""
    return (inspect.getdoc(plugin) or "").partition("\n")[0]


def _tasks(name: str | None, plugins: Sequence[Path], file: Path | None) -> tuple[registry.Registry[Task], str]:
    """Return all known tasks and the name as it is registered; if a question file is given, its task and its name."""
    if file is None:
        return registry.tasks(plugins), fold_name(name or "")
    from bench.data.question_files import task_of_file

    task = task_of_file(file, None)
    return registry.tasks(plugins, [(task, str(file))]), task.name


def show_record(requested: str | None, plugins: Sequence[Path] = (), file: Path | None = None) -> dict[str, Any]:
    """Return all fields of a method, a task, a model or the protocol, without loading weights or the Hub's data.

    Args:
        requested: the name, in a spelling that `fold_name` takes.
        plugins: paths of plugin files.
        file: question file whose task is described, instead of a name.

    Raises:
        UserError: nothing has this name, or the question file is invalid.
    """
    method_registry, (task_registry, name) = registry.methods(plugins), _tasks(requested, plugins, file)
    if name in method_registry.names():
        with plugin_errors(f"method {name!r}"):
            cls = method_registry.get(name)
            by_search: dict[str, list[str]] = {}  # constant and its search space -> presets
            for preset, arguments in (cls.presets or {"defaults": {}}).items() if cls.trains() else ():
                instance = cls(**arguments)
                for field, search in search_fields(instance, {}).items():
                    by_search.setdefault(f"{field}: {search.words(instance.params()[field])}", []).append(preset)
            tuned = [f"{words} ({', '.join(presets)})" for words, presets in sorted(by_search.items())] or ["nothing"]
            return {
                "kind": "method",
                "name": cls.name,
                "what": _first_sentence(cls),
                "reference": cls.reference,
                **({"gives": "scores, which are scaled on validation"} if cls.output == "score" else {}),
                "fit on": cls.fit_on if cls.trains() else "nothing",
                "reads in fit": sorted(map(repr, cls.needs.fit)) if cls.trains() else [],
                "reads in predict": sorted(map(repr, cls.needs.predict)),
                "not reproduced": _lines_by_preset(cls.not_reproduced),
                **({"searched by --tune": tuned} if cls.trains() else {}),
                "constants": constants(cls),
            }
    if name in task_registry.names():
        with plugin_errors(f"task {name!r}"):
            task = task_registry.get(name)
            cards = [
                (card.hub, card.config, f"@{card.revision or card.unpinned_reason}", card.license)
                for card in _origins(task)
            ]
            return {
                "kind": "task",
                "name": task.name,
                "what": _first_sentence(task),
                "format": task.format.value,
                "learns on": task.train_on or task.name,
                **{key: dict(value) if hasattr(value, "items") else value for key, value in vars(task.card).items()},
                "rows from": [" ".join(filter(None, card)) for card in cards] or (file.name if file else "generated"),
                "style": asdict(task.style),
            }
    if name in specs.aliases():
        spec = specs.aliases()[name]
        return {"kind": "model", **asdict(spec), "source": "in the package" if spec.local else spec.source}
    if name == "protocol":
        fields = {
            key: {name: getattr(value, "value", value) for name, value in vars(preset).items()}
            for key, preset in PRESETS.items()
        }
        names = [name for name in fields["fixed"] if name != "preset"]
        return {
            "kind": "protocol",
            "templates": sorted(TEMPLATES.values()),
            "not reproduced": _lines_by_preset(NOT_REPRODUCED),
            "constants": [{"name": name, **{key: values[name] for key, values in fields.items()}} for name in names],
        }
    names = [*method_registry.names(), *task_registry.names(), *specs.aliases(), "protocol"]
    hint = did_you_mean(str(requested), names) or f" Names are {', '.join(names)}."
    raise UserError(f"Nothing is called {requested!r}.{hint} See: bench list")


def brief(record: dict[str, Any]) -> dict[str, Any]:
    """Return a method's record with only the numbers of its constants and of its differences from the source."""
    whole, (n, m) = dict(record), (len(record[key]) for key in ("constants", "not reproduced"))
    del whole["constants"], whole["not reproduced"]
    return whole | (
        {"--constants": f"shows {n} constants and their sources, {m} things not reproduced"} if n + m else {}
    )


def _lines_by_preset(by_preset: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{preset}: {sentence}" for preset, sentences in by_preset.items() for sentence in sentences]


def example(
    requested: str | None, row: int, data_dir: Path | None, plugins: Sequence[Path] = (), file: Path | None = None
) -> dict[str, str]:
    """Return a question's prompt as role -> text, with the right answer under the key `right answer`.

    `row` is the question's index in the task's test split; in its train split if the task has no test split.

    Raises:
        UserError: the task or the question does not exist.
    """
    from bench.data.example import example_prompt
    from bench.data.sources import open_source  # late: listing opens nothing

    (task_registry, name), source = _tasks(requested, plugins, file), open_source(data_dir)
    cls = task_registry.get(name)
    with plugin_errors(f"task {name!r}"):
        return example_prompt(cls(source), row)
