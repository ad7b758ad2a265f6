"""Saving and loading of a method's fitted attributes.

Arrays are stored as safetensors, adapters by the path of their folder, all else as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api import estimators
from bench.api.adapters import AdapterRef
from bench.api.errors import ContractError, UserError

Arrays = dict[str, npt.NDArray[Any]]
_ARRAY, _ORDER, _SCALAR, _TUPLE = "array", "order", "scalar", "tuple"
_PAIRS, _ITEMS, _SHAPE, _KIND = "pairs of a dict", "items of an array", "shape", "kind"
"""Keys of the JSON objects that stand for a dict whose keys are no strings, and an array of objects or texts."""
_ADAPTER, _FINGERPRINT = "adapter", "fingerprint"
"""Keys of the JSON object that stands for a LoRA adapter: its folder, and its fingerprint."""
_KINDS = "biuf"
"""Kinds of numpy dtypes that can be saved: booleans and real numbers."""
_LONGEST = 8
"""Largest size, in bytes, of one array element that safetensors can save."""


def _split_arrays(value: Any, path: str, arrays: Arrays) -> Any:
    """Convert a fitted value to JSON; arrays are moved to the dict `arrays`, keyed by their place in the value."""
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, np.str_):
        return str(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _KINDS and value.dtype.itemsize <= _LONGEST:
        # Fortran order is preserved, as products of the array may differ in the last bit
        array = np.asarray(value)
        by_columns = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
        arrays[path] = np.array(array.T if by_columns else array, order="C")
        array_of = {_ARRAY: path, _ORDER: "F"} if by_columns else {_ARRAY: path}
        return {_SCALAR: path} if isinstance(value, np.generic) else array_of
    if isinstance(value, AdapterRef):
        return {_ADAPTER: str(value.folder), _FINGERPRINT: value.fingerprint}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        items = _split_arrays(value.ravel().tolist(), path, arrays)
        return {_ITEMS: items, _SHAPE: list(value.shape), _KIND: value.dtype.kind}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):  # keys of JSON are
            return {_PAIRS: _split_arrays([[*pair] for pair in value.items()], path, arrays)}
        if frozenset(value) in _READERS:
            raise ContractError(
                f"fitted attribute {path.lstrip('/')!r} has the keys {', '.join(value)}, which mean something else in"
                " its file; name one otherwise"
            )
        return {key: _split_arrays(item, f"{path}/{key}", arrays) for key, item in value.items()}
    if type(value) in {list, tuple}:
        items = [_split_arrays(item, f"{path}/{i}", arrays) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {_TUPLE: items}
    if not estimators.is_part(value):
        kind = type(value).__name__ + (f" of {value.dtype}" if isinstance(value, np.ndarray | np.generic) else "")
        raise ContractError(
            f"fitted attribute {path.lstrip('/')!r} is a {kind}; only numbers, strings, arrays, adapters,"
            " estimators of scikit-learn, and lists, tuples, dicts and arrays of them can be saved"
        )
    return estimators.encode_estimator(value, path, lambda item, where: _split_arrays(item, where, arrays))


def _join_arrays(value: Any, arrays: Arrays, path: str = "") -> Any:
    """Rebuild a fitted value from the JSON and the arrays of `_split_arrays`."""
    if isinstance(value, list):
        return [_join_arrays(item, arrays, f"{path}/{i}") for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    reader = _READERS.get(frozenset(value))
    if reader is not None:
        return reader(value, arrays, path)
    return {key: _join_arrays(item, arrays, f"{path}/{key}") for key, item in value.items()}


_READERS: Mapping[frozenset[str], Callable[[Any, Arrays, str], Any]] = {
    frozenset({_ARRAY}): lambda value, arrays, _: arrays[value[_ARRAY]],
    frozenset({_ARRAY, _ORDER}): lambda value, arrays, _: arrays[value[_ARRAY]].T,
    frozenset({_SCALAR}): lambda value, arrays, _: arrays[value[_SCALAR]][()],
    frozenset({_TUPLE}): lambda value, arrays, path: tuple(_join_arrays(value[_TUPLE], arrays, path)),
    frozenset({_PAIRS}): lambda value, arrays, path: dict(_join_arrays(value[_PAIRS], arrays, path)),
    frozenset({_ITEMS, _SHAPE, _KIND}): lambda value, arrays, path: (
        np.fromiter(_join_arrays(value[_ITEMS], arrays, path), object).reshape(value[_SHAPE]).astype(value[_KIND])
    ),
    frozenset({_ADAPTER, _FINGERPRINT}): lambda value, *_: _adapter(Path(value[_ADAPTER]), value[_FINGERPRINT]),
    frozenset({estimators.KIND, estimators.VERSION, estimators.STATE}): lambda value, arrays, path: (
        estimators.decode_estimator(value, path, lambda item, where: _join_arrays(item, arrays, where))
    ),
}
"""Keys of a JSON object that stands for another type -> function that decodes the object."""


def _adapter(folder: Path, fingerprint: str) -> AdapterRef:
    if not folder.is_dir():
        raise UserError(
            f"The folder of a trained adapter is gone ({folder.name[:12]}). It was in the cache; fit the method again."
        )
    return AdapterRef(folder, fingerprint)
