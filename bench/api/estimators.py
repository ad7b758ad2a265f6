"""Estimators of scikit-learn as plain values, without pickle: their class by name, and what they hold.

Only classes of scikit-learn are written and read, none of whose code runs meanwhile: an object is made without
`__init__`, and its attributes are set. What is compiled there has no attributes to be read, but for trees.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bench.api.errors import ContractError

KIND, VERSION, STATE = "estimator", "sklearn", "state"
"""Keys of an estimator that was written: its class, the version of scikit-learn, its attributes."""
_PACKAGE = "sklearn"
_TREE = "sklearn.tree._tree:Tree"
_GENERATOR = "numpy.random:RandomState"
_NO_CHILD = -1
_HEAP = 1 << 9
"""Flag of a class that a class statement made."""
Convert = Callable[[Any, str], Any]
"""Value and its path -> the value as it is written, or read."""


def is_part(value: object) -> bool:
    """Whether a value is an object of scikit-learn, or a generator that such objects hold."""
    return type(value).__module__.partition(".")[0] == _PACKAGE or isinstance(value, np.random.RandomState)


def written(value: Any, path: str, convert: Convert) -> dict[str, Any]:
    """An object of scikit-learn as plain values.

    Args:
        value: the object.
        path: where it stands, for the error.
        convert: writes its attributes.

    Raises:
        ContractError: it is made of something that can't be written.
    """
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    if isinstance(value, np.random.RandomState):
        kind, state = _GENERATOR, dict(value.get_state(legacy=False))
    elif kind == _TREE:
        held = value.__getstate__()
        state = {  # arrays, one for each field of its nodes
            "shape": (int(value.n_features), np.asarray(value.n_classes), int(value.n_outputs)),
            "depth": int(held["max_depth"]),
            "nodes": {name: np.ascontiguousarray(held["nodes"][name]) for name in held["nodes"].dtype.names},
            "values": np.asarray(held["values"]),
        }
    elif _is_plain(type(value)):
        state = dict(vars(value))
    else:
        raise ContractError(
            f"fitted attribute {path.lstrip('/')!r} is a {type(value).__name__} of scikit-learn, which is compiled and"
            " can't be saved; keep what `predict` needs as arrays, or take another estimator"
        )
    return {KIND: kind, VERSION: _version(), STATE: convert(state, path)}


def read(value: Mapping[str, Any], path: str, convert: Convert) -> Any:
    """The object that `written` wrote.

    Args:
        value: as it was written.
        path: where it stands, for the error.
        convert: reads its attributes.

    Raises:
        ContractError: it is of no class of scikit-learn, of another version of it, or has attributes that its class
            can't have.
    """
    if value[VERSION] != _version():
        raise ContractError(
            f"{path.lstrip('/')} was fitted by scikit-learn {value[VERSION]}, and this is {_version()}; fit it again"
        )
    kind, state = value[KIND], convert(value[STATE], path)
    if not isinstance(state, dict):
        raise ContractError(f"{path.lstrip('/')}: expected attributes by name, got {type(state).__name__}")
    if kind == _GENERATOR:
        generator = np.random.RandomState()
        generator.set_state(state)
        return generator
    if kind == _TREE:
        return _tree(state, path)
    found = _class(kind, path)
    strange = []  # what is no name, or would hide a method or a property
    for name in state:
        hidden = getattr(found, name, None)
        if not name.isidentifier() or name.startswith("__") or callable(hidden) or isinstance(hidden, property):
            strange.append(name)
    if strange:
        raise ContractError(f"{path.lstrip('/')}: a {found.__name__} has no attribute {strange[0]!r} that is a value")
    if not _whole_machine(state):
        raise ContractError(f"{path.lstrip('/')}: expected a {found.__name__} whose support vectors are all there")
    made: Any = object.__new__(found)
    vars(made).update(state)
    return made


def _version() -> str:
    return str(importlib.import_module(_PACKAGE).__version__)


def _class(kind: object, path: str) -> type:
    """The class of this name, which must be one of scikit-learn itself."""
    module, _, name = str(kind).partition(":")
    found = None
    if module.partition(".")[0] == _PACKAGE and all(map(str.isidentifier, (*module.split("."), name))):
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ImportError:
            found = None
    if not isinstance(found, type) or found.__module__ != module or not _is_plain(found):
        raise ContractError(f"{path.lstrip('/')}: expected a class of scikit-learn, got {kind!r}")
    return found


def _is_plain(kind: type) -> bool:
    """Whether a class of scikit-learn is written in Python, so that its attributes are all that it holds."""
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == _PACKAGE]
    heap = all(base.__flags__ & _HEAP for base in own)
    makes_itself = any("__new__" in vars(base) or "__reduce_cython__" in vars(base) for base in own)
    return heap and not makes_itself


def _whole_machine(state: Mapping[str, Any]) -> bool:
    """Whether a support vector machine has as many vectors as it says, which compiled code believes; true of others."""
    if "_n_support" not in state:
        return True
    counts, vectors = np.asarray(state["_n_support"]), np.asarray(state.get("support_vectors_"))
    weights = np.asarray(state.get("_dual_coef_"))
    n = int(counts.sum())
    return bool((counts >= 0).all()) and vectors.shape[:1] == (n,) and weights.shape[1:] == (n,)


# --- trees ------------------------------------------------------------------------------------------------------------


def _tree(state: Mapping[str, Any], path: str) -> Any:
    """The tree; compiled code follows its children and features without looking, so they are looked at here."""
    kind = importlib.import_module("sklearn.tree._tree").Tree
    try:
        tree = kind(*state["shape"])
        like = tree.__getstate__()["nodes"].dtype
        fields = {name: np.asarray(state["nodes"][name]) for name in like.names}
        n = len(fields["left_child"])
        nodes = np.zeros(n, dtype=like)
        for name, values in fields.items():
            nodes[name] = values
        left, right, feature = nodes["left_child"], nodes["right_child"], nodes["feature"]
        leaf, here = left == _NO_CHILD, np.arange(n)
        later = (left > here) & (left < n) & (right > here) & (right < n) & (feature >= 0) & (feature < tree.n_features)
        if n < 1 or not (leaf | later).all():
            raise ValueError("its nodes lead outside of it")
        tree.__setstate__(
            {"max_depth": state["depth"], "node_count": n, "nodes": nodes, "values": np.asarray(state["values"])}
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ContractError(f"{path.lstrip('/')}: expected a decision tree, got something else ({error})") from error
    return tree
