"""Fitted attributes as files: arrays as safetensors, the rest as JSON, adapters by their folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api.adapters import AdapterRef
from bench.api.errors import ContractError, UserError


def _split_arrays(value: Any, path: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(value)
        return {"array": path}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, AdapterRef):
        return {"adapter": str(value.folder), "fingerprint": value.fingerprint}
    if isinstance(value, Mapping):
        return {key: _split_arrays(item, f"{path}/{key}", arrays) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ContractError(
        f"fitted attribute {path.lstrip('/')!r} is a {type(value).__name__};"
        " only numbers, strings, arrays, adapters and dicts of them can be saved"
    )


def _join_arrays(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {"array"}:
        return arrays[value["array"]]
    if set(value) == {"adapter", "fingerprint"}:
        return _adapter(Path(value["adapter"]), value["fingerprint"])
    return {key: _join_arrays(item, arrays) for key, item in value.items()}


def _adapter(folder: Path, fingerprint: str) -> AdapterRef:
    if not folder.is_dir():
        raise UserError(
            f"The folder of a trained adapter is gone ({folder.name[:12]}). It was in the cache; fit the method again."
        )
    return AdapterRef(folder, fingerprint)
