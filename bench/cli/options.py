"""Command-line options made from the fields of a dataclass (name, type, default, help), and shell completion."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from bench import registry
from bench.api.hyperparameters import field_docstrings
from bench.api.options import OptionField, options_of
from bench.api.protocol import PRESETS

T = TypeVar("T")
MAX_NAME_WIDTH = 30
"""Largest width of option names in click's help, in characters."""
DEFAULT_HEADING = "Options"
"""Heading, in the help, above options that have no heading of their own."""


# --- shell completion, without heavy imports --------------------------------------------------------------------------


Completer = Callable[[str], list[str]]


def _tasks() -> Iterable[str]:
    return registry.tasks().names()


def _models() -> Iterable[str]:
    from bench.model import specs

    return specs.aliases()


def _complete_one(names: Callable[[], Iterable[str]]) -> Completer:
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _complete_list(names: Callable[[], Iterable[str]]) -> Completer:
    """Return a completer for the last of several names separated by commas; names already typed are not offered."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        listed = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in listed]

    return complete


MODEL = _complete_one(_models)
SHOWN = _complete_one(lambda: (*registry.methods().names(), *_tasks(), *_models(), "protocol"))
KINDS = _complete_one(lambda: ("methods", "models", "tasks"))
BY_FIELD: Mapping[str, Completer] = {
    "methods": _complete_list(lambda: (*registry.GROUPS, *registry.methods().names())),
    "compare": _complete_list(lambda: registry.methods().names()),
    "tasks": _complete_list(_tasks),
    "models": _complete_list(_models),
    "model": MODEL,
    "preset": _complete_one(lambda: PRESETS),
    "train_on": _complete_one(_tasks),
    "recalibrate": _complete_list(lambda: ("isotonic", "platt", "beta", "temperature")),
    "judge": _complete_one(lambda: ("match", "openai", "hf")),
    "engine": _complete_one(lambda: ("local", "ray")),
    "device": _complete_one(lambda: ("cuda", "mps", "cpu")),
    "dtype": _complete_one(lambda: ("float32", "bfloat16", "float16")),
}
"""Name of a field in a dataclass of options -> completer of its option."""


# --- options ----------------------------------------------------------------------------------------------------------


class GroupedHelp(TyperCommand):
    """Typer command whose plain help has headings too; typer itself shows headings in rich help only."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options into the help, below their headings, in the order of the command's parameters."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or DEFAULT_HEADING, []).append(record)
        longest = max(len(name) for records in groups.values() for name, _ in records)
        width = min(longest, MAX_NAME_WIDTH)  # click puts a longer name on its own line
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in records])


@functools.cache
def help_of(cls: type) -> Mapping[str, str]:
    """Return field -> docstring under the field, which is the option's help, for a dataclass and its base classes."""
    helps: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        helps |= field_docstrings(Path(str(sys.modules[base.__module__].__file__)), base.__name__)
    return helps


def split_list(texts: Sequence[str], by: str = ",") -> tuple[str, ...]:
    """Split each value of a repeatable option at a separator; strip spaces and drop empty parts."""
    return tuple(part.strip() for text in texts for part in text.split(by) if part.strip())


def options_from(
    cls: Callable[..., T], *, without: Sequence[str] = (), each: str | None = None
) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator of commands: each field of the dataclass `cls` becomes an option.

    The command's first argument is then an object of `cls`, built from the options.

    Args:
        cls: a dataclass; the docstrings under its fields are the options' help. A field that is a tuple becomes a
            repeatable option with the field's name in the singular. A tuple field whose default is None is None where
            the option is not given.
        without: names of fields that don't become options and keep their defaults.
        each: name of an integer field whose option takes several values. The command's first argument is then a tuple
            with one object of `cls` for each value.
    """
    options = {option.name: option for option in options_of(cls) if option.name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        other_parameters = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        parameters = [_parameter(option, help_of(cls)[name], each=name == each) for name, option in options.items()]
        parameters += other_parameters

        @functools.wraps(command)
        def called(**values: Any) -> None:
            args = {name: _value(option, values.pop(name), each=name == each) for name, option in options.items()}
            command(cls(**args) if each is None else tuple(cls(**args | {each: one}) for one in args[each]), **values)

        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate


def _parameter(option: OptionField, text: str, *, each: bool) -> inspect.Parameter:
    """Return an option as a function parameter with the annotations that typer reads; a tuple becomes a list.

    Args:
        option: the option.
        text: its help.
        each: whether it takes several values, each of which makes one object of the dataclass.
    """
    hint = GenericAlias(list, str if each else option.kind) if option.several or each else option.kind
    # also by the name that it has in Python
    plural = [f"--{option.name}"] if option.several and option.flag == f"--{option.name[:-1]}" else []
    setting = typer.Option(
        option.flag, *plural, help=text, rich_help_panel=option.heading,
        autocompletion=BY_FIELD.get(option.name), metavar="INTEGERS" if each else None,
    )  # fmt: skip
    default = None if option.default == () else [str(option.default)] if each else option.default
    if default is None:
        hint |= None
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, setting],
        default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
    )  # fmt: skip


def _value(option: OptionField, given: Any, *, each: bool) -> Any:
    """Convert a value that typer parsed to the option's type; if `each`, return a tuple of such values."""
    if each:  # distinct, in order
        texts = split_list(given)
        invalid = [text for text in texts if not re.fullmatch(r"[+-]?\d+", text, flags=re.ASCII)]
        if invalid or not texts:
            got = repr(invalid[0]) if invalid else "none"
            raise typer.BadParameter(
                f"expected whole numbers separated by commas, got {got}", param_hint=f"'{option.flag}'"
            )
        return tuple(dict.fromkeys(map(int, texts)))
    if not option.several or (given is None and option.default is None):
        return given
    return tuple(given or ()) if option.by is None else split_list(given or (), option.by)
