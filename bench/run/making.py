"""Methods of a run: made with a preset's constants, those of `--set`, and those of each configuration of `--tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.api import ConfidenceMethod, ContractError, UserError
from bench.api.configurations import configuration, searched
from bench.api.errors import fenced
from bench.api.methods import refuse_gold
from bench.api.protocol import KeptStep, Protocol
from bench.registry import Registry
from bench.run.isolation.methods import sandboxed
from bench.run.isolation.sandbox import Isolation
from bench.run.overrides import typed

MOST = 1_000
"""Configurations at most."""


class Maker:
    """Makes methods as a run may use them."""

    def __init__(self, isolation: Isolation, known: Registry[ConfidenceMethod], plugins: Sequence[Path]) -> None:
        self.isolation = isolation
        paths = {str(path): path for path in plugins}
        self.paths = {entry.name: paths.get(entry.origin) for entry in known.entries()}

    def __call__(self, cls: type[ConfidenceMethod], arguments: Mapping[str, object]) -> ConfidenceMethod:
        """A checked method; that of a file is first made and checked in a process of its own."""
        path = self.paths[cls.name]
        if path is not None:
            self.isolation.declare(cls, path, arguments)
        method = sandboxed(cls, self.isolation, path)(**arguments)
        _check_declared(method)
        return method

    def check_like(self, method: ConfidenceMethod, arguments: Mapping[str, object]) -> None:
        """Check that a method can also be had with other arguments, and reads the same with them.

        Raises:
            ContractError: it reads something else.
            Exception: whatever it raises when it is made; that of a file is first made in a process of its own.
        """
        made = self(vars(type(method))["__wrapped__"], arguments)
        if made.reads() != method.reads():
            raise ContractError("search: expected constants of training, but these values change what it reads")


def instances(
    make: Maker,
    classes: Mapping[str, type[ConfidenceMethod]],
    preset: str,
    overrides: Mapping[str, Mapping[str, str]],
) -> tuple[dict[str, ConfidenceMethod], dict[str, Mapping[str, object]]]:
    """Methods by name, and the constants of each that were set by hand.

    Args:
        make: makes them.
        classes: name -> class.
        preset: of the run.
        overrides: name -> field -> text.

    Raises:
        UserError: a method has no such preset or field, or refuses the values.
    """
    methods: dict[str, ConfidenceMethod] = {}
    changes: dict[str, Mapping[str, object]] = {}
    for name, cls in classes.items():
        if cls.presets and preset not in cls.presets:
            raise UserError(f"Method {name!r} has no preset {preset!r}: expected one of {', '.join(cls.presets)}.")
        with fenced(f"method {name!r}"):
            method = make(cls, cls.presets.get(preset, {}))
            if name in overrides:
                defaults = method.params()
                changes[name] = {key: typed(name, key, text, defaults) for key, text in overrides[name].items()}
                method = make(cls, {**defaults, **changes[name]})
        methods[name] = method
    return methods, changes


def _check_declared(method: ConfidenceMethod) -> None:
    """Check that a method's own statements can be had, and that it reads no right answer to predict."""
    refuse_gold("reads()", method.reads(), method.fit_on)
    method.trains()
    type(method)(**method.params())


# --- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Configurations:
    """Configurations of one method, of which validation chooses."""

    searched: Mapping[str, str]
    """Field -> what it is drawn from, in words."""
    values: tuple[Mapping[str, object], ...]
    """Values of the searched fields, in the order in which they were drawn; first the preset's own."""

    def __len__(self) -> int:
        return len(self.values)


def configurations(
    make: Maker,
    methods: Mapping[str, ConfidenceMethod],
    fixed: Mapping[str, Mapping[str, object]],
    n: int | None,
    seed: int,
) -> dict[str, Configurations]:
    """The configurations of each method that has something to tune.

    Args:
        make: made the methods.
        methods: name -> method.
        fixed: name -> fields that were set by hand, which are not searched.
        n: configurations of each; None: none.
        seed: of the run.

    Raises:
        UserError: a method refuses its own search space.
    """
    found: dict[str, Configurations] = {}
    for name, method in methods.items() if n is not None else ():
        with fenced(f"method {name!r}, its search space"):
            fields = searched(method, fixed.get(name, {}))
            if not fields or n is None:
                continue
            own = method.params()
            values = tuple(configuration(method, fields, seed, k) for k in range(n))
            for each in values:
                make.check_like(method, {**own, **each})
            found[name] = Configurations({key: search.words(own[key]) for key, search in fields.items()}, values)
    return found


def refuse_untunable(n: int | None, protocol: Protocol) -> None:
    """Check that there can be a choice on validation.

    Raises:
        UserError: too few configurations, too many, or the preset keeps the last step and reads no validation answers.
    """
    if n is None:
        return
    if n < 2:  # noqa: PLR2004
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
