"""Configurations for `--tune`: which constants of a method are searched, and the values that are sampled for them."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.api.errors import ContractError
from bench.api.methods import ConfidenceMethod
from bench.api.search import Search, Times


def search_fields(method: ConfidenceMethod, fixed: Mapping[str, object]) -> dict[str, Search]:
    """Return name -> search space of the constants of a method that are searched.

    Two kinds of constants in the method's `search` are left out: those that the user set, and those with preset value 0
    whose search space multiplies the preset value (`Times`).

    Args:
        method: the method with its preset's constants.
        fixed: constants that the user set, with their values.
    """
    params = method.params()
    return {
        name: search
        for name, search in sorted(type(method).search.items())
        if name not in fixed and not (isinstance(search, Times) and not params[name])
    }


def configuration_values(method: ConfidenceMethod, fields: Mapping[str, Search], seed: int, k: int) -> dict[str, Any]:
    """Return the values of the searched constants in configuration `k`; configuration 0 has the preset's values.

    Args:
        method: the method with its preset's constants.
        fields: the searched constants, from `search_fields`.
        seed: seed of the run.
        k: index of the configuration.
    """
    params = method.params()
    if k == 0:
        return {name: params[name] for name in fields}
    values = {}
    for name, search in fields.items():
        digest = hashlib.sha256("\0".join(["tune", str(seed), method.name, str(k), name]).encode()).digest()
        values[name] = search.drawn(np.random.default_rng(int.from_bytes(digest[:8], "big")), params[name])
    return values


def refuse_search(who: str, plugin: type[ConfidenceMethod]) -> None:
    """Check that a method's search space names its constants, and that validation answers can choose their values.

    Raises:
        ContractError: `search` is invalid, or it is not empty although the method has no `fit` or trains on the
            validation split.
    """
    if not isinstance(plugin.search, Mapping):
        raise ContractError(f"{who}: search: expected a mapping of fields to Times, Choice, …, got {plugin.search!r}")
    for name, search in plugin.search.items():
        if not isinstance(search, Search):
            raise ContractError(f"{who}: search of {name!r}: expected Times, Uniform or Choice, got {search!r}")
        if name not in inspect.signature(plugin).parameters:
            raise ContractError(f"{who}: search names {name!r}, which __init__ does not take")
    if plugin.search and not plugin.trains():
        raise ContractError(f"{who}: search: expected none, since it learns nothing (it has no fit)")
    if plugin.search and plugin.fit_on == "validation":
        raise ContractError(
            f"{who}: search: expected none, since it learns on validation: no answers are left to choose by"
        )
