"""Configurations of a method that declares a search: which fields are searched, and what is drawn for them."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.api.errors import ContractError
from bench.api.methods import ConfidenceMethod
from bench.api.search import Search, Times


def searched(method: ConfidenceMethod, fixed: Mapping[str, object]) -> dict[str, Search]:
    """Fields of a method that are searched, by name: those that it declares.

    Without those that were set by hand, and without a 0 that could only be multiplied.

    Args:
        method: with its preset's constants.
        fixed: fields that were set by hand.
    """
    own = method.params()
    return {
        name: search
        for name, search in sorted(type(method).search.items())
        if name not in fixed and not (isinstance(search, Times) and not own[name])
    }


def configuration(method: ConfidenceMethod, fields: Mapping[str, Search], seed: int, k: int) -> dict[str, Any]:
    """Values of the searched fields in configuration `k`; 0 is the method as it is.

    Args:
        method: with its preset's constants.
        fields: of `searched`.
        seed: of the run.
        k: position, from 0.
    """
    own = method.params()
    if k == 0:
        return {name: own[name] for name in fields}
    values = {}
    for name, search in fields.items():
        digest = hashlib.sha256("\0".join(["tune", str(seed), method.name, str(k), name]).encode()).digest()
        values[name] = search.drawn(np.random.default_rng(int.from_bytes(digest[:8], "big")), own[name])
    return values


def refuse_search(who: str, plugin: type[ConfidenceMethod]) -> None:
    """Check that a method declares a search of constants that it has, and that validation can choose among them.

    Raises:
        ContractError: it doesn't.
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
