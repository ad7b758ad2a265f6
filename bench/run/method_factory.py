"""Build the methods and the protocol of a run, with constants from the preset, from `--set` and from `--tune`."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bench.api import ConfidenceMethod, ContractError, UserError
from bench.api.configurations import configuration_values, search_fields
from bench.api.errors import did_you_mean, fold_name, plugin_errors
from bench.api.methods import refuse_gold
from bench.api.protocol import KeptStep, Protocol, get_preset, with_fields
from bench.registry import Registry
from bench.run.isolation.methods import isolated_class
from bench.run.isolation.sandbox import Isolation

MOST = 1_000
"""Largest number of configurations that `--tune` accepts."""


MethodFactory = Callable[[type[ConfidenceMethod], Mapping[str, object]], ConfidenceMethod]
"""Function that builds a method from its class and the constructor's arguments, and checks the method's
declarations."""


def method_factory(isolation: Isolation, methods: Registry[ConfidenceMethod], plugins: Sequence[Path]) -> MethodFactory:
    """Return a function that builds a method, and checks its declarations and the constants annotated as `Literal`.

    A method of a plugin file is first built in a child process, so that a crash there does not end this process, but
    raises `PluginError`.

    Args:
        isolation: isolation of the run.
        methods: all methods that are known.
        plugins: plugin files of the run.
    """
    paths = {str(path): path for path in plugins}
    origins = {entry.name: paths.get(entry.origin) for entry in methods.entries()}

    def make(cls: type[ConfidenceMethod], arguments: Mapping[str, object]) -> ConfidenceMethod:
        path = origins[cls.name]
        if path is not None:
            isolation.declare(cls, path, arguments)
        method = isolated_class(cls, isolation, path)(**arguments)
        # a plugin's annotations may be mere text, name what only a type checker imports, or have no value yet
        with suppress(AttributeError, NameError, SyntaxError, TypeError):
            for field, hint in get_type_hints(cls).items():
                if get_origin(hint) is Literal and (value := getattr(method, field)) not in get_args(hint):
                    expected = ", ".join(map(str, get_args(hint)))
                    raise UserError(f"{cls.name}.{field}: expected one of {expected}, got {value!r:.60}")
        refuse_gold("reads()", method.reads(), method.fit_on)
        method.trains()  # raises if it is not implemented
        type(method)(**method.params())
        return method

    return make


def build_methods(
    make: MethodFactory,
    classes: Mapping[str, type[ConfidenceMethod]],
    preset: str,
    overrides: Mapping[str, Mapping[str, str]],
) -> tuple[dict[str, ConfidenceMethod], dict[str, Mapping[str, object]]]:
    """Build the methods of a run; return name -> method, and name -> the constants that the user set for the method.

    Args:
        make: function that builds and checks a method.
        classes: name -> class of the method.
        preset: name of the preset.
        overrides: name of a method -> constant -> value as text, from `--set`.

    Raises:
        UserError: a method has no such preset or constant, or refuses a value.
    """
    methods: dict[str, ConfidenceMethod] = {}
    changes: dict[str, Mapping[str, object]] = {}
    for name, cls in classes.items():
        if cls.presets and preset not in cls.presets:
            raise UserError(f"Method {name!r} has no preset {preset!r}: expected one of {', '.join(cls.presets)}.")
        with plugin_errors(f"method {name!r}"):
            method = make(cls, cls.presets.get(preset, {}))
            if name in overrides:
                defaults = method.params()
                changes[name] = {key: convert(name, key, text, defaults) for key, text in overrides[name].items()}
                method = make(cls, {**defaults, **changes[name]})
        methods[name] = method
    return methods, changes


# --- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Configurations:
    """Configurations that were sampled for one method; validation chooses the best of them."""

    searched: Mapping[str, str]
    """Constant -> description of its search space."""
    values: tuple[Mapping[str, object], ...]
    """Constant -> value, for each configuration in the order of sampling; the first one has the preset's values."""

    def __len__(self) -> int:
        return len(self.values)


def sample_configurations(
    make: MethodFactory,
    methods: Mapping[str, ConfidenceMethod],
    overridden: Mapping[str, Mapping[str, object]],
    n: int | None,
    seed: int,
) -> dict[str, Configurations]:
    """Sample configurations for each method that declares a search space; return name -> configurations.

    Args:
        make: function that builds and checks a method.
        methods: name -> method.
        overridden: name of a method -> constants that the user set, which are not searched.
        n: number of configurations for each method; None: no method is tuned.
        seed: seed of the run.

    Raises:
        UserError: a method refuses a value of its own search space, or reads other signals with it.
    """
    result: dict[str, Configurations] = {}
    for name, method in methods.items() if n is not None else ():
        with plugin_errors(f"method {name!r}, its search space"):
            fields = search_fields(method, overridden.get(name, {}))
            if not fields or n is None:
                continue
            defaults = method.params()
            values = tuple(configuration_values(method, fields, seed, k) for k in range(n))
            for constants in values:
                if make(vars(type(method))["__wrapped__"], {**defaults, **constants}).reads() != method.reads():
                    raise ContractError("search: expected constants of training, but these values change what it reads")
            result[name] = Configurations({key: search.words(defaults[key]) for key, search in fields.items()}, values)
    return result


def refuse_untunable(n: int | None, protocol: Protocol) -> None:
    """Check that a run with this protocol can choose among n configurations (`--tune`); n may be None (no tuning).

    Raises:
        UserError: n is out of range, or the preset keeps the last training step and reads no validation answers.
    """
    if n is None:
        return
    if n < 2:
        raise UserError(
            f"--tune: expected at least 2 configurations, got {n}; the preset's own alone is a run without it."
        )
    if n > MOST:
        raise UserError(f"--tune: expected at most {MOST:,} configurations, got {n:,}.")
    if protocol.kept_step is KeptStep.LAST:
        raise UserError(
            f"--tune: configurations are chosen by validation answers, and preset {protocol.preset!r} keeps the last"
            " step without looking at any; take one that chooses steps on validation: --preset fixed."
        )


# --- overrides --------------------------------------------------------------------------------------------------------


def parse_overrides(overrides: Sequence[str], methods: Sequence[str]) -> dict[str, dict[str, str]]:
    """Parse the texts of `--set`; return owner -> field -> value as text. An owner is a method or `protocol`.

    Args:
        overrides: texts `OWNER.FIELD=VALUE`; with only one method, also `FIELD=VALUE`.
        methods: names of the chosen methods.

    Raises:
        UserError: a text has another form, or its owner is not among the chosen methods.
    """
    parsed: dict[str, dict[str, str]] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        owner, dot, key = name.rpartition(".")
        owner = fold_name(owner)
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


def protocol_with(preset: str, overrides: Mapping[str, str]) -> tuple[Protocol, dict[str, object]]:
    """Return a preset's protocol with some fields overridden, and these fields with their values as JSON values.

    Args:
        preset: name of the preset.
        overrides: field -> value as text.

    Raises:
        UserError: there is no such preset or field, or a field can't have the value.
    """
    defaults = {key: value for key, value in vars(get_preset(preset)).items() if key != "preset"}
    changes = {key: convert("protocol", key, text, defaults) for key, text in overrides.items()}
    plain = {key: value.value if isinstance(value, enum.Enum) else value for key, value in changes.items()}
    return with_fields(preset, plain), plain


def convert(owner: str, key: str, text: str, defaults: Mapping[str, Any]) -> Any:
    """Convert the text of an override to the type of the default value that it replaces.

    Args:
        owner: name of the method, or "protocol", for error messages.
        key: name of the field.
        text: new value as text.
        defaults: field -> default value.

    Raises:
        UserError: the owner has no such field, or the text is not a valid value of the default's type, or the number is
            out of bounds (see `_bound_missed`).
    """
    if key not in defaults:
        hint = did_you_mean(key, defaults)
        raise UserError(f"{owner} has no field {key!r}: expected one of {', '.join(defaults) or 'none'}.{hint}")
    default = defaults[key]
    expected = f"a value of type {type(default).__name__}"
    try:
        if isinstance(default, bool):
            expected = "true or false"
            value: Any = {"true": True, "false": False}[text.lower()]
        elif default is None:  # the type of an unset field is not known
            value = None if text.lower() == "none" else text
            for number in (float, int):  # 2 is whole: where a count is meant, numpy refuses 2.0
                with suppress(ValueError):
                    value = number(text)
        elif isinstance(default, tuple) and default and not any(isinstance(each, tuple) for each in default):
            kind = max(default, key=lambda each: isinstance(each, float))  # with a float among them, all are
            # 64,32 and the forms that Python and JSON give it, in which texts have quotes and may have commas
            parts = re.findall(r"""(?s)(?:^|,)\s*(["']?)(.*?)\1\s*(?=,|$)""", text.strip("()[], "))
            return tuple(convert(owner, key, part, {key: kind}) for _, part in parts)
        elif isinstance(default, enum.Enum | int | float | str):
            if isinstance(default, enum.Enum):
                expected = "one of " + ", ".join(str(member.value) for member in type(default))
            value = type(default)(text)
        else:
            raise ValueError(text)
    except (ValueError, KeyError) as error:
        raise UserError(f"--set {owner}.{key}={text}: expected {expected}, got {text!r:.60}.") from error
    bound = _bound_missed(value, default, counted=owner != "protocol")
    if bound:
        raise UserError(f"--set {owner}.{key}={text}: expected {bound}, got {text:.60}.")
    return value


def _bound_missed(value: object, default: object, *, counted: bool) -> str:
    """Return in words the bound that an overridden number violates; empty if the number is allowed.

    Every number must fit into 64 bits, and must not be NaN. If the default is at least 0, the new value must be at
    least 0, too. A count (steps, rows of a batch) whose default is positive must stay positive. The method checks all
    other bounds when it is built.

    Args:
        value: new value of the field.
        default: value that it replaces.
        counted: whether positive integers are counts here, as in methods.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if not -(2**63) <= value < 2**63:  # NaN too
        return "a number" if value != value else "a number of at most 64 bits"  # noqa: PLR0124
    if not isinstance(default, int | float) or default < 0 or value > 0:
        return ""
    if counted and isinstance(default, int) and default > 0:
        return "at least 1"
    return "at least 0" if value < 0 else ""
