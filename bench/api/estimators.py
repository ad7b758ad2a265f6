"""Serialisation of scikit-learn's estimators as plain values, without pickle: class name and attributes.

Only classes of scikit-learn and numpy's `RandomState` are written and read. An object of a pure Python class is created
without `__init__`, and its attributes are set, so that none of its code runs. Compiled classes have no readable
attributes; among them only trees can be serialised. A tree is rebuilt by its own constructor from validated arrays.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bench.api.errors import ContractError

KIND, VERSION, STATE = "estimator", "sklearn", "state"
"""Keys of a serialised estimator, for its class, the version of scikit-learn, and its attributes."""
_PACKAGE = "sklearn"
_TREE = "sklearn.tree._tree:Tree"
_GENERATOR = "numpy.random:RandomState"
_NO_CHILD = -1
_HEAP = 1 << 9
"""CPython's type flag Py_TPFLAGS_HEAPTYPE: set for classes defined in Python, not for those of compiled modules."""
Convert = Callable[[Any, str], Any]
"""Type of the function that converts one attribute: (value, attribute path) -> converted value."""


def is_part(value: object) -> bool:
    """Return whether a value is a scikit-learn object, or a numpy `RandomState`, which such objects may contain."""
    return type(value).__module__.partition(".")[0] == _PACKAGE or isinstance(value, np.random.RandomState)


def encode_estimator(value: Any, path: str, convert: Convert) -> dict[str, Any]:
    """Serialise an object of scikit-learn as plain values.

    Args:
        value: the object.
        path: where the object is in the fitted method, e.g. `/model_/0`, for the error.
        convert: function that serialises the object's attributes.

    Raises:
        ContractError: the object is of a compiled class other than a tree.
    """
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    if isinstance(value, np.random.RandomState):
        kind, state = _GENERATOR, dict(value.get_state(legacy=False))
    elif kind == _TREE:
        state = value.__getstate__()
        state = {  # arrays, one for each field of the tree's nodes
            "shape": (int(value.n_features), np.asarray(value.n_classes), int(value.n_outputs)),
            "depth": int(state["max_depth"]),
            "nodes": {name: np.ascontiguousarray(state["nodes"][name]) for name in state["nodes"].dtype.names},
            "values": np.asarray(state["values"]),
        }
    elif _is_pure_python(type(value)):
        state = dict(vars(value))
    else:
        raise ContractError(
            f"fitted attribute {path.lstrip('/')!r} is a {type(value).__name__} of scikit-learn, which is compiled and"
            " can't be saved; keep what `predict` needs as arrays, or take another estimator"
        )
    return {KIND: kind, VERSION: _version(), STATE: convert(state, path)}


def decode_estimator(value: Mapping[str, Any], path: str, convert: Convert) -> Any:
    """Rebuild an object from the output of `encode_estimator`.

    Args:
        value: the serialised object.
        path: where the object is in the fitted method, e.g. `/model_/0`, for the error.
        convert: function that rebuilds the object's attributes.

    Raises:
        ContractError: the class is not one of scikit-learn, another version of scikit-learn wrote the object, the
            object has attributes that its class can't have, a tree is invalid, or support vectors are missing.
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
    cls = _class(kind, path)
    invalid = []  # not an identifier, or the name of a method or property
    for name in state:
        member = getattr(cls, name, None)
        if not name.isidentifier() or name.startswith("__") or callable(member) or isinstance(member, property):
            invalid.append(name)
    if invalid:
        raise ContractError(f"{path.lstrip('/')}: a {cls.__name__} has no attribute {invalid[0]!r} that is a value")
    if not _has_all_support_vectors(state):
        raise ContractError(f"{path.lstrip('/')}: expected a {cls.__name__} whose support vectors are all there")
    estimator: Any = object.__new__(cls)
    vars(estimator).update(state)
    return estimator


def _version() -> str:
    return str(importlib.import_module(_PACKAGE).__version__)


def _class(kind: object, path: str) -> type:
    """Return the class with the name `module:name`, which must be a pure Python class of scikit-learn."""
    module, _, name = str(kind).partition(":")
    cls = None
    if module.partition(".")[0] == _PACKAGE and all(map(str.isidentifier, (*module.split("."), name))):
        try:
            cls = getattr(importlib.import_module(module), name, None)
        except ImportError:
            cls = None
    if not isinstance(cls, type) or cls.__module__ != module or not _is_pure_python(cls):
        raise ContractError(f"{path.lstrip('/')}: expected a class of scikit-learn, got {kind!r}")
    return cls


def _is_pure_python(kind: type) -> bool:
    """Return whether a class of scikit-learn is pure Python; then `vars(object)` is the object's whole state."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == _PACKAGE]
    are_python_classes = all(base.__flags__ & _HEAP for base in bases)
    has_custom_new = any("__new__" in vars(base) or "__reduce_cython__" in vars(base) for base in bases)
    return are_python_classes and not has_custom_new


def _has_all_support_vectors(state: Mapping[str, Any]) -> bool:
    """Return whether a support vector machine has as many support vectors as its counts say; True for other estimators.

    scikit-learn's compiled code doesn't check this, and would read beyond the array.
    """
    if "_n_support" not in state:
        return True
    counts, vectors = np.asarray(state["_n_support"]), np.asarray(state.get("support_vectors_"))
    weights = np.asarray(state.get("_dual_coef_"))
    n = int(counts.sum())
    return bool((counts >= 0).all()) and vectors.shape[:1] == (n,) and weights.shape[1:] == (n,)


# --- trees ------------------------------------------------------------------------------------------------------------


def _tree(state: Mapping[str, Any], path: str) -> Any:
    """Build a decision tree from its serialised arrays.

    The indices of child nodes and features are validated here, as scikit-learn's compiled code does not check them.
    """
    kind = importlib.import_module("sklearn.tree._tree").Tree
    try:
        tree = kind(*state["shape"])
        dtype = tree.__getstate__()["nodes"].dtype
        fields = {name: np.asarray(state["nodes"][name]) for name in dtype.names}
        n = len(fields["left_child"])
        nodes = np.zeros(n, dtype=dtype)
        for name, values in fields.items():
            nodes[name] = values
        left, right, feature = nodes["left_child"], nodes["right_child"], nodes["feature"]
        is_leaf, node = left == _NO_CHILD, np.arange(n)
        is_inner = (
            (left > node) & (left < n) & (right > node) & (right < n) & (feature >= 0) & (feature < tree.n_features)
        )
        if n < 1 or not (is_leaf | is_inner).all():
            raise ValueError("its nodes lead outside of it")
        tree.__setstate__(
            {"max_depth": state["depth"], "node_count": n, "nodes": nodes, "values": np.asarray(state["values"])}
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ContractError(f"{path.lstrip('/')}: expected a decision tree, got something else ({error})") from error
    return tree
