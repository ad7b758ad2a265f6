"""Read and write the files of a shard in the store: its answers, and one file for each signal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bench.api import IntArray, Signal
from bench.prompts.front_coding import Ids
from bench.store.disk_cache import Entry

if TYPE_CHECKING:
    from bench.model.extractor import ShardOutput

_ANSWERS = "answers.safetensors"


def write_bundle(folder: Path, measured: ShardOutput, names: Mapping[Signal, str]) -> None:
    """Write the answers and signals of a shard.

    Args:
        folder: an empty folder.
        measured: answers and signals of the shard, as the extractor returned them.
        names: signal -> its name in store keys.
    """
    from safetensors.numpy import save_file as save_numpy
    from safetensors.torch import save_file

    flat = np.concatenate(measured.answers) if measured.answers else np.zeros(0, dtype=np.int32)
    sizes = np.asarray([0, *(len(a) for a in measured.answers)], dtype=np.int64)
    save_numpy({"values": flat.astype(np.int32), "offsets": np.cumsum(sizes)}, folder / _ANSWERS)
    for signal, name in names.items():
        save_file(measured.columns[signal], folder / _file_name(name), metadata={"signal": name})


def names_in(entry: Entry) -> list[str]:
    """Return the names of the signals in a store entry."""
    return list(entry.manifest["fields"]["signals"])


def load_answers(entry: Entry) -> list[Ids]:
    """Load the token ids of each answer in a store entry of a shard."""
    from safetensors.numpy import load_file

    arrays = load_file(entry.folder / _ANSWERS)
    return np.split(arrays["values"], arrays["offsets"][1:-1])


def load_signal(entries: Sequence[Entry], name: str) -> dict[str, npt.NDArray[Any]]:
    """Load the arrays of a shard's signal, floats as float32 (hidden states are stored in the model's dtype).

    Args:
        entries: the store entries of the shard.
        name: the signal's name in store keys.

    Raises:
        KeyError: none of the entries has the signal.
    """
    from safetensors.torch import load_file

    arrays = load_file(_file_of(entries, name))
    return {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in arrays.items()}


def load_rows(
    bundles: Sequence[Sequence[Entry]], names: Sequence[str], places: IntArray | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Load a signal's arrays for some questions; besides the result, memory holds one shard at a time.

    Args:
        bundles: the store entries of each shard.
        names: the signal's name in the store keys of each shard.
        places: `(m,)` which questions to load, in the wanted order, as positions in the concatenated shards; None: all.

    Raises:
        KeyError: a shard has no such signal.
    """
    from safetensors import safe_open

    shards, offsets = list(zip(bundles, names, strict=True)), []
    for entries, name in shards:  # offsets alone: the values are not read yet
        with safe_open(_file_of(entries, name), "numpy") as file:
            if "offsets" in file.keys():  # noqa: SIM118 - it is no mapping
                offsets.append(np.asarray(file.get_tensor("offsets")))
            else:
                offsets.append(np.arange(file.get_slice("values").get_shape()[0] + 1))
    firsts = np.cumsum([0, *(len(rows_of_shard) - 1 for rows_of_shard in offsets)])
    places = np.arange(firsts[-1]) if places is None else places
    lengths = np.concatenate([np.diff(rows_of_shard) for rows_of_shard in offsets])[places]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    arrays: dict[str, npt.NDArray[Any]] = {}
    by_shard = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[by_shard], firsts)
    for i, (entries, name) in enumerate(shards):
        rows = by_shard[bounds[i] : bounds[i + 1]]
        if not len(rows) and i:  # the first shard is loaded anyway, for the names and shapes of the arrays
            continue
        source, target = _value_indices(offsets[i], places[rows] - firsts[i]), _value_indices(ends, rows)
        for key, values in load_signal(entries, name).items():
            if key == "offsets":
                arrays[key] = ends
                continue
            if key not in arrays:
                arrays[key] = np.empty((ends[-1], *values.shape[1:]), values.dtype)
            arrays[key][target] = values[source]
    return arrays


def _value_indices(offsets: IntArray, rows: IntArray) -> IntArray:
    """Return the indices of the values of some rows in a ragged array, row after row.

    Row i of the array has the values from `offsets[i]` to `offsets[i + 1]`.
    """
    lengths = offsets[rows + 1] - offsets[rows]
    before = np.cumsum(lengths) - lengths
    return np.repeat(offsets[rows] - before, lengths) + np.arange(lengths.sum())


def _file_of(entries: Sequence[Entry], name: str) -> Path:
    for entry in entries:
        if name in names_in(entry):
            return entry.folder / _file_name(name)
    raise KeyError(name)


def _file_name(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.safetensors"
