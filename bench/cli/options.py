"""Options of a command that are the fields of a dataclass: name, type, default and help are read off the class."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from bench import registry
from bench.api.constants import field_docstrings
from bench.api.options import Heading, Separated, option_of
from bench.api.protocol import PRESETS

T = TypeVar("T")
WIDEST = 30
"""Columns that click gives the names of options at most."""
OTHERS = "Options"
"""Heading above the options that have none of their own."""


# --- names that a shell completes; nothing heavy is imported for them -------------------------------------------------


Completer = Callable[[str], list[str]]


def _tasks() -> Iterable[str]:
    return registry.tasks().names()


def _models() -> Iterable[str]:
    from bench.model import specs

    return specs.aliases()


def _one(names: Callable[[], Iterable[str]]) -> Completer:
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _several(names: Callable[[], Iterable[str]]) -> Completer:
    """The same for names that are separated by commas: the last one is completed, none is offered twice."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in taken]

    return complete


MODEL = _one(_models)
SHOWN = _one(lambda: (*registry.methods().names(), *_tasks(), *_models(), "protocol"))
KINDS = _one(lambda: ("methods", "models", "tasks"))
BY_FIELD: Mapping[str, Completer] = {
    "methods": _several(lambda: (*registry.GROUPS, *registry.methods().names())),
    "compare": _several(lambda: registry.methods().names()),
    "tasks": _several(_tasks),
    "models": _several(_models),
    "model": MODEL,
    "preset": _one(lambda: PRESETS),
    "train_on": _one(_tasks),
    "recalibrate": _several(lambda: ("isotonic", "platt", "beta", "temperature")),
    "judge": _one(lambda: ("match", "openai", "hf")),
    "engine": _one(lambda: ("local", "ray")),
    "device": _one(lambda: ("cuda", "mps", "cpu")),
    "dtype": _one(lambda: ("float32", "bfloat16", "float16")),
}
"""Field of a dataclass of options -> its completer."""


# --- options ----------------------------------------------------------------------------------------------------------


class GroupedHelp(TyperCommand):
    """A command whose plain help has headings; typer itself shows them in its coloured help only."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write each option below its heading, in the order of the command's parameters."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or OTHERS, []).append(record)
        longest = max(len(name) for records in groups.values() for name, _ in records)
        width = min(longest, WIDEST)  # click gives a longer name a line of its own
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in records])


@functools.cache
def help_of(cls: type) -> Mapping[str, str]:
    """Field of a dataclass or of one that it extends -> help of its option: the docstring under it."""
    found: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        found |= field_docstrings(Path(str(sys.modules[base.__module__].__file__)), base.__name__)
    return found


def separated(texts: Sequence[str], by: str = ",") -> tuple[str, ...]:
    """Values of an option that takes several at once and may be repeated, without spaces around and empty ones."""
    return tuple(part.strip() for text in texts for part in text.split(by) if part.strip())


def options_from(
    cls: Callable[..., T], *, without: Sequence[str] = (), each: str | None = None
) -> Callable[[Callable[..., None]], Any]:
    """Decorate a command: its first parameter, an object of `cls`, is made from one option for each field.

    Args:
        cls: a dataclass; the docstrings under its fields are the help. A tuple is an option that may be repeated and
            has the field's name without its plural s; it is None where it may be and was not given.
        without: fields that are no options and keep their default.
        each: field, a number, of which the option takes several; then the parameter is a tuple with an object for each.
    """
    fields = [replace(field, each=field.name == each) for field in fields_of(cls) if field.name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        parameters = [*(field.parameter() for field in fields), *own]

        @functools.wraps(command)
        def called(**values: Any) -> None:
            made = {field.name: field.value(values.pop(field.name)) for field in fields}
            command(cls(**made) if each is None else tuple(cls(**made | {each: one}) for one in made[each]), **values)

        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate


@dataclass(frozen=True)
class Field:
    """Field of a dataclass as an option."""

    name: str
    type: Any
    """Type without marks; for a tuple that of its elements."""
    several: bool
    default: Any
    help: str
    marks: tuple[object, ...]
    heading: str | None
    each: bool = False
    """Whether its option takes several values, of which each makes an object."""

    def parameter(self) -> inspect.Parameter:
        """The parameter of which typer makes the option; a tuple is a list there."""
        hint = GenericAlias(list, str if self.each else self.type) if self.several or self.each else self.type
        option = typer.Option(
            self.option(), help=self.help, rich_help_panel=self.heading,
            autocompletion=BY_FIELD.get(self.name), metavar="INTEGERS" if self.each else None,
        )  # fmt: skip
        default = None if self.default == () else [str(self.default)] if self.each else self.default
        if default is None:
            hint |= None
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, option],
            default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
        )  # fmt: skip

    def option(self) -> str:
        """Name on the command line."""
        return option_of(self.name, self.marks, several=self.several)

    def value(self, given: Any) -> Any:
        """Value of the field, or values of one that makes several objects, from what typer gives."""
        if self.each:  # each number once, in order
            texts = separated(given)
            wrong = [text for text in texts if not re.fullmatch(r"[+-]?\d+", text, flags=re.ASCII)]
            if wrong or not texts:
                got = repr(wrong[0]) if wrong else "none"
                raise typer.BadParameter(
                    f"expected whole numbers separated by commas, got {got}", param_hint=f"'{self.option()}'"
                )
            return tuple(dict.fromkeys(map(int, texts)))
        if not self.several or (given is None and self.default is None):
            return given
        by = next((mark.by for mark in self.marks if isinstance(mark, Separated)), None)
        return tuple(given or ()) if by is None else separated(given or (), by)


def fields_of(cls: Any) -> Iterator[Field]:
    """Fields of a dataclass as options, in order."""
    heading = None
    for field, hint in zip(dataclasses.fields(cls), get_type_hints(cls, include_extras=True).values(), strict=True):
        plain, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        heading = next((mark.text for mark in marks if isinstance(mark, Heading)), heading)
        values = next((each for each in (plain, *get_args(plain)) if get_origin(each) is tuple), None)
        several = values is not None
        kind = get_args(values)[0] if several else plain
        yield Field(field.name, kind, several, field.default, help_of(cls)[field.name], tuple(marks), heading)
