"""What `bench list` and `bench show` say, as plain data: methods, tasks and models."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from bench import models, prompting, registry
from bench.api import ConfidenceMethod, ContractError, DataCard, Source, Task
from bench.constants import constants
from bench.errors import UserError
from bench.protocol import PRESETS
from bench.records import Split
from bench.shots import exemplars, places

KINDS = ("methods", "models", "tasks")


def listing(kind: str, plugins: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """One record for each method, model or task.

    Raises:
        UserError: unknown kind.
    """
    if kind == "methods":
        return [_method_line(entry) for entry in registry.methods(plugins).entries()]
    if kind == "tasks":
        return [_task_line(entry) for entry in registry.tasks(plugins).entries()]
    if kind == "models":
        return [_model_line(spec) for spec in models.aliases().values()]
    raise UserError(f"bench list: expected one of {', '.join(KINDS)}, got {kind!r}.")


def _method_line(entry: registry.Entry[ConfidenceMethod]) -> dict[str, Any]:
    if entry.plugin is None:
        return {"name": entry.name, "origin": entry.origin, "broken": entry.error}
    return {
        "name": entry.name,
        "trains on": entry.plugin.fit_on if entry.plugin.trains() else "nothing",
        "reference": entry.plugin.reference,
        "what": first_sentence(entry.plugin),
        "origin": entry.origin,
    }


def _task_line(entry: registry.Entry[Task]) -> dict[str, Any]:
    if entry.plugin is None:
        return {"name": entry.name, "origin": entry.origin, "broken": entry.error}
    card = entry.plugin.card
    return {
        "name": entry.name,
        "format": entry.plugin.format.value,
        "questions": ", ".join(f"{split} {size:,}" for split, size in card.sizes.items()),
        "licence": card.license,
        "rows from": _rows_from(_origins(entry.plugin)),
        "what": first_sentence(entry.plugin),
        "origin": entry.origin,
    }


def _origins(cls: type[Task]) -> list[DataCard]:
    """The data sets that a task's rows come from, each once."""
    task = cls(_Nowhere())
    cards = [card for split in cls.card.splits for card, _ in task.origins(split)]
    return list({(card.hub, card.config, *card.splits.values()): card for card in cards}.values())


def _rows_from(origins: Sequence[DataCard]) -> str:
    if len(origins) > 1:
        return f"{len(origins)} data sets of the Hub"
    return next((f"{card.hub}@{(card.revision or 'unpinned')[:8]}" for card in origins), "generated")


class _Nowhere(Source):
    """For asking a task where its rows would come from."""

    def has(self, card: DataCard, split: Split) -> bool:
        del card, split
        return True

    def rows(self, card: DataCard, split: Split, columns: Sequence[str]) -> NoReturn:
        raise ContractError(f"{card.hub}: the columns {', '.join(columns)} of {split} were read to list tasks")


def _model_line(spec: models.ModelSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "from": "in the package" if spec.local else f"{spec.source}@{(spec.revision or 'main')[:8]}",
        "dtype": spec.dtype,
        "preset": spec.preset,
        "tasks": ", ".join(spec.tasks),
        "note": spec.note,
    }


def first_sentence(plugin: type) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(plugin) or "").partition("\n")[0]


def shown(name: str, plugins: Sequence[Path] = ()) -> dict[str, Any]:
    """Everything that is known of a method, a task or a model without loading it.

    Raises:
        UserError: nothing has this name.
    """
    method_registry, task_registry = registry.methods(plugins), registry.tasks(plugins)
    if name in method_registry.names():
        return _method(method_registry.get(name))
    if name in task_registry.names():
        return _task(task_registry.get(name))
    if name in models.aliases():
        spec = models.aliases()[name]
        return {"kind": "model", **asdict(spec), "source": "in the package" if spec.local else spec.source}
    if name == "protocol":
        fields = {key: _plain(vars(preset)) for key, preset in PRESETS.items()}
        names = [name for name in fields["fixed"] if name != "preset"]
        return {
            "kind": "protocol",
            "constants": [{"name": name, **{key: values[name] for key, values in fields.items()}} for name in names],
        }
    everything = ", ".join([*method_registry.names(), *task_registry.names(), *models.aliases(), "protocol"])
    raise UserError(f"Nothing is called {name!r}: expected one of {everything}.")


def _method(cls: type[ConfidenceMethod]) -> dict[str, Any]:
    return {
        "kind": "method",
        "name": cls.name,
        "what": first_sentence(cls),
        "reference": cls.reference,
        "fit on": cls.fit_on if cls.trains() else "nothing",
        "reads in fit": sorted(map(repr, cls.needs.fit)) if cls.trains() else [],
        "reads in predict": sorted(map(repr, cls.needs.predict)),
        "constants": constants(cls),
    }


def _task(cls: type[Task]) -> dict[str, Any]:
    return {
        "kind": "task",
        "name": cls.name,
        "what": first_sentence(cls),
        "format": cls.format.value,
        "learns on": cls.train_on or cls.name,
        **{key: dict(value) if hasattr(value, "items") else value for key, value in vars(cls.card).items()},
        "rows from": [
            " ".join(filter(None, [card.hub, card.config, f"@{card.revision or card.unpinned_reason}", card.license]))
            for card in _origins(cls)
        ]
        or "generated",
        "style": asdict(cls.style),
    }


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: getattr(value, "value", value) for key, value in fields.items()}


def example(name: str, row: int, data_dir: Path | None, plugins: Sequence[Path] = ()) -> dict[str, str]:
    """The conversation that asks test question number `row` of a task, role -> text.

    Raises:
        UserError: no such task or row.
    """
    from bench.sources import open_source  # late: listing opens nothing

    task = registry.tasks(plugins).get(name)(open_source(data_dir))
    split: Split = "test" if "test" in task.card.splits else "train"
    questions = list(task.questions(split))
    if not 0 <= row < len(questions):
        raise UserError(f"--example {row}: task {name!r} has {split} questions 0 to {len(questions) - 1}.")
    question = questions[row]
    protocol = PRESETS["fixed"]
    shown = exemplars(task, question, places(questions)[question.id], task.pools().get(question.subject, ()), protocol)
    prompt = prompting.build(question, shown, task.style_of(question), task.format, protocol)
    right = prompting.target(question, task.format, protocol.letters)
    return {**{message.role: message.content for message in prompt.messages}, "right answer": right}
